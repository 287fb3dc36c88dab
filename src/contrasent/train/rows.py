"""The rows of a run: tokenised once, and put into batches."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent import parallel
from contrasent.engine.objective import Objective
from contrasent.errors import OptionError
from contrasent.model.backbone import longest_input
from contrasent.model.poolers.base import Pooler
from contrasent.text.batches import BucketPlan, Collator, Plan, Rows
from contrasent.text.cache import TokenCache, tokenised
from contrasent.text.corpus import Corpus
from contrasent.text.tokens import Tokenizer
from contrasent.train.settings import Settings

BLOCK = 8192
"""Rows whose tokens a pooler counts at once."""


def collator(
    objective: Objective,
    corpus: Corpus,
    settings: Settings,
    folder: Path,
    rows: NDArray[np.int64] | None,
    *,
    shared: bool = False,
) -> Collator:
    """What makes the batches of a run; of several processes the main one tokenises."""
    encoder = objective.encoder
    inside = encoder.tokenizer
    cut = min(settings.max_tokens, encoder.max_tokens)
    tokenizer = Tokenizer(inside.backend, max_tokens=cut, names=inside.names)
    lower, prompts = encoder.lower_case, _prompts(objective, corpus, settings)
    # The main process tokenises, then one of every machine that does not see its folder.
    cache, first = None, parallel.local_rank() == 0
    for turn in (parallel.is_main(), first, True):
        if turn and cache is None:
            cache = tokenised(
                corpus,
                tokenizer,
                folder,
                lower=lower,
                prompts=prompts,
                workers=first,
                shared=shared,
            )
        parallel.barrier()
    assert cache is not None
    if cache.following is not None and any(v.level == "row" for v in objective.views):
        rows = np.arange(len(cache)) if rows is None else rows
        rows = rows[cache.following[rows] > 0]
    return Collator(
        cache,
        _order(objective, cache, range(len(cache)) if rows is None else rows, settings),
        objective.views,
        tokenizer,
        lower,
        resample_views=objective.resample_views,
        longest=longest_input(encoder.backbone.config),
        prompts=prompts,
    )


def fit_poolers(objective: Objective, batches: Collator) -> None:
    """Give poolers that count tokens the texts of the training rows, all columns."""
    cache, rows = batches.cache, np.asarray(batches.plan.rows)
    blocks = (
        cache.tokens(column, rows[start : start + BLOCK])
        for column in range(len(cache.columns))
        for start in range(0, len(rows), BLOCK)
    )
    poolers = [module for module in objective.modules() if isinstance(module, Pooler)]
    poolers[0].fit(blocks)
    for copy in poolers[1:]:
        copy.load_state_dict(poolers[0].state_dict())


def _prompts(objective: Objective, corpus: Corpus, settings: Settings) -> tuple[str, ...]:
    """What stands before the texts of each column: of pairs, a query and what answers it."""
    prompts = objective.encoder.prompts
    if objective.labelled and not objective.graded:
        return prompts.of_task("query"), *[prompts.of_task("document")] * (corpus.width - 1)
    for option in ("query_prompt", "document_prompt"):
        if getattr(settings, option):
            problem = f"needs pairs of a query and its document, which {objective.name} does not"
            raise OptionError(option, getattr(settings, option), f"{problem} learn from")
    return (prompts.text(),) * corpus.width


def total_steps(plan: Plan, settings: Settings) -> int:
    """Optimizer steps of a run: those stated, or those of the epochs."""
    return settings.steps or max(1, math.ceil(settings.epochs * plan.steps_per_epoch))


def _order(objective: Objective, cache: TokenCache, rows: Rows, settings: Settings) -> Plan:
    parts = parallel.world() * settings.accumulate
    cuts = settings.bucket_cuts
    if not cuts:
        return Plan.make(rows, batch=settings.batch, seed=settings.seed, parts=parts)
    before, after = objective.encoder.tokenizer.frame
    rows = np.asarray(rows)
    return BucketPlan.divide(
        rows,
        cache.lengths(0)[rows] - len(before) - len(after),
        cuts=cuts,
        batch=settings.batch,
        seed=settings.seed,
        parts=parts,
    )
