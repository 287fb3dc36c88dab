"""Shares of the terms in the encoder's gradient against one term at a time."""

import json

import pytest
import torch
from safetensors.torch import load_file

from contrasent.train import step as step_module
from contrasent.train.fit import fit
from contrasent.train.method_checks import Trial, make_small_base, with_small_models
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings
from contrasent.train.step import gradient_shares, moments

METHODS = {
    "simcse_plus_plus": {"dimension_weight": 0.5},
    "diffcse": {"generator": "small", "difference_weight": 0.3},
    "simcse+masked_lm": {"masked_lm_weight": 0.2},
    "simcse_plus_plus+barlow_twins": {"dimension_weight": 0.0, "barlow_weight": 0.01},
    "cosent+cosine_regression": {"highest_score": 5.0},
    "dimension_wise": {},
}
FEW = {"batch_size": 8, "learning_rate": 1e-3, "seed": 1, "pooling": "mean", "max_seq_length": 24}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make_small_base(tmp_path_factory.mktemp("small") / "base")


def norm_of(value, encoder):
    """The gradient's length on the encoder, parameter by parameter."""
    grads = torch.autograd.grad(value, list(encoder.parameters()), allow_unused=True)
    return sum(float((g * g).sum()) for g in grads if g is not None) ** 0.5


@pytest.mark.parametrize("cached", [0, 5])
@pytest.mark.parametrize("method", METHODS)
def test_shares_are_those_of_each_term_alone(small, method, cached):
    if cached and method in ("diffcse", "simcse+masked_lm"):
        pytest.skip("works on tokens")
    given = with_small_models(method, METHODS[method], small)
    expected = {}

    def terms_of(objective, batch):
        torch.manual_seed(5)
        return objective(batch(0))

    with Trial(method, given, small).training(dropout=0.1, cached_rows=cached) as (one, batch):
        for name, weight in one.weights.items():
            expected[name] = weight * norm_of(terms_of(one, batch)[name], one.encoder)
        whole = norm_of(one.loss(terms_of(one, batch)), one.encoder)
        one.zero_grad()
        terms = terms_of(one, batch)
        shares = gradient_shares(one, terms, 2.0)
        (2.0 * one.loss(terms)).backward()
        assert shares == pytest.approx({k: v / whole for k, v in expected.items()}, rel=1e-9)
        grads = {name: p.grad.clone() for name, p in one.named_parameters() if p.grad is not None}
        one.zero_grad()
        (2.0 * one.loss(terms_of(one, batch))).backward()
        for name, parameter in one.named_parameters():
            assert parameter.grad is None or torch.equal(parameter.grad, grads[name]), name


def trained(small, folder, method, on_step=None, **options):
    given = with_small_models(method, METHODS.get(method, {}), small)
    settings = Settings(**(FEW | options))
    resume = folder.exists()
    learner = prepare(small, method, given, settings)
    corpus = [f"the gardener sold {n} lamps" for n in range(60)]
    return fit(learner, corpus, settings, output_dir=folder, resume=resume, on_step=on_step)


@pytest.mark.parametrize(
    ("method", "more"),
    [("diffcse", {}), ("simcse_plus_plus+esimcse", {"gradient_accumulation_steps": 2})],
)
def test_measuring_changes_no_bit_of_a_run(small, tmp_path, monkeypatch, method, more):
    options = {"max_steps": 5, "dropout": 0.3, **more}
    run = trained(small, tmp_path / "with", method, **options)
    assert [shares["step"] for shares in run.shares] == [1, 5]
    monkeypatch.setattr(step_module, "moments", lambda *given: frozenset())
    assert trained(small, tmp_path / "without", method, **options).shares == []
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("with", "without"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)
    lines = {line["step"]: line for line in run.log if "loss" in line}
    assert lines[1]["shares"]["contrast"] > 0 and "shares" not in lines[2]
    assert {k: v for k, v in run.shares[1].items() if k != "step"} == lines[5]["shares"]
    card = (run.folder / "README.md").read_text()
    printed = " | ".join(f"{100 * share:.2f} %" for share in lines[5]["shares"].values())
    assert f"| 5 | {printed} |" in card
    assert json.loads((run.folder / "run" / "result.json").read_text())["shares"] == run.shares


def test_a_resumed_run_has_the_shares_of_a_whole_one(small, tmp_path):
    options = {"max_steps": 6, "dropout": 0.3, "save_steps": 2}
    whole = trained(small, tmp_path / "whole", "simcse_plus_plus", **options)

    def stop(step, values):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(small, tmp_path / "m", "simcse_plus_plus", on_step=stop, **options)
    again = trained(small, tmp_path / "m", "simcse_plus_plus", **options)
    assert again.shares == whole.shares
    assert again.log == whole.log


def test_long_runs_are_measured_at_four_steps_and_short_ones_at_both_ends(small):
    settings = Settings(**FEW)
    one = prepare(small, "simcse", {}, settings)
    two = prepare(small, "simcse_plus_plus", {}, settings)
    assert moments(one, 40) == {0, 4, 20, 39}  # one term alone has all of the gradient: no cost
    assert moments(two, 80) == {0, 79}
    assert moments(two, 4000) == {0, 400, 2000, 3999}
    given = with_small_models("diffcse", {"discriminator_warmup_steps": 100}, small)
    late = prepare(small, "diffcse", given, settings)
    assert moments(late, 500) == {100, 140, 300, 499}  # where the encoder learns
