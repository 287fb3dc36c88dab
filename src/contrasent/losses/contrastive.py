"""The contrastive losses: a sentence against its positive and many negatives.

Notation: h_i is an anchor, h_i^+ its positive, h_j^- a hard negative of row j, sim the cosine or
the dot product, tau the temperature.

Several processes: the anchors are the rows of this process, the candidates those of all of them,
and ``first`` says where the own rows begin among the candidates. Nothing here communicates.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrasent.errors import OptionError
from contrasent.losses._precision import full, full_precision

Similarity = Literal["cosine", "dot"]
SIMILARITIES = ("cosine", "dot")
FactorForm = Literal["positive_logit", "negative_sum"]
FACTOR_FORMS = ("positive_logit", "negative_sum")
EPSILON = 1e-8
LOGITS = 1 << 21
"""Comparisons that are held at once (8 MiB in float32); batches up to 1,448 are one block."""


def similarities(a: Tensor, b: Tensor, kind: Similarity = "cosine") -> Tensor:
    """Similarity of every row of ``a`` with every row of ``b``, by one matrix product.

    Args:
        a: (n, d).
        b: (m, d).
        kind: "cosine", in [-1, 1], or "dot".

    Returns:
        (n, m) float32, or float64 if the inputs are.

    Raises:
        OptionError: the kind is unknown.
    """
    with full_precision(a):
        return _normalised(a, kind) @ _normalised(b, kind).T


def mean_cosines(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of row i of ``a`` with row i of ``b``, and of row i with the rows j != i.

    Args:
        a: (n, d).
        b: (n, d).

    Returns:
        Two scalars, float32 or float64; of one row alone the second is 0.
    """
    with full_precision(a):
        left, right = _normalised(a, "cosine"), _normalised(b, "cosine")
        pairs = (left * right).sum(dim=1)
        # All cosines together are the product of the sums: no matrix of them is needed.
        others = left.sum(dim=0) @ right.sum(dim=0) - pairs.sum()
    return pairs.mean(), others / max(len(pairs) * (len(pairs) - 1), 1)


def info_nce(
    anchors: Tensor,
    positives: Tensor,
    *,
    hard_negatives: Tensor | None = None,
    extra_negatives: Tensor | None = None,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    first: int = 0,
    alpha: float = 1.0,
    symmetric: bool = False,
    anchors_all: Tensor | None = None,
) -> Tensor:
    r"""InfoNCE with in-batch negatives (SimCSE, equations 1, 4, 5 and 8; ESimCSE, equation 6).

    .. math::

        l_i = -\log \frac{e^{sim(h_i, h_i^+)/\tau}}
            {\sum_j \left( e^{sim(h_i, h_j^+)/\tau}
            + \alpha^{1(i=j)} \sum_k e^{sim(h_i, h_{jk}^-)/\tau} \right)
            + \sum_q e^{sim(h_i, c_q)/\tau}}

    The sums over hard negatives h_jk^- and over extra negatives c_q (a momentum queue) are there
    only if they are given. With ``symmetric`` the loss is averaged with the one in which the
    positives are the anchors, against all anchors (and nothing else):
    -log exp(sim(h_i^+, h_i)/tau) / sum_j exp(sim(h_i^+, h_j)/tau).

    Args:
        anchors: (n, d).
        positives: (m, d), m >= n; row ``first + i`` is the positive of anchor i.
        hard_negatives: (m, h, d), h hard negatives for each row of ``positives``.
        extra_negatives: (q, d), negatives of every anchor; q may be 0.
        temperature: tau.
        similarity: "cosine" or "dot".
        first: where this process's rows begin among the m candidates.
        alpha: weight of a row's own hard negatives; 1 treats them like those of the other rows,
            0 leaves them out. (SimCSE's code takes ln alpha, under the name hard_negative_weight.)
        symmetric: average with the direction from positives to anchors.
        anchors_all: (m, d), the anchors of all processes; needed by ``symmetric`` when m > n.

    Returns:
        The mean of l_i over the n anchors, a scalar.

    Raises:
        OptionError: tau is not positive, alpha is negative, or the similarity is unknown.
        ValueError: the shapes do not fit together.
    """
    _check(temperature, alpha)
    n, m = len(anchors), len(positives)
    if not 0 <= first <= m - n:
        raise ValueError(f"{n} anchors from candidate {first} do not fit into {m} candidates")
    with full_precision(anchors):
        rows = _normalised(anchors, similarity)
        candidates = _normalised(positives, similarity)
        hard = _flat(hard_negatives, m, similarity)
        extra = _normalised(extra_negatives, similarity) if extra_negatives is not None else None

        def forward(part: slice) -> Tensor:
            own = rows[part]
            blocks = [own @ candidates.T / temperature]
            if hard is not None:
                blocks.append(_hard_logits(own, hard, m, temperature, first + part.start, alpha))
            if extra is not None and len(extra):
                blocks.append(own @ extra.T / temperature)
            return F.cross_entropy(torch.cat(blocks, dim=1), labels[part])

        labels = torch.arange(first, first + n, device=anchors.device)
        loss = _mean(forward, n, sum(len(c) for c in (candidates, hard, extra) if c is not None))
        if symmetric:
            everyone = anchors if anchors_all is None else anchors_all
            if len(everyone) != m:
                raise ValueError(f"symmetric needs the anchors of all {m} rows as anchors_all")
            others = _normalised(everyone, similarity)

            def backward(part: slice) -> Tensor:
                logits = candidates[first : first + n][part] @ others.T / temperature
                return F.cross_entropy(logits, labels[part])

            loss = (loss + _mean(backward, n, m)) / 2
        return loss


def two_source_info_nce(
    anchors: Tensor,
    positives: Tensor,
    *,
    negative_anchors: Tensor,
    negatives: Tensor,
    hard_negatives: Tensor | None = None,
    extra_negatives: Tensor | None = None,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    first: int = 0,
    alpha: float = 1.0,
    factor: float = 1.0,
    factor_form: FactorForm = "positive_logit",
) -> Tensor:
    r"""InfoNCE whose positive pairs and negative pairs come from different encodings.

    With ``negative_anchors`` and ``negatives`` encoded without dropout (z) and the positive pairs
    with it (h), this is the off-dropout contrast of SimCSE++ (section 3.2, equation 3). With
    s_i = sim(h_i, h_i^+)/tau and N_i = sum over j != i of exp(sim(z_i, z_j)/tau), the factor m
    enters in one of two ways:

    .. math::

        \text{negative\_sum:}\quad l_i = -\log \frac{e^{s_i}}{e^{s_i} + m N_i}
        \qquad
        \text{positive\_logit:}\quad l_i = -\log \frac{e^{m s_i}}{e^{m s_i} + N_i}

    "negative_sum" is the paper's equation, "positive_logit" what the released code computes and
    what Table 5 of the paper shows (near s = 0.9/tau, m = 0.9 acts like a paper's m of about 6).
    For m = 1 they are equal. The self pair j = i is left out of N_i.

    Args:
        anchors: (n, d), one side of the positive pairs.
        positives: (n, d), the other side, row by row (not gathered).
        negative_anchors: (n, d), the anchors as the negative pairs see them.
        negatives: (m, d), the candidates; ``first + i`` is row i itself and is left out.
        hard_negatives: (m, h, d); row ``first + i`` is weighted by ``alpha``, as in ``info_nce``.
        extra_negatives: (q, d), negatives of every anchor; q may be 0.
        temperature: tau.
        similarity: "cosine" or "dot".
        first: where this process's rows begin among the m candidates.
        alpha: weight of a row's own hard negatives.
        factor: m, positive.
        factor_form: where m stands: "positive_logit" or "negative_sum".

    Returns:
        The mean of l_i over the n anchors, a scalar.

    Raises:
        OptionError: tau or m is not positive, alpha is negative, or a name is unknown.
        ValueError: the shapes do not fit together.
    """
    _check(temperature, alpha)
    if not factor > 0:
        raise OptionError("factor", factor, "must be greater than 0; 1 is the plain form")
    if factor_form not in FACTOR_FORMS:
        raise OptionError("factor_form", factor_form, "unknown", choices=FACTOR_FORMS)
    n, m = len(anchors), len(negatives)
    if len(positives) != n or len(negative_anchors) != n or not 0 <= first <= m - n:
        raise ValueError(
            f"{n} anchors from candidate {first}, {len(positives)} positives, "
            f"{len(negative_anchors)} negative anchors and {m} negatives do not fit together"
        )
    with full_precision(anchors):
        pairs = _normalised(anchors, similarity) * _normalised(positives, similarity)
        positive = pairs.sum(dim=1) / temperature
        if factor_form == "positive_logit":
            positive = positive * factor
        rows = _normalised(negative_anchors, similarity)
        candidates = _normalised(negatives, similarity)
        hard = _flat(hard_negatives, m, similarity)
        extra = _normalised(extra_negatives, similarity) if extra_negatives is not None else None

        def forward(part: slice) -> Tensor:
            own = rows[part]
            in_batch = own @ candidates.T / temperature
            self_pairs = torch.zeros_like(in_batch, dtype=torch.bool)
            self_pairs.diagonal(first + part.start).fill_(True)
            blocks = [in_batch.masked_fill(self_pairs, -math.inf)]
            if hard is not None:
                blocks.append(_hard_logits(own, hard, m, temperature, first + part.start, alpha))
            if extra is not None and len(extra):
                blocks.append(own @ extra.T / temperature)
            negative = torch.cat(blocks, dim=1)
            if factor_form == "negative_sum":
                negative = negative + math.log(factor)
            logits = torch.cat([positive[part, None], negative], dim=1)
            return F.cross_entropy(logits, labels[part])

        labels = torch.zeros(n, dtype=torch.long, device=anchors.device)
        return _mean(forward, n, sum(len(c) for c in (candidates, hard, extra) if c is not None))


def _mean(block: Callable[[slice], Tensor], rows: int, columns: int) -> Tensor:
    """Mean over rows of a loss that compares each row with ``columns`` others.

    Above ``LOGITS`` comparisons it is made of blocks of rows, each of which is computed once more
    in the backward pass, so that one block at a time is in memory.

    Args:
        block: mean of the loss over a slice of the rows.
        rows: number of rows.
        columns: number of comparisons of each.
    """
    height = max(1, LOGITS // max(columns, 1))
    if rows <= height:
        return block(slice(0, rows))
    parts = [slice(start, min(start + height, rows)) for start in range(0, rows, height)]
    sums = [_again(block, part) * (part.stop - part.start) for part in parts]
    return torch.stack(sums).sum() / rows


def _again(block: Callable[[slice], Tensor], part: slice) -> Tensor:
    """A block of which only the result is kept for the backward pass."""
    if not torch.is_grad_enabled():
        return block(part)
    # Nothing random happens here, so torch's generator need not be set back.
    result: Tensor = checkpoint(block, part, use_reentrant=False, preserve_rng_state=False)
    return result


def _flat(hard_negatives: Tensor | None, candidates: int, kind: Similarity) -> Tensor | None:
    """Hard negatives (m, h, d) as (m * h, d) rows ready for products."""
    if hard_negatives is None:
        return None
    if hard_negatives.dim() != 3 or len(hard_negatives) != candidates:
        raise ValueError(
            f"hard negatives of shape {tuple(hard_negatives.shape)} for {candidates} candidates; "
            "wanted (candidates, negatives of each, dimensions)"
        )
    return _normalised(hard_negatives.flatten(0, 1), kind)


def _hard_logits(
    rows: Tensor, hard: Tensor, candidates: int, temperature: float, first: int, alpha: float
) -> Tensor:
    """Logits (n, m * h) of all hard negatives, ln alpha added to those of the row itself."""
    logits = rows @ hard.T / temperature
    if alpha == 1.0:
        return logits
    shape = (len(rows), candidates, len(hard) // candidates)
    own = torch.zeros(shape, dtype=torch.bool, device=rows.device)
    own.diagonal(first).fill_(True)
    own = own.flatten(1)
    if alpha == 0.0:
        return logits.masked_fill(own, -math.inf)
    return torch.where(own, logits + math.log(alpha), logits)


def _normalised(vectors: Tensor, kind: Similarity) -> Tensor:
    """The vectors in full precision, divided by their length if the similarity is the cosine."""
    if kind not in SIMILARITIES:
        raise OptionError("similarity", kind, "unknown", choices=SIMILARITIES)
    vectors = full(vectors)
    return F.normalize(vectors, dim=-1, eps=EPSILON) if kind == "cosine" else vectors


def _check(temperature: float, alpha: float) -> None:
    if not 0 < temperature < math.inf:
        raise OptionError("temperature", temperature, "must be greater than 0, such as 0.05")
    if not 0 <= alpha < math.inf:
        raise OptionError("alpha", alpha, "must be 0 or more; 1 weighs all negatives alike")
