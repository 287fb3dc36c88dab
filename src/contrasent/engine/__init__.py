"""What a training method is made of; all that a method in a file of your own needs is here.

The names load what they need on first use: :mod:`contrasent.engine.registry` and
:mod:`contrasent.engine.parameters` need no torch. Where each is, the imports for type checkers say,
here as to :mod:`contrasent.engine.source`.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrasent.engine.contrast import Contrast as Contrast, Duplicates as Duplicates
    from contrasent.engine.difference import (
        Difference as Difference,
        DifferencePrediction as DifferencePrediction,
    )
    from contrasent.engine.dimensions import Barlow as Barlow, DimensionWise as DimensionWise
    from contrasent.engine.encodings import (
        BatchEncodings as BatchEncodings,
        Source as Source,
        Term as Term,
        Terms as Terms,
    )
    from contrasent.engine.graded import GradedPairs as GradedPairs
    from contrasent.engine.guide import Guide as Guide
    from contrasent.engine.masked_models import (
        LanguageHead as LanguageHead,
        MaskedLanguageModelling as MaskedLanguageModelling,
        MaskedModel as MaskedModel,
    )
    from contrasent.engine.objective import Objective as Objective
    from contrasent.engine.parameters import (
        Count as Count,
        Fresh as Fresh,
        GuideFolder as GuideFolder,
        MaskedModelFolder as MaskedModelFolder,
        Plain as Plain,
        Positive as Positive,
        Projector as Projector,
        Range as Range,
        ResampleViews as ResampleViews,
        Share as Share,
        Size as Size,
        Weight as Weight,
    )
    from contrasent.engine.queue import MomentumQueue as MomentumQueue, copy_encoder as copy_encoder
    from contrasent.engine.views import (
        Which as Which,
        check_templates as check_templates,
        check_view as check_view,
        make_views as make_views,
    )
    from contrasent.model.encoder import Encoder as Encoder
    from contrasent.model.groups import by_length as by_length
    from contrasent.model.prompts import Prompts as Prompts
    from contrasent.parallel import average as average, first_row as first_row, gather as gather
    from contrasent.text.batches import random_for as random_for
    from contrasent.text.views import Identity as Identity, InTemplate as InTemplate, View as View
    from contrasent.types import Tokens as Tokens

_HOME = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text("utf-8")))
    if isinstance(node, ast.ImportFrom) and node.level == 0
    for alias in node.names
    if alias.asname
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
