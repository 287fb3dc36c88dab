"""Candidates that are trained: which pairs, how fast, and the runs themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.pairs import Pair, random_of
from contrasent.search.hybrid import PROPOSED, Fusion
from contrasent.search.lexical import Lexical
from contrasent.types import Vectors

BATCH = 64
MAX_TOKENS = 128
"""Passages are cut at this length in training; the model's own length is kept for encoding."""

TOO_NEAR = 0.95
"""A negative that scores above this share of the positive's score may be an answer itself (Moreira
et al., 2024, NV-Retriever, Section 4.2)."""
NEGATIVES_FROM = 20


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How one candidate is trained.

    Attributes:
        name: of the candidate.
        makers: names of the makers whose pairs it learns from, in equal parts; empty for all.
        lr: peak learning rate of AdamW.
        hard_negatives: whether each pair has a mined negative beside those of its batch. It makes
            a step nearly twice as long.
    """

    name: str
    makers: tuple[str, ...]
    lr: float
    hard_negatives: bool = False


PLANS = (
    TrainingPlan("all pairs", (), 5e-5),
    TrainingPlan(
        "titles and sentences",
        ("title", "first sentence", "sentence", "question"),
        5e-5,
        hard_negatives=True,
    ),
)
"""What is tried, each a bet that a collection may pay or not. Slower and faster learning are no
plans of their own: averaging with the base tries them all on one training."""


def mixture(pairs: Sequence[Pair], makers: Sequence[str], count: int, seed: int) -> list[Pair]:
    """So many pairs, makers in turn, each maker's in random order and anew when they run out.

    What a maker made of old text is a maker of its own: half of the pairs are replayed.

    A maker that has run out pauses until twice a batch has passed, as long as others have pairs:
    the same pair twice in a batch would be a wrong answer to itself.

    Args:
        pairs: of all makers.
        makers: those to take from; empty for all.
        count: how many to give; fewer only if there are none.
        seed: of the order.
    """
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
    lexical: Lexical,
    seed: int,
) -> list[tuple[str, ...]]:
    """Query, positive and a hard negative of each pair.

    The negative is drawn from the best rows of base and BM25 together, without those of the
    positive's document and those that the base scores nearly as high as the positive.

    Args:
        pairs: n of them.
        texts: of the rows.
        documents: number of each row's document.
        trainable: (rows,) which rows may be negatives: those of the training documents, so that
            nothing that is chosen or judged by is ever trained on.
        queries: (n, d) unit vectors of the pairs' queries.
        rows: (rows, d) unit vectors of the rows.
        lexical: BM25 over the rows.
        seed: of the choice.
    """
    fusion = Fusion(0.5)
    triples: list[tuple[str, ...]] = []
    numbers = np.asarray(documents)
    for pair, vector in zip(pairs, queries, strict=True):
        cosines = np.where(trainable, rows @ vector, -1.0).astype(np.float32)
        words = np.where(trainable, lexical.scores(pair.query), 0.0).astype(np.float32)
        shown = min(PROPOSED, len(rows))
        proposed = np.union1d(
            np.argpartition(-cosines, shown - 1)[:shown], np.argpartition(-words, shown - 1)[:shown]
        )
        fused = fusion(cosines[proposed], words[proposed], shown)
        order = proposed[np.argsort(-fused, kind="stable")]
        other = trainable[order] & (numbers[order] != documents[pair.passage])
        far = cosines[order] < TOO_NEAR * max(float(cosines[pair.passage]), 0.0)
        usable = order[other & far][:NEGATIVES_FROM]
        if not len(usable):
            usable = np.flatnonzero(trainable & (numbers != documents[pair.passage]))
        random = random_of(seed, 9, pair.passage)
        triples.append((pair.query, pair.text, texts[int(random.choice(usable))]))
    return triples


def train(
    base: Path, rows: Sequence[tuple[str, ...]], *, lr: float, seed: int, folder: Path
) -> None:
    """Train on every row once; a run that was killed goes on.

    Args:
        base: folder of the model to begin from.
        rows: query and positive, or query, positive and negative; a multiple of the batch.
        lr: peak learning rate.
        seed: of everything random.
        folder: where the run is kept, and the model at its top.
    """
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings

    settings = Settings(
        batch=min(BATCH, len(rows)),
        steps=max(1, len(rows) // BATCH),
        lr=lr,
        warmup=0.1,
        max_tokens=MAX_TOKENS,
        checkpoint_every=50,
        seed=seed,
    )
    learner = prepare(base, "simcse_supervised", {"symmetric": True}, settings)
    fit(learner, list(rows), settings, folder=folder, resume=folder.exists())
