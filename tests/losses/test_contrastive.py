"""The contrastive losses: against plain loops, and what must not change them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.losses import info_nce, mean_cosines, pair_cosines, similarity, two_source_info_nce
from plain_loops import few, loop, pairs, seeds, sim, vectors

pytestmark = pytest.mark.usefixtures("logits_at_once")


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("factor", [None, 0.9])
def test_blocks_of_rows_change_neither_loss_nor_gradient(monkeypatch, symmetric, factor):
    parts = [vectors(k, *shape) for k, shape in enumerate([(7, 4), (9, 4), (9, 2, 4), (3, 4)])]
    results = []
    for logits in (10**9, 100, 1):
        monkeypatch.setattr(similarity, "LOGITS", logits)
        a, b, hard, extra = (part.clone().requires_grad_() for part in parts)
        shared = {"hard_negatives": hard, "extra_negatives": extra, "alpha": 0.5, "first": 1}
        if factor is None:
            shared |= {"symmetric": symmetric, "anchors_all": b.flip(0) if symmetric else None}
            loss = info_nce(a, b, **shared)
        else:
            loss = two_source_info_nce(
                a, b[:7], negative_anchors=a.flip(0), negatives=b, factor=factor, **shared
            )
        loss.backward()
        results.append([loss.detach(), *(part.grad for part in (a, b, hard, extra))])
    for other in results[1:]:
        for got, wanted in zip(other, results[0], strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@few
@given(seed=seeds, n=st.integers(1, 6), d=st.integers(1, 5))
def test_mean_cosines_are_those_of_all_pairs(seed, n, d):
    a, b = vectors(seed, n, d), vectors(seed + 1, n, d)
    cosines = [[sim(x, y, "cosine") for y in b.tolist()] for x in a.tolist()]
    same = [cosines[i][i] for i in range(n)]
    others = [cosines[i][j] for i in range(n) for j in range(n) if i != j] or [0.0]
    got = mean_cosines(a, b)
    assert got[0].item() == pytest.approx(sum(same) / n, abs=1e-12)
    assert got[1].item() == pytest.approx(sum(others) / len(others), abs=1e-12)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_parts_of_a_split_batch_average_to_the_whole(symmetric):
    anchors, positives, hard = vectors(0, 6, 4), vectors(1, 6, 4), vectors(2, 6, 2, 4)
    options = {"hard_negatives": hard, "alpha": 0.5, "temperature": 0.2, "symmetric": symmetric}
    whole = info_nce(anchors, positives, **options)
    parts = [
        info_nce(anchors[k : k + 2], positives, first=k, anchors_all=anchors, **options)
        for k in (0, 2, 4)
    ]
    assert torch.stack(parts).mean().item() == pytest.approx(whole.item(), rel=1e-12)


def test_own_hard_negatives_of_weight_zero_leave_finite_gradients():
    anchors, positives, hard = vectors(0, 1, 4), vectors(1, 1, 4), vectors(2, 1, 3, 4)
    anchors.requires_grad_()
    info_nce(anchors, positives, hard_negatives=hard, alpha=0.0).backward()
    assert anchors.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_half_precision_do_not_reach_the_loss(dtype):
    half = vectors(0, 5, 8).to(dtype), vectors(1, 5, 8).to(dtype)
    exact = info_nce(half[0].double(), half[1].double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = info_nce(*half)
        cosines = pair_cosines(*half)
    assert loss.dtype == cosines.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


def test_a_zero_vector_gives_finite_numbers():
    anchors = torch.zeros(2, 3, requires_grad=True)
    loss = info_nce(anchors, torch.ones(2, 3))
    loss.backward()
    assert loss.isfinite() and anchors.grad.isfinite().all()


def test_factor_out_of_range_is_named():
    ones = torch.ones(2, 3)
    with pytest.raises(OptionError, match="factor 0: must be greater than 0"):
        two_source_info_nce(ones, ones, negative_anchors=ones, negatives=ones, factor=0)
    with pytest.raises(OptionError, match="did you mean 'negative_sum'"):
        given = {"negative_anchors": ones, "negatives": ones, "factor_form": "negativesum"}
        two_source_info_nce(ones, ones, **given)


def test_shapes_that_do_not_fit_are_rejected():
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match="exceed the"):
        info_nce(ones, ones, first=1)
    with pytest.raises(ValueError, match="hard negatives of shape"):
        info_nce(ones, ones, hard_negatives=ones)
    with pytest.raises(ValueError, match="anchors_all"):
        info_nce(ones, torch.ones(4, 3), symmetric=True)
    with pytest.raises(ValueError, match="do not match"):
        two_source_info_nce(ones, ones[:1], negative_anchors=ones, negatives=ones)
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3\) for \(2, 2\)"):
        info_nce(ones, ones, weights=torch.ones(2, 3))


def drawn(seed: int, rows: int, columns: int) -> Tensor:
    """Weights of which some are 0."""
    weights = vectors(seed, rows, columns).exp()
    return weights * (weights > 0.5)


@few
@given(
    seed=seeds, n=st.integers(1, 5), before=st.integers(0, 3), after=st.integers(0, 2),
    d=st.integers(1, 5), h=st.integers(0, 3), q=st.integers(0, 3),
    tau=st.sampled_from([0.3, 1.0, 2.0]), kind=st.sampled_from(["cosine", "dot"]),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0]), beta=st.sampled_from([0.0, 0.0, 0.7]),
    plus=st.sampled_from([0.0, 0.0, 0.1, 0.6]),
    weighted=st.sampled_from(["no", "matrix", "function"]),
    factor=st.sampled_from([0.5, 0.9, 1.0, 1.3]),
    form=st.sampled_from(["positive_logit", "negative_sum"]),
    way=st.sampled_from(["softmax", "softmax", "decoupled", "sigmoid"]),
    bias=st.sampled_from([-1.5, 0.4]),
)  # fmt: skip
def test_both_losses_are_the_equations(
    seed, n, before, after, d, h, q, tau, kind, alpha, beta, plus, weighted, factor, form, way, bias
):
    beta, plus = (0.0, 0.0) if way == "sigmoid" else (beta, plus)
    form = form if way == "softmax" else "positive_logit"
    m = before + n + after
    shapes = [(n, d), (n, d), (n, d), (m, d), (m, h, d), (q, d)]
    a, p, za, z, hard, extra = (vectors(seed + k, *shape) for k, shape in enumerate(shapes))
    weights = None if weighted == "no" else drawn(seed + 6, n, m + m * h + q)
    shared = {
        "hard_negatives": hard if h else None, "extra_negatives": extra, "temperature": tau,
        "similarity": kind, "first": before, "alpha": alpha,
        "weights": (lambda part: weights[part]) if weighted == "function" else weights,
        "hardness": beta, "debias": plus if kind == "cosine" else 0.0, "form": way, "bias": bias,
    }  # fmt: skip
    one = info_nce(a, z, **shared)
    two = two_source_info_nce(
        a, p, negative_anchors=za, negatives=z, factor=factor, factor_form=form, **shared
    )
    a, p, za, z, hard, extra = (x.tolist() for x in (a, p, za, z, hard, extra))
    looped = {
        "hard": hard if h else (), "extra": extra,
        "weights": None if weights is None else weights.tolist(), "first": before, "alpha": alpha,
        "tau": tau, "beta": beta, "plus": shared["debias"], "kind": kind, "loss": way, "bias": bias,
    }  # fmt: skip
    expected = loop(a, z, pairs(a, z[before:], tau, kind), **looped)
    assert one.item() == pytest.approx(expected, rel=1e-8, abs=1e-12)
    expected = loop(za, z, pairs(a, p, tau, kind), m=factor, form=form, **looped)
    assert two.item() == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("symmetric", [False, True])
def test_weights_of_one_change_no_bit(symmetric):
    anchors, positives, hard = (
        vectors(k, *s).float() for k, s in enumerate([(4, 3), (4, 3), (4, 2, 3)])
    )
    options = {"hard_negatives": hard, "alpha": 0.5, "symmetric": symmetric}
    weighted = info_nce(anchors, positives, **options, weights=torch.ones(4, 12))
    assert torch.equal(info_nce(anchors, positives, **options), weighted)


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
    rows = [vectors(k, 1, 4).requires_grad_() for k in (0, 1)]
    info_nce(*rows, form="decoupled", **more).backward()  # its positive counts still
    assert rows[0].grad.isfinite().all() and rows[0].grad.any()
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


@pytest.mark.parametrize("more", [
    {"similarity": "dot"}, {"hardness": 0.5}, {"debias": 0.2}, {"hardness": 0.5, "debias": 0.2},
    {"form": "sigmoid", "bias": -1.0}, {"form": "decoupled", "debias": 0.1},
])  # fmt: skip
def test_gradients_are_finite_differences(more):
    inputs = [
        vectors(k, *s).requires_grad_() for k, s in enumerate([(3, 4), (5, 4), (5, 2, 4), (2, 4)])
    ]
    weights = drawn(7, 3, 17)

    def loss(anchors: Tensor, positives: Tensor, hard: Tensor, extra: Tensor) -> Tensor:
        shared = {"hard_negatives": hard, "extra_negatives": extra, "first": 1, "temperature": 0.7}
        both = {"symmetric": True, "anchors_all": torch.cat([positives[:2], anchors])}
        one = info_nce(anchors, positives, weights=weights, alpha=0.5, **both, **shared, **more)
        return one + two_source_info_nce(
            anchors, anchors.flip(1), negative_anchors=anchors.flip(0), negatives=positives,
            weights=weights, **shared, **more,
        )  # fmt: skip

    assert torch.autograd.gradcheck(loss, inputs)


def test_no_more_weights_than_a_block_are_made():
    anchors, positives = vectors(0, 1500, 4).requires_grad_(), vectors(1, 1500, 4)
    made = []

    def weights(part: slice) -> Tensor:
        made.append(part.stop - part.start)
        return torch.ones(part.stop - part.start, 1500)

    info_nce(anchors, positives, weights=weights).backward()
    height = max(1, similarity.LOGITS // 1500)
    # Blocks, each made again for its gradient.
    assert max(made) == height < 1500 and len(made) == 2 * -(-1500 // height)


@pytest.mark.parametrize(("more", "message"), [
    ({"hardness": -1.0}, "hardness -1.0"), ({"debias": 1.0}, "debias 1.0"),
    ({"debias": math.nan}, "debias nan"),
    ({"debias": 0.1, "similarity": "dot"}, "debias 0.1.*needs the cosine"),
    ({"temperature": 0.0}, "temperature 0.0"), ({"temperature": -1.0}, "temperature -1.0"),
    ({"temperature": math.nan}, "temperature nan"), ({"temperature": math.inf}, "temperature inf"),
    ({"alpha": -0.5}, "alpha -0.5: must be 0"),
    ({"similarity": "cosin"}, "did you mean 'cosine'"),
    ({"form": "sigmod"}, "^loss 'sigmod': .*mean 'sigmoid'"),
    ({"form": "sigmoid", "debias": 0.1}, "loss 'sigmoid'.*hardness and debias must be 0"),
])  # fmt: skip
def test_options_out_of_range_are_named(more, message):
    ones = torch.ones(2, 3)
    with pytest.raises(OptionError, match=message):
        info_nce(ones, ones, **more)
    with pytest.raises(OptionError, match=message):
        two_source_info_nce(ones, ones, negative_anchors=ones, negatives=ones, **more)


def test_a_factor_of_the_sum_belongs_to_the_softmax():
    ones = torch.ones(2, 3)
    given = {"negative_anchors": ones, "negatives": ones, "factor_form": "negative_sum"}
    with pytest.raises(OptionError, match=r"factor_form 'negative_sum'.*with loss 'sigmoid'"):
        two_source_info_nce(ones, ones, factor=0.9, form="sigmoid", **given)
    # A factor of one is no factor in either form.
    as_sum = two_source_info_nce(ones, ones, form="sigmoid", **given)
    given["factor_form"] = "positive_logit"
    assert as_sum == two_source_info_nce(ones, ones, form="sigmoid", **given)
