"""Folds and seeded numbers as the tools that published scores came from draw them.

Scores of SentEval depend on which sentences fall into a fold and on the classifier's first weights.
Both are drawn here exactly as scikit-learn's ``StratifiedKFold`` and PyTorch's ``nn.Linear`` draw
them, with generators of our own: the caller's random state is never touched.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def stratified_folds(labels: NDArray[np.int64], k: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Split into k folds with equal shares of each class, shuffled.

    The assignment is that of scikit-learn's ``StratifiedKFold(k, shuffle=True,
    random_state=seed)``.

    ``labels``: (n,) classes.
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    # Classes are numbered by their first appearance.
    code = np.argsort(np.argsort(first))[inverse]
    ordered = np.sort(code)
    counts = np.stack([np.bincount(ordered[i::k], minlength=len(first)) for i in range(k)])
    random = np.random.RandomState(seed)
    fold = np.empty(len(labels), dtype=np.int64)
    for c in range(len(first)):
        members = np.repeat(np.arange(k), counts[:, c])
        random.shuffle(members)
        fold[code == c] = members
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k)]


def linear_start(inputs: int, outputs: int, seed: int) -> NDArray[np.float32]:
    """The first weights of a linear layer, as ``torch.manual_seed(seed)`` and ``nn.Linear`` give.

    PyTorch's generator is the Mersenne twister with the classic seeding, of which each uniform
    float32 takes the low 24 bits; weight and bias are uniform within 1/sqrt(inputs).
    """
    twister = np.random.RandomState(seed)
    raw = np.frombuffer(twister.bytes(4 * outputs * (inputs + 1)), dtype="<u4")
    uniform = (raw & np.uint32((1 << 24) - 1)).astype(np.float32) * np.float32(2.0**-24)
    bound = np.float32(1 / np.sqrt(inputs))
    drawn = uniform * (bound + bound) - bound
    weight = drawn[: outputs * inputs].reshape(outputs, inputs).T
    return np.concatenate([weight, drawn[None, outputs * inputs :]]).astype(np.float32)
