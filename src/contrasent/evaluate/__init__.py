"""Evaluation: from an ``EncodeFn`` to a ``Report``, whatever the model."""
