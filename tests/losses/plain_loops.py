"""What the tests of losses share: drawn vectors, and similarities as loops over Python floats."""

import math

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

few = settings(max_examples=25, deadline=None)
fewer = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**31 - 1)


def vectors(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a)) / math.sqrt(dot(b, b))


def sim(a: list[float], b: list[float], kind: str) -> float:
    return dot(a, b) if kind == "dot" else cosine(a, b)


def negatives_sum(logits, weights, positive, tau, beta, plus) -> float:
    """What stands for the negatives in the denominator, from the papers; the least cosine is -1."""
    count = sum(weights)
    if not count:
        return 0.0
    tilted = [w * math.exp(beta * s) for w, s in zip(weights, logits, strict=True)]
    mean = sum(t * math.exp(s) for t, s in zip(tilted, logits, strict=True)) / sum(tilted)
    if not plus:
        return count * mean
    corrected = (mean - plus * math.exp(positive)) / (1 - plus)
    return count * max(corrected, math.exp(-1 / tau))


def loop(
    rows,
    candidates,
    positives,
    *,
    hard=(),
    extra=(),
    weights=None,
    first=0,
    alpha=1.0,
    tau=0.05,
    beta=0.0,
    plus=0.0,
    kind="cosine",
    m=1.0,
    form="negative_sum",
) -> float:
    """Mean of -log e^p / (e^p + m times the negatives), or with m at p; of vectors as lists.

    ``positives`` are the logits of the positive pairs; the own candidate is no negative.
    """
    total = 0.0
    for i, row in enumerate(rows):
        logits, own = [], []
        for j, other in enumerate(candidates):
            logits.append(sim(row, other, kind) / tau)
            own.append(0.0 if j == first + i else 1.0)
        for j, several in enumerate(hard):
            for other in several:
                logits.append(sim(row, other, kind) / tau)
                own.append(alpha if j == first + i else 1.0)
        for other in extra:
            logits.append(sim(row, other, kind) / tau)
            own.append(1.0)
        counted = own if weights is None else [a * b for a, b in zip(own, weights[i], strict=True)]
        rest = negatives_sum(logits, counted, positives[i], tau, beta, plus)
        if form == "negative_sum":
            total -= math.log(math.exp(positives[i]) / (math.exp(positives[i]) + m * rest))
        else:
            total -= math.log(math.exp(m * positives[i]) / (math.exp(m * positives[i]) + rest))
    return total / len(rows)


def pairs(a, b, tau, kind="cosine") -> list[float]:
    """Logits of the positive pairs."""
    return [sim(x, y, kind) / tau for x, y in zip(a, b, strict=False)]
