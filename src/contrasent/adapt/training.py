"""Candidates that are trained: which pairs, how fast, the runs; averages; a linear map."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from contrasent.adapt.pairs import Pair, random_of
from contrasent.errors import ModelError, OptionError
from contrasent.losses.contrastive import info_nce
from contrasent.model.encoder import Encoder
from contrasent.search.index import PROPOSED
from contrasent.search.ranking import Ranker, Spread, best_rows
from contrasent.search.words import Bm25
from contrasent.types import Vectors

BATCH = 64
MAX_TOKENS = 128
"""Passages are cut at this length in training; the model's own length is kept for encoding."""

TOO_NEAR = 0.95
"""A negative that scores above this share of the positive's score may be an answer itself (Moreira
et al., 2024, NV-Retriever, Section 4.2)."""
NEGATIVES_FROM = 20

MAP_BATCH, MAP_EPOCHS, MAP_TEMPERATURE = 512, 20, 0.05
MAP_LR = 3e-4
"""Of Adam, falling linearly to zero."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How one candidate is trained."""

    name: str
    makers: tuple[str, ...]  # in equal parts; empty for all
    lr: float
    hard_negatives: bool = False  # a mined negative a pair; nearly doubles a step
    # also guess masked words (SimCSE, appendix A); a step is half as long again
    masked_words: bool = False


PLANS = (
    TrainingPlan("all pairs", (), 5e-5),
    TrainingPlan(
        "titles and sentences",
        ("title", "first sentence", "sentence", "question"),
        5e-5,
        hard_negatives=True,
    ),
    TrainingPlan("all pairs and masked words", (), 5e-5, masked_words=True),
)
"""What is tried, each a bet that a collection may pay or not. Slower and faster learning are no
plans of their own: averaging with the base tries them all on one training."""


def mixture(pairs: Sequence[Pair], makers: Sequence[str], count: int, seed: int) -> list[Pair]:
    """So many pairs, makers (and old text, half of an update) in turn, anew when they run out."""
    # A maker that has run out pauses for two batches, lest a pair be a wrong answer to itself.
    by_maker: dict[tuple[str, bool], list[Pair]] = {}
    for pair in pairs:
        if not makers or pair.maker in makers:
            by_maker.setdefault((pair.maker, pair.old), []).append(pair)
    random = np.random.default_rng(seed)
    chosen: list[Pair] = []
    queues: dict[tuple[str, bool], list[Pair]] = {maker: [] for maker in by_maker}
    rested = dict.fromkeys(by_maker, 0)
    while by_maker and len(chosen) < count:
        ready = [m for m in by_maker if queues[m] or len(chosen) >= rested[m]]
        for maker in ready or by_maker:
            if not queues[maker]:
                found = by_maker[maker]
                queues[maker] = [found[i] for i in random.permutation(len(found))]
                rested[maker] = len(chosen) + 2 * BATCH
            chosen.append(queues[maker].pop())
    return chosen[:count]


def with_negatives(
    pairs: Sequence[Pair],
    texts: Sequence[str],
    documents: Sequence[int],
    trainable: NDArray[np.bool_],
    *,
    queries: Vectors,
    rows: Vectors,
    lexical: Bm25,
    seed: int,
) -> list[tuple[str, ...]]:
    """Query, positive and a hard negative, a ``trainable`` row, of each pair."""
    # The negative is drawn from the best rows of base and BM25, without those of the positive's
    # document and those that the base scores nearly as high as the positive.
    ranker, there = Ranker(0.5), np.flatnonzero(trainable)
    triples: list[tuple[str, ...]] = []
    numbers = np.asarray(documents)
    for pair, vector in zip(pairs, queries, strict=True):
        cosines = rows @ vector
        dense, words = cosines[there], lexical.scores(pair.query)[there]
        fused = ranker.fuse(dense, words, Spread.of(dense), Spread.of(words))
        order = there[best_rows(fused, PROPOSED)]
        other = numbers[order] != documents[pair.passage]
        far = cosines[order] < TOO_NEAR * max(float(cosines[pair.passage]), 0.0)
        usable = order[other & far][:NEGATIVES_FROM]
        if not len(usable):
            usable = np.flatnonzero(trainable & (numbers != documents[pair.passage]))
        random = random_of(seed, 9, pair.passage)
        triples.append((pair.query, pair.text, texts[int(random.choice(usable))]))
    return triples


def train(
    base: Path, rows: Sequence[tuple[str, ...]], plan: TrainingPlan, *, seed: int, folder: Path
) -> None:
    """Train on every row once; a run that was killed goes on."""
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings

    settings = Settings(
        batch=min(BATCH, len(rows)),
        steps=max(1, len(rows) // BATCH),
        lr=plan.lr,
        warmup=0.1,
        max_tokens=MAX_TOKENS,
        checkpoint_every=50,
        seed=seed,
    )
    objective, own = "simcse_supervised", dict[str, Any](symmetric=True)
    if plan.masked_words:
        objective, own = f"{objective}+masked_lm", {**own, "language_head": "new"}
    learner = prepare(base, objective, own, settings)
    fit(learner, list(rows), settings, folder=folder, resume=folder.exists())


def average(base: Encoder, trained: Encoder, share: float) -> Encoder:
    """A new encoder with weights (1 - share) * base + share * trained."""
    # It often keeps what training taught and regains what it cost (Wortsman et al., 2022).
    if not 0.0 <= share <= 1.0:
        raise OptionError("share", share, "must be from 0 to 1")
    result = copy.deepcopy(trained)
    before, after = base.state_dict(), result.state_dict()
    if {k: v.shape for k, v in before.items()} != {k: v.shape for k, v in after.items()}:
        raise ModelError("the trained model has other weights than its base; they have no average")
    with torch.no_grad():
        for name, value in after.items():
            if value.is_floating_point():
                value.mul_(share).add_(before[name].to(value.device), alpha=1.0 - share)
    return result.eval()


def fit_map(queries: Vectors, texts: Vectors, documents: Sequence[int], *, seed: int) -> Vectors:
    """(d, d) M that brings q M of queries near t M of their texts, by InfoNCE from the identity."""
    # Seconds: vectors are encoded once. Texts of a query's own document are no negatives.
    size = queries.shape[1]
    random = np.random.default_rng(seed)
    anchors, positives = (
        normalize(torch.from_numpy(np.array(vectors, dtype=np.float32)), dim=1)
        for vectors in (queries, texts)
    )
    where = np.asarray(documents)
    matrix = torch.eye(size, requires_grad=True)
    optimizer = torch.optim.Adam([matrix], lr=MAP_LR)
    batch = min(MAP_BATCH, len(where))
    steps = max(1, MAP_EPOCHS * len(where) // batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        chosen = random.permutation(len(where))[:batch]
        other = torch.from_numpy(where[chosen][:, None] != where[chosen])
        loss = info_nce(
            anchors[chosen] @ matrix,
            positives[chosen] @ matrix,
            temperature=MAP_TEMPERATURE,
            symmetric=True,
            weights=other,
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    learnt: Vectors = matrix.detach().numpy()
    return learnt


def toward_identity(matrix: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Share * matrix + (1 - share) * identity: as the weights of two models averaged."""
    mixed: NDArray[np.float64] = share * matrix + (1 - share) * np.eye(len(matrix))
    return mixed
