"""Near-duplicates among an index's rows.

All pairs are compared, exactly, a square of 1,024 x 8,192 similarities at a time: memory does not
grow with the index, time grows with its square (minutes for a hundred thousand rows of 384
dimensions on two cores, hours for a million).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError
from contrasent.search.exact import Best
from contrasent.search.index import Index

ROWS = 1024
COLUMNS = 8192


class Pair(NamedTuple):
    """Two rows of an index, the kept one first."""

    first: int
    second: int
    score: float


def near_duplicates(index: Index, threshold: float) -> tuple[NDArray[np.int64], list[Pair]]:
    """Go through the rows in order and drop each that is close to one kept before it.

    A row is a near-duplicate if its score with a kept row is at least ``threshold``. No row is
    dropped for being close to a dropped one only. Returned are the rows that are kept (k,), and for
    each other row, in order, the kept one that it is nearest to.
    """
    if not np.isfinite(threshold) or (index.metric == "cosine" and not -1 <= threshold <= 1):
        raise OptionError("threshold", threshold, "must lie in -1 to 1")
    rows, kept = index.numbers(), np.empty(0, dtype=np.int64)
    pairs: list[Pair] = []
    with progress.task("dedupe", len(rows), "texts") as advance:
        for start in range(0, len(rows), ROWS):
            here = rows[start : start + ROWS]
            vectors = np.asarray(index.vectors[here])
            best = Best(len(here), 1)
            for at in range(0, len(kept), COLUMNS):
                some = kept[at : at + COLUMNS]
                best.offer(vectors @ np.asarray(index.vectors[some]).T, some)
            scores, partner = best.scores[:, 0], best.rows[:, 0]
            within, stays = vectors @ vectors.T, np.zeros(len(here), dtype=bool)
            for at in range(len(here)):
                before = np.flatnonzero(stays[:at])
                if len(before) and (most := within[at, before]).max() > scores[at]:
                    scores[at], partner[at] = most.max(), here[before[most.argmax()]]
                stays[at] = scores[at] < threshold
            pairs += [
                Pair(int(partner[at]), int(here[at]), float(scores[at]))
                for at in np.flatnonzero(~stays)
            ]
            kept = np.concatenate([kept, here[stays]])
            advance(len(here), kept=len(kept))
    return kept, pairs
