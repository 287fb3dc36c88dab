"""Sentence embeddings learned by contrast: train them, measure them honestly, search with them.

The names below load what they need on first use, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING

from contrasent.errors import exports
from contrasent.processes import sleep_at_barriers

if TYPE_CHECKING:
    from contrasent.adapt.run import adapt_index as adapt_index
    from contrasent.adapt.run import update_adaptation as update_adaptation
    from contrasent.errors import UserError as UserError
    from contrasent.evaluate.diff import diff_models as diff_models
    from contrasent.evaluate.sts import sts as sts
    from contrasent.evaluate.suite import evaluate_model as evaluate_model
    from contrasent.indexing.build import index_folder as index_folder
    from contrasent.indexing.changes import add_rows as add_rows
    from contrasent.indexing.changes import change_model as change_model
    from contrasent.indexing.changes import remove_rows as remove_rows
    from contrasent.indexing.following import sync_index as sync_index
    from contrasent.indexing.following import watch_index as watch_index
    from contrasent.indexing.models import Index as Index
    from contrasent.indexing.searching import evaluate_index as evaluate_index
    from contrasent.indexing.searching import search_index as search_index
    from contrasent.model.opening import Encoder as Encoder
    from contrasent.report import Report as Report
    from contrasent.report import Row as Row
    from contrasent.serve.run import serve_model as serve_model
    from contrasent.text.corpus import open_corpus as open_corpus
    from contrasent.train.fit import fit as fit
    from contrasent.train.settings import Settings as Settings
    from contrasent.types import Batch as Batch
    from contrasent.types import EncodeFn as EncodeFn
    from contrasent.types import Tokens as Tokens
    from contrasent.types import Vectors as Vectors

__version__ = "0.1.0"

sleep_at_barriers()

_names, __getattr__, _ = exports(
    __name__,
    {
        "contrasent.adapt.run": "adapt_index update_adaptation",
        "contrasent.errors": "UserError",
        "contrasent.evaluate.diff": "diff_models",
        "contrasent.evaluate.sts": "sts",
        "contrasent.evaluate.suite": "evaluate_model",
        "contrasent.indexing.build": "index_folder",
        "contrasent.indexing.changes": "add_rows change_model remove_rows",
        "contrasent.indexing.following": "sync_index watch_index",
        "contrasent.indexing.models": "Index",
        "contrasent.indexing.searching": "evaluate_index search_index",
        "contrasent.model.opening": "Encoder",
        "contrasent.report": "Report Row",
        "contrasent.serve.run": "serve_model",
        "contrasent.text.corpus": "open_corpus",
        "contrasent.train.fit": "fit",
        "contrasent.train.settings": "Settings",
        "contrasent.types": "Batch EncodeFn Tokens Vectors",
    },
)
__all__ = sorted([*_names, "__version__"])


def __dir__() -> list[str]:
    return __all__
