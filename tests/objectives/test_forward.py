"""Each objective's forward against plain Python loops from the paper's equations.

The vectors come from the encoder itself, with the random state that the objective had; all that is
made of them is written out here, number by number.
"""

import math

import numpy as np
import pytest
import torch
from made_batches import TEXTS

from contrasent.engine import encodings
from contrasent.engine.encodings import BatchEncodings
from contrasent.engine.registry import find
from contrasent.errors import OptionError
from contrasent.types import Tokens
from plain_loops import cosine, loop, pairs, standardized


def numbers(vectors):
    return vectors.detach().double().tolist()


def made(name, load, *, dropout=0.1, **given):
    torch.manual_seed(3)
    return find(name)(load("bert", dropout=dropout), **given).train()


def step(objective, batch, number=0):
    torch.manual_seed(50)
    return objective(batch(objective, number))


def encoded(objective, columns, *, clean=False, seed=True):
    """Projected vectors of columns by one pass, or by a pass without dropout that draws nothing."""
    if seed:
        torch.manual_seed(50)
    tokens = Tokens.concatenate(columns)
    if clean:
        with objective.encoder.dropout_off():
            pooled = objective.encoder(tokens)
    else:
        pooled = objective.encoder(tokens)
    out = pooled if objective.projector is None else objective.projector(pooled)
    return [numbers(part) for part in out.split([len(c) for c in columns])]


def info_nce(anchors, positives, *, negatives=None, hard=(), tau=0.05, kind="cosine", **more):
    """Negatives are those of the pairs themselves, or of other pairs; hard ones by column."""
    left, right = negatives or (anchors, positives)
    rows, positive = list(zip(*hard, strict=True)), pairs(anchors, positives, tau, kind)
    return loop(left, right, positive, hard=rows, tau=tau, kind=kind, **more)


def correlations(one, two, epsilon=1e-5):
    """Of every dimension of one view with every one of the other; biased, as the released code."""
    left, right = (
        [standardized(column, epsilon) for column in zip(*view, strict=True)] for view in (one, two)
    )
    return [[sum(map(math.prod, zip(c, k, strict=True))) / len(one) for k in right] for c in left]


def dimension_wise(one, two, tau, **more):
    """The released code's form: divided by rows, mean over dimensions."""
    total = 0.0
    for c, row in enumerate(correlations(one, two, **more)):
        scores = [math.exp(value / tau) for value in row]
        total -= math.log(scores[c] / sum(scores))
    return total / len(one[0])


@pytest.mark.parametrize(("tau", "kind"), [(0.05, "cosine"), (0.3, "cosine"), (8.0, "dot")])
def test_simcse(load, batches, tau, kind):
    objective = made("simcse", load, temperature=tau, similarity=kind)
    batch = batches(objective)
    z1, z2 = encoded(objective, batch.columns)
    assert z1 != z2
    found = step(objective, batches)
    expected = info_nce(z1, z2, tau=tau, kind=kind)
    assert found["contrast"].item() == pytest.approx(expected, rel=1e-4)
    pairs = [cosine(a, b) for a, b in zip(z1, z2, strict=True)]
    assert found["cosine_positive"].item() == pytest.approx(sum(pairs) / len(pairs), rel=1e-4)


def test_simcse_with_fixed_masks_has_two_equal_views(load, batches):
    objective = made("simcse", load, masks="fixed")
    (z1,) = encoded(objective, batches(objective).columns[:1])
    found = step(objective, batches)
    assert found["cosine_positive"].item() == pytest.approx(1.0, abs=1e-6)
    assert found["contrast"].item() == pytest.approx(info_nce(z1, z1), rel=1e-4)


def test_simcse_with_two_encoders(load, batches):
    objective = made("simcse", load, encoders=2)
    with torch.no_grad():
        for weight in objective.second.parameters():
            weight.mul_(1.1)
    first, second = batches(objective).columns
    torch.manual_seed(50)
    z1 = numbers(objective.projector(objective.encoder(first)))
    z2 = numbers(objective.second_projector(objective.second(second)))
    assert step(objective, batches)["contrast"].item() == pytest.approx(info_nce(z1, z2), rel=1e-4)


@pytest.mark.parametrize(
    ("alpha", "tau", "kind"),
    [(1.0, 0.05, "cosine"), (0.5, 0.3, "cosine"), (0.0, 0.05, "cosine"), (2.0, 8.0, "dot")],
)
def test_simcse_supervised_with_two_hard_negatives(load, batches, alpha, tau, kind):
    given = {"alpha": alpha, "temperature": tau, "similarity": kind}
    objective = made("simcse_supervised", load, **given)
    batch = batches(objective)
    anchors, positives, *hard = encoded(objective, batch.columns)
    assert len(hard) == 2
    expected = info_nce(anchors, positives, hard=hard, alpha=alpha, tau=tau, kind=kind)
    assert step(objective, batches)["contrast"].item() == pytest.approx(expected, rel=1e-4)


def test_symmetric_is_the_mean_of_both_directions(load, batches):
    objective = made("simcse", load, symmetric=True)
    z1, z2 = encoded(objective, batches(objective).columns)
    expected = (info_nce(z1, z2) + info_nce(z2, z1)) / 2
    assert step(objective, batches)["contrast"].item() == pytest.approx(expected, rel=1e-4)


def test_esimcse_over_three_steps(load, batches):
    """The queue by hand: momentum encoder without dropout, online projector, first in first out."""
    size, momentum = 9, 0.9
    objective = made("esimcse", load, queue_size=size, momentum=momentum, rate=0.6)
    queue = []
    follower = {n: p.clone() for n, p in objective.encoder.state_dict().items()}
    double = load("bert")
    optimizer = torch.optim.SGD([p for p in objective.parameters() if p.requires_grad], lr=0.5)
    for number in range(3):
        batch = batches(objective, number)
        assert sum(batch.columns[1].lengths) > sum(batch.columns[0].lengths)
        z1, z2 = encoded(objective, batch.columns)
        double.load_state_dict(follower)
        keys = numbers(objective.projector(double(batch.columns[0])))
        found = step(objective, batches, number)
        expected = info_nce(z1, z2, extra=queue)
        assert found["contrast"].item() == pytest.approx(expected, rel=1e-4)
        optimizer.zero_grad()
        objective.loss(found).backward()
        optimizer.step()
        objective.after_step()
        queue = (queue + keys)[-size:]
        for n, p in objective.encoder.state_dict().items():
            follower[n] = momentum * follower[n] + (1 - momentum) * p
    rows = objective.queue.negatives()
    assert np.allclose(numbers(rows), queue, atol=1e-5)
    for n, p in objective.queue.momentum_encoder.state_dict().items():
        assert torch.allclose(p, follower[n], atol=1e-6), n


def test_esimcse_without_queue_and_repetition_is_simcse(load, batches):
    plain = step(made("simcse", load), batches)["contrast"]
    alone = step(made("esimcse", load, queue_size=0, view="dropout"), batches)["contrast"]
    assert torch.equal(plain, alone)


def test_the_queue_may_wait_until_it_is_full(load, batches):
    objective = made("esimcse", load, queue_size=12, queue_start="full")
    for number, rows in enumerate([None, None, 12, 12]):
        step(objective, batches, number)
        negatives = objective.queue.negatives()
        assert (None if negatives is None else len(negatives)) == rows
        objective.after_step()


def test_the_queue_holds_the_second_view_if_asked(load, batches):
    held = {}
    for column in ("first", "second"):
        objective = made("esimcse", load, queue_size=6, queue_column=column, rate=0.9)
        step(objective, batches)
        objective.after_step()
        held[column] = objective.queue.negatives()
        (expected,) = encoded(
            objective, [batches(objective).columns[column == "second"]], clean=True
        )
        assert np.allclose(numbers(held[column]), expected, atol=1e-5)
    assert not torch.allclose(held["first"], held["second"], atol=1e-3)


@pytest.mark.parametrize("form", ["positive_logit", "negative_sum"])
def test_simcse_plus_plus(load, batches, form):
    objective = made("simcse_plus_plus", load, factor=0.8, factor_form=form)
    batch = batches(objective)
    z1, z2 = encoded(objective, batch.columns)
    (z0,) = encoded(objective, batch.columns[:1], clean=True, seed=False)
    found = step(objective, batches)
    expected = info_nce(z1, z2, negatives=(z0, z0), m=0.8, form=form)
    assert found["contrast"].item() == pytest.approx(expected, rel=1e-3)
    assert found["dimensions"].item() == pytest.approx(dimension_wise(z1, z2, 5.0), rel=1e-4)
    expected = found["contrast"] + 0.1 * found["dimensions"]
    assert objective.loss(found).item() == pytest.approx(expected.item(), rel=1e-6)


def test_supervised_simcse_plus_plus_has_clean_hard_negatives(load, batches):
    objective = made(
        "simcse_supervised+simcse_plus_plus", load, dimension_weight=0.0, factor=1.0, alpha=0.5
    )
    batch = batches(objective)
    z1, z2, *_ = encoded(objective, batch.columns)
    c1, c2, *hard = encoded(objective, batch.columns, clean=True, seed=False)
    found = step(objective, batches)["contrast"].item()
    expected = info_nce(z1, z2, negatives=(c1, c2), hard=hard, alpha=0.5)
    assert found == pytest.approx(expected, rel=1e-3)


def test_esimcse_with_simcse_plus_plus_compares_clean_vectors_with_the_queue(load, batches):
    objective = made("esimcse+simcse_plus_plus", load, factor=1.0, queue_size=6, rate=0.6)
    step(objective, batches)
    objective.after_step()
    queue = numbers(objective.queue.negatives())
    batch = batches(objective, 1)
    z1, z2 = encoded(objective, batch.columns)
    (z0,) = encoded(objective, batch.columns[:1], clean=True, seed=False)
    found = step(objective, batches, 1)["contrast"].item()
    expected = info_nce(z1, z2, negatives=(z0, z0), extra=queue)
    assert found == pytest.approx(expected, rel=1e-3)


def test_simcse_plus_plus_without_its_parts_is_simcse(load, batches):
    plain = step(made("simcse", load), batches)["contrast"]
    bare = made("simcse_plus_plus", load, negatives="noisy", factor=1.0, dimension_weight=0.0)
    assert torch.equal(plain, step(bare, batches)["contrast"])
    assert set(bare.weights) == {"contrast"}


def test_off_dropout_covers_attention(load, batches):
    clean, noisy = [], []
    for seed in (1, 2):
        torch.manual_seed(3)
        objective = find("simcse_plus_plus")(load("bert", dropout=0.0, attention_dropout=0.5))
        torch.manual_seed(seed)
        now = BatchEncodings(objective.train(), batches(objective))
        clean.append(now.clean[0])
        noisy.append(now.noisy[0])
    assert torch.equal(*clean)
    assert not torch.allclose(*noisy, atol=1e-3)
    assert clean[0].requires_grad
    assert all(module.training for module in objective.modules())


def test_noise_probes(load, batches):
    """Mean of K encodings of their own for the negatives; the positives stay as they are."""
    objective = made("simcse_noise", load, passes=3)
    batch = batches(objective)
    z1, z2 = encoded(objective, batch.columns)
    rounds = [encoded(objective, batch.columns, seed=False) for _ in range(3)]
    means = [np.mean([r[view] for r in rounds], axis=0).tolist() for view in (0, 1)]
    found = step(objective, batches)["contrast"].item()
    assert found == pytest.approx(info_nce(z1, z2, negatives=means), rel=1e-3)


def test_gaussian_noise_has_the_variance_asked_for(load, batches):
    objective = made("simcse_noise", load, positives="gaussian", negatives="noisy")
    now = BatchEncodings(objective, batches(objective))
    noised = now.vectors("gaussian", noise_variance=objective.contrast.noise_variance)
    noise = torch.cat(noised) - torch.cat(now.noisy)
    assert noise.numel() == 2 * 6 * 32
    assert noise.var().item() == pytest.approx(0.1, rel=0.25)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.05)


def test_barlow_twins(load, batches):
    objective = made("barlow_twins", load, artificial=0, off_diagonal=0.3)
    z1, z2 = encoded(objective, batches(objective).columns)
    found = step(objective, batches)
    total = 0.0
    for c, row in enumerate(correlations(z1, z2)):
        for k, value in enumerate(row):
            total += (1 - value) ** 2 if c == k else 0.3 * value**2
    assert found["barlow"].item() == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("copies", ["positive", "negative"])
def test_copies(load, batches, masked, copies):
    objective = made("simcse_copies", load, copies=copies, copy_filler=str(masked["bert"]))
    batch = batches(objective)
    assert len(batch.columns) == 3
    assert batch.columns[2].ids.tolist() != batch.columns[0].ids.tolist()
    z1, z2, z3 = encoded(objective, batch.columns)
    if copies == "negative":
        expected = info_nce(z1, z2, hard=[z3])
    else:
        expected = (info_nce(z1, z2) + info_nce(z1, z3)) / 2
    assert step(objective, batches)["contrast"].item() == pytest.approx(expected, rel=1e-4)


def test_copies_have_exactly_the_insertions_asked_for(load, batches, masked):
    """DiffCSE, section 5: a share of the places; ESimCSE's code would draw their number."""
    given = {"copy_edit": "insert", "edit_ratio": 0.2, "copy_filler": str(masked["bert"])}
    batch = batches(made("simcse_copies", load, **given))
    words = np.array([len(text.replace(",", " ,").split()) for text in TEXTS])
    whole = batch.columns[0].lengths < 24
    more = (batch.columns[2].lengths - batch.columns[0].lengths)[whole]
    assert whole.sum() == 4 and more.tolist() == [round(0.2 * count) for count in words[whole]]


def test_masked_lm_with_the_contrast(load, batches, masked):
    objective = made(
        "simcse+masked_lm", load, dropout=0.0, language_head=str(masked["bert"]), mask_ratio=0.5
    )
    batch = batches(objective)
    before = [column.ids.copy() for column in batch.columns]
    head = objective.terms["masked_lm"].head
    total, count = 0.0, 0
    for c, column in enumerate(batch.columns):
        edited = encodings.mask_tokens(
            column, 0.5, objective.encoder.tokenizer, encodings.generators(batch, c)
        )
        for i in range(len(column)):
            row = slice(int(column.offsets[i]), int(column.offsets[i + 1]))
            labels = edited.labels[row]
            hidden, _, _ = objective.encoder.hidden(edited.tokens.select(np.asarray([i])))
            for t in range(len(labels)):
                if labels[t] >= 0:
                    scores = numbers(head(hidden[-1][0, t : t + 1]))[0]
                    total -= scores[labels[t]] - math.log(sum(math.exp(s) for s in scores))
                    count += 1
    assert count > 20
    torch.manual_seed(50)
    found = objective(batch)
    assert found["masked_lm"].item() == pytest.approx(total / count, rel=1e-4)
    for column, ids in zip(batch.columns, before, strict=True):
        assert np.array_equal(column.ids, ids)
    plain = step(made("simcse", load, dropout=0.0), batches)["contrast"]
    assert found["contrast"].item() == pytest.approx(plain.item(), rel=1e-5)
    assert objective.weights == {"contrast": 1.0, "masked_lm": 0.1}


@pytest.mark.parametrize("name", ["dimension_wise", "simcse_plus_plus"])
def test_epsilon_of_the_dimension_wise_contrast_is_a_parameter(load, batches, name):
    losses = []
    for epsilon in (1e-5, 10.0):
        objective = made(name, load, dropout=0.0, dimension_epsilon=epsilon, projector="none")
        z1, z2 = encoded(objective, batches(objective).columns)
        losses.append(step(objective, batches)["dimensions"].item())
        tau = objective.terms["dimensions"].settings["temperature"]
        expected = dimension_wise(z1, z2, tau, epsilon=epsilon)
        assert losses[-1] == pytest.approx(expected, rel=1e-4)
    assert losses[1] > losses[0]
    with pytest.raises(OptionError, match="dimension_epsilon 0"):
        made(name, load, dimension_epsilon=0.0)
