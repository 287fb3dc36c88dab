"""Which rows make a batch, and what the views make of them: pure functions of (seed, step).

Nothing has state: step 4,711 can be made without those before it, so a resumed run sees the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import takewhile
from operator import eq

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError, TrainingError
from contrasent.text.cache import TokenCache
from contrasent.text.tokens import Tokenizer, lowered
from contrasent.text.views import Identity, View
from contrasent.types import Batch, Tokens

ORDER, HELDOUT, VIEW = 1, 3, 16
"""Purposes of random numbers; the views of columns 0, 1, ... have ``VIEW``, ``VIEW + 1``, ..."""


def random_for(seed: int, purpose: int, *key: int) -> np.random.Generator:
    """A random generator for each seed, purpose and key.

    Args:
        seed: seed of the run.
        purpose: a number; different purposes draw different numbers.
        *key: up to two numbers, such as row and epoch.
    """
    high = [0, *key, *([0] * (2 - len(key))), purpose]
    return np.random.Generator(np.random.Philox(key=seed, counter=high))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The order of a run: every epoch is a new permutation, cut into whole batches."""

    rows: NDArray[np.int64]  # (n,) the corpus rows to train on
    batch_size: int
    seed: int
    # the order of the latest epoch, by its number
    _drawn: dict[int, NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def make(
        cls, rows: NDArray[np.int64], *, batch_size: int, seed: int, parts: int
    ) -> "BatchPlan":
        """Check a batch size against the rows and the number of equal parts it is cut into."""
        if batch_size < 1 or batch_size % parts:
            raise OptionError(
                "batch_size", batch_size, f"must be a multiple of {parts} (processes x steps)"
            )
        usable = min(batch_size, len(rows) // parts * parts)
        if usable < 2 * parts:
            raise TrainingError(
                f"{len(rows)} rows in batches of {batch_size} over {parts} part(s) leave fewer "
                "than two sentences per batch; add text or increase batch_size"
            )
        return cls(rows, usable, seed)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(self.rows) // self.batch_size

    def epoch(self, step: int) -> int:
        """The epoch that a step belongs to, from 0."""
        return step // self.steps_per_epoch

    def at(self, step: int) -> NDArray[np.int64]:
        """(batch_size,) corpus rows of a step."""
        epoch, start = self.epoch(step), step % self.steps_per_epoch * self.batch_size
        if epoch not in self._drawn:
            self._drawn.clear()
            self._drawn[epoch] = random_for(self.seed, ORDER, epoch).permutation(len(self.rows))
        chosen: NDArray[np.int64] = self.rows[self._drawn[epoch][start : start + self.batch_size]]
        return chosen


@dataclass(frozen=True, slots=True, eq=False)
class BucketPlan(BatchPlan):
    """Batches of similar length each (ESimCSE, section 5.3 and Table 6), drawn bucket by bucket."""

    sizes: tuple[int, ...]

    @classmethod
    def divide(
        cls,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        cuts: Sequence[int],
        batch_size: int,
        seed: int,
        parts: int = 1,
    ) -> "BucketPlan":
        """Divide rows by length; ``cuts``: the greatest length of each bucket but the last."""
        if not cuts or list(cuts) != sorted(set(cuts)):
            raise OptionError("cuts", tuple(cuts), "must be one or more increasing lengths")
        if batch_size < 2 * parts or batch_size % parts:
            raise OptionError(
                "batch_size", batch_size, f"must be a multiple of {parts}, at least two per part"
            )
        bucket = np.searchsorted(np.asarray(cuts), lengths, side="left")
        order = np.argsort(bucket, kind="stable")
        sizes = tuple(int(n) for n in np.bincount(bucket, minlength=len(cuts) + 1))
        if max(sizes, default=0) < batch_size:
            raise TrainingError(
                f"buckets of {', '.join(map(str, sizes))} rows do not fill a batch of "
                f"{batch_size}; add text, use fewer buckets or reduce batch_size"
            )
        return cls(rows[order], batch_size, seed, sizes)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return sum(size // self.batch_size for size in self.sizes)

    def at(self, step: int) -> NDArray[np.int64]:
        """(batch_size,) corpus rows of a step."""
        order = _bucket_order(self.seed, self.epoch(step), self.sizes, self.batch_size)
        rows: NDArray[np.int64] = self.rows[order[step % self.steps_per_epoch]]
        return rows


@lru_cache(maxsize=2)
def _bucket_order(
    seed: int, epoch: int, sizes: tuple[int, ...], batch_size: int
) -> NDArray[np.int64]:
    """(steps, batch_size) positions of an epoch."""
    random = random_for(seed, ORDER, epoch, 1)
    blocks, start = [], 0
    for size in sizes:
        whole = size // batch_size
        rows = start + random.permutation(size)[: whole * batch_size]
        blocks.append(rows.reshape(whole, batch_size))
        start += size
    batches = np.concatenate(blocks).astype(np.int64)
    return batches[random.permutation(len(batches))]


@dataclass(frozen=True, slots=True, eq=False)
class MixedPlan(BatchPlan):
    """Batches from several corpora, each from one; a corpus that is used up begins again."""

    plans: tuple[BatchPlan, ...]
    counts: tuple[int, ...]  # batches of each in an epoch

    @classmethod
    def divide(
        cls,
        rows: NDArray[np.int64],
        parts_of: NDArray[np.int64],
        weights: Sequence[float],
        *,
        batch_size: int,
        seed: int,
        parts: int,
    ) -> "MixedPlan":
        """Divide rows by corpus; ``weights``: one per corpus, none for their sizes."""
        several = [rows[parts_of[rows] == part] for part in range(int(parts_of[-1]) + 1)]
        if weights and len(weights) != len(several):
            problem = f"give one number per corpus, {len(several)} in all"
            raise OptionError("weights", ",".join(f"{w:g}" for w in weights), problem)
        if min(map(len, several)) < batch_size:
            sizes = ", ".join(f"{len(own):,}" for own in several)
            raise TrainingError(
                f"each corpus must fill a batch of {batch_size}, and they have {sizes} rows; "
                "reduce batch_size, or merge them into one file"
            )
        make = partial(BatchPlan.make, batch_size=batch_size, seed=seed, parts=parts)
        plans = tuple(make(own) for own in several)
        steps = sum(plan.steps_per_epoch for plan in plans)
        shares = np.array(weights or [plan.steps_per_epoch for plan in plans], np.float64)
        ends = np.rint(steps * np.cumsum(shares) / shares.sum()).astype(np.int64)
        counts = np.diff(ends, prepend=0)
        while not counts.all():  # a share of less than one batch; the largest gives it one
            counts[[counts.argmin(), counts.argmax()]] += 1, -1
        return cls(rows, plans[0].batch_size, seed, plans, tuple(counts.tolist()))

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch."""
        return sum(self.counts)

    def epoch(self, step: int) -> int:
        """How many passes over the corpus of a step's batch came before."""
        plan, place = self._place(step)
        return plan.epoch(place)

    def at(self, step: int) -> NDArray[np.int64]:
        """(batch_size,) corpus rows of a step."""
        plan, place = self._place(step)
        return plan.at(place)

    def _place(self, step: int) -> tuple[BatchPlan, int]:
        """The corpus that gives a step's batch, and how many it has given before."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = _mixed_order(self.seed, epoch, self.counts)
        part = order[position]
        before = epoch * self.counts[part] + int((order[:position] == part).sum())
        return self.plans[part], before


@lru_cache(maxsize=2)
def _mixed_order(seed: int, epoch: int, counts: tuple[int, ...]) -> NDArray[np.int64]:
    """(steps,) which corpus gives each batch of an epoch."""
    return random_for(seed, ORDER, epoch, 2).permutation(np.repeat(np.arange(len(counts)), counts))


@dataclass(frozen=True, slots=True)
class Collator:
    """Makes batches of a tokenized corpus."""

    cache: TokenCache
    plan: BatchPlan
    # view c rewrites column c; with a corpus of single sentences every view rewrites the sentence.
    # Columns beyond the views are taken as they are
    views: tuple[View, ...]
    tokenizer: Tokenizer  # for views of words, whose result is tokenized again
    lower: bool = False
    resample_views: bool = True  # draw views again in every epoch; else each row keeps its draw
    # rows that a view made longer are cut at this many tokens, None for no cut
    longest: int | None = None
    # what is put before (or around) the texts of each column of the corpus; nothing if empty
    prompts: tuple[str, ...] = ()
    # (n, m) rows whose second text is a hard negative of each row, by ``train.prepare``
    hard_negatives: NDArray[np.int64] | None = None

    def batch(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Part ``part`` of the ``parts`` equal parts of a step's batch."""
        size = self.plan.batch_size // parts
        rows = self.plan.at(step)[part * size : (part + 1) * size]
        width = self.cache.width
        count = max(len(self.views), width)
        views = [*self.views, *[Identity()] * (count - len(self.views))]
        epoch = self.plan.epoch(step) if self.resample_views else 0
        made = (
            self._column(view, i if width > 1 else 0, i, rows, epoch)
            for i, view in enumerate(views)
        )
        columns, unedited = zip(*made, strict=True)
        if self.hard_negatives is not None:
            columns += tuple(self.cache.tokens(1, picked) for picked in self.hard_negatives[rows].T)
        scores = None if self.cache.scores is None else self.cache.scores[rows]
        return Batch(columns, rows, step, self.plan.seed, scores, unedited)

    def _column(
        self, view: View, column: int, index: int, rows: NDArray[np.int64], epoch: int
    ) -> tuple[Tokens, Tokens]:
        """What a view makes of a column, and the column."""
        if isinstance(view, Identity):
            whole = self.cache.tokens(column, rows)
            return whole, whole
        prompt = self.prompts[column] if self.prompts else ""
        randoms = [random_for(self.plan.seed, VIEW + index, int(row), epoch) for row in rows]
        if view.level == "row":
            if self.cache.following is None:
                raise TrainingError("next sentences need a corpus in document order")
            offsets = view.many(self.cache.following[rows].tolist(), randoms)
            following = self.cache.tokens(column, rows + np.asarray(offsets, dtype=np.int64))
            return following, following  # another text, and not one that was rewritten
        whole = self.cache.tokens(column, rows)
        if view.level == "word":
            texts = view.many([self.cache.text(column, int(row)) for row in rows], randoms)
            arguments = lowered(texts, prompt) if self.lower else (texts, prompt)
            return self.tokenizer(*arguments)[0], whole
        before, after = self.tokenizer.around(prompt)
        inner = [whole[i][len(before) : len(whole[i]) - len(after)] for i in range(len(whole))]
        own = self.tokenizer.plain(prompt.lower() if self.lower else prompt)
        sizes = [sum(takewhile(bool, map(eq, ids.tolist(), own))) for ids in inner]
        sentences = [ids[size:] for ids, size in zip(inner, sizes, strict=True)]
        if view.template:
            before, after = self.tokenizer.around(view.template)
        room = None if self.longest is None else self.longest - len(before) - len(after)
        made = zip(inner, sizes, view.many(sentences, randoms), strict=True)
        return Tokens.from_rows(
            np.concatenate([before, np.concatenate([ids[:size], new])[:room], after])
            for ids, size, new in made
        ), whole
