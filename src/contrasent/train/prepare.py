"""From names and settings to an objective that is ready to train."""

from pathlib import Path
from typing import Any

import torch

from contrasent.model.encoder import Encoder
from contrasent.model.folder import describe
from contrasent.objectives._base import Objective
from contrasent.objectives._checks import check
from contrasent.objectives._find import find
from contrasent.train.settings import Settings


def prepare(
    base: Path, objective: str, parameters: dict[str, Any], settings: Settings
) -> Objective:
    """Load the base and build the objective around it.

    Fresh weights (heads, projectors) are drawn from the seed alone. A bare encoder, which does not
    say how to pool, is pooled by [CLS] as in SimCSE unless the settings name a pooler.

    Args:
        base: folder of the model to begin from.
        objective: its name.
        parameters: of the objective.
        settings: of the run.

    Raises:
        UserError: as loading the model and the objective do.
    """
    check(objective, parameters, base=base)
    torch.manual_seed(settings.seed)
    stated = describe(base).pooler
    attention = settings.attention_dropout
    encoder = Encoder.load(
        base,
        pooler=settings.pooler or stated or "cls",
        head=settings.head,
        normalise=settings.normalise,
        dropout=settings.dropout,
        attention_dropout=settings.dropout if attention is None else attention,
    )
    return find(objective)(encoder, **parameters).to(encoder.device)
