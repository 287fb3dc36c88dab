"""Evaluation: from any model's ``EncodeFn`` to a ``Report``."""
