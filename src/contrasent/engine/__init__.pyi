from contrasent.encoder.attention import by_length as by_length
from contrasent.encoder.encoder import TorchEncoder as TorchEncoder
from contrasent.engine.contrast import (
    Barlow as Barlow,
    Contrast as Contrast,
    DimensionWise as DimensionWise,
    Duplicates as Duplicates,
    GradedPairs as GradedPairs,
)
from contrasent.engine.encodings import (
    BatchEncodings as BatchEncodings,
    Source as Source,
    Term as Term,
    Terms as Terms,
)
from contrasent.engine.masked_models import (
    Guide as Guide,
    LanguageHead as LanguageHead,
    MaskedLanguageModeling as MaskedLanguageModeling,
    MaskedModel as MaskedModel,
)
from contrasent.engine.momentum_queue import (
    MomentumQueue as MomentumQueue,
    copy_encoder as copy_encoder,
)
from contrasent.engine.objective import (
    ContrastObjective as ContrastObjective,
    Objective as Objective,
    PairObjective as PairObjective,
    Which as Which,
    check_view as check_view,
    make_views as make_views,
)
from contrasent.engine.parameters import (
    Count as Count,
    GuideFolder as GuideFolder,
    MaskedModelFolder as MaskedModelFolder,
    Neutral as Neutral,
    Positive as Positive,
    Projector as Projector,
    Range as Range,
    ResampleViews as ResampleViews,
    Share as Share,
    Size as Size,
    Weight as Weight,
)
from contrasent.model.base import Prompts as Prompts
from contrasent.parallel import average as average, first_row as first_row, gather as gather
from contrasent.text.batches import random_for as random_for
from contrasent.text.views import Identity as Identity, InTemplate as InTemplate, View as View
from contrasent.types import Tokens as Tokens
