"""Sentence embeddings learnt by contrast: train them, measure them honestly, search with them.

The names below load what they need on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contrasent.processes import sleep_at_barriers

if TYPE_CHECKING:
    from contrasent.errors import UserError
    from contrasent.evaluate.diff import diff_models
    from contrasent.evaluate.sts import sts
    from contrasent.model.encoder import Encoder
    from contrasent.report import Report, Row
    from contrasent.search.index import Index
    from contrasent.text.corpus import open_corpus
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings
    from contrasent.types import Batch, EncodeFn, Tokens, Vectors

__version__ = "0.1.0"

sleep_at_barriers()

_HOME = {
    "Batch": "contrasent.types",
    "EncodeFn": "contrasent.types",
    "Encoder": "contrasent.model.encoder",
    "Index": "contrasent.search.index",
    "Report": "contrasent.report",
    "Row": "contrasent.report",
    "Settings": "contrasent.train.settings",
    "Tokens": "contrasent.types",
    "UserError": "contrasent.errors",
    "Vectors": "contrasent.types",
    "diff_models": "contrasent.evaluate.diff",
    "fit": "contrasent.train.fit",
    "open_corpus": "contrasent.text.corpus",
    "sts": "contrasent.evaluate.sts",
}

__all__ = [
    "Batch",
    "EncodeFn",
    "Encoder",
    "Index",
    "Report",
    "Row",
    "Settings",
    "Tokens",
    "UserError",
    "Vectors",
    "__version__",
    "diff_models",
    "fit",
    "open_corpus",
    "sts",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
