"""DiffCSE's discriminator: what it is given, its rate and its warm-up, against plain loops."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_batches import TEXTS

from contrasent.engine.difference import other_rows
from contrasent.engine.encodings import BatchEncodings
from contrasent.engine.registry import find
from contrasent.errors import OptionError
from contrasent.report import Report, Row
from contrasent.train import method_checks
from contrasent.train.fit import fit
from contrasent.train.method_checks import Trial, finding
from contrasent.train.monitor import Monitor
from contrasent.train.settings import Settings
from contrasent.train.step import StepRunner

# The experiment that decides whether the term acts: edits of masked places alone, drawn, and tanh.
DECIDING = {"generator_positions": "masked", "generator_draw": "sample", "projector": "tanh"}


def made(load, masked, *, dropout=0.0, **given):
    torch.manual_seed(3)
    encoder = load("bert", dropout=dropout)
    return find("diffcse")(encoder, generator=str(masked["bert"]), **given).double().train()


def watched(objective, batch):
    """The terms of a batch, and rows and conditions as the discriminator reads them, in order."""
    seen = []
    discriminator = objective.terms["difference"].discriminator
    hook = discriminator.register_forward_pre_hook(lambda _, read: seen.append(read))
    torch.manual_seed(4)
    terms = objective(batch)
    hook.remove()
    ((tokens, condition),) = seen  # where padding counts all rows are read at once
    return terms, tokens, condition


@pytest.mark.parametrize("which", ["own", "permuted", "zero"])
@pytest.mark.parametrize("step", [0, 3])
def test_the_loss_is_the_equation_given_each_vector(load, masked, batches, which, step):
    """-log of the share of the right label at every position, in the mean (section 3)."""
    objective = made(load, masked, condition_vector=which, **DECIDING)
    batch = batches(objective, step)
    terms, tokens, condition = watched(objective, batch)
    views = BatchEncodings(objective, batch).noisy
    others = other_rows(len(batch), batch.seed, step).tolist()
    expected = []
    for view in views:
        for i in range(len(batch)):
            given = {"own": view[i], "permuted": view[others[i]], "zero": torch.zeros(32).double()}
            expected.append(given[which])
    assert torch.equal(condition, torch.stack(expected))
    ids, mask = tokens.pad(objective.encoder.tokenizer.specials.pad)
    hidden = objective.terms["difference"].discriminator.reader.backbone(
        input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask).long(),
        condition=torch.stack(expected),
    ).last_hidden_state  # fmt: skip
    scores = objective.terms["difference"].detect["replace"](hidden).tolist()
    true = [column[i].tolist() for column in batch.columns for i in range(len(batch))]
    total, changed, count = 0.0, 0, 0
    for i, row in enumerate(true):
        for t, (original, other) in enumerate(scores[i]):
            label = int(t < len(row) and ids[i, t] != row[t])
            total += math.log(math.exp(original) + math.exp(other)) - (original, other)[label]
            changed, count = changed + label, count + 1
    assert 0 < changed < count / 2
    assert terms["difference"].item() == pytest.approx(total / count, rel=1e-12)


@pytest.mark.parametrize("which", ["own", "permuted"])
def test_a_vector_has_the_noise_of_its_own_view(load, masked, batches, which):
    objective = made(load, masked, condition_vector=which, dropout=0.1)
    _, _, condition = watched(objective, batches(objective))
    torch.manual_seed(4)
    views = BatchEncodings(objective, batches(objective)).noisy
    others = other_rows(len(views[0]), 0, 0) if which == "permuted" else slice(None)
    assert torch.equal(condition, torch.cat([view[others] for view in views]))
    assert not torch.equal(*views)
    objective.loss(objective(batches(objective))).backward()
    assert all(p.grad is not None for p in objective.encoder.parameters())


def test_no_row_is_given_its_own_vector_and_each_is_given_once():
    drawn = set()
    for count in (2, 3, 7, 64):
        for step in range(20):
            others = other_rows(count, 5, step)
            assert sorted(others.tolist()) == list(range(count))
            assert (others != np.arange(count)).all()
            assert np.array_equal(others, other_rows(count, 5, step))
            drawn.add((count, *others.tolist()))
    assert len(drawn) > 40 and not np.array_equal(other_rows(64, 5, 0), other_rows(64, 6, 0))
    with pytest.raises(OptionError, match="batch_size=2"):
        other_rows(1, 5, 0)


def schedule(step, total, peak, start):
    """From the peak after the start in a line to zero."""
    return 0.0 if step < start else peak * (total - step) / (total - start)


def adamw(weights, grads, state, rate, decay):
    """Algorithm 2 of Loshchilov and Hutter (2019), number by number."""
    for name, grad in grads.items():
        m, v, t = state.get(name, (torch.zeros_like(grad), torch.zeros_like(grad), 0))
        m, v, t = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad * grad, t + 1
        state[name] = m, v, t
        change = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        weights[name] = weights[name] - rate(name) * (change + decay * weights[name])


@pytest.mark.parametrize(("rate", "warmup"), [(None, 0), (3e-3, 0), (None, 2), (3e-3, 2)])
def test_rate_and_warm_up_are_a_plain_loop(load, masked, batches, rate, warmup):
    given = {"discriminator_learning_rate": rate, "discriminator_warmup_steps": warmup}
    given |= {**DECIDING, "difference_weight": 0.3}
    settings = Settings(
        learning_rate=1e-3, max_steps=5, weight_decay=0.01, max_grad_norm=math.inf, seed=5
    )
    ours, plain = (made(load, masked, **given) for _ in range(2))
    optimizer = ours.optimizer(
        learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
    )
    collator = SimpleNamespace(batch=lambda step, *_: batches(ours, step))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    runner = StepRunner(ours, ours, collator, optimizer, scaler, settings, 5, Monitor())
    weights = {n: p.detach().clone() for n, p in plain.named_parameters() if p.requires_grad}
    first, state = dict(weights), {}
    own = "terms.difference."
    for step in range(5):
        (metrics,) = runner.take(step)
        plain.load_state_dict(weights, strict=False)
        batch = batches(plain, step)
        alone = step < warmup
        learning = {n: p for n, p in plain.named_parameters() if n in weights}
        learning = {n: p for n, p in learning.items() if n.startswith(own) or not alone}
        encodings = BatchEncodings(plain, batch)
        loss = 0.3 * plain.terms["difference"](encodings)["difference"]
        if not alone:
            loss = loss + plain.contrast(encodings)["contrast"]
        grads = torch.autograd.grad(loss, list(learning.values()))

        def pace(name, step=step):
            if name.startswith(own):
                # Without a warm-up and a rate of its own it has the others' rate.
                return schedule(step, 5, rate or 1e-3, 0)
            return schedule(step, 5, 1e-3, warmup)

        adamw(weights, dict(zip(learning, grads, strict=True)), state, pace, 0.01)
        assert metrics.terms["loss"] == pytest.approx(loss.item(), rel=1e-9)
        assert (metrics.terms["contrast"] == 0) == alone
        assert metrics.rate == schedule(step, 5, 1e-3, warmup)
        for name, value in ours.named_parameters():
            if name in weights:
                torch.testing.assert_close(value, weights[name], rtol=1e-9, atol=1e-11)
                moved = not torch.equal(value, first[name])
                assert moved == (not alone or name.startswith(own)), name


def test_a_warm_up_and_a_rate_survive_a_resume_and_a_combination(masked):
    given = {"generator": str(masked["bert"]), "discriminator_learning_rate": 1e-2, **DECIDING}
    for method in ("diffcse", "simcse_supervised+diffcse", "esimcse+diffcse"):
        own = given | {"discriminator_warmup_steps": 3, "condition_vector": "permuted"}
        trial = Trial(method, own, masked["bert"])
        for check in (method_checks.check_resume, method_checks.check_one_step):
            result = finding(check, trial)
            assert result.passed, result.detail
    trial = Trial("diffcse", given | {"condition_vector": "permuted"}, masked["bert"])
    assert finding(method_checks.check_gradient, trial).passed


def test_a_run_with_a_warm_up(load, masked, tmp_path):
    texts = [f"{text} {number}" for text in TEXTS for number in ("one", "two", "three")]
    settings = Settings(batch_size=6, max_steps=4, learning_rate=1e-3)

    def run(name, warmup):
        objective = made(load, masked, discriminator_warmup_steps=warmup, dropout=0.1).float()
        before = {k: v.clone() for k, v in objective.encoder.state_dict().items()}
        outcome = fit(objective, texts, settings, output_dir=tmp_path / name, keep="last")
        same = all(torch.equal(v, before[k]) for k, v in objective.encoder.state_dict().items())
        return outcome, same

    outcome, same = run("alone", 4)
    assert same and [line["contrast"] for line in outcome.log] == [0.0] * 4
    outcome, same = run("both", 2)
    assert not same
    assert [line["contrast"] > 0 for line in outcome.log] == [False, False, True, True]
    assert [entry["step"] for entry in outcome.shares] == [3, 4]
    with pytest.raises(OptionError, match=r"discriminator_warmup_steps.*4 steps of the run"):
        run("long", 5)


def test_patience_begins_after_a_warm_up(load, masked, tmp_path):
    texts = [f"{text} {number}" for text in TEXTS for number in ("one", "two", "three")]
    objective = made(load, masked, discriminator_warmup_steps=4, dropout=0.1).float()

    def level(_):
        return Report((Row("made", "dev", "spearman", "", 0.5, 30),))

    given = {"max_steps": 9, "eval_steps": 1, "early_stopping_patience": 2}
    settings = Settings(batch_size=6, learning_rate=1e-3, **given)
    # The fifth step is the first in which the encoder learns; two evaluations bring nothing better.
    assert fit(objective, texts, settings, output_dir=tmp_path / "m", evaluate=level).steps == 7
