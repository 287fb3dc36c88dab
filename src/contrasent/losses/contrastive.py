"""The contrastive losses: a sentence against its positive and many negatives.

h_i is an anchor, h_i^+ its positive, h_j^- a hard negative, tau the temperature. Anchors are this
process's rows, candidates those of all; `first` says where its own begin.
"""

import math
from collections.abc import Callable
from copy import copy
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasent.errors import OptionError, check_choice
from contrasent.losses.similarity import (
    Similarity,
    check_temperature,
    full_precision,
    mean_of_rows,
    normalized,
)

Form = Literal["softmax", "decoupled", "sigmoid"]
"""How positive and negatives are compared, see ``info_nce``."""

Weights = Tensor | Callable[[slice], Tensor]
"""Weights of negatives, (rows, columns), with 0 or False for a pair that is not negative; or a
function that computes them for a slice of the rows, to save memory."""


FactorForm = Literal["positive_logit", "negative_sum"]
"""Place of the factor of SimCSE++, see ``two_source_info_nce``."""


def check_form(
    form: Form,
    *,
    similarity: Similarity = "cosine",
    hardness: float = 0.0,
    debias: float = 0.0,
    factor: float = 1.0,
    factor_form: FactorForm = "positive_logit",
) -> None:
    """Reject settings of the losses that exclude each other."""
    if form == "sigmoid" and (hardness or debias):
        problem = "compares single pairs: hardness and debias must be 0"
        raise OptionError("loss", form, problem)
    if debias and similarity != "cosine":
        raise OptionError("debias", debias, "needs the cosine, which has a lowest value")
    if form != "softmax" and factor_form == "negative_sum" and factor != 1.0:
        raise OptionError("factor_form", factor_form, f"is not defined with loss {form!r}")


class Negatives:
    """The columns that every anchor is compared with: candidates, hard and extra negatives."""

    def __init__(
        self,
        candidates: Tensor,  # (m, d); of anchor i, column `first + i` is its own and no negative
        hard: Tensor | None,  # (m, h, d)
        extra: Tensor | None,  # (q, d)
        similarity: Similarity,
        *,
        temperature: float,
        first: int,  # where this process's rows begin among the candidates
        alpha: float,  # weight of a row's own hard negatives
        weights: Weights | None,
        hardness: float,
        debias: float,
        form: Form,
        bias: float,
    ) -> None:
        check_temperature(temperature)
        check_choice("loss", form, get_args(Form))
        if not 0 <= alpha < math.inf:
            problem = "must be 0 or more; 1 weights all negatives equally"
            raise OptionError("alpha", alpha, problem)
        if not 0 <= hardness < math.inf:
            raise OptionError("hardness", hardness, "must be 0 (all negatives equal) or more")
        if not 0 <= debias < 1:
            raise OptionError("debias", debias, "must be at least 0 (off) and less than 1")
        check_form(form, similarity=similarity, hardness=hardness, debias=debias)
        m = len(candidates)
        if hard is not None and (hard.dim() != 3 or len(hard) != m):
            raise ValueError(
                f"hard negatives of shape {tuple(hard.shape)} for {m} candidates; expected "
                "(candidates, negatives of each, dimensions)"
            )
        self.candidates = normalized(candidates, similarity)
        self.hard = None if hard is None else normalized(hard.flatten(0, 1), similarity)
        self.extra = None if extra is None else normalized(extra, similarity)
        self.temperature, self.first = temperature, first
        self.alpha, self.weights = alpha, weights
        self.hardness, self.debias = hardness, debias
        self.form, self.bias = form, bias

    def facing(self, others: Tensor) -> "Negatives":
        """The same for the direction from positives to anchors."""
        back, given = copy(self), self.weights
        back.candidates, back.hard, back.extra, back.alpha = others, None, None, 1.0
        if given is not None:
            back.weights = lambda part: _of(given, part)[:, : len(others)]
        return back

    @property
    def columns(self) -> int:
        """Number of rows that an anchor is compared with."""
        return sum(len(c) for c in (self.candidates, self.hard, self.extra) if c is not None)

    @property
    def reweighted(self) -> bool:
        """Whether the sum over the negatives is corrected, by ``log_sum``."""
        return bool(self.hardness or self.debias)

    def logits(self, rows: Tensor) -> Tensor:
        """Similarities (k, columns) of k anchors with all columns, divided by tau."""
        parts = [c for c in (self.candidates, self.hard, self.extra) if c is not None]
        return torch.cat([rows @ part.T / self.temperature for part in parts], dim=1)

    def own(self, logits: Tensor, part: slice) -> Tensor:
        """Mask (k, columns) of each anchor's own column."""
        mask = torch.zeros_like(logits, dtype=torch.bool)
        mask.diagonal(self.first + part.start).fill_(True)
        return mask

    def log_weights(self, logits: Tensor, part: slice) -> Tensor | None:
        """Logarithms (k, columns) of the weights, 0 for the own column; None if all are one."""
        total = None
        if self.hard is not None and self.alpha != 1.0:
            m = len(self.candidates)
            own_hard = logits.new_zeros(len(logits), m, len(self.hard) // m)
            own_hard.diagonal(self.first + part.start).fill_(
                math.log(self.alpha) if self.alpha else -math.inf
            )
            total = torch.zeros_like(logits)
            total[:, m : m + len(self.hard)] = own_hard.flatten(1)
        if self.weights is not None:
            weights = _of(self.weights, part)
            if weights.shape != logits.shape:
                raise ValueError(
                    f"weights of shape {tuple(weights.shape)} for {tuple(logits.shape)} comparisons"
                )
            logs = weights.detach().to(logits).log().masked_fill(self.own(logits, part), 0.0)
            total = logs if total is None else total + logs
        return total

    def log_sum(self, positive: Tensor, logits: Tensor, part: slice) -> Tensor:
        r"""Logarithm (k,) of the corrected sum over the negatives; see ``info_nce``.

        .. math::

            S_i = N_i \frac{\sum_j w_{ij} e^{(1 + \beta) s_{ij}}}{\sum_j w_{ij} e^{\beta s_{ij}}}
            \qquad
            \max\left( \frac{S_i - N_i \tau^+ e^{s_i^+}}{1 - \tau^+}, N_i e^{-1/\tau} \right)

        ``positive``: (k,) logits of the positive pairs, s_i^+. ``logits``: (k, columns), s_ij.
        """
        # log w_ij; an anchor's own column is not a negative.
        weights = self.log_weights(logits, part)
        weights = torch.zeros_like(logits) if weights is None else weights
        weights = weights.masked_fill(self.own(logits, part), -math.inf)
        # Rows without negatives would give infinities; they are computed unmasked and dropped.
        none = weights.isneginf().all(dim=1)
        weights = weights.masked_fill(none[:, None], 0.0)
        # log N_i, and log S_i: without hardness N_i and the denominator are the same.
        count = weights.logsumexp(dim=1)
        total = (weights + (1 + self.hardness) * logits).logsumexp(dim=1)
        if self.hardness:
            total = total + count - (weights + self.hardness * logits).logsumexp(dim=1)
        if self.debias:
            # log(S_i - e) as log S_i + log(1 - e / S_i), with e what positives are expected to add.
            expected = count + math.log(self.debias) + positive
            share = -torch.expm1((expected - total).clamp_max(0.0))
            # More than all of S_i may be expected: a share is at least the smallest number.
            share = share.clamp_min(torch.finfo(share.dtype).tiny).log() - math.log1p(-self.debias)
            # No sum is less than with all negatives opposite to the anchor.
            total = torch.maximum(total + share, count - 1 / self.temperature)
        return total.masked_fill(none, -math.inf)

    def by_form(self, positive: Tensor, plain: Tensor, logits: Tensor, part: slice) -> Tensor:
        """Mean of the decoupled or the sigmoid loss; ``plain`` (k,) are what debias takes."""
        if self.form == "decoupled":
            total = self.log_sum(plain, logits, part)
            return (total.masked_fill(total.isneginf(), 0.0) - positive).mean()
        costs = F.softplus(logits + self.bias).masked_fill(self.own(logits, part), 0.0)
        weights = self.log_weights(logits, part)
        costs = costs if weights is None else costs * weights.exp()
        return (F.softplus(-positive - self.bias) + costs.sum(dim=1)).mean()


def _of(weights: Weights, part: slice) -> Tensor:
    """The weights of a block of rows."""
    return weights(part) if callable(weights) else weights[part]


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
    weights: Weights | None = None,
    hardness: float = 0.0,
    debias: float = 0.0,
    form: Form = "softmax",
    bias: float = -10.0,
) -> Tensor:
    r"""InfoNCE with in-batch negatives (SimCSE, equations 1, 4, 5 and 8; ESimCSE, equation 6).

    .. math::

        l_i = -\log \frac{e^{sim(h_i, h_i^+)/\tau}}
            {\sum_j \left( e^{sim(h_i, h_j^+)/\tau}
            + \alpha^{1(i=j)} \sum_k e^{sim(h_i, h_{jk}^-)/\tau} \right)
            + \sum_q e^{sim(h_i, c_q)/\tau}}

    The sums over hard negatives h_jk^- and extra negatives c_q (a momentum queue) are optional.
    ``symmetric`` averages the loss with its reverse, from positives to all anchors:
    -log exp(sim(h_i^+, h_i)/tau) / sum_j exp(sim(h_i^+, h_j)/tau).

    ``weights`` multiply the summands of the negatives; one of weight 0 is masked. With s_ij the
    logits, s_i^+ that of the positive and N_i the sum of the weights, ``hardness`` (beta; Robinson
    et al. 2021, section 3) makes of the negatives' sum S_i N_i times their mean under weights
    proportional to exp(beta s_ij), with gradient through them as in the released code; ``debias``
    (tau^+, the share of negatives that are really positives; Chuang et al. 2020, section 4) then
    takes max((S_i - N_i tau^+ exp(s_i^+)) / (1 - tau^+), N_i exp(-1/tau)) for S_i.

    Two other forms compare the same vectors. "decoupled" leaves the positive out of the sum (Yeh et
    al. 2022, section 3.1): l_i = -s_i^+ + log S_i; a row without negatives has -s_i^+ alone.
    "sigmoid" takes every pair for a question of its own (SigLIP: Zhai et al. 2023, section 3.2),
    with b the ``bias`` and w_ij the weights: l_i = log(1 + exp(-s_i^+ - b)) + sum over j of w_ij
    log(1 + exp(s_ij + b)). There tau and b are learned, from 0.1 and -10; here they are settings.

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
        weights: (n, m + m * h + q) numbers of 0 or more, or booleans, of which False masks;
            constants in the order of the arguments (of ``hard_negatives`` row by row). A function
            that gives them for a slice of the anchors keeps memory in O(n). That of the own
            positive is not read. With ``symmetric``, the first m serve both directions.
        hardness: beta; 0 counts all negatives alike.
        debias: tau^+; 0 takes all negatives for true. Needs the cosine.
        form: "softmax", "decoupled" or "sigmoid".
        bias: b of "sigmoid".

    Returns:
        The mean of l_i over the n anchors, a scalar.

    Raises:
        OptionError: tau is not positive, alpha, beta or tau^+ out of range, or the similarity is
            unknown.
        ValueError: the shapes do not fit together.
    """
    n, m = len(anchors), len(positives)
    if not 0 <= first <= m - n:
        raise ValueError(f"{n} anchors from candidate {first} exceed the {m} candidates")
    with full_precision(anchors):
        against = Negatives(
            positives,
            hard_negatives,
            extra_negatives,
            similarity,
            temperature=temperature,
            first=first,
            alpha=alpha,
            weights=weights,
            hardness=hardness,
            debias=debias,
            form=form,
            bias=bias,
        )
        rows = normalized(anchors, similarity)
        loss = _one_direction(rows, against)
        if symmetric:
            everyone = anchors if anchors_all is None else anchors_all
            if len(everyone) != m:
                raise ValueError(f"symmetric needs the anchors of all {m} rows as anchors_all")
            back = against.facing(normalized(everyone, similarity))
            loss = (loss + _one_direction(against.candidates[first : first + n], back)) / 2
        return loss


def _one_direction(rows: Tensor, against: Negatives) -> Tensor:
    labels = torch.arange(against.first, against.first + len(rows), device=rows.device)

    def block(part: slice) -> Tensor:
        logits = against.logits(rows[part])
        if against.form != "softmax":
            positive = logits.diagonal(against.first + part.start)
            return against.by_form(positive, positive, logits, part)
        if against.reweighted:
            positive = logits.diagonal(against.first + part.start)
            return _cross_entropy(positive, against.log_sum(positive, logits, part)[:, None])
        weights = against.log_weights(logits, part)
        return F.cross_entropy(logits if weights is None else logits + weights, labels[part])

    return mean_of_rows(block, len(rows), against.columns)


def _cross_entropy(positive: Tensor, negative: Tensor) -> Tensor:
    """Mean over rows of -log e^p / (e^p + sum over j of e^n_j); p (k,), n (k, c)."""
    labels = torch.zeros(len(positive), dtype=torch.long, device=positive.device)
    return F.cross_entropy(torch.cat([positive[:, None], negative], dim=1), labels)


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
    weights: Weights | None = None,
    hardness: float = 0.0,
    debias: float = 0.0,
    form: Form = "softmax",
    bias: float = -10.0,
) -> Tensor:
    r"""InfoNCE with different encodings for positive pairs and negative pairs.

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
        weights: of the negatives, (n, m + m * h + q) or a function, as in ``info_nce``.
        hardness: beta, as in ``info_nce``.
        debias: tau^+, as in ``info_nce``; its s_i^+ is s_i, without the factor.
        form: as in ``info_nce``; m in the place "positive_logit" alone unless it is "softmax".
        bias: b of "sigmoid".

    Returns:
        The mean of l_i over the n anchors, a scalar.

    Raises:
        OptionError: tau or m is not positive, alpha, beta or tau^+ out of range, or a name is
            unknown.
        ValueError: the shapes do not fit together.
    """
    if not factor > 0:
        raise OptionError("factor", factor, "must be greater than 0; 1 is the plain form")
    check_choice("factor_form", factor_form, get_args(FactorForm))
    check_form(form, factor=factor, factor_form=factor_form)
    n, m = len(anchors), len(negatives)
    if len(positives) != n or len(negative_anchors) != n or not 0 <= first <= m - n:
        raise ValueError(
            f"{n} anchors from candidate {first}, {len(positives)} positives, "
            f"{len(negative_anchors)} negative anchors and {m} negatives do not match"
        )
    with full_precision(anchors):
        against = Negatives(
            negatives,
            hard_negatives,
            extra_negatives,
            similarity,
            temperature=temperature,
            first=first,
            alpha=alpha,
            weights=weights,
            hardness=hardness,
            debias=debias,
            form=form,
            bias=bias,
        )
        pairs = normalized(anchors, similarity) * normalized(positives, similarity)
        plain = pairs.sum(dim=1) / temperature
        positive = plain * factor if factor_form == "positive_logit" else plain
        rows = normalized(negative_anchors, similarity)

        def block(part: slice) -> Tensor:
            logits = against.logits(rows[part])
            if against.form != "softmax":
                return against.by_form(positive[part], plain[part], logits, part)
            if against.reweighted:
                negative = against.log_sum(plain[part], logits, part)[:, None]
            else:
                negative = logits.masked_fill(against.own(logits, part), -math.inf)
                log_weights = against.log_weights(logits, part)
                negative = negative if log_weights is None else negative + log_weights
            if factor_form == "negative_sum":
                negative = negative + math.log(factor)
            return _cross_entropy(positive[part], negative)

        return mean_of_rows(block, n, against.columns)
