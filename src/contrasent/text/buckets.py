"""Batches of sentences of similar length: the bucketed order of ESimCSE's Table 6.

An ablation: shuffling only within buckets costs quality, as the paper finds. For speed there is no
need of it, since the encoder groups the rows of any batch by length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError, TrainingError
from contrasent.text.batches import ORDER, random_for

FINE = (3, 4, 5, 6, 7)
"""The paper's six fine buckets: up to 3, 4, 5, 6, 7, and 8 or more."""


@dataclass(frozen=True, slots=True, eq=False)
class BucketPlan:
    """The order of a run whose batches each come from one bucket; takes the place of ``Plan``.

    In every epoch the rows are shuffled within their buckets and cut into whole batches, and the
    batches of all buckets are shuffled (ESimCSE, section 5.3). The rows of a bucket that do not
    fill a last batch are left out, others in every epoch.

    Attributes:
        rows: (n,) int64, the corpus rows to train on, bucket after bucket.
        sizes: rows of each bucket.
        batch: rows a step, over all processes.
        seed: of the order.
    """

    rows: NDArray[np.int64]
    sizes: tuple[int, ...]
    batch: int
    seed: int

    @classmethod
    def make(
        cls,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        cuts: Sequence[int],
        batch: int,
        seed: int,
        parts: int = 1,
    ) -> "BucketPlan":
        """Divide rows into buckets.

        Args:
            rows: (n,) the corpus rows to train on.
            lengths: (n,) their lengths, in words or tokens; the paper does not say which.
            cuts: the greatest length of each bucket but the last: ``(5,)`` makes two buckets, up to
                5 and above; ``FINE`` makes the paper's six.
            batch: rows a step, over all processes.
            seed: of the order.
            parts: equal parts that a batch is cut into.

        Raises:
            OptionError: the cuts do not rise, or the batch does not divide into the parts.
            TrainingError: no bucket fills a batch.
        """
        if not cuts or list(cuts) != sorted(set(cuts)):
            raise OptionError("cuts", tuple(cuts), "must be one length or more, rising")
        if batch < 2 * parts or batch % parts:
            raise OptionError("batch", batch, f"must be a multiple of {parts}, two a part or more")
        bucket = np.searchsorted(np.asarray(cuts), lengths, side="left")
        order = np.argsort(bucket, kind="stable")
        sizes = tuple(int(n) for n in np.bincount(bucket, minlength=len(cuts) + 1))
        if max(sizes, default=0) < batch:
            raise TrainingError(
                f"buckets of {', '.join(map(str, sizes))} rows fill no batch of {batch}; "
                "give more text, fewer cuts or a smaller batch"
            )
        return cls(rows[order], sizes, batch, seed)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return sum(size // self.batch for size in self.sizes)

    def epoch(self, step: int) -> int:
        """The epoch that a step belongs to, from 0."""
        return step // self.steps_per_epoch

    def at(self, step: int) -> NDArray[np.int64]:
        """(batch,) corpus rows of a step."""
        order = _order(self.seed, self.epoch(step), self.sizes, self.batch)
        rows: NDArray[np.int64] = self.rows[order[step % self.steps_per_epoch]]
        return rows


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, sizes: tuple[int, ...], batch: int) -> NDArray[np.int64]:
    """(steps, batch) positions of an epoch."""
    random = random_for(seed, ORDER, epoch, 1)
    blocks, start = [], 0
    for size in sizes:
        whole = size // batch
        rows = start + random.permutation(size)[: whole * batch]
        blocks.append(rows.reshape(whole, batch))
        start += size
    batches = np.concatenate(blocks).astype(np.int64)
    mixed: NDArray[np.int64] = batches[random.permutation(len(batches))]
    return mixed
