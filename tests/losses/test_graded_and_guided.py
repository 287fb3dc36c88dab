"""Losses of graded labels and of a guide against plain loops over Python floats."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contrasent import losses
from contrasent.errors import OptionError
from contrasent.losses import complex_cosines, cosent, distill_ranking, gist, pair_cosines
from plain_loops import (
    complex_cosine,
    cosine,
    fewer,
    loop_cosent,
    loop_gist,
    loop_ranking,
    seeds,
    vectors,
)

pytestmark = pytest.mark.usefixtures("logits_at_once")


@fewer
@given(
    pairs=st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 4)), min_size=1, max_size=9),
    tau=st.sampled_from([0.05, 0.5]),
)
def test_cosent_is_the_sum_over_all_couples(pairs, tau):
    similarities = torch.tensor([s for s, _ in pairs], dtype=torch.float64)
    scores = torch.tensor([y for _, y in pairs], dtype=torch.float64)
    loss = cosent(similarities, scores, temperature=tau)
    expected = loop_cosent(*zip(*pairs, strict=True), tau)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_scores_that_are_all_equal_teach_nothing():
    similarities = vectors(0, 4).requires_grad_()
    loss = cosent(similarities, torch.full((4,), 2.5))
    loss.backward()
    assert loss.item() == 0 and not similarities.grad.any()


def test_cosent_of_many_pairs_needs_no_square_of_them():
    """The largest tensor that is kept for the gradient is as long as the pairs."""
    sizes = []
    similarities = vectors(0, 5000).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (sizes.append(t.numel()), t)[1], lambda t: t
    ):
        cosent(similarities, vectors(1, 5000).round(decimals=1))
    assert sizes and max(sizes) <= 5000


@fewer
@given(seed=seeds, n=st.integers(1, 5), half=st.integers(1, 4))
def test_complex_cosines_are_those_of_complex_numbers(seed, n, half):
    a, b = vectors(seed, n, 2 * half), vectors(seed + 1, n, 2 * half)
    found = complex_cosines(a, b).tolist()
    for x, y, value in zip(a.tolist(), b.tolist(), found, strict=True):
        assert value == pytest.approx(complex_cosine(x, y), rel=1e-9, abs=1e-12)


def test_complex_cosines_of_a_text_with_itself_and_of_odd_dimensions():
    a = vectors(0, 3, 6)
    assert complex_cosines(a, 2 * a).tolist() == pytest.approx([1.0] * 3)
    with pytest.raises(ValueError, match="5, cannot be halved"):
        complex_cosines(a[:, :5], a[:, :5])


@fewer
@given(seed=seeds, n=st.integers(1, 6))
def test_cosine_regression_is_the_mean_square(seed, n):
    a, b, scores = vectors(seed, n, 3), vectors(seed + 1, n, 3), vectors(seed + 2, n).tanh()
    rows = zip(a.tolist(), b.tolist(), scores.tolist(), strict=True)
    expected = sum((cosine(x, y) - s) ** 2 for x, y, s in rows)
    loss = losses.cosine_regression(pair_cosines(a, b), scores)
    assert loss.item() == pytest.approx(expected / n, rel=1e-9)


def test_gradients_of_graded_losses_are_finite_differences():
    a, b = vectors(0, 5, 4).requires_grad_(), vectors(1, 5, 4).requires_grad_()
    scores = torch.tensor([0.0, 3.0, 3.0, 1.5, 5.0], dtype=torch.float64)

    def loss(a, b):
        angle = cosent(complex_cosines(a, b), scores, temperature=1)
        regression = losses.cosine_regression(pair_cosines(a, b), scores / 5)
        return cosent(pair_cosines(a, b), scores) + angle + regression

    assert torch.autograd.gradcheck(loss, (a, b))


@fewer
@given(
    seed=seeds, n=st.integers(1, 4), before=st.integers(0, 2), after=st.integers(0, 2),
    h=st.integers(0, 2), margin=st.sampled_from([0.0, 0.1, -0.2]),
)  # fmt: skip
def test_gist_is_the_equation(seed, n, before, after, h, margin):
    m = before + n + after
    columns = tuple(vectors(seed + k, m, 4) for k in range(2 + h))
    guide = tuple(vectors(seed + 10 + k, m, 3) for k in range(2 + h))
    loss = gist(columns, guide, first=before, rows=n, temperature=0.4, margin=margin)
    q, p, *hard = (c.tolist() for c in columns)
    expected = loop_gist(q, p, hard, [g.tolist() for g in guide], before, n, 0.4, margin)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@fewer
@given(
    seed=seeds, n=st.integers(1, 4), before=st.integers(0, 2), after=st.integers(1, 2),
    tau=st.sampled_from([0.1, 1.0]), tau_g=st.sampled_from([0.05, 0.7]),
)  # fmt: skip
def test_distilled_rankings_are_the_equation(seed, n, before, after, tau, tau_g):
    m = before + n + after
    a, c, ga, gc = (vectors(seed + k, *s) for k, s in enumerate([(n, 4), (m, 4), (n, 3), (m, 3)]))
    loss = distill_ranking(a, c, ga, gc, first=before, temperature=tau, guide_temperature=tau_g)
    expected = loop_ranking(*(x.tolist() for x in (a, c, ga, gc)), before, tau, tau_g)
    assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("name", ["gist", "distill_ranking"])
def test_the_parts_of_a_split_batch_average_to_the_whole(name):
    q, p, gq, gp = (vectors(k, 6, 4) for k in range(4))

    def loss(first, rows):
        if name == "gist":
            return gist((q, p), (gq, gp), first=first, rows=rows)
        part = slice(first, first + rows)
        return distill_ranking(q[part], p, gq[part], gp, first=first)

    parts = torch.stack([loss(first, 2) for first in (0, 2, 4)])
    assert parts.mean().item() == pytest.approx(loss(0, 6).item(), rel=1e-12)


def test_gradients_of_guided_losses_are_finite_differences():
    inputs = [vectors(k, 4, 3).requires_grad_() for k in range(3)]
    guide = tuple(vectors(10 + k, 4, 2) for k in range(3))

    def loss(q, p, n):
        one = gist((q, p, n), guide, temperature=0.5)
        return one + distill_ranking(q, p, guide[0], guide[1], temperature=0.3)

    assert torch.autograd.gradcheck(loss, inputs)


ONES = torch.ones(3, 2)
BOTH = (ONES, ONES)


@pytest.mark.parametrize(("loss", "given", "options", "kind", "said"), [
    (cosent, (ONES[:, 0],) * 2, {"temperature": 0}, OptionError, "temperature 0"),
    (gist, (BOTH, BOTH), {"temperature": -1}, OptionError, "temperature -1"),
    (distill_ranking, BOTH * 2, {"guide_temperature": 0}, OptionError, "guide_temperature 0"),
    (gist, (BOTH, BOTH), {"margin": math.nan}, OptionError, "margin nan"),
    (gist, (BOTH, (ONES, ONES[:2])), {}, ValueError, "guide"),
    (distill_ranking, (*BOTH, ONES, ONES[:2]), {}, ValueError, "guide"),
])  # fmt: skip
def test_wrong_options_and_shapes_are_rejected(loss, given, options, kind, said):
    with pytest.raises(kind, match=said):
        loss(*given, **options)
