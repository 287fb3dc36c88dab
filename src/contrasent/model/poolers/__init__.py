"""Poolers by name: from token vectors to one vector a sentence; no torch until one is made.

A new pooler is a file with a subclass of :class:`contrasent.model.poolers.base.Pooler`, and a line
in ``POOLERS``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from contrasent.errors import check_choice

if TYPE_CHECKING:
    from contrasent.model.poolers.base import Pooler

POOLERS = {
    "cls": "layers:First",
    "mean": "layers:Mean",
    "max": "layers:Maximum",
    "first_last": "layers:FirstLast",
    "embeddings_last": "layers:EmbeddingsLast",
    "last_two": "layers:LastTwo",
    "mask": "mask:MaskPooling",
    "idf": "idf:IdfPooling",
}
"""Module and class of each pooler, by its name in settings and model folders."""


def check_pooler(name: str) -> None:
    """Reject a name that no pooler has."""
    check_choice("pooler", name, POOLERS)


def pooler_class(name: str) -> "type[Pooler]":
    """The class of the pooler of that name."""
    check_pooler(name)
    module, _, kind = POOLERS[name].partition(":")
    found: type[Pooler] = getattr(import_module(f"{__name__}.{module}"), kind)
    return found
