"""Documents divided into those to train on, those to choose by, and those to prove it by, once."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TRAIN, SELECT, SEALED = 0, 1, 2
SHARE = 0.2  # of the documents, for choosing, and as many for judging
ENOUGH = 20  # documents of either that few documents still give, a third of them at most
MOST = 1000  # documents of either at most; more would say little more


def parts_of(documents: Sequence[str], *, seed: int) -> NDArray[np.int8]:
    """(n,) the part of each document: by a hash of its id, whatever the others are."""
    order = by_hash(documents, seed=seed)
    size = min(MOST, max(int(SHARE * len(documents)), min(ENOUGH, len(documents) // 3)))
    parts = np.full(len(documents), TRAIN, dtype=np.int8)
    parts[order[:size]] = SELECT
    parts[order[size : 2 * size]] = SEALED
    return parts


def by_hash(names: Sequence[str], *, seed: int) -> list[int]:
    """Places of names in an order at random that does not depend on the order they are given in."""
    marks = [
        hashlib.blake2b(f"{seed}\0{name}".encode(errors="replace"), digest_size=8).digest()
        for name in names
    ]
    return sorted(range(len(names)), key=lambda at: marks[at])
