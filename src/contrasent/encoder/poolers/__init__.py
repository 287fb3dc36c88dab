"""Poolers as modules of torch; their names are in :mod:`contrasent.model.pooling`."""

from importlib import import_module
from typing import Any

from contrasent.model.pooling import POOLERS, check_pooler


def pooler_class(name: str) -> Any:
    """The class of the pooler of that name, a :class:`contrasent.encoder.poolers.base.Pooler`."""
    check_pooler(name)
    module, _, kind = POOLERS[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), kind)
