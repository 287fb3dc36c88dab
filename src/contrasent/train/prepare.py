"""From names and settings to an objective that is ready to train, its encoders set for the run."""

from pathlib import Path
from typing import Any

import torch

from contrasent.engine.objective import Objective
from contrasent.engine.parameters import renamed
from contrasent.engine.registry import check, find
from contrasent.engine.registry import parameters as parameters_by_name
from contrasent.errors import OptionError
from contrasent.model.encoder import Encoder
from contrasent.model.folder import describe
from contrasent.model.packed import supports_backbone
from contrasent.model.prompts import TASKS, Prompts
from contrasent.train.settings import Settings


def prepare(
    base: Path, objective: str, parameters: dict[str, Any], settings: Settings
) -> Objective:
    """Load the base and build the objective around it.

    Fresh weights (heads, projectors) are drawn from the seed alone. A bare encoder, which does not
    say how to pool, is pooled by [CLS] as in SimCSE unless the settings name a pooler.
    """
    given = renamed(parameters, parameters_by_name(objective))
    check(objective, given, base=base)
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
    encoder.prompts = _prompts(encoder.prompts, settings)
    encoder.nested = ()  # what trains it now says whether its first dimensions are vectors
    made = find(objective)(encoder, **given)
    if settings.pooler not in (None, encoder.pooling):
        problem = f"{objective} pools by {encoder.pooling!r}; leave it out"
        raise OptionError("pooler", settings.pooler, problem)
    return made.to(encoder.device)


def _prompts(given: Prompts, settings: Settings) -> Prompts:
    """The base's prompts, those that the settings state in their place; "" for none."""
    texts = dict(given.texts)
    stated = {"query": settings.query_prompt, "document": settings.document_prompt}
    for task, text in stated.items():
        if text is not None:
            texts = {name: t for name, t in texts.items() if name not in TASKS[task]} | {task: text}
    texts = {name: text for name, text in texts.items() if text}
    return Prompts(texts, given.default if given.default in texts else None)


def configure(objective: Objective, settings: Settings) -> None:
    """Set padding, cached gradients and compilation of every encoder in an objective."""
    terms = objective.terms.items()
    others = [name for name, t in terms if not getattr(t, "vectors_only", False)]
    own = type(objective).forward is not Objective.forward and not objective.vectors_only
    if settings.grad_cache_rows and (others or own):
        what = f"its term {others[0]!r}" if others else "it"
        problem = f"not for {objective.name}: {what} works on tokens, whose memory is not bounded"
        raise OptionError("grad_cache_rows", settings.grad_cache_rows, f"{problem}; use 0")
    for encoder in objective.modules():
        if isinstance(encoder, Encoder):
            encoder.packed = supports_backbone(encoder.backbone) and settings.padding == "none"
            encoder.grad_cache_rows = settings.grad_cache_rows
            if settings.compile:
                encoder.compile_backbone()
