"""Losses over tokens against plain loops over Python floats."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.losses import corrective_lm, masked_lm, token_detection
from plain_loops import few, seeds, vectors

# Of three tokens the first and the last are chosen; the generator left the first as it was.
CHOSEN, COPIED = torch.tensor([True, False, True]), torch.tensor([True, False])
UNCHANGED = torch.tensor([True, True, False])


def whole(seed: int, high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def log_probability(scores: list[float], choice: int) -> float:
    return scores[choice] - math.log(sum(math.exp(s) for s in scores))


@few
@given(seed=seeds, k=st.integers(1, 6), size=st.integers(2, 9))
def test_masked_lm_is_mean_cross_entropy(seed, k, size):
    logits, labels = vectors(seed, k, size), whole(seed, size, k)
    total = -sum(log_probability(logits[t].tolist(), int(labels[t])) for t in range(k))
    assert masked_lm(logits, labels).item() == pytest.approx(total / k, rel=1e-9)
    assert masked_lm(logits, labels, count=7).item() == pytest.approx(total / 7, rel=1e-9)


def test_nothing_masked_is_a_loss_of_zero_with_a_gradient():
    logits = torch.zeros(0, 5, requires_grad=True)
    loss = masked_lm(logits, torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0


@few
@given(
    seed=seeds, n=st.integers(1, 4), width=st.integers(1, 6),
    normalization=st.sampled_from(["mean_with_padding", "mean_tokens", "sum"]),
)  # fmt: skip
def test_token_detection_is_the_equation(seed, n, width, normalization):
    logits, labels = vectors(seed, n, width, 2), whole(seed, 2, n, width)
    lengths = whole(seed + 1, width, n) + 1
    mask = torch.arange(width) < lengths[:, None]
    total, tokens = 0.0, 0
    for i in range(n):
        for t in range(width):
            scores = logits[i, t].tolist()
            if t < int(lengths[i]):
                tokens += 1
                total -= log_probability(scores, int(labels[i, t]))
            elif normalization == "mean_with_padding":
                total -= log_probability(scores, 0)
    divisor = {"mean_with_padding": n * width, "mean_tokens": tokens, "sum": 1}[normalization]
    loss = token_detection(logits, labels, mask, normalization=normalization)
    assert loss.item() == pytest.approx(total / divisor, rel=1e-9)
    split = token_detection(logits, labels, mask, normalization=normalization, count=3.0)
    assert split.item() == pytest.approx(total / 3, rel=1e-9)


@few
@given(seed=seeds, tokens=st.integers(1, 8), size=st.integers(2, 6))
def test_corrective_lm_is_the_equation(seed, tokens, size):
    masked = whole(seed, 2, tokens).bool()
    k = int(masked.sum())
    logits, originals = vectors(seed + 1, k, size), whole(seed + 2, size, k)
    copied = whole(seed + 3, 2, k).bool()
    unchanged = torch.ones(tokens, dtype=torch.bool)
    unchanged[masked] = copied
    scores = vectors(seed + 4, tokens)
    modeling, copying, row = 0.0, 0.0, 0
    for t in range(tokens):
        p_copy = 1 / (1 + math.exp(-float(scores[t])))
        copying -= math.log(p_copy if unchanged[t] else 1 - p_copy)
        if masked[t]:
            p_lm = math.exp(log_probability(logits[row].tolist(), int(originals[row])))
            modeling -= math.log((p_copy if copied[row] else 0.0) + (1 - p_copy) * p_lm)
            row += 1
    loss = corrective_lm(logits, originals, copied, scores, unchanged, masked, copy_weight=2.0)
    assert loss.item() == pytest.approx((modeling + 2 * copying) / tokens, rel=1e-9)


def test_gradients_are_finite_differences():
    labels, mask = whole(0, 2, 2, 3), torch.tensor([[True, True, True], [True, True, False]])
    for name in ("mean_with_padding", "mean_tokens", "sum"):
        assert torch.autograd.gradcheck(
            lambda x, name=name: token_detection(x, labels, mask, normalization=name),
            [vectors(1, 2, 3, 2).requires_grad_()],
        )
    logits, predictions = (vectors(k, n, 4).requires_grad_() for k, n in ((3, 3), (6, 2)))
    assert torch.autograd.gradcheck(lambda x: masked_lm(x, whole(2, 4, 3)), [logits])
    assert torch.autograd.gradcheck(
        lambda x: corrective_lm(x, whole(4, 4, 2), COPIED, vectors(5, 3), UNCHANGED, CHOSEN),
        [predictions],
    )


def test_the_copy_score_learns_from_copying_alone():
    scores, predictions = vectors(0, 3).requires_grad_(), (vectors(1, 2, 4), whole(2, 4, 2))
    corrective_lm(*predictions, COPIED, scores, UNCHANGED, CHOSEN, copy_weight=0.0).backward()
    assert scores.grad.abs().max() == 0


def test_unknown_normalization_names_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'mean_tokens'"):
        rows = torch.zeros(1, 1, 2), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
        token_detection(*rows, normalization="mean_token")
