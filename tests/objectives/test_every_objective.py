"""Promises that hold for every file in ``objectives/``, and for combinations of them."""

import re
from pathlib import Path

import pytest
import torch

from contrasent import engine
from contrasent.engine.registry import METHODS, described, find, parameters, summaries
from contrasent.errors import OptionError
from contrasent.text.views import VIEWS, WORDNET_FILES
from contrasent.train import method_checks
from contrasent.train.method_checks import Trial, finding

_COMBINED = (
    "esimcse+simcse_plus_plus diffcse+simcse_plus_plus simcse+masked_lm"
    " simcse_supervised+masked_lm simcse_supervised+simcse_plus_plus simcse_supervised+esimcse"
    " simcse_supervised+diffcse esimcse+masked_lm esimcse+diffcse+simcse_plus_plus"
    " cosent+cosine_regression matryoshka+esimcse+simcse_plus_plus"
    " simcse_supervised+ranking_distillation+matryoshka promptbert+simcse_plus_plus"
)
NAMES, COMBINED = sorted(summaries()), _COMBINED.split()
UNTABLED = ("cosent", "gist", "matryoshka", "promptbert", "ranking_distillation")


def build(name, kind, load, examples, *, encoder=None, **more):
    given = {}
    for part in name.split("+"):
        given |= examples(kind)[part]
    torch.manual_seed(3)
    return find(name)(encoder or load(kind), **(given | more))


def run(objective, batch, step=0):
    """One step of training with the random state that the loop sets."""
    objective.train()
    torch.manual_seed(100 + step)
    terms = objective(batch(objective, step))
    loss = objective.loss(terms)
    loss.backward()
    return loss, terms


def test_every_file_is_a_method():
    assert list(METHODS) == NAMES
    assert {"simcse", "simcse_supervised", "esimcse", "diffcse", "simcse_plus_plus"} <= set(NAMES)
    assert all(line.endswith(".") and len(line) > 20 for line in METHODS.values())


@pytest.mark.parametrize("name", NAMES)
def test_docstring_cites_its_source_and_explains_every_parameter(name):
    text = find(name).__doc__
    assert re.search(r"\(.*(20\d\d|et al\.).*\)", text), "no source"
    assert "section" in text or "appendix" in text or name == "cosent"
    assert "Table" in text or name in UNTABLED
    bases = (kind.__doc__ for kind in find(name).__mro__ if issubclass(kind, engine.Objective))
    explained = "\n".join(bases)
    for parameter in parameters(name):
        assert re.search(rf"^        {parameter}: ", explained, re.MULTILINE), parameter


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])  # bert: by the checks below
@pytest.mark.parametrize("name", NAMES)
def test_runs_and_every_trainable_parameter_gets_a_gradient(name, kind, load, examples, batches):
    objective = build(name, kind, load, examples)
    loss, terms = run(objective, batches)
    assert loss.isfinite() and loss.item() > 0
    assert set(objective.weights) <= set(terms)
    for key, value in terms.items():
        assert value.dim() == 0 and value.isfinite(), key
    without = [n for n, p in objective.named_parameters() if p.requires_grad and (p.grad is None)]
    assert not without
    assert all(p.grad is None for p in objective.parameters() if not p.requires_grad)


@pytest.mark.parametrize("name", NAMES + COMBINED)
def test_the_checks_of_check_objective_hold(name, masked, examples):
    given = {k: v for part in name.split("+") for k, v in examples("bert")[part].items()}
    trial = Trial(name, given, masked["bert"])
    names = ("one_step", "gradient", "cached_gradients", "resume")
    findings = [finding(getattr(method_checks, f"check_{name}"), trial) for name in names]
    assert [result for result in findings if result.passed is False] == []
    tokens = any(part in name for part in ("masked_lm", "diffcse"))
    assert [f.check for f in findings if f.passed is None] == ["cached gradients"] * tokens


@pytest.mark.parametrize("name", NAMES + COMBINED[:2])
def test_nothing_but_the_encoder_is_saved(name, load, examples, batches, tmp_path):
    from safetensors import safe_open

    objective = build(name, "bert", load, examples)
    run(objective, batches)
    objective.after_step()
    bare = load("bert")
    bare.save(tmp_path / "bare")
    objective.encoder.save(tmp_path / "trained")
    files = [
        sorted(p.name.replace("MaskPooling", "Pooling") for p in (tmp_path / k).rglob("*"))
        for k in ("bare", "trained")
    ]
    assert files[0] == files[1]
    held = []
    for which in ("bare", "trained"):
        with safe_open(tmp_path / which / "model.safetensors", "pt") as stream:
            held.append(sorted(stream.keys()))
    assert held[0] == held[1]
    assert len(held[0]) > 30


@pytest.mark.parametrize("first", NAMES)
def test_every_pair_combines_or_says_why_not(first, load, examples, batches):
    encoder = load("bert")
    parts = {name: build(name, "bert", load, examples, encoder=encoder) for name in NAMES}
    made = rejected = 0
    for pair in ((first, second) for second in NAMES if second != first):
        try:
            objective = build("+".join(pair), "bert", load, examples, encoder=encoder)
        except OptionError as error:
            assert "\n" not in str(error)
            reasons = (pair[0], "the combined objectives differ (", "set projector=none")
            assert any(reason in str(error) for reason in reasons)
            rejected += 1
            continue
        made += 1
        one, two = (parts[name] for name in pair)
        assert objective.weights == one.weights | two.weights == two.weights | one.weights
        assert set(objective.terms) == set(one.terms) | set(two.terms)
        for name in ("queue", "contrast", "projector", "second"):
            both = getattr(one, name) is not None or getattr(two, name) is not None
            if name == "projector" and "projector" in parameters(pair[0]):
                both = getattr(one, name) is not None
            assert (getattr(objective, name) is not None) == both, (pair, name)
        views = [view for part in (one, two) for view in part.views]
        assert {type(view) for view in objective.views} >= {
            type(view) for view in views if type(view).__name__ != "Identity"
        }
        if pair[0] < pair[1]:
            with torch.no_grad():
                terms = objective.train()(batches(objective, 0))
            assert objective.loss(terms).isfinite()
            assert set(objective.weights) <= set(terms)
    assert made + rejected == len(NAMES) - 1
    assert made >= 2


@pytest.mark.parametrize("view", ["insert_prediction", "masked_lm", "synonym"])
def test_the_same_view_of_two_methods_is_one(load, masked, tmp_path, monkeypatch, view):
    for name in WORDNET_FILES:
        (tmp_path / name).write_text("00000001 03 n 02 map 0 chart 0 000 | a plan\n")
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    given = {} if view == "synonym" else {"filler": str(masked["bert"])}
    objective = find("simcse+esimcse")(load("bert"), view=view, **given)
    assert isinstance(objective.views[1], VIEWS[view])


def test_methods_that_differ_in_one_place_must_be_told(load, examples):
    name = "simcse_noise+simcse_plus_plus"
    objective = build(name, "bert", load, examples, negatives="off_dropout")
    assert objective.contrast.negatives == "off_dropout"
    assert objective.contrast.factor == 0.9


@pytest.mark.parametrize("name", [*NAMES, *COMBINED])
def test_an_objective_is_described_without_being_built(name, load, examples):
    objective = build(name, "bert", load, examples)
    stated = objective.describe()
    given = {k: v for part in name.split("+") for k, v in examples("bert")[part].items()}
    assert described(name, given) == stated
    assert stated["name"] == name
    assert len(stated) == 1 + len(parameters(name))
    assert described(name.replace("+", " + "), given) == stated


def test_unknown_and_doubled_names_are_rejected():
    with pytest.raises(OptionError, match="did you mean 'esimcse'"):
        find("simcse+esimsce")
    with pytest.raises(OptionError, match="names simcse twice"):
        find("simcse+simcse")


def test_the_documentation_tells_every_objective_parameter_and_view():
    root = Path(__file__).parents[2]
    pages = [root / folder / "methods.md" for folder in ("docs", "research")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    assert [name for name in NAMES if f"`{name}`" not in text and f"`{name}:" not in text] == []
    own = {parameter for name in NAMES for parameter in parameters(name)}
    assert len(own) > 50
    untold = [p for p in sorted(own) if not re.search(rf"\b{p}\b", text)]
    assert untold == []
    assert [view for view in VIEWS if f"`{view}`" not in text] == []
    for name, room in re.findall(r"`(test_\w+)::(test_\w+)", text):
        found = list(Path(__file__).parents[1].rglob(f"{name}.py"))
        assert len(found) == 1, name
        assert f"def {room}" in found[0].read_text("utf-8"), room
