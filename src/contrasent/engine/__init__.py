"""What a training method is made of; all that a method in a file of your own needs is here.

The names load what they need on first use: :mod:`contrasent.engine.registry` and
:mod:`contrasent.engine.parameters` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrasent.engine.contrast import Contrast, Duplicates
    from contrasent.engine.difference import Difference, DifferencePrediction
    from contrasent.engine.dimensions import Barlow, DimensionWise
    from contrasent.engine.encodings import BatchEncodings, Source, Term, Terms
    from contrasent.engine.graded import GradedPairs
    from contrasent.engine.guide import Guide
    from contrasent.engine.masked_models import LanguageHead, MaskedLanguageModelling, MaskedModel
    from contrasent.engine.objective import Objective
    from contrasent.engine.parameters import (
        Count,
        Fresh,
        GuideFolder,
        MaskedModelFolder,
        Plain,
        Positive,
        Projector,
        Range,
        Share,
        Size,
        Weight,
    )
    from contrasent.engine.queue import MomentumQueue, copy_encoder
    from contrasent.engine.views import Which, check_templates, check_view, make_views
    from contrasent.model.encoder import Encoder
    from contrasent.model.groups import by_length
    from contrasent.model.prompts import Prompts
    from contrasent.parallel import average, first_row, gather
    from contrasent.text.batches import random_for
    from contrasent.text.views import Identity, InTemplate, View
    from contrasent.types import Tokens

_HOME = {
    "contrasent.engine.contrast": "Contrast Duplicates",
    "contrasent.engine.difference": "Difference DifferencePrediction",
    "contrasent.engine.dimensions": "Barlow DimensionWise",
    "contrasent.engine.encodings": "BatchEncodings Source Term Terms",
    "contrasent.engine.graded": "GradedPairs",
    "contrasent.engine.guide": "Guide",
    "contrasent.engine.masked_models": "LanguageHead MaskedLanguageModelling MaskedModel",
    "contrasent.engine.objective": "Objective",
    "contrasent.engine.parameters": "Count Fresh GuideFolder MaskedModelFolder Plain "
    "Positive Projector Range Share Size Weight",
    "contrasent.engine.queue": "MomentumQueue copy_encoder",
    "contrasent.engine.views": "Which check_templates check_view make_views",
    "contrasent.model.encoder": "Encoder",
    "contrasent.model.groups": "by_length",
    "contrasent.model.prompts": "Prompts",
    "contrasent.parallel": "average first_row gather",
    "contrasent.text.batches": "random_for",
    "contrasent.text.views": "Identity InTemplate View",
    "contrasent.types": "Tokens",
}
_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "Barlow",
    "BatchEncodings",
    "Contrast",
    "Count",
    "Difference",
    "DifferencePrediction",
    "DimensionWise",
    "Duplicates",
    "Encoder",
    "Fresh",
    "GradedPairs",
    "Guide",
    "GuideFolder",
    "Identity",
    "InTemplate",
    "LanguageHead",
    "MaskedLanguageModelling",
    "MaskedModel",
    "MaskedModelFolder",
    "MomentumQueue",
    "Objective",
    "Plain",
    "Positive",
    "Projector",
    "Prompts",
    "Range",
    "Share",
    "Size",
    "Source",
    "Term",
    "Terms",
    "Tokens",
    "View",
    "Weight",
    "Which",
    "average",
    "by_length",
    "check_templates",
    "check_view",
    "copy_encoder",
    "first_row",
    "gather",
    "make_views",
    "random_for",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
