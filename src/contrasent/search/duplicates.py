"""Near-duplicates among the rows of an index."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError
from contrasent.nearest import Best
from contrasent.search.store import Store

PAIRED_ROWS, PAIRED_COLUMNS = 1024, 8192


class Pair(NamedTuple):
    """Two rows of an index, the kept one first."""

    first: int
    second: int
    score: float


def near_duplicates(index: Store, threshold: float) -> tuple[NDArray[np.int64], list[Pair]]:
    """Go through the rows in order and drop each that is close to one kept before it.

    A row is a near-duplicate if its score with a kept row is at least ``threshold``. No row is
    dropped for being close to a dropped one only. Time grows with the square of the rows. Returned
    are the rows that are kept (k,), and for each other one the kept row that it is nearest to.
    """
    if not np.isfinite(threshold) or (index.metric == "cosine" and not -1 <= threshold <= 1):
        raise OptionError("threshold", threshold, "must lie in -1 to 1")
    index.check_finished("looking for duplicates")
    rows, kept = index.numbers(), np.empty(0, dtype=np.int64)
    pairs: list[Pair] = []
    with progress.task("dedupe", len(rows), "texts") as advance:
        for start in range(0, len(rows), PAIRED_ROWS):
            here = rows[start : start + PAIRED_ROWS]
            vectors = np.asarray(index.vectors[here])
            best = Best(len(here), 1)
            for at in range(0, len(kept), PAIRED_COLUMNS):
                some = kept[at : at + PAIRED_COLUMNS]
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
