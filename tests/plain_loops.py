"""Losses as loops over Python floats, from the papers, and drawn vectors to compute them of."""

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


def standardized(column: list[float], epsilon: float = 1e-5, ddof: int = 0) -> list[float]:
    mean = sum(column) / len(column)
    variance = sum((x - mean) ** 2 for x in column) / (len(column) - ddof)
    return [(x - mean) / math.sqrt(variance + epsilon) for x in column]


def negatives_sum(logits, weights, positive, tau, beta, plus) -> float:
    """The negatives in the denominator, from the papers; the least cosine is -1."""
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
    rows, candidates, positives, *, hard=(), extra=(), weights=None, first=0, alpha=1.0, tau=0.05,
    beta=0.0, plus=0.0, kind="cosine", m=1.0, form="negative_sum", loss="softmax", bias=0.0,
) -> float:  # fmt: skip
    """Mean of -log e^p / (e^p + m times the negatives), or with m at p; of vectors as lists.

    Decoupled without e^p below; of the sigmoid, a logistic loss for every pair.

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
        scaled = positives[i] * (m if form == "positive_logit" else 1)
        if loss == "decoupled":
            total += (math.log(rest) if rest else 0.0) - scaled
        elif loss == "sigmoid":
            total -= math.log(1 / (1 + math.exp(-scaled - bias)))
            for weight, logit in zip(counted, logits, strict=True):
                total -= weight * math.log(1 / (1 + math.exp(logit + bias)))
        elif form == "negative_sum":
            total -= math.log(math.exp(positives[i]) / (math.exp(positives[i]) + m * rest))
        else:
            total -= math.log(math.exp(m * positives[i]) / (math.exp(m * positives[i]) + rest))
    return total / len(rows)


def pairs(a, b, tau, kind="cosine") -> list[float]:
    """Logits of the positive pairs."""
    return [sim(x, y, kind) / tau for x, y in zip(a, b, strict=False)]


def loop_cosent(similarities, scores, tau) -> float:
    total = 1.0
    for s_i, y_i in zip(similarities, scores, strict=True):
        for s_j, y_j in zip(similarities, scores, strict=True):
            if y_i > y_j:
                total += math.exp((s_j - s_i) / tau)
    return math.log(total)


def complex_cosine(x, y) -> float:
    """z / w, the lengths divided out, as in AnglE's code."""
    half = len(x) // 2
    z = [complex(x[k], x[half + k]) for k in range(half)]
    w = [complex(y[k], y[half + k]) for k in range(half)]
    length_z = math.sqrt(sum(abs(u) ** 2 for u in z))
    length_w = math.sqrt(sum(abs(u) ** 2 for u in w))
    size = length_w**2 * (length_z / length_w)
    parts = [u * v.conjugate() / size for u, v in zip(z, w, strict=True)]
    return abs(sum(p.real + p.imag for p in parts))


def loop_ranking(a, c, ga, gc, first, tau, tau_g) -> float:
    total = 0.0
    for i in range(len(a)):
        others = [j for j in range(len(c)) if j != first + i]
        p = [math.exp(cosine(a[i], c[j]) / tau) for j in others]
        q = [math.exp(cosine(ga[i], gc[j]) / tau_g) for j in others]
        for x, y in zip(p, q, strict=True):
            total += y / sum(q) * math.log(y / sum(q) / (x / sum(p)))
    return total / len(a)


def loop_gist(q, p, hard, guide, first, rows, tau, margin) -> float:
    gq, gp, *ghard = guide
    total = 0.0
    for i in range(first, first + rows):
        limit = cosine(gq[i], gp[i]) - margin
        numerator = math.exp(cosine(q[i], p[i]) / tau)
        rest = 0.0
        for j in range(len(q)):
            couples = [
                (q[i], p[j], gq[i], gp[j]),
                (q[i], q[j], gq[i], gq[j]),
                (p[i], p[j], gp[i], gp[j]),
            ]
            couples = [] if j == i else couples
            couples += [(q[i], n[j], gq[i], g[j]) for n, g in zip(hard, ghard, strict=True)]
            for x, y, gx, gy in couples:
                if cosine(gx, gy) <= limit:
                    rest += math.exp(cosine(x, y) / tau)
        total -= math.log(numerator / (numerator + rest))
    return total / rows
