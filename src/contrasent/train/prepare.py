"""Prepares an objective and its batches from names and settings."""

import logging
import math
from collections import defaultdict
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contrasent import parallel, progress
from contrasent.encoder.backbone import is_causal, longest_input
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.heads import add_lora
from contrasent.encoder.poolers import Pooling
from contrasent.engine.objective import Objective
from contrasent.engine.registry import check, find
from contrasent.errors import OptionError
from contrasent.metrics import normalize
from contrasent.model.description import describe
from contrasent.nearest import QUERIES_AT_ONCE, best_rows
from contrasent.text.batches import BatchPlan, BucketPlan, Collator, MixedPlan
from contrasent.text.cache import TokenCache, tokenized
from contrasent.text.corpus import Corpus
from contrasent.text.tokens import Tokenizer
from contrasent.text.views import Identity
from contrasent.train.plan import column_prompts, with_prompts
from contrasent.train.settings import Settings
from contrasent.types import Task, Vectors, batched

log = logging.getLogger(__name__)

LENGTH = Settings().max_seq_length
BLOCK = 8192  # rows whose tokens a pooler counts at once
SEEN, ALIKE = 100, 0.95  # texts that a view is tried on; their share that it may leave as they are
COMPARED = 4_000_000  # rows up to which it is counted how many are read alike
MARGIN = 0.95
"""The most cosine of a hard negative as a share of the positive's: nearer ones may be right."""
OF_MODEL = (
    *("pooling", "head", "normalize", "dropout", "attention_dropout", "bidirectional", "lora"),
    *("query_prompt", "document_prompt"),
)
"""Settings of the model, on which :func:`prepare` alone acts."""


def prepare(
    base: Path, objective: str, parameters: dict[str, Any], settings: Settings
) -> Objective:
    """Load the base and build the objective around it."""
    check(objective, parameters, base=base)
    torch.manual_seed(settings.seed)
    stored = describe(base)
    pooling = settings.pooling or stored.pooling
    own = settings.max_seq_length if stored.max_seq_length is None else stored.max_seq_length
    stated = settings.max_seq_length != LENGTH  # the default gives way to a base that reads less
    attention = settings.attention_dropout
    encoder = TorchEncoder.load(
        base,
        pooling=pooling or "mean",
        head=settings.head,
        normalize=settings.normalize,
        dropout=settings.dropout,
        attention_dropout=settings.dropout if attention is None else attention,
        bidirectional=settings.bidirectional,
        # A longer text than the base was made for is read as far as its positions allow.
        max_seq_length=settings.max_seq_length
        if stated and settings.max_seq_length > own
        else None,
    )
    if stated and settings.max_seq_length > encoder.max_seq_length:
        problem = f"must be from 3 to {encoder.max_seq_length} tokens for this encoder"
        raise OptionError("max_seq_length", settings.max_seq_length, problem)
    if pooling is None:
        decoder = is_causal(encoder.backbone, always=True)
        encoder.use_pooler("mean" if decoder else "cls")
    if settings.lora:
        add_lora(encoder.backbone, settings.lora)
    compared = encoder.prompts.similarity
    encoder.prompts = with_prompts(encoder.prompts, settings)
    encoder.matryoshka_dims = ()  # this training determines its nested dimensions
    module = find(objective)(encoder, **parameters)
    contrast = module.contrast
    trained = "cosine" if contrast is None else str(contrast.similarity)
    encoder.prompts = replace(encoder.prompts, similarity=trained)
    if compared != trained:
        log.warning("the base compares vectors with %s, the new model with %s", compared, trained)
    if settings.pooling not in (None, encoder.pooling):
        problem = f"{objective} requires pooling {encoder.pooling!r}; omit this setting"
        raise OptionError("pooling", settings.pooling, problem)
    return module


def configure(objective: Objective, settings: Settings) -> None:
    """Put all of an objective where its encoder is; set padding, cached gradients, compilation."""
    if type(objective).loss is Objective.loss and not any(objective.weights.values()):
        names = [name for name in objective.describe() if name.endswith("_weight")]
        problem = "at least one weight must be above 0"
        raise OptionError(" and ".join(names) or "weights", 0, problem)
    terms = objective.terms.items()
    others = [name for name, t in terms if not getattr(t, "vectors_only", False)]
    custom = type(objective).forward is not Objective.forward and not objective.vectors_only
    if settings.mini_batch_size and (others or custom):
        what = f"its term {others[0]!r}" if others else "it"
        problem = f"not for {objective.name}: {what} works on tokens, whose memory is unbounded"
        raise OptionError("mini_batch_size", settings.mini_batch_size, f"{problem}; use 0")
    objective.to(objective.encoder.device)
    for encoder in objective.modules():
        if isinstance(encoder, TorchEncoder):
            encoder.packed = settings.padding == "none"
            encoder.mini_batch_size = settings.mini_batch_size
            if settings.compile:
                encoder.compile_backbone()


def collator(
    objective: Objective,
    corpus: Corpus,
    settings: Settings,
    folder: Path,
    rows: NDArray[np.int64] | None,
    *,
    shared: bool = False,
) -> Collator:
    """The maker of a run's batches; with several processes the main one tokenizes."""
    encoder = objective.encoder
    inside = encoder.tokenizer
    cut = min(settings.max_seq_length, encoder.max_seq_length)
    tokenizer = Tokenizer(inside.backend, max_seq_length=cut, names=inside.names)
    paired = objective.labeled and not objective.graded
    roles: tuple[Task, ...] = ("query", "document")
    for task in roles:
        option = f"{task}_prompt"
        if (prompt := getattr(settings, option)) and not paired:
            problem = f"needs pairs of queries and documents, which {objective.name} does not use"
            raise OptionError(option, prompt, problem)
        if prompt and encoder.prompts.of_task(task) != prompt:
            problem = f"{objective.name} reads each text in a template, which replaces it"
            raise OptionError(option, prompt, problem)
    lower = encoder.lower_case
    prompts = column_prompts(encoder.prompts, corpus.width, paired=paired)
    # The main process tokenizes, then one on each machine that does not see its folder.
    cache, wait = None, parallel.long_barrier()
    for turn in (parallel.is_main(), parallel.local_rank() == 0, True):
        if turn and cache is None:
            cache = tokenized(
                corpus, tokenizer, folder, lower=lower, prompts=prompts, shared=shared
            )
        wait()
    assert cache is not None
    rows = np.arange(len(cache)) if rows is None else rows
    if cache.following is not None and any(v.level == "row" for v in objective.views):
        rows = rows[cache.following[rows] > 0]
    mined = None
    if settings.hard_negatives:
        if not objective.labeled or objective.graded:
            problem = f"needs pairs of questions and answers, which {objective.name}"
            raise OptionError("hard_negatives", settings.hard_negatives, f"{problem} does not use")
        mined = mine(encoder, cache, rows, settings.hard_negatives)
    return Collator(
        cache,
        _order(objective, cache, rows, settings),
        objective.views,
        tokenizer,
        lower,
        resample_views=objective.resample_views,
        longest=longest_input(encoder.backbone.config),
        prompts=prompts,
        hard_negatives=mined,
    )


def fit_poolers(objective: Objective, batches: Collator) -> None:
    """Give poolers that count tokens the texts of the training rows, all columns."""
    cache, rows = batches.cache, batches.plan.rows
    parts = np.split(rows, range(BLOCK, len(rows), BLOCK))
    blocks = (cache.tokens(column, part) for column in range(cache.width) for part in parts)
    poolers = [module for module in objective.modules() if isinstance(module, Pooling)]
    poolers[0].fit(blocks)
    for copy in poolers[1:]:
        copy.load_state_dict(poolers[0].state_dict())


def warn_of_cuts(batches: Collator, settings: Settings, most: int) -> None:
    """Warn how many texts are truncated, with the setting; not below one in a hundred."""
    cut, texts = batches.cache.cut, len(batches.cache) * batches.cache.width
    if 100 * cut >= texts:
        raised = settings.max_seq_length < most
        remedy = f"--set max_seq_length={most} keeps" if raised else "the base cannot use"
        shown = f"{cut:,} of {texts:,} texts exceed {min(settings.max_seq_length, most)} tokens"
        log.warning("%s; %s more", shown, remedy)


def warn_of_equal_rows(batches: Collator, objective: Objective) -> None:
    """Warn how many rows are read alike; not below one in a hundred, or if masked."""
    cache, rows = batches.cache, len(batches.cache)
    if getattr(objective.contrast, "duplicates", None) == "mask" or rows > COMPARED:
        return
    equal = rows - len(np.unique(cache.keys(), axis=0))
    if equal and 100 * equal >= rows:
        masked = "duplicates" in objective.describe()
        remedy = "remove them, or use --set duplicates=mask" if masked else "remove them"
        shown = f"{equal:,} of {rows:,} rows are duplicates after tokenization"
        log.warning("%s. Duplicates act as false negatives: %s", shown, remedy)


def warn_of_views(batches: Collator, objective: Objective, settings: Settings, total: int) -> None:
    """Warn where a sentence is its own negative, or a positive that equals it, or no view of it."""
    rows, most = len(batches.plan.rows), len(batches.plan.rows) - batches.plan.batch_size
    queue, contrast = objective.queue, objective.contrast
    if queue is not None and queue.size > most and total > batches.plan.steps_per_epoch:
        log.warning(
            "the queue of %d holds sentences of the batch, of %d rows in all, as their own "
            "negatives; use --set queue_size=%d or less", queue.size, rows, max(0, most),
        )  # fmt: skip
    plain = all(isinstance(view, Identity) for view in objective.views[:2])
    plain &= not objective.labeled and objective.second is None
    noisy = settings.dropout or settings.attention_dropout
    if plain and contrast is not None and contrast.positives == "noisy" and not noisy:
        log.warning("without dropout both views of a sentence are identical; raise dropout")
    # One draw of each view of words, of a few rows.
    width, some = batches.cache.width, batches.plan.rows[:SEEN].tolist()
    for at, view in enumerate(objective.views):
        if view.level == "word":
            texts = [batches.cache.text(at if width > 1 else 0, row) for row in some]
            made = view.many(texts, [*map(np.random.default_rng, range(len(texts)))])
            if (same := sum(map(eq, texts, made))) > ALIKE * len(texts):
                log.warning(
                    "the view %s leaves %d of %d texts as they are; text without spaces is one "
                    "word, for which --set view=repeat_tokens is meant",
                    type(view).__name__, same, len(texts),
                )  # fmt: skip


def total_steps(objective: Objective, plan: BatchPlan, settings: Settings) -> int:
    """Optimizer steps of a run, those stated or those of the epochs; a warm-up must be shorter."""
    epochs = math.ceil(settings.num_train_epochs * plan.steps_per_epoch)
    total = settings.max_steps or max(1, epochs)
    if objective.warmup_steps > total:
        names = [name for name in objective.describe() if name.endswith("warmup_steps")]
        problem = f"is more than the {total:,} steps of the run"
        raise OptionError(" or ".join(names) or "warmup_steps", objective.warmup_steps, problem)
    return total


def check_scores(batches: Collator, objective: Objective) -> None:
    """Reject scores that a term of the method cannot take, before the first step."""
    scores = batches.cache.scores
    for term in objective.terms.values() if scores is not None else ():
        if (check := getattr(term, "check_scores", None)) is not None:
            check(np.asarray(scores)[batches.plan.rows])


def _order(
    objective: Objective, cache: TokenCache, rows: NDArray[np.int64], settings: Settings
) -> BatchPlan:
    parts = parallel.world() * settings.gradient_accumulation_steps
    cuts, weights = settings.bucket_cuts, settings.corpus_weights
    if cache.parts is not None and cuts:
        problem = "is for one corpus; merge them into one file"
        raise OptionError("buckets", settings.buckets, problem)
    if cache.parts is not None:
        sizes = {"batch_size": settings.batch_size, "seed": settings.seed, "parts": parts}
        return MixedPlan.divide(rows, cache.parts, weights, **sizes)
    if weights:
        raise OptionError("weights", settings.weights, "needs several corpora")
    if not cuts:
        return BatchPlan.make(rows, batch_size=settings.batch_size, seed=settings.seed, parts=parts)
    before, after = objective.encoder.tokenizer.frame
    return BucketPlan.divide(
        rows,
        cache.lengths(0)[rows] - len(before) - len(after),
        cuts=cuts,
        batch_size=settings.batch_size,
        seed=settings.seed,
        parts=parts,
    )


def mine(
    encoder: TorchEncoder, cache: TokenCache, rows: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """For each row of the corpus, (n, count) rows whose answers are its hard negatives.

    Where too few answers are less alike than the margin, the least alike of the others join them.
    """
    asked, given = cache.keys()[rows, :2].T  # texts of equal tokens are one
    questions = np.unique(asked, return_inverse=True)[1]
    # A row for each different answer, and which of them each row has.
    _, first, answers = np.unique(given, return_index=True, return_inverse=True)
    if len(first) <= count:
        problem = f"the training pairs have only {len(first)} different answers"
        raise OptionError("hard_negatives", count, problem)
    answers_of: dict[int, list[int]] = defaultdict(list)
    for question, answer in zip(questions.tolist(), answers.tolist(), strict=True):
        answers_of[question].append(answer)
    negatives = np.zeros((len(cache), count), np.int64)
    short = 0
    with progress.task("mine", len(rows) + len(first) + len(rows), "texts") as advance:
        query_vectors = _embed(encoder, cache, 0, rows, advance)
        answer_vectors = _embed(encoder, cache, 1, rows[first], advance)
        for part in batched(range(len(rows)), QUERIES_AT_ONCE):
            block = np.asarray(part)
            cosines = query_vectors[block] @ answer_vectors.T
            own_answers = answer_vectors[answers[block]]
            most = MARGIN * (query_vectors[block] * own_answers).sum(axis=1, keepdims=True)
            # Answers that are too near come last, the least similar first.
            ranks = np.where(cosines > most, -3 - cosines, cosines)
            for row, rank in zip(block, ranks, strict=True):
                rank[answers_of[int(questions[row])]] = -np.inf
                picked = best_rows(rank, count)
                picked = picked[np.isfinite(rank[picked])]
                short += int((rank[picked] >= -1).sum() < count)
                if not len(picked):
                    problem = f"{cache.text(0, int(rows[row]))[:60]!r} is paired with every answer"
                    raise OptionError("hard_negatives", count, problem)
                negatives[rows[row]] = rows[first[np.resize(picked, count)]]
            advance(len(block))
    if short:
        log.warning(
            "%d of %d pairs have fewer than %d answers below %d %% of their own cosine; these "
            "use the least similar others", short, len(rows), count, MARGIN * 100,
        )  # fmt: skip
    return negatives


def _embed(
    encoder: TorchEncoder, cache: TokenCache, column: int, rows: NDArray[np.int64], advance: Any
) -> Vectors:
    """Unit vectors of a column's rows, with tokens as in training."""
    parts = []
    for part in batched(rows.tolist(), 1024):
        parts.append(encoder.encode_tokens(cache.tokens(column, np.asarray(part)), 64))
        advance(len(part))
    return normalize(np.concatenate(parts))
