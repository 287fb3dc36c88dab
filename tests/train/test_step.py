"""A step: packed rows against the plain way, numbers looked at late, memory given back."""

import ctypes
import json
import math
import os
import platform
import signal
import threading
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from contrasent import processes
from contrasent.encoder import products
from contrasent.encoder.tensors import read_checkpoint
from contrasent.errors import TrainingError
from contrasent.train import fit as module
from contrasent.train import step as stepping
from contrasent.train.fit import fit
from contrasent.train.monitor import CALM_STEPS, LASTING, Monitor
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings
from contrasent.train.step import StepRunner, scheduled_rate, without_onednn

pytestmark = pytest.mark.early
LEARN = {"batch_size": 16, "pooling": "mean", "seed": 4, "learning_rate": 1e-3}


@pytest.fixture
def train(bert, sentences, tmp_path):
    """Train; the log and the weights."""

    def train(folder, objective="simcse", on_step=None, **options):
        settings = Settings(**(LEARN | options))
        learner = prepare(bert, objective, {}, settings)
        fit(learner, sentences[:400], settings, output_dir=tmp_path / folder, on_step=on_step)
        text = (tmp_path / folder / "run" / "log.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()], learner

    return train


@pytest.mark.parametrize(
    ("objective", "pooling"), [("simcse_plus_plus", "mean"), ("esimcse", "cls")]
)
def test_the_first_twenty_losses_are_those_of_the_plain_way(train, objective, pooling):
    options = {"max_steps": 20, "dropout": 0.0, "objective": objective, "pooling": pooling}
    losses = [[], []]
    for found, padding in zip(losses, ("none", "groups"), strict=True):
        follow = lambda step, values, found=found: found.append(values["loss"])  # noqa: E731
        _, learner = train(padding, padding=padding, on_step=follow, **options)
        assert learner.encoder.packed == (padding == "none")
    assert len(losses[0]) == len(losses[1]) == 20
    assert losses[0] == pytest.approx(losses[1], rel=1e-5, abs=1e-5)
    assert len(set(losses[0])) > 15


def test_accumulated_parts_draw_dropout_of_their_own(bert, tmp_path):
    """One sentence throughout: what differs between the parts of a step is dropout alone."""
    still = LEARN | {"learning_rate": 1e-12, "max_steps": 3}
    settings = Settings(**still, gradient_accumulation_steps=4, dropout=0.2)
    learner = prepare(bert, "simcse", {}, settings)
    encode, vectors = learner.encoder.forward, []

    def spied(tokens):
        made = encode(tokens)
        if learner.encoder.backbone.training:  # and not while the model is saved
            vectors.append(made)
        return made

    learner.encoder.forward = spied
    fit(learner, ["the gardener sold two blue lamps"] * 16, settings, output_dir=tmp_path / "m")
    assert len(vectors) == 12
    assert {v.shape for v in vectors} == {(8, 32)}
    for i, one in enumerate(vectors):
        for two in vectors[:i]:
            assert (one - two).abs().amax(1).min() > 1e-4


def look_every(monkeypatch, steps):
    """Look at the losses every so many steps, as on a GPU."""
    made = module.StepRunner
    monkeypatch.setattr(
        module, "StepRunner", lambda *given, **named: made(*given, **{**named, "window": steps})
    )


def test_looking_late_changes_nothing(train, monkeypatch):
    """A GPU is read every tenth step; on CPU the same can be tried."""
    at_once, one = train("one", max_steps=25)
    look_every(monkeypatch, 10)
    late, two = train("two", max_steps=25)
    # How far the model has moved is what was known when the line was written.
    moved = {"mean_cosine", "effective_rank", "neighbor_overlap", "measured_at"}

    def kept(log):
        return [{k: v for k, v in line.items() if k not in moved} for line in log]

    assert kept(late) == kept(at_once)
    assert [line["step"] for line in late] == [*range(1, 11), 11, 13, 21, 25]  # 13: shares
    mine, theirs = one.state_dict(), two.state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_weights_stay_numbers_when_a_gradient_does_not(bert, sentences, tmp_path, monkeypatch):
    look_every(monkeypatch, 10)
    settings = Settings(**LEARN, max_steps=30, save_steps=4)
    learner = prepare(bert, "simcse", {}, settings)
    loss, count = learner.loss, []

    def spoilt(terms):
        count.append(1)
        return loss(terms) * (torch.nan if len(count) >= 6 else 1.0)

    learner.loss = spoilt
    before = {k: v.clone() for k, v in learner.state_dict().items()}
    with pytest.raises(TrainingError, match=r"step 5: .* is not a finite number"):
        fit(learner, sentences[:400], settings, output_dir=tmp_path / "m")
    assert len(count) == 8  # looked at before the checkpoint of step 8
    assert all(v.isfinite().all() for v in learner.state_dict().values())
    assert not all(torch.equal(before[k], v) for k, v in learner.state_dict().items())
    tensors, stated = read_checkpoint(tmp_path / "m" / "run" / "checkpoint.safetensors")
    assert stated["step"] == 4
    assert all(tensor.isfinite().all() for tensor in tensors.values())


@pytest.mark.parametrize("norm", [0.3, 1.0 - 1e-6, 1.0, 1.0 + 1e-6, 7.0, math.inf, math.nan, 0.0])
def test_gradients_are_cut_to_a_norm_as_plain_loops_do(norm):
    """By max / (norm + 1e-6) where that is less than 1, as torch has it; else they stay."""
    parts = [
        nn.Parameter(torch.zeros(2, 2)),
        nn.Parameter(torch.zeros(3)),
        nn.Parameter(torch.ones(1)),
    ]
    parts[0].grad = torch.tensor([[0.6, 0.0], [0.0, 0.0]]) * norm
    parts[1].grad = torch.tensor([0.0, -0.8, 0.0]) * norm
    before = [p.grad.clone() for p in parts[:2]]
    found = stepping._clip(parts, 1.0)
    plain = math.sqrt(sum(float(g) ** 2 for part in before for g in part.ravel()))
    assert float(found) == pytest.approx(plain, nan_ok=True)
    factor = min(1.0, 1.0 / (plain + 1e-6)) if not math.isnan(plain) else math.nan
    for part, was in zip(parts, before, strict=False):
        for value, number in zip(part.grad.ravel(), was.ravel(), strict=True):
            assert float(value) == pytest.approx(float(number) * factor, nan_ok=True)
            assert factor < 1 or float(value) == float(number) or math.isnan(factor)
    assert parts[2].grad is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells glibc what to do")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere oneDNN multiplies in fp32")
@pytest.mark.parametrize("padding", [{}, {"padding": "groups"}])
def test_no_kernel_is_made_for_a_shape_in_fp32(train, padding, capfd, monkeypatch):
    take, steps = StepRunner.take, []

    def listened(self, step):
        capfd.readouterr()
        known = take(self, step)
        steps.append(capfd.readouterr().out)
        return known

    monkeypatch.setattr(StepRunner, "take", listened)
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
        torch.nn.functional.gelu(torch.zeros(3, 5))
        if "primitive,exec" not in capfd.readouterr().out:
            pytest.skip("this torch does not leave GELU to oneDNN, or that tells nothing")
        monkeypatch.setattr(products, "_used", [products.TORCH])
        train("plain", max_steps=2, **padding)
    assert len(steps) == 2
    assert "primitive,exec" not in "".join(steps)
    assert torch.backends.mkldnn.enabled


def test_kernels_are_as_before_after_a_failure_and_in_bf16(monkeypatch):
    monkeypatch.setattr(products, "_used", [products.TORCH])
    with pytest.raises(ValueError, match="stop"), without_onednn("fp32"):
        assert not torch.backends.mkldnn.enabled
        raise ValueError("stop")
    assert torch.backends.mkldnn.enabled
    with without_onednn("bf16"):
        assert torch.backends.mkldnn.enabled
    monkeypatch.setattr(products, "_used", [products.ONEDNN])
    with without_onednn("fp32"):
        assert torch.backends.mkldnn.enabled


def test_memory_is_kept_for_the_block_alone(monkeypatch):
    calls = []

    class Library:
        def mallopt(self, name, value):
            calls.append((name, value))

        def malloc_trim(self, pad):
            calls.append("trim")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    with pytest.raises(ValueError, match="stop"), processes.retain_freed_memory():
        assert calls[0] == (processes.MMAP_MAX, 0)
        inside = dict(calls)
        calls.clear()
        raise ValueError("stop")
    assert calls[-1] == "trim"
    assert dict(calls[:-1]).keys() >= inside.keys()
    assert all(dict(calls[:-1])[name] != value for name, value in inside.items())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_second_signal_stops_at_once_and_other_threads_have_none(elsewhere):
    def run():
        with stepping.interruptible() as interrupted:
            if not elsewhere:
                os.kill(os.getpid(), signal.SIGINT)
                assert interrupted()
                os.kill(os.getpid(), signal.SIGINT)
            assert not interrupted()
            found.append(signal.getsignal(signal.SIGINT))

    before, found = signal.getsignal(signal.SIGINT), []
    if elsewhere:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert found == [before]
    else:
        with pytest.raises(KeyboardInterrupt):
            run()
        assert signal.getsignal(signal.SIGINT) is before


@given(st.integers(1, 500), st.floats(0, 0.99), st.floats(1e-6, 1))
def test_up_and_down(total, warmup, peak):
    rates = [scheduled_rate(s, total=total, peak=peak, warmup_ratio=warmup) for s in range(total)]
    rise = int(warmup * total)
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    assert rates[rise] == pytest.approx(peak)  # the peak is reached
    rising, falling = rates[: rise + 1], rates[rise:]
    for part, steps in ((rising, rise + 1), (falling, total - rise)):
        differences = [b - a for a, b in pairwise(part)]
        assert differences == pytest.approx(
            [(1 if part is rising else -1) * peak / steps] * len(differences), abs=1e-9 * peak
        )


def test_collapse():
    monitor = Monitor()
    near, far = {"loss": 1.0, "cosine_negative": 0.999}, {"loss": 1.0, "cosine_negative": 0.9}
    # It may begin there.
    for step in range(CALM_STEPS):
        monitor.check(step, near, 1e-3)
    # A while is not for ever.
    for step in range(CALM_STEPS, CALM_STEPS + LASTING - 1):
        monitor.check(step, near, 1e-3)
    monitor.check(200, far, 1e-3)
    assert monitor.high == 0
    for step in range(201, 201 + LASTING - 1):
        monitor.check(step, near, 1e-3)
    # It goes on counting after a resume.
    again = Monitor(high=monitor.high)
    said = r"collapsed: .* cosine of 0\.9990; the last checkpoint"
    with pytest.raises(TrainingError, match=said):
        again.check(230, near, 1e-3)
