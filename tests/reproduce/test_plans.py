"""Plans: what two tables share, and what makes another run of it."""

import shutil
from dataclasses import replace
from functools import partial

import pytest

from contrasent.cli.options import parse_budget
from contrasent.engine import registry
from contrasent.engine.registry import parameters
from contrasent.errors import OptionError
from contrasent.reproduce import corpora
from contrasent.reproduce.measures import MEASURES
from contrasent.reproduce.plan import Planner
from contrasent.reproduce.results import book
from contrasent.reproduce.store import ResultStore, folder_digest, manifest_key
from contrasent.reproduce.tables import Changes, ItemFolder
from contrasent.train import settings as run_settings
from contrasent.train.settings import Settings

OWN = ItemFolder()
METHOD = """
from contrasent import engine

class Mine(engine.Objective):
    def __init__(self, encoder, *, temperature: float = 0.05, teacher: engine.GuideFolder = None):
        super().__init__(encoder)
        self.use_contrast(1.0, temperature=temperature)
"""
ITEM = """
title = "Methods of one's own"
source = "our own"
about = "An item for tests."
cost = "light"
evaluations.speed = { kind = "speed" }
columns.speed = { evaluation = "speed", metric = "sentences_per_second" }

[[rows]]
name = "mine"
objective = "HOME/mine.py"
corpus = "wiki"
set = { teacher = "teacher" }

[[rows]]
name = "guided"
objective = "gist"
corpus = "nli_triples_as_pairs"
set = { guide = "HOME/guide" }
"""


@pytest.fixture
def folder(tmp_path, sentences, monkeypatch):
    """A data folder with sentences and triples; what is measured on is made."""
    home, three = tmp_path / "data", '"{}","{}","{}"'
    rows = [three.format(*sentences[i : i + 3]) for i in range(30)]
    for name, lines in (
        ("wiki/wiki1m_for_simcse.txt", sentences[:50]),
        ("nli/nli_triples.csv", ["sent0,sent1,hard_neg", *rows]),
    ):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(corpora, "sts_pairs", lambda task, folder: ())
    for kind, measure in MEASURES.items():
        monkeypatch.setitem(MEASURES, kind, replace(measure, reads=lambda folder, **options: ()))
    return home


@pytest.fixture
def plan(folder, tmp_path, bert):
    """Plan items on the tiny BERT."""

    def plan(*items, seeds=1, base=bert, scale=None, results=tmp_path / "results"):
        scale = scale or OWN.scales["lab"]
        planner = Planner(results, folder, scale, OWN.corpora, base=str(base))
        return planner.plan(OWN.find(list(items)), seeds)

    return plan


def test_a_run_is_trained_once_for_its_tests_and_its_curve(plan):
    found = plan("own:headlines")
    rows = {row["name"]: row for row in found.manifests["own:headlines"]["rows"]}
    assert len(rows) == 11
    trained = [name for name, row in rows.items() if row["kind"] == "train"]
    assert len(trained) == 6
    made = {name: row for name, row in rows.items() if row["models"]}
    assert [name in trained for name in made] == [False] * 3 + [True] * 2  # the rest lacks NLI
    for name, row in made.items():
        assert set(row["measured"]) == {"sts", *(["development"] if name in trained else [])}
        assert len({key for keys in row["models"].values() for key in keys.values()}) == 1


def models(found, item, row):
    rows = {r["name"]: r for r in found.manifests[item]["rows"]}
    return rows[row]["models"]["dev"]


def test_tables_share_their_rows(plan):
    found = plan("simcse:table1", "simcse:table3", "simcse:table6", "simcse:d1")
    plain = models(found, "simcse:table1", "None (unsup. SimCSE)")
    assert models(found, "simcse:table3", "p = 0.1") == plain
    # [CLS] is what a bare encoder is pooled by, whether a row says so or not.
    assert models(found, "simcse:table6", "Unsup.: [CLS] w/ MLP (train)") == plain
    with_head = models(found, "simcse:table6", "Sup.: [CLS] w/ MLP")
    assert models(found, "simcse:d1", "cosine, tau = 0.05") == with_head
    rows = sum(len(m["rows"]) for m in found.manifests.values())
    assert (rows, len(found.jobs)) == (11 + 8 + 8 + 6, rows - 3)


def test_the_first_seeds_of_all_tables_come_before_the_second(plan):
    seeds = [job.seed for job in plan("simcse:table6", "simcse:table7", seeds=3).jobs]
    assert seeds == sorted(seeds)
    assert seeds.count(0) == seeds.count(1) == seeds.count(2) == len(seeds) / 3 > 1


def test_what_makes_another_run(plan, tiny, folder, tmp_path):
    def keys(**options):
        found = plan("simcse:table3", **options)
        return models(found, "simcse:table3", "p = 0.1")["0"]

    key = keys()
    lab = OWN.scales["lab"]
    same = lab.model_copy(update={"set": {**lab.set, "save_steps": 7}})
    assert keys(scale=same) == key
    other = lab.model_copy(update={"set": {**lab.set, "max_steps": 81}})
    seen = {key, keys(scale=other), keys(base=tiny["electra"])}
    wiki = folder / "wiki" / "wiki1m_for_simcse.txt"
    wiki.write_text(wiki.read_text() + "One more sentence.\n")
    seen.add(keys())
    assert len(seen) == 4


def test_a_base_with_random_weights_is_drawn_once(plan, bert, tmp_path):
    def keys():
        found = plan("simcse:checkpoint")
        (item,) = found.manifests.values()
        return {row["name"]: row["models"]["dev"]["0"] for row in item["rows"]}

    first = keys()
    assert len(set(first.values())) == len(first) == 4
    (made,) = (tmp_path / "results" / "models").glob("untrained-*")
    weights, base = ((f / "model.safetensors").read_bytes() for f in (made, bert))
    assert weights != base
    shutil.rmtree(made)
    assert keys() == first


def test_results_of_another_recipe_are_noted(plan, tmp_path):
    store, (item,) = ResultStore(tmp_path / "results"), OWN.find(["simcse:table3"])
    manifest = plan(item.name).manifests[item.name]
    first, *rest = item.rows
    changed = Changes(set={"learning_rate": 1e-3}, evaluations=first.lab.evaluations)
    first = first.model_copy(update={"lab": changed})
    judged = {name: one._replace(kind="curve") for name, one in item.evaluations.items()}
    changes = {}, {"rows": (first, *rest)}, {"evaluations": judged}

    def noted():
        books = [book([item.model_copy(update=c)], store.home, "lab") for c in changes]
        notes = [made["items"][0]["needs"][len(item.needs) :] for made in books]
        return [[line.split(": run with another")[0].split("; ") for line in n] for n in notes]

    store.write("items", manifest_key(item.name, "lab"), manifest)
    with_models = [row["name"] for row in manifest["rows"] if row["models"]]
    assert noted() == [[], [[first.name]], [with_models]]
    for planned in manifest["rows"]:  # as they were stored before
        planned.pop("recipe", None)
    store.write("items", manifest_key(item.name, "lab"), manifest)
    assert noted() == [[], [], []]


def test_a_method_and_a_guide_of_ones_own_are_known_by_their_content(
    folder, models, bert, tmp_path
):
    def planned(home):
        (tmp_path / "recipes" / "mine").mkdir(parents=True, exist_ok=True)
        item = tmp_path / "recipes" / "mine" / "table1.toml"
        item.write_text(ITEM.replace("HOME", str(home)))
        items = ItemFolder(item.parents[1])
        planner = Planner(
            tmp_path / "results",
            folder,
            items.scales["lab"],
            items.corpora,
            base=str(bert),
            checkpoints={"teacher": str(home / "guide")},
        )
        jobs = planner.plan(items.all(), 1).jobs
        assert len(jobs) == 2
        return {job.label.split("'")[1]: job for job in jobs}

    def keys(home):
        return {name: job.key for name, job in planned(home).items()}

    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(models / "mean", first / "guide")
    (first / "mine.py").write_text(METHOD)
    shutil.copytree(first, second)
    before = keys(first)
    assert keys(second) == before  # such as on another machine
    (second / "mine.py").write_text(METHOD.replace("contrast(1.0", "contrast(2.0"))
    edited = keys(second)
    assert (edited["mine"] != before["mine"], edited["guided"]) == (True, before["guided"])
    (second / "guide" / "config.json").write_text(
        (second / "guide" / "config.json").read_text() + " "
    )
    assert not {*keys(second).values()} & {*before.values(), *edited.values()}
    about = planned(second)["mine"].describe()
    assert about["objective"] == "mine.py"
    assert about["parameters"]["teacher"] == "guide"
    assert str(tmp_path) not in str(about)


@pytest.mark.parametrize("name", ["export.json", "index.db", "milvus.json"])
def test_a_folder_is_known_by_its_files_and_not_by_an_export_in_it(name, bert, tmp_path):
    copy = shutil.copytree(bert, tmp_path / "copy")
    (copy / "onnx").mkdir()
    for file in (name, "tokenizer.json"):
        shutil.copy(bert / "tokenizer.json", copy / "onnx" / file)
    (copy / "README.md").write_text("a card")
    assert folder_digest(copy) == folder_digest(bert)
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    assert folder_digest(copy) != folder_digest(bert)


CHANGES = {
    "settings": lambda m: m.setattr(run_settings, "Settings", partial(Settings, weight_decay=0.01)),
    "objectives": lambda m: m.setattr(
        registry, "parameters", partial(other_default, "temperature")
    ),
    "measures": lambda m: m.setitem(MEASURES["sts"].options, "form", (str, "raw")),
}


def other_default(key, objective):
    found = dict(parameters(objective))
    found[key] = replace(found[key], default=0.07)
    return found


@pytest.mark.parametrize("changed", CHANGES)
def test_a_default_that_changes_makes_stored_results_stale(plan, monkeypatch, changed):
    def keys():
        rows = {r["name"]: r for r in plan("simcse:table3").manifests["simcse:table3"]["rows"]}
        row = rows["p = 0.0"]
        return row["models"]["dev"]["0"], row["measured"]["dev"]["units"]["0"]

    before = keys()
    assert keys() == before
    CHANGES[changed](monkeypatch)
    model, unit = keys()
    assert (model != before[0]) == (changed != "measures")
    assert unit != before[1]


def test_times():
    texts = {"90": 90, "90s": 90, "1.5h": 5400, "30m": 1800, "1h30m": 5400, "2d": 172800}
    assert {text: parse_budget(text) for text in texts} == texts
    for text in ("", "soon", "3 x", "-5m", "h", "90sx", "45x"):
        with pytest.raises(OptionError, match="write a time such as 90s"):
            parse_budget(text)
