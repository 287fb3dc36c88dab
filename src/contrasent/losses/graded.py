"""Losses for pairs whose similarity people have rated: a number a pair, in any unit that rises."""

# Across processes gather similarities and scores before `cosent` and `angle`, which compare all
# pairs.

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasent.losses._computing import full, full_precision
from contrasent.losses.similarity import check_temperature


def cosent(similarities: Tensor, scores: Tensor, *, temperature: float = 0.05) -> Tensor:
    r"""CoSENT: every pair that is rated higher is to be more similar (Su, 2022).

    .. math::

        \log \left( 1 + \sum_{y_i > y_j} e^{(s_j - s_i) / \tau} \right)

    The sum over all couples of pairs is made in one pass over the pairs in descending order of
    their scores, in O(n) memory.

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
    r"""How close two vectors are as complex ones, one number a pair (AnglE: Li & Li 2024, 3.4).

    The first half of a vector is the real part of z, the second the imaginary one. The paper takes
    the absolute sum of the two parts of z / w, their lengths divided out, for an angle difference,
    small for texts alike; the released code, followed here, for a similarity, which is what it is:
    great at the angle 0. Of z = a + bi and w = c + di it is

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
        raise ValueError(f"{a.shape[1]} dimensions have no two halves")
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
