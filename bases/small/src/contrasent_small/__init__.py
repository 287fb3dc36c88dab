"""The weights of contrasent-small, in ``model/``; data only, found by contrasent's ``--base``."""

__version__ = "0.2.0"
