"""Sentence embeddings learnt by contrast: train them, measure them honestly, search with them.

The names below load what they need on first use, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING

from contrasent.errors import exports
from contrasent.processes import sleep_at_barriers

if TYPE_CHECKING:
    from contrasent.errors import UserError as UserError
    from contrasent.evaluate.diff import diff_models as diff_models
    from contrasent.evaluate.sts import sts as sts
    from contrasent.model.base import Encoder as Encoder
    from contrasent.report import Report as Report
    from contrasent.report import Row as Row
    from contrasent.search.index import Index as Index
    from contrasent.text.corpus import open_corpus as open_corpus
    from contrasent.train.fit import fit as fit
    from contrasent.train.settings import Settings as Settings
    from contrasent.types import Batch as Batch
    from contrasent.types import EncodeFn as EncodeFn
    from contrasent.types import Tokens as Tokens
    from contrasent.types import Vectors as Vectors

__version__ = "0.1.0"

sleep_at_barriers()

_names, __getattr__ = exports(
    __name__,
    {
        "contrasent.errors": "UserError",
        "contrasent.evaluate.diff": "diff_models",
        "contrasent.evaluate.sts": "sts",
        "contrasent.model.base": "Encoder",
        "contrasent.report": "Report Row",
        "contrasent.search.index": "Index",
        "contrasent.text.corpus": "open_corpus",
        "contrasent.train.fit": "fit",
        "contrasent.train.settings": "Settings",
        "contrasent.types": "Batch EncodeFn Tokens Vectors",
    },
)
__all__ = sorted([*_names, "__version__"])


def __dir__() -> list[str]:
    return __all__
