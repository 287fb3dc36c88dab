"""Measuring: an ``EncodeFn`` goes in, a ``Report`` comes out; no model is known here."""
