"""A linear map over a model that stays as it is: what pairs can teach in seconds.

Queries and texts of the pairs are encoded once; then the map is trained on their vectors, where an
epoch costs next to nothing and every text of a large batch is a negative. Mixed with the identity,
it is as the weights of two models averaged, without encoding anything again.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from contrasent.losses.contrastive import info_nce
from contrasent.types import Vectors

BATCH = 512
EPOCHS = 20
LR = 3e-4
"""Of Adam, falling linearly to zero."""
TEMPERATURE = 0.05


Floats = NDArray[np.float64]


def fit_map(queries: Vectors, texts: Vectors, documents: Sequence[int], *, seed: int) -> Vectors:
    """A matrix M that brings the vectors q M of queries near those t M of their texts.

    It begins as the identity and minimises InfoNCE in both directions over random batches; texts
    of a query's own document are no negatives.

    Args:
        queries: (n, d) vectors of the queries, of any length.
        texts: (n, d) vectors of the texts that answer them.
        documents: (n,) the document of each pair.
        seed: of the batches.

    Returns:
        (d, d) M.
    """
    size = queries.shape[1]
    random = np.random.default_rng(seed)
    anchors, positives = (
        normalize(torch.from_numpy(np.array(vectors, dtype=np.float32)), dim=1)
        for vectors in (queries, texts)
    )
    where = np.asarray(documents)
    matrix = torch.eye(size, requires_grad=True)
    optimizer = torch.optim.Adam([matrix], lr=LR)
    batch = min(BATCH, len(where))
    steps = max(1, EPOCHS * len(where) // batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        chosen = random.permutation(len(where))[:batch]
        other = torch.from_numpy(where[chosen][:, None] != where[chosen])
        loss = info_nce(
            anchors[chosen] @ matrix,
            positives[chosen] @ matrix,
            temperature=TEMPERATURE,
            symmetric=True,
            weights=other,
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    learnt: Vectors = matrix.detach().numpy()
    return learnt


def toward_identity(matrix: Floats, share: float) -> Floats:
    """Share * matrix + (1 - share) * identity.

    Args:
        matrix: (d, d).
        share: 0 to 1.
    """
    mixed: Floats = share * matrix + (1 - share) * np.eye(len(matrix))
    return mixed
