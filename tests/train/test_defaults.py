"""Settings that nobody stated: which rule says them, and what is left as it was."""

import json
from dataclasses import asdict
from functools import partial

import pytest

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.registry import check, find, parameters, published, recipes, summaries
from contrasent.errors import OptionError
from contrasent.model.pretrained import resolve
from contrasent.reproduce.tables import ItemFolder, resolve_row
from contrasent.text.corpus import open_corpus
from contrasent.train.run import RunFolder
from contrasent.train.settings import (
    ENCODER_SETTINGS,
    ENCODER_SETTINGS_PAIRS,
    MOST_STEPS,
    SHOWN_IN_BF16,
    Settings,
    base_kind,
    check_needs,
    choose,
    resolve_settings,
)


@pytest.fixture
def encoder(bert, tmp_path):
    """A folder that states how to pool."""
    TorchEncoder.load(bert, pooling="mean").save(tmp_path / "encoder")
    return tmp_path / "encoder"


def changed(settings):
    """The differences from the defaults of ``Settings``."""
    plain = Settings()
    fields = {name: getattr(settings, name) for name in Settings.__slots__}
    return {k: v for k, v in fields.items() if v != getattr(plain, k)}


def test_a_folder_says_what_it_is(bert, encoder, tmp_path):
    assert base_kind(bert) == "language model"
    assert base_kind(encoder) == "sentence encoder"
    assert base_kind(TorchEncoder.load(encoder).source) == "sentence encoder"
    (encoder / "1_Module").mkdir()
    assert base_kind(encoder / "1_Module") == "sentence encoder"  # the transformer's own folder
    assert base_kind(None) == base_kind(tmp_path / "none") == "language model"
    (encoder / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer"}]')
    assert base_kind(encoder) == "language model"
    (encoder / "modules.json").write_text("[1, {")
    assert base_kind(encoder) == "language model"


def test_each_rule_gives_way_to_the_one_before_it(bert, encoder):
    def resolved(base, objective, **given):
        return changed(resolve_settings(base, objective, given).settings)

    assert resolved(bert, "simcse") == {}
    assert resolved(bert, "diffcse") == {"learning_rate": 7e-6, "num_train_epochs": 2.0}
    stated = {"learning_rate": 1e-4, "num_train_epochs": 2.0}
    assert resolved(bert, "diffcse", learning_rate="1e-4") == stated
    assert resolved(bert, "diffcse", max_steps=9) == {"learning_rate": 7e-6, "max_steps": 9}
    supervised = {"batch_size": 512, "learning_rate": 5e-5, "num_train_epochs": 3.0, "head": "tanh"}
    supervised["mini_batch_size"] = 256
    assert resolved(bert, "simcse_supervised") == supervised
    # A base that is an encoder needs none of that, and keeps its own head.
    assert resolved(encoder, "simcse") == resolved(encoder, "diffcse") == {"learning_rate": 3e-6}
    assert resolved(encoder, "simcse_supervised+masked_lm") == {"learning_rate": 2e-5}
    rates = [own["learning_rate"] for own in (ENCODER_SETTINGS, ENCODER_SETTINGS_PAIRS)]
    assert rates == [3e-6, 2e-5]
    stated = {"learning_rate": 1e-4, "head": "tanh", "batch_size": 512, "num_train_epochs": 3.0}
    assert resolved(encoder, "simcse_supervised", **stated) == stated
    with pytest.raises(OptionError, match="did you mean 'learning_rate'"):
        resolve_settings(bert, "simcse", {"learning_rat": 1})
    for batch in (0, -8):
        with pytest.raises(OptionError, match="must be 1 or more"):
            given, endless = {"batch_size": batch}, iter(lambda: 1 / 0, None)
            resolve_settings(encoder, "simcse", given, corpus=endless)


def test_a_large_corpus_does_not_make_a_long_run_of_an_encoder(bert, encoder):
    def steps(base, rows, objective="simcse", **given):
        found = resolve_settings(base, objective, given, corpus=["a text"] * rows)
        return found.settings.max_steps, found.defaults.values.get("max_steps")

    most = MOST_STEPS
    assert steps(encoder, 64 * most) == (None, None)
    assert steps(encoder, 64 * (most + 1)) == (most, most)
    assert steps(encoder, 8 * (most + 1), batch_size=8) == (most, most)
    assert steps(bert, 64 * (most + 1)) == (None, None)
    assert steps(encoder, 64 * (most + 1), "simcse_supervised") == (None, None)
    assert steps(encoder, 64 * (most + 1), num_train_epochs=1) == (None, None)
    assert steps(encoder, 64 * (most + 1), max_steps=most + 7) == (most + 7, None)


def test_a_run_that_goes_on_has_the_settings_it_was_begun_with(encoder, tmp_path):
    begun = resolve_settings(encoder, "simcse", {"seed": 3})
    stored = {"base": "sentence encoder", "values": {"learning_rate": 4e-6, "batch_size": 16}}
    again = resolve_settings(encoder, "simcse", {"seed": 3, "batch_size": 8}, stored=stored)
    assert changed(again.settings) == {"learning_rate": 4e-6, "seed": 3, "batch_size": 8}
    assert again.defaults.values == {"learning_rate": 4e-6}
    # Of a version that chose nothing.
    old = resolve_settings(encoder, "simcse", {"seed": 3}, stored={})
    assert (old.settings, old.defaults) == (Settings(seed=3), None)
    place = RunFolder(tmp_path / "m")
    assert place.defaults() is None
    place.home.mkdir(parents=True)
    place.settings.write_text(json.dumps({"settings": {}}))
    assert place.defaults() == {}
    place.settings.write_text(json.dumps({"defaults": stored}))
    assert place.defaults() == stored
    assert begun.defaults.values["learning_rate"] == 3e-6


RECIPES = {
    "simcse/bert-large-unsup": ("esimcse", "table3", "SimCSE-BERT-large"),
    "simcse/roberta-base-unsup": ("esimcse", "table3", "SimCSE-RoBERTa-base"),
    "simcse/roberta-large-unsup": ("esimcse", "table3", "SimCSE-RoBERTa-large"),
    "simcse/bert-base-sup": ("simcse", "table5", "SimCSE-BERT base (sup.)"),
    "esimcse/bert-base": ("esimcse", "table3", "ESimCSE-BERT-base"),
    "esimcse/roberta-base": ("esimcse", "table3", "ESimCSE-RoBERTa-base"),
    "esimcse/roberta-large": ("esimcse", "table3", "ESimCSE-RoBERTa-large"),
    "diffcse/bert-base-sts": ("diffcse", "table1", "DiffCSE-BERT-base"),
    "diffcse/bert-base-transfer": ("diffcse", "table2", "DiffCSE-BERT-base"),
    "diffcse/roberta-base-sts": ("diffcse", "table1", "DiffCSE-RoBERTa-base"),
    "diffcse/roberta-base-transfer": ("diffcse", "table2", "DiffCSE-RoBERTa-base"),
    "simcse_plus_plus/bert-base": ("simcse_plus_plus", "table3", "SimCSE++-BERT-base"),
    "simcse_plus_plus/bert-large": ("simcse_plus_plus", "table3", "SimCSE++-BERT-large"),
    "simcse_plus_plus/sbert-large": ("simcse_plus_plus", "table3", "SimCSE++-SBERT-large"),
}


def test_recipes_are_the_papers_items():
    folder = ItemFolder()
    for recipe, (name, item, title) in RECIPES.items():
        stated = recipes()[recipe]
        (own,) = folder.find([f"{name}:{item}"])
        row = next(r for r in own.rows if r.name == title and r.objective == stated["objective"])
        paper = resolve_row(row, folder.scales["paper"])
        trained = {**paper.settings, **paper.known, **paper.given}
        # Chunks change no gradient, and evaluations no step; no rate is 0.32.
        indifferent = ("mini_batch_size", "eval_steps")
        found = {k: v for k, v in stated["settings"].items() if k not in indifferent}
        assert {k: trained[k] or found[k] for k in found} == found, recipe
        assert row.base in ("@base", stated["base"])


def test_every_recipe_can_be_read():
    assert len(recipes()) == 25
    for name, recipe in recipes().items():
        of_run, own = choose(recipe["settings"], recipe["objective"])
        settings = Settings(**of_run)
        check(recipe["objective"], own, models=False)
        large = "large" in name and name.startswith("esimcse")
        assert settings.dropout == (0.15 if large else 0.1)
        assert settings.eval_steps == (250 if name.endswith("-sup") else 125)
        assert (recipe["evaluate"], recipe["keep"]) == ("stsb", "trained") and recipe["source"]


def test_a_base_of_a_papers_shape_has_its_settings(bert, tmp_path):
    def resolved(shape, objective="simcse"):
        kind, layers, width = shape
        config = {"model_type": kind, "num_hidden_layers": layers, "hidden_size": width}
        (tmp_path / "config.json").write_text(json.dumps(config))
        found = resolve_settings(tmp_path, objective, {})
        return found.settings, found.parameters, found.defaults

    small = resolve_settings(bert, "simcse", {}).settings
    assert (small.batch_size, small.learning_rate) == (64, 3e-5)
    run, _, defaults = resolved(("roberta", 12, 768))
    assert (run.batch_size, run.learning_rate) == (512, 1e-5)
    assert (run.mini_batch_size, run.eval_steps) == (256, 125)
    assert "batch_size 512, learning_rate 1e-05" in defaults.line("simcse")
    assert resolved(("bert", 24, 1024))[0].learning_rate == 1e-5
    run, own, _ = resolved(("roberta", 24, 1024), "esimcse")
    assert (run.batch_size, run.dropout, own) == (64, 0.15, {"rate": 0.28, "queue_size": 128})
    run, own, _ = resolved(("roberta", 12, 768), "diffcse")
    assert (run.learning_rate, own) == (1e-5, {"mask_ratio": 0.2, "difference_weight": 0.005})
    assert resolved(("bert", 12, 768), "simcse_plus_plus+diffcse")[0].learning_rate == 7e-6
    assert resolved(("bert", 24, 1024), "simcse_supervised")[0].learning_rate == 1e-5
    assert resolved(("mpnet", 12, 768))[0].batch_size == 64


def test_every_objective_says_the_same_to_readers_and_to_python():
    stated = {name: published(name) for name in sorted(summaries())}
    assert {name: find(name).published for name in sorted(summaries())} == stated
    assert sorted(name for name in stated if not stated[name]) == ["dimension_wise", "masked_lm"]
    for values in stated.values():
        Settings(**values)


def test_a_combination_has_the_settings_of_the_first_method_that_departs():
    plain, difference = published("simcse"), published("diffcse")
    assert published("esimcse+simcse_plus_plus") == plain
    assert published("simcse_plus_plus+diffcse") == published("diffcse+esimcse") == difference
    assert published("masked_lm+simcse") == plain
    supervised = {k: v for k, v in published("simcse_supervised").items() if k != "mini_batch_size"}
    assert published("simcse_supervised+masked_lm") == supervised
    assert published("masked_lm+dimension_wise") == {}
    with pytest.raises(OptionError, match="did you mean 'diffcse'"):
        published("simcse+difcse")


def test_contrasent_small_is_its_own_generator(bert):
    small = resolve("contrasent-small")
    chosen = resolve_settings(small, "diffcse")
    assert chosen.parameters == {"generator": "contrasent-small"}
    assert "since the base is contrasent-small: generator" in chosen.defaults.line("diffcse")
    check("diffcse", chosen.parameters, base=small)
    own = {"generator": str(bert)}
    assert resolve_settings(small, "diffcse", own).parameters == own
    assert "generator" not in resolve_settings(bert, "diffcse").parameters
    assert "generator" not in resolve_settings(small, "esimcse").parameters


@pytest.mark.slow
def test_diffcse_trains_from_contrasent_small_by_one_command(run, tmp_path, sentences):
    (tmp_path / "texts.txt").write_text("\n".join(sentences[:64]) + "\n")
    options = ("--base", "contrasent-small", "--objective", "diffcse", "--set", "batch_size=16")
    run("train", "texts.txt", "-o", "model", *options, "--set", "max_steps=2", "--evaluate", "none")
    assert TorchEncoder.load(tmp_path / "model").dimension == 256


def test_the_command_says_what_it_chose(bert, encoder, tmp_path, run, sentences):
    rows = [f"{a}\t{b}" for a, b in zip(sentences[:30], sentences[40:70], strict=True)]
    (tmp_path / "pairs.tsv").write_text("one\ttwo\n" + "\n".join(rows) + "\n")

    train = partial(run, "train", "pairs.tsv")
    fast = ["--set", "max_steps=1", "--evaluate", "none"]
    _, err = train("-o", "a", "--base", bert, *fast, "--set", "batch_size=8")
    assert err.splitlines()[:2] == [
        "query: one, positive: two",
        "Defaults from the paper of simcse_supervised: learning_rate 5e-05, max_seq_length 32, "
        "head tanh, mini_batch_size 256; for repeated texts: duplicates mask",
    ]
    assert TorchEncoder.load(tmp_path / "a").head is not None
    out, err = train("-o", "b", "--base", encoder, *fast, "--set", "learning_rate=1e-4", "--json")
    assert "Defaults" not in err
    values = {"max_seq_length": 32, "batch_size": 64, "duplicates": "mask"}
    chosen = {"base": "sentence encoder", "values": values}
    assert json.loads(out)["defaults"] == chosen
    stored = json.loads((tmp_path / "b" / "run" / "settings.json").read_text())
    assert stored["defaults"] == chosen
    assert (stored["settings"]["head"], stored["settings"]["learning_rate"]) == (None, 1e-4)


@pytest.fixture
def machine(monkeypatch):
    """A function that gives the processor these instructions."""
    monkeypatch.delenv("CONTRASENT_PRECISION")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def make(has):
        monkeypatch.setattr("contrasent.train.settings.instructions", lambda: has)

    return make


@pytest.mark.parametrize(("has", "precision"), [
    ({"avx512_bf16"}, "bf16"), ({"amx_bf16", "avx2"}, "bf16"), ({"avx512f", "avx2"}, "fp32"),
], ids=["AVX-512 BF16", "AMX", "neither"])  # fmt: skip
def test_precision_auto_is_told_and_stays_that_of_the_run(bert, machine, has, precision):
    machine(has)
    assert Settings(precision="auto").precision == precision
    found = resolve_settings(bert, "simcse", {"precision": "auto", "seed": 3})
    assert (found.settings.precision, found.settings.seed) == (precision, 3)
    line = found.defaults.line("simcse")
    assert f"for this processor (--set precision=fp32 changes it): precision {precision}" in line
    assert resolve_settings(bert, "simcse", {"precision": "auto"}, stored={}).settings == (
        Settings(precision=precision)
    )
    # A run that goes on on another machine has the precision that it began with.
    machine({"amx_bf16"} - has)
    stored = asdict(found.defaults)
    for given in ({"precision": "auto", "seed": 3}, {"seed": 3}):
        again = resolve_settings(bert, "simcse", given, stored=stored)
        assert again.settings == found.settings


def test_methods_shown_to_lose_nothing_train_in_what_is_fast(bert, machine, monkeypatch):
    machine({"amx_bf16"})

    def precision(objective, **given):
        return resolve_settings(bert, objective, given).settings.precision

    assert {precision(name) for name in SHOWN_IN_BF16} == {"bf16"}
    assert precision("simcse", precision="fp32") == precision("barlow_twins") == "fp32"
    assert precision("simcse+barlow_twins") == precision("barlow_twins+simcse") == "fp32"
    assert precision("barlow_twins", precision="auto") == "bf16"
    monkeypatch.setenv("CONTRASENT_PRECISION", "fp32")
    assert precision("simcse") == precision("barlow_twins", precision="auto") == "fp32"
    monkeypatch.setenv("CONTRASENT_PRECISION", "fp64")
    with pytest.raises(OptionError, match="CONTRASENT_PRECISION 'fp64'"):
        precision("simcse")
    monkeypatch.delenv("CONTRASENT_PRECISION")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for good in ("bf16", ""):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda good=good, **_: bool(good))
        assert precision("simcse") == (good or "fp32")


def test_the_equality_is_one_that_can_be_run_again():
    rows = {row.name for row in ItemFolder().find(["own:precision"])[0].rows}
    names = ("SimCSE", "SimCSE++", "With labels")
    assert {f"{name}, {kind}" for name in names for kind in ("fp32", "bf16")} < rows
    assert len(names) == len(SHOWN_IN_BF16)


@pytest.mark.parametrize(("method", "given", "needed"), [
    ("simcse", {"bias": -5.0}, "loss=sigmoid"),
    ("simcse_supervised", {"alpha": 0.5}, "hard_negatives=..."),
    ("simcse_copies", {"alpha": 0.5, "copies": "positive"}, "copies=negative or hard"),
    ("diffcse", {"edit_ratio": 0.3}, "edits=insert or delete or all"),
    ("simcse_noise", {"passes": 3, "negatives": "noisy"}, "positives=mean or negatives=mean"),
    ("simcse_noise", {"noise_variance": 0.5}, "positives=gaussian or negatives=gaussian"),
    ("simcse_plus_plus", {"dimension_norm": "none", "dimension_weight": 0}, "dimension_weight="),
    ("esimcse", {"momentum": 0.9, "queue_size": 0}, "queue_size=..."),
    ("esimcse", {"queue_start": "full", "queue_size": 0}, "queue_size=..."),
    ("esimcse+diffcse", {"queue_column": "second", "queue_size": 0}, "queue_size=..."),
])  # fmt: skip
def test_what_has_no_effect_is_rejected_if_it_was_stated(bert, method, given, needed):
    pairs = open_corpus([("a map", "a lamp"), ("a boat", "a well")])
    (name, value), *_ = given.items()
    with pytest.raises(OptionError) as caught:
        resolve_settings(bert, method, given, corpus=pairs)
    assert str(caught.value).startswith(f"{name} {value!r}: has no effect without {needed}")
    default = parameters(method)[name].default
    resolve_settings(bert, method, given | {name: default}, corpus=pairs)


@pytest.mark.parametrize(("method", "given"), [
    ("simcse", {"bias": -5.0, "loss": "sigmoid"}),
    ("simcse_supervised", {"alpha": 0.5, "hard_negatives": 1}),
    ("simcse_copies", {"alpha": 0.5, "edit_ratio": 0.3}),
    ("simcse_copies+diffcse", {"edit_ratio": 0.3}),
    ("diffcse", {"edit_ratio": 0.3, "edits": "all"}),
    ("simcse_noise", {"passes": 3}),
    ("simcse_noise", {"noise_variance": 0.5, "positives": "gaussian"}),
    ("dimension_wise", {"dimension_temperature": 1.0}),
    ("esimcse", {"momentum": 0.9}),
])  # fmt: skip
def test_what_has_an_effect_is_taken(bert, method, given):
    pairs = open_corpus([("a map", "a lamp"), ("a boat", "a well")])
    assert (
        resolve_settings(bert, method, given, corpus=pairs).parameters.items()
        >= {k: v for k, v in given.items() if k != "hard_negatives"}.items()
    )
    triples = open_corpus([("a map", "a lamp", "a boat"), ("a well", "a door", "a key")])
    resolve_settings(bert, "simcse_supervised", {"alpha": 0.5}, corpus=triples)


def test_the_items_and_recipes_state_nothing_without_effect():
    stated = [(recipe["objective"], recipe["settings"]) for recipe in recipes().values()]
    rows = [row for item in ItemFolder().all() for row in item.rows if row.objective]
    scale = ItemFolder().scales["paper"]
    stated += [(row.objective, resolve_row(row, scale).given) for row in rows]
    for method, given in stated:
        given = choose(given, method)[1]
        check_needs(method, given, given, {"hard_negatives": 1})
