"""Losses for pairs whose similarity is known: rated by people, or by a guide (GISTEmbed).

Across processes gather similarities and scores before `cosent` and `angle`, which compare all
pairs.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.losses.similarity import (
    check_temperature,
    full,
    full_precision,
    mean_of_rows,
    normalized,
)


def cosent(similarities: Tensor, scores: Tensor, *, temperature: float = 0.05) -> Tensor:
    r"""CoSENT: pairs with a higher score should have a higher similarity (Su, 2022).

    .. math::

        \log \left( 1 + \sum_{y_i > y_j} e^{(s_j - s_i) / \tau} \right)

    The sum is computed in one pass over the pairs in descending order of scores, in O(n) memory.

    Args:
        similarities: (n,) s_i, of the two texts of each pair; the cosine in CoSENT.
        scores: (n,) y_i; pairs of equal score are not compared.
        temperature: tau; the released code has its inverse, lambda = 20.

    Returns:
        A scalar; 0 if all scores are equal.

    Raises:
        OptionError: tau is not positive.
    """
    check_temperature(temperature)
    with full_precision(similarities):
        scores, order = scores.sort(descending=True)
        logits = full(similarities)[order] / temperature
        higher = torch.searchsorted(-scores, -scores)  # pairs with a score above that of each
        # ln of the sum of e^(-s_i/tau) over the first 1, 2, ... pairs.
        above = torch.logcumsumexp(-logits, dim=0)
        compared = higher > 0
        terms = logits[compared] + above[higher[compared] - 1]
        return F.softplus(terms.logsumexp(dim=0)) if len(terms) else logits.sum() * 0.0


def complex_cosines(a: Tensor, b: Tensor) -> Tensor:
    r"""Similarity of two vectors as complex numbers, for each pair (AnglE: Li & Li 2024, 3.4).

    The first half of a vector is the real part of z, the second half the imaginary part. The paper
    uses the absolute sum of both parts of z / w, without lengths, as a difference of angles. The
    released code, followed here, uses it as a similarity, since it is largest at angle 0. For z = a
    + bi and w = c + di it is

    .. math::

        \left| \sum_k (a_k c_k + b_k d_k) + (b_k c_k - a_k d_k) \right| / (|z| |w|)

    Args:
        a: (n, d), d even.
        b: (n, d).

    Returns:
        (n,) float32 or float64, from 0 to the square root of 2.

    Raises:
        ValueError: d is odd.
    """
    if a.shape[1] % 2:
        raise ValueError(f"an odd number of dimensions, {a.shape[1]}, cannot be halved")
    with full_precision(a):
        z, w = F.normalize(full(a), dim=1), F.normalize(full(b), dim=1)
        half = z.shape[1] // 2
        turned = torch.cat([-w[:, half:], w[:, :half]], dim=1)  # i w
        return ((z * w).sum(dim=1) + (z * turned).sum(dim=1)).abs()


def cosine_regression(similarities: Tensor, scores: Tensor) -> Tensor:
    r"""Mean squared difference of cosine and score (Reimers & Gurevych 2019, section 3).

    Args:
        similarities: (n,) cosines.
        scores: (n,) in the cosine's unit, from -1 to 1.

    Returns:
        (1/n) sum of (s_i - y_i)^2, a scalar.
    """
    with full_precision(similarities):
        cosines = full(similarities)
        return (cosines - scores.to(cosines)).square().mean()


# Anchors are the rows of this process, candidates those of all, and `first` says where its own
# begin.
def gist(
    columns: tuple[Tensor, ...],
    guide: tuple[Tensor, ...],
    *,
    first: int = 0,
    rows: int | None = None,
    temperature: float = 0.01,
    margin: float = 0.0,
) -> Tensor:
    r"""GISTEmbed: mask negatives that the guide ranks above the positive (Solatorio 2024, 3).

    With s the cosine of the trained model, s^g that of the guide and M the pairs (x, y) for which
    s^g(x, y) <= s^g(q_i, p_i) - margin,

    .. math::

        l_i = -\log \frac{e^{s(q_i, p_i) / \tau}}
            {e^{s(q_i, p_i) / \tau} + \sum_{(x, y) \in M} e^{s(x, y) / \tau}}

    where (x, y) are (q_i, p_j), (q_i, q_j) and (p_i, p_j), j != i, and all (q_i, n_jk).

    Args:
        columns: anchors q, positives p and any number of columns of hard negatives n, (m, d) each,
            of all processes.
        guide: the same rows by the guide, (m, g) each.
        first: where this process's rows begin.
        rows: how many they are; all if None.
        temperature: tau.
        margin: how much less similar a negative must be; 0 in the paper.

    Returns:
        The mean of l_i over the process's rows, a scalar.

    Raises:
        OptionError: tau is not positive.
        ValueError: the shapes do not fit together.
    """
    check_temperature(temperature)
    if not math.isfinite(margin):
        raise OptionError("margin", margin, "must be a number")
    n, m = rows if rows is not None else len(columns[0]) - first, len(columns[0])
    if {len(c) for c in (*columns, *guide)} != {m} or len(columns) != len(guide) or first + n > m:
        raise ValueError(f"columns of {m} rows, of which {n} from {first}, and a guide's differ")
    with full_precision(columns[0]):
        trained = [normalized(c, "cosine") for c in columns]
        guiding = [normalized(c, "cosine") for c in guide]

        def block(part: slice) -> Tensor:
            span = slice(first + part.start, first + part.stop)
            logits, known = _compared(trained, span) / temperature, _compared(guiding, span)
            positive = known.diagonal(span.start)[:, None]
            masked = known > positive - margin
            for k in range(3):  # the pair itself, and a text with itself
                masked.diagonal(k * m + span.start).fill_(True)
            masked.diagonal(span.start).fill_(False)
            labels = torch.arange(span.start, span.stop, device=logits.device)
            return F.cross_entropy(logits.masked_fill(masked, -math.inf), labels)

        return mean_of_rows(block, n, (1 + len(columns)) * m)


def _compared(columns: list[Tensor], own: slice) -> Tensor:
    """Cosines (k, (1 + columns) m) of q_i with p, q_i with q, p_i with p, q_i with all n."""
    anchors, positives, *hard = columns
    parts = [anchors[own] @ positives.T, anchors[own] @ anchors.T, positives[own] @ positives.T]
    return torch.cat([*parts, *(anchors[own] @ negatives.T for negatives in hard)], dim=1)


def distill_ranking(
    anchors: Tensor,
    candidates: Tensor,
    guide_anchors: Tensor,
    guide_candidates: Tensor,
    *,
    first: int = 0,
    temperature: float = 0.05,
    guide_temperature: float = 0.025,
) -> Tensor:
    r"""Distill the guide's ranking of the batch (RankCSE's ListNet: Liu et al. 2023, section 4).

    With S the cosine of the trained model and S^g that of the guide,

    .. math::

        l_i = \sum_{j \ne i} q_{ij} \log \frac{q_{ij}}{p_{ij}}, \quad
        q_{ij} \propto e^{S^g_{ij} / \tau_g}, \quad p_{ij} \propto e^{S_{ij} / \tau}

    The paper's cross-entropy adds the entropy of q, which is constant; without it the minimum is 0.
    A row's own candidate is left out, as in the released code.

    Args:
        anchors: (n, d).
        candidates: (m, d); row ``first + i`` belongs to anchor i.
        guide_anchors: (n, g) the same rows by the guide.
        guide_candidates: (m, g).
        first: where this process's rows begin among the candidates.
        temperature: tau.
        guide_temperature: tau_g, half of tau in the released code.

    Returns:
        The mean of l_i over the n anchors, a scalar.

    Raises:
        OptionError: a temperature is not positive.
        ValueError: the shapes do not fit together.
    """
    check_temperature(temperature)
    check_temperature(guide_temperature, "guide_temperature")
    n, m = len(anchors), len(candidates)
    if len(guide_anchors) != n or len(guide_candidates) != m or not 0 <= first <= m - n or m < 2:
        raise ValueError(f"{n} anchors from {first} of {m} candidates and a guide's differ")
    with full_precision(anchors):
        left, right = normalized(anchors, "cosine"), normalized(candidates, "cosine")
        guide = normalized(guide_anchors, "cosine"), normalized(guide_candidates, "cosine")

        def block(part: slice) -> Tensor:
            student = left[part] @ right.T / temperature
            teacher = guide[0][part] @ guide[1].T / guide_temperature
            # One column fewer instead of an infinite logit, whose product with 0 is not a number.
            others_only = torch.ones_like(student, dtype=torch.bool)
            others_only.diagonal(first + part.start).fill_(False)
            p, q = (
                logits[others_only].view(-1, m - 1).log_softmax(dim=1)
                for logits in (student, teacher)
            )
            return F.kl_div(p, q, reduction="batchmean", log_target=True)

        return mean_of_rows(block, n, m)
