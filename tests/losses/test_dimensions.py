"""Dimension-wise contrast and Barlow Twins against plain loops over Python floats."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.losses import barlow_twins, dimension_wise_contrast
from plain_loops import dot, few, seeds, standardized, vectors


def columns(view: Tensor) -> list[list[float]]:
    return view.T.tolist()


@few
@given(
    seed=seeds, n=st.integers(2, 6), d=st.integers(1, 6), tau=st.sampled_from([0.5, 1.0, 5.0]),
    norm=st.sampled_from(["batch", "none"]), variance=st.sampled_from(["biased", "unbiased"]),
    divide=st.booleans(), reduction=st.sampled_from(["mean", "sum"]),
)  # fmt: skip
def test_dimension_wise_contrast_is_the_equation(
    seed, n, d, tau, norm, variance, divide, reduction
):
    first, second = vectors(seed, n, d), vectors(seed + 1, n, d)
    loss = dimension_wise_contrast(
        first, second, temperature=tau, norm=norm, variance=variance, divide_by_rows=divide,
        reduction=reduction,
    )  # fmt: skip
    left, right = columns(first), columns(second)
    if norm == "batch":
        ddof = 1 if variance == "unbiased" else 0
        left, right = ([standardized(c, ddof=ddof) for c in one] for one in (left, right))
    scale = tau * (n if divide else 1)
    total = 0.0
    for c in range(d):
        scores = [math.exp(dot(left[c], right[k]) / scale) for k in range(d)]
        total -= math.log(scores[c] / sum(scores))
    expected = total / d if reduction == "mean" else total
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@few
@given(
    seed=seeds, n=st.integers(2, 5), d=st.integers(1, 5), artificial=st.integers(0, 4),
    norm=st.sampled_from(["batch", "length"]),
)  # fmt: skip
def test_barlow_twins_is_the_equation(seed, n, d, artificial, norm):
    first, second = vectors(seed, n, d), vectors(seed + 1, n, d)
    noise = vectors(seed + 2, artificial, d)
    loss = barlow_twins(first, second, off_diagonal=0.3, artificial=noise, norm=norm)
    left, right = columns(torch.cat([first, noise])), columns(torch.cat([second, noise]))
    total = 0.0
    for c in range(d):
        for k in range(d):
            if norm == "batch":
                a, b = standardized(left[c]), standardized(right[k])
                value = dot(a, b) / (n + artificial)
            else:
                a, b = left[c], right[k]
                value = dot(a, b) / math.sqrt(dot(a, a)) / math.sqrt(dot(b, b))
            total += (1 - value) ** 2 if c == k else 0.3 * value**2
    assert loss.item() == pytest.approx(total, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"variance": "unbiased", "divide_by_rows": False, "reduction": "sum"}, {"norm": "none"}],
)
def test_gradients_are_finite_differences(options):
    views = [vectors(k, 4, 3).requires_grad_() for k in range(2)]

    def contrast(a: Tensor, b: Tensor) -> Tensor:
        return dimension_wise_contrast(a, b, **options)

    assert torch.autograd.gradcheck(contrast, views)
    assert torch.autograd.gradcheck(barlow_twins, views)


def test_autocast_does_not_reach_the_loss():
    first, second = vectors(0, 6, 8).float(), vectors(1, 6, 8).float()
    plain = [loss(first, second).item() for loss in (dimension_wise_contrast, barlow_twins)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = [loss(first, second).item() for loss in (dimension_wise_contrast, barlow_twins)]
    assert cast == plain


@pytest.mark.parametrize(("loss", "options", "message"), [
    (dimension_wise_contrast, {"temperature": 0}, "temperature 0"),
    (dimension_wise_contrast, {"norm": "bach"}, "did you mean 'batch'"),
    (dimension_wise_contrast, {"variance": "none"}, "variance"),
    (dimension_wise_contrast, {"reduction": "max"}, "reduction"),
    (barlow_twins, {"off_diagonal": -1}, "off_diagonal"), (barlow_twins, {"norm": "none"}, "norm"),
])  # fmt: skip
def test_bad_input_is_named(loss, options, message):
    two = torch.randn(2, 3)
    with pytest.raises(OptionError, match=message):
        loss(two, two, **options)
    for other, problem in ((two[:1], "two rows or more"), (torch.randn(3, 3), "shapes")):
        with pytest.raises(ValueError, match=problem):
            loss(two[:1] if problem == "two rows or more" else two, other)
