"""What must not change the contrastive losses; test_negatives compares them with plain loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import OptionError
from contrasent.losses import info_nce, mean_cosines, similarities, similarity, two_source_info_nce
from plain_loops import few, seeds, sim, vectors

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
        matrix = similarities(*half)
    assert loss.dtype == matrix.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


def test_a_zero_vector_gives_finite_numbers():
    anchors = torch.zeros(2, 3, requires_grad=True)
    loss = info_nce(anchors, torch.ones(2, 3))
    loss.backward()
    assert loss.isfinite() and anchors.grad.isfinite().all()


def test_factor_out_of_range_is_named():
    ones = torch.ones(2, 3)
    with pytest.raises(OptionError, match="factor 0"):
        two_source_info_nce(ones, ones, negative_anchors=ones, negatives=ones, factor=0)
    with pytest.raises(OptionError, match="did you mean 'negative_sum'"):
        two_source_info_nce(
            ones, ones, negative_anchors=ones, negatives=ones, factor_form="negativesum"
        )


def test_shapes_that_do_not_fit_are_refused():
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match="do not fit"):
        info_nce(ones, ones, first=1)
    with pytest.raises(ValueError, match="hard negatives of shape"):
        info_nce(ones, ones, hard_negatives=ones)
    with pytest.raises(ValueError, match="anchors_all"):
        info_nce(ones, torch.ones(4, 3), symmetric=True)
    with pytest.raises(ValueError, match="do not fit"):
        two_source_info_nce(ones, ones[:1], negative_anchors=ones, negatives=ones)
