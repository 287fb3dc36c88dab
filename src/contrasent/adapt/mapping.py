"""A linear map over the base, learnt in seconds from pairs: a candidate of the adaptation."""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from contrasent.adapt.pairs import Pair
from contrasent.losses.contrastive import info_nce
from contrasent.types import Vectors

BATCH, EPOCHS, TEMPERATURE = 512, 20, 0.05
LR = 3e-4  # of Adam, falling linearly to zero


def mixture(pairs: Iterable[Pair], count: int, seed: int) -> list[Pair]:
    """At most so many distinct pairs, makers in turn as long as each of them has any."""
    by_maker: dict[str, list[Pair]] = {}
    for pair in dict.fromkeys(pairs):
        by_maker.setdefault(pair.maker, []).append(pair)
    random = np.random.default_rng(seed)
    queues = ([found[i] for i in random.permutation(len(found))] for found in by_maker.values())
    return [pair for turn in zip_longest(*queues) for pair in turn if pair is not None][:count]


def fit_map(queries: Vectors, texts: Vectors, documents: Sequence[int], *, seed: int) -> Vectors:
    """(d, d) M that brings q M of queries near t M of their texts, by InfoNCE from the identity."""
    # Seconds: vectors are encoded once. Texts of a query's own document are no negatives.
    random = np.random.default_rng(seed)
    anchors, positives = (
        normalize(torch.from_numpy(np.array(vectors, dtype=np.float32)), dim=1)
        for vectors in (queries, texts)
    )
    where = np.asarray(documents)
    batch = min(BATCH, len(where))

    def loss_of(matrix: Tensor) -> Tensor:
        chosen = random.permutation(len(where))[:batch]
        other = torch.from_numpy(where[chosen][:, None] != where[chosen])
        return info_nce(
            anchors[chosen] @ matrix,
            positives[chosen] @ matrix,
            temperature=TEMPERATURE,
            symmetric=True,
            weights=other,
        )

    return descend(queries.shape[1], loss_of, lr=LR, steps=max(1, EPOCHS * len(where) // batch))


def descend(size: int, loss_of: Callable[[Tensor], Tensor], *, lr: float, steps: int) -> Vectors:
    """(size, size) matrix that lowers a loss from the identity on; the rate falls to zero."""
    matrix = torch.eye(size, requires_grad=True)
    optimizer = torch.optim.Adam([matrix], lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(1, steps))
    for _ in range(steps):
        loss = loss_of(matrix)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    learnt: Vectors = matrix.detach().numpy()
    return learnt


def toward_identity(matrix: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Share * matrix + (1 - share) * identity."""
    mixed: NDArray[np.float64] = share * matrix + (1 - share) * np.eye(len(matrix))
    return mixed
