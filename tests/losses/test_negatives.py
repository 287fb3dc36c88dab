"""Masks, weights, hardness and debiasing of negatives against plain loops over Python floats."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_loops import cosine, fewer, seeds, vectors
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.losses import _computing, info_nce, two_source_info_nce

pytestmark = pytest.mark.usefixtures("logits_at_once")

FLOOR = -1.0
"""The least cosine."""


def negatives_sum(logits, weights, positive, tau, beta, plus) -> float:
    """What stands for the negatives in the denominator, from the two papers."""
    count = sum(weights)
    if not count:
        return 0.0
    tilted = [w * math.exp(beta * s) for w, s in zip(weights, logits, strict=True)]
    mean = sum(t * math.exp(s) for t, s in zip(tilted, logits, strict=True)) / sum(tilted)
    if not plus:
        return count * mean
    corrected = (mean - plus * math.exp(positive)) / (1 - plus)
    return count * max(corrected, math.exp(FLOOR / tau))


def loop(rows, candidates, hard, extra, weights, positives, first, alpha, tau, beta, plus) -> float:
    """Mean of -log e^p / (e^p + what stands for the negatives); the own candidate is none."""
    total = 0.0
    for i, row in enumerate(rows):
        logits, counted, column = [], [], 0
        for j, other in enumerate(candidates):
            if j != first + i:
                logits.append(cosine(row, other) / tau)
                counted.append(weights[i][column])
            column += 1
        for j, several in enumerate(hard):
            for other in several:
                own = alpha if j == first + i else 1.0
                logits.append(cosine(row, other) / tau)
                counted.append(own * weights[i][column])
                column += 1
        for other in extra:
            logits.append(cosine(row, other) / tau)
            counted.append(weights[i][column])
            column += 1
        rest = negatives_sum(logits, counted, positives[i], tau, beta, plus)
        total -= math.log(math.exp(positives[i]) / (math.exp(positives[i]) + rest))
    return total / len(rows)


def drawn(seed: int, rows: int, columns: int) -> Tensor:
    """Weights of which some are 0."""
    weights = vectors(seed, rows, columns).exp()
    return weights * (weights > 0.5)


options = {
    "seed": seeds,
    "n": st.integers(1, 5),
    "before": st.integers(0, 2),
    "after": st.integers(0, 2),
    "h": st.integers(0, 2),
    "q": st.integers(0, 3),
    "tau": st.sampled_from([0.3, 1.0]),
    "alpha": st.sampled_from([0.0, 0.5, 1.0]),
    "beta": st.sampled_from([0.0, 0.7]),
    "plus": st.sampled_from([0.0, 0.1, 0.6]),
    "function": st.booleans(),
}


@fewer
@given(**options)
def test_info_nce_with_weights_is_the_equations(
    seed, n, before, after, h, q, tau, alpha, beta, plus, function
):
    m, d = before + n + after, 4
    a, p, hard, extra = (
        vectors(seed + k, *s) for k, s in enumerate([(n, d), (m, d), (m, h, d), (q, d)])
    )
    weights = drawn(seed + 4, n, m + m * h + q)
    loss = info_nce(
        a,
        p,
        hard_negatives=hard if h else None,
        extra_negatives=extra,
        temperature=tau,
        first=before,
        alpha=alpha,
        weights=(lambda part: weights[part]) if function else weights,
        hardness=beta,
        debias=plus,
    )
    lists = [x.tolist() for x in (a, p, hard, extra, weights)]
    positives = [cosine(x, y) / tau for x, y in zip(lists[0], lists[1][before:], strict=False)]
    expected = loop(*lists, positives, before, alpha, tau, beta, plus)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@fewer
@given(
    **options,
    m=st.sampled_from([0.9, 1.0, 1.3]),
    form=st.sampled_from(["positive_logit", "negative_sum"]),
)
def test_two_sources_with_weights_are_the_equations(
    seed, n, before, after, h, q, tau, alpha, beta, plus, function, m, form
):
    rows, d = before + n + after, 4
    shapes = [(n, d), (n, d), (n, d), (rows, d), (rows, h, d), (q, d)]
    a, p, za, z, hard, extra = (vectors(seed + k, *shape) for k, shape in enumerate(shapes))
    weights = drawn(seed + 6, n, rows + rows * h + q)
    loss = two_source_info_nce(
        a,
        p,
        negative_anchors=za,
        negatives=z,
        hard_negatives=hard if h else None,
        extra_negatives=extra,
        temperature=tau,
        first=before,
        alpha=alpha,
        factor=m,
        factor_form=form,
        weights=(lambda part: weights[part]) if function else weights,
        hardness=beta,
        debias=plus,
    )
    expected = 0.0
    for i in range(n):
        positive = cosine(a[i].tolist(), p[i].tolist()) / tau
        # Of one row, the loop gives log(1 + rest / e^s); the factor goes to one of the two.
        one = loop(
            [za[i].tolist()], z.tolist(), hard.tolist(), extra.tolist(), [weights[i].tolist()],
            [positive], before + i, alpha, tau, beta, plus,
        )  # fmt: skip
        rest = math.expm1(one) * math.exp(positive)
        if form == "negative_sum":
            expected += math.log1p(m * rest / math.exp(positive)) / n
        else:
            expected += math.log1p(rest / math.exp(m * positive)) / n
    assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("more", [{}, {"hardness": 0.5}, {"debias": 0.1}])
def test_a_masked_negative_is_as_if_it_were_not_there(more):
    anchors, positives, extra = vectors(0, 3, 4), vectors(1, 3, 4), vectors(2, 5, 4)
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[:, 6] = False
    masked = info_nce(anchors, positives, extra_negatives=extra, weights=mask, **more)
    without = info_nce(anchors, positives, extra_negatives=extra[[0, 1, 2, 4]], **more)
    assert masked.item() == pytest.approx(without.item(), rel=1e-12)
    # The own positive is no negative, whatever its weight.
    mask.fill_diagonal_(False)
    again = info_nce(anchors, positives, extra_negatives=extra, weights=mask, **more)
    assert again.item() == masked.item()


@pytest.mark.parametrize("symmetric", [False, True])
def test_weights_of_one_change_no_bit(symmetric):
    anchors, positives, hard = (
        vectors(k, *s).float() for k, s in enumerate([(4, 3), (4, 3), (4, 2, 3)])
    )
    plain = info_nce(anchors, positives, hard_negatives=hard, alpha=0.5, symmetric=symmetric)
    ones = torch.ones(4, 12)
    given_ = info_nce(
        anchors, positives, hard_negatives=hard, alpha=0.5, symmetric=symmetric, weights=ones
    )
    assert torch.equal(plain, given_)


def test_both_directions_have_the_weights_of_a_pair():
    anchors, positives = vectors(0, 5, 4), vectors(1, 5, 4)
    weights = drawn(2, 5, 5)
    weights = weights + weights.T
    both = info_nce(anchors, positives, symmetric=True, weights=weights, hardness=0.3)
    there = info_nce(anchors, positives, weights=weights, hardness=0.3)
    back = info_nce(positives, anchors, weights=weights, hardness=0.3)
    assert both.item() == pytest.approx((there + back).item() / 2, rel=1e-12)


@pytest.mark.parametrize(
    "more", [{}, {"hardness": 1.0}, {"debias": 0.2}, {"hardness": 1.0, "debias": 0.2}]
)
def test_a_row_without_negatives_costs_nothing(more):
    anchors, positives = vectors(0, 3, 4).requires_grad_(), vectors(1, 3, 4)
    weights = torch.ones(3, 3)
    weights[1] = 0
    info_nce(anchors, positives, weights=weights, **more).backward()
    assert anchors.grad.isfinite().all()
    assert not anchors.grad[1].any() and anchors.grad[0].any()


@pytest.mark.parametrize("tau", [0.01, 0.05])
def test_debiasing_at_low_temperatures_stays_finite(tau):
    """e^(1/tau) is no number of float32 at 0.01, and a good positive leaves only the floor."""
    anchors = vectors(0, 6, 8).float().requires_grad_()
    loss = info_nce(anchors, anchors.detach().clone(), temperature=tau, debias=0.1)
    loss.backward()
    assert loss.isfinite() and anchors.grad.isfinite().all()
    # Positives of cosine 1: N tau^+ e^(1/tau) exceeds the sum, and N e^(-1/tau) is left of it.
    assert loss.item() == pytest.approx(math.log1p(5 * math.exp(-2 / tau)), abs=1e-7)


def test_hardness_weighs_the_closer_negatives_more():
    anchors, positives = vectors(0, 8, 4), vectors(1, 8, 4)
    losses = [info_nce(anchors, positives, hardness=beta).item() for beta in (0.0, 0.5, 2.0)]
    assert losses == sorted(losses) and losses[0] < losses[-1]


@pytest.mark.parametrize(
    "more", [{"hardness": 0.5}, {"debias": 0.2}, {"hardness": 0.5, "debias": 0.2}]
)
def test_gradients_are_finite_differences(more):
    inputs = [
        vectors(k, *s).requires_grad_() for k, s in enumerate([(3, 4), (5, 4), (5, 2, 4), (2, 4)])
    ]
    weights = drawn(7, 3, 17)

    def loss(anchors: Tensor, positives: Tensor, hard: Tensor, extra: Tensor) -> Tensor:
        shared = {"hard_negatives": hard, "extra_negatives": extra, "first": 1, "temperature": 0.7}
        one = info_nce(anchors, positives, weights=weights, **shared, **more)
        return one + two_source_info_nce(
            anchors,
            anchors.flip(1),
            negative_anchors=anchors.flip(0),
            negatives=positives,
            weights=weights,
            **shared,
            **more,
        )

    assert torch.autograd.gradcheck(loss, inputs)


def test_no_more_weights_than_a_block_are_made(monkeypatch):
    monkeypatch.setattr(_computing, "LOGITS", 32)
    anchors, positives = vectors(0, 16, 4).requires_grad_(), vectors(1, 16, 4)
    made = []

    def weights(part: slice) -> Tensor:
        made.append((part.stop - part.start) * 16)
        return torch.ones(part.stop - part.start, 16)

    info_nce(anchors, positives, weights=weights).backward()
    assert len(made) == 16 and max(made) == 32  # eight blocks, each made again for its gradient


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"hardness": -1.0}, "hardness -1.0"),
        ({"debias": 1.0}, "debias 1.0"),
        ({"debias": math.nan}, "debias nan"),
        ({"debias": 0.1, "similarity": "dot"}, "debias 0.1.*needs the cosine"),
    ],
)
def test_options_out_of_range_are_named(more, message):
    ones = torch.ones(2, 3)
    with pytest.raises(OptionError, match=message):
        info_nce(ones, ones, **more)
    with pytest.raises(OptionError, match=message):
        two_source_info_nce(ones, ones, negative_anchors=ones, negatives=ones, **more)


def test_weights_of_another_shape_are_refused():
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3\) for \(2, 2\)"):
        info_nce(ones, ones, weights=torch.ones(2, 3))
