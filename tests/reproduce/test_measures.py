"""Corpora, made measures and figures, without any data set of others."""

import csv
import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest

from contrasent import metrics
from contrasent.datasets.official import STS_TASKS
from contrasent.errors import DataError
from contrasent.evaluate.geometry import by_rating
from contrasent.postprocess import whiten
from contrasent.report import Report, Row
from contrasent.reproduce import corpora, measures, run
from contrasent.reproduce.corpora import open_built, read_corpora
from contrasent.reproduce.figures import draw, figure_data
from contrasent.reproduce.measures import MEASURES
from contrasent.reproduce.plan import Job, Measurement
from contrasent.reproduce.store import ResultStore
from contrasent.reproduce.table_verdicts import SeedScores
from contrasent.reproduce.tables import FittedTransform, ItemFolder
from contrasent.text.corpus import ScoredPairs

CORPORA = read_corpora()


@pytest.fixture
def folder(tmp_path, sentences):
    """A data folder with small files of the forms that are read."""
    home, lines = tmp_path / "data", sentences[:60]
    pairs = [
        f"made\ttrain\t{label}\t{lines[i]}\t{label} of {i}"
        for i in range(10)
        for label in ("entailment", "neutral", "contradiction")[: 3 if i < 6 else 2]
    ]
    pairs += [f"made\ttrain\tcontradiction\t{lines[i]}\tanother of {i}" for i in (3, 4)]
    questions = ["split\tquestion1\tquestion2\tis_duplicate", "train\twhy?\thow so?\t1"]
    questions += ["train\ta?\tb?\t0", "train\twhere?\tin what place?\t1"]
    for name, rows in (
        ("wiki/enwiki_sentences_1m.txt.gz", lines),
        ("wiki/enwiki_sentences_1m.docs.tsv.gz",
         ["first_line\tn_lines", *(f"{i}\t5" for i in range(1, 61, 5))]),
        ("nli/nli_pairs.tsv.gz", ["source\tsplit\tlabel\tpremise\thypothesis", *pairs]),
        ("qqp/qqp_subset.tsv", questions),
        ("flickr30k/flickr30k_captions.token.gz",
         [f"{i // 5}.jpg#{i % 5}\tcaption {i}" for i in range(20)]),
    ):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        content = ("\n".join(rows) + "\n").encode()
        (home / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with (home / "nli" / "nli_triples.csv").open("w", newline="") as stream:
        triples = [(lines[i], f'=cmd|{lines[i + 1]} "so"', lines[i + 2]) for i in range(40)]
        csv.writer(stream).writerows([("sent0", "sent1", "hard_neg"), *triples])
    return home


EXPECTED = {
    "wiki": (60, 1), "wiki_documents": (60, 1), "nli_triples": (40, 3),
    "nli_triples_as_pairs": (40, 2), "nli_with_neutral": (6, 4), "nli_entailment": (10, 2),
    "nli_neutral": (10, 2), "nli_contradiction": (8, 2), "nli_all": (28, 2),
    "nli_sentences": (38, 1), "qqp": (2, 2), "flickr30k_pairs": (40, 2),
    "nli_one_contradiction": (2, 3), "nli_two_contradictions": (2, 4),
    "nli_sentences_unseen": (36, 1), "nli_triples_unseen": (38, 3),
    "nli_triples_as_pairs_unseen": (38, 2), "nli_triples_and_itself": (80, 3),
}  # fmt: skip


@pytest.fixture
def tested(sentences, monkeypatch):
    """A test set with a hypothesis and a premise of the data folder, cut into tokens otherwise."""
    pairs = ScoredPairs("STS12", ("Neutral , of 3",), (sentences[8].upper(),), np.array([1.0]))
    monkeypatch.setattr(corpora, "sts_pairs", lambda task, folder: (pairs,) * (task == "STS12"))


@pytest.mark.usefixtures("tested")
def test_every_corpus(folder, tmp_path, caplog):
    for name, (count, width) in EXPECTED.items():
        built = corpora.build(CORPORA[name], None, folder, tmp_path / "built")
        rows = list(open_built(built.path, documents=built.documents))
        assert (len(rows), len(rows[0])) == (count, width), name
        assert built.count == count
        assert not built.path.endswith(".csv")  # whose cells a spreadsheet computes
        if name == "nli_triples":
            assert all(row[1].startswith("=cmd|") for row in rows)
    assert "nli_sentences_unseen: 2 of 38 rows removed: they contain a test" in caplog.text
    missing = set(CORPORA) - set(EXPECTED)
    assert missing == {"paranmt", "anli"}
    for name in missing:
        with pytest.raises(DataError, match=name) as error:
            corpora.build(CORPORA[name], None, folder, tmp_path / "built")
        assert str(folder) not in str(error.value)  # it is stored with the results


def test_a_sample_is_the_same_each_time_and_keeps_the_order(folder, tmp_path, sentences):
    one = corpora.build(CORPORA["wiki"], 20, folder, tmp_path / "one")
    two = corpora.build(CORPORA["wiki"], 20, folder, tmp_path / "two")
    assert one.digest == two.digest
    rows = [row[0] for row in open_built(one.path)]
    places = [sentences.index(text) for text in rows]
    assert (len(places), places) == (20, sorted(places))
    assert places != list(range(20))
    # Written once: a second call finds it.
    before = Path(one.path).stat().st_mtime_ns
    assert corpora.build(CORPORA["wiki"], 20, folder, tmp_path / "one") == one
    assert Path(one.path).stat().st_mtime_ns == before


def test_data_copied_anew_give_a_corpus_of_the_same_name(folder, tmp_path):
    one = corpora.build(CORPORA["wiki"], 20, folder, tmp_path / "built")
    os.utime(CORPORA["wiki"].path(folder), (1, 1))
    assert corpora.build(CORPORA["wiki"], 20, folder, tmp_path / "built") == one
    assert corpora.build(CORPORA["wiki"], 21, folder, tmp_path / "built").path != one.path


def test_a_corpus_is_sampled_again_when_its_definition_or_its_documents_change(folder, tmp_path):
    def build(name, **changes):
        changed = CORPORA[name].model_copy(update=changes)
        built = corpora.build(changed, 20, folder, tmp_path / "built")
        return list(open_built(built.path, documents=built.documents))

    changes = {}, {"keep": 2}, {"columns": 1}
    assert [len(build("nli_triples", **change)[0]) for change in changes] == [3, 2, 1]
    assert build("nli_entailment") != build("nli_entailment", labels=("neutral",))
    assert build("nli_sentences") != build("nli_sentences", form="sentences")
    before = build("wiki_documents")
    listed = folder / "wiki" / "enwiki_sentences_1m.docs.tsv.gz"
    listed.write_bytes(gzip.compress(b"first_line\tn_lines\n1\t60\n"))
    assert len(build("wiki_documents")) == 60 > len(before)


BROKEN = {
    "no list": ("documents", b"One.\n", None, r"m\.docs\.tsv\.gz: missing; it lists where"),
    "no number": ("documents", b"One.\n", b"line\nOne.\n", r"tsv\.gz: .* number .*'One\.'"),
    "Latin-1": ("sentences", "caf\xe9\n".encode("latin-1"), None, r"m\.txt:1: byte 0xe9 at"),
    "cut off": ("documents", b"One.\n", "cut", r"m\.docs\.tsv\.gz: not a complete gzip"),
}


@pytest.mark.parametrize(("form", "text", "listed", "problem"), BROKEN.values(), ids=BROKEN)
def test_what_a_corpus_lacks_is_named(tmp_path, form, text, listed, problem):
    (tmp_path / "m.txt").write_bytes(text)
    if listed is not None:
        packed = gzip.compress(b"line\n1\n")[:-9] if listed == "cut" else gzip.compress(listed)
        (tmp_path / "m.docs.tsv.gz").write_bytes(packed)
    corpus = corpora.NamedCorpus(name="mine", title="mine", files=("m.txt",), form=form)
    with pytest.raises(DataError, match=problem):
        corpora.build(corpus, None, tmp_path, tmp_path / "built")


def test_documents_are_sampled_whole(folder, tmp_path, sentences):
    built = corpora.build(CORPORA["wiki_documents"], 12, folder, tmp_path / "built")
    corpus = open_built(built.path, documents=True)
    rows = [row[0] for row in corpus]
    # Of documents of five sentences, three make twelve.
    assert len(rows) == built.count == 15
    assert corpus.starts == [0, 5, 10]
    for start in corpus.starts:
        first = sentences.index(rows[start])
        assert first % 5 == 0
        assert rows[start : start + 5] == sentences[first : first + 5]


def test_a_trace_says_where_it_began_and_ended():
    def at(alignment, uniformity):
        rows = [("alignment", alignment), ("uniformity", uniformity)]
        return Report(tuple(Row("STSB", "all", m, "", v, 9) for m, v in rows))

    points = [(0, at(0.2, -1.0)), (10, at(0.3, -1.5)), (20, at(0.25, -2.0))]
    record = {"trace": [(step, report.to_json()) for step, report in points]}
    found = MEASURES["trace"].run(record)
    assert found.one(metric="alignment_change").value == pytest.approx(0.05)
    assert found.one(metric="uniformity_change").value == pytest.approx(-1.0)
    assert found.one(metric="alignment_first").value == 0.2
    assert found.one(metric="uniformity_last").value == -2.0
    assert found.notes["path"] == [[0, -1.0, 0.2], [10, -1.5, 0.3], [20, -2.0, 0.25]]


def test_the_similarity_of_a_query():
    known = {"a": [1.0, 0.0], "b": [0.0, 2.0], "c": [3.0, 3.0]}

    def encode(texts):
        return np.array([known[t] for t in texts], dtype=np.float32)

    options = {"query": "a", "texts": ("b", "c")}
    found = MEASURES["pair_similarity"].run(encode, folder=None, **options)
    assert [r.task for r in found] == ["1", "2"]
    assert [r.value for r in found] == pytest.approx([0.0, 0.5**0.5])


def test_a_transform_is_fitted_to_the_sentences_of_each_set_apart(monkeypatch):
    random, known = np.random.default_rng(5), {}
    for task in STS_TASKS:
        left, right = ([f"{task} {side} {i}" for i in range(40)] for side in "ab")
        known[task] = ScoredPairs(task, tuple(left), tuple(right), random.normal(size=40))
    vectors = {
        s: random.normal(size=3)
        for p in known.values()
        for side in (p.first, p.second)
        for s in side
    }

    def encode(texts):
        return np.array([vectors[text] for text in texts], np.float32)

    monkeypatch.setattr(run, "scored_pairs", lambda folder, tasks, split, form: [known[tasks[0]]])
    monkeypatch.setattr(run, "_load", lambda job, store, precision, normalize: encode)
    fit = FittedTransform(kind="whitening", corpus="target")
    measurement = Measurement("", "sts", MEASURES["sts"].complete({}), fit)
    found = run._measured_on_own_sentences(None, measurement, fit, None, None)
    for task, pairs in known.items():
        white = whiten(encode([*pairs.first, *pairs.second]))
        cosines = metrics.cosine(white(encode(pairs.first)), white(encode(pairs.second)))
        value = found.one(task=task, metric="spearman").value
        assert value == pytest.approx(metrics.spearman(cosines, pairs.scores))
    mean = found.one(task="STS7", metric="spearman")
    of_sets = [found.one(task=task, metric="spearman").value for task in STS_TASKS]
    assert (mean.value, mean.count) == (pytest.approx(np.mean(of_sets)), 7 * 40)
    assert mean.low < mean.value < mean.high


def test_mean_cosine_by_rating():
    angles = {"a": 0.0, "b": 0.3, "c": 1.0, "d": 2.0, "e": 3.0}

    def encode(texts):
        return np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts], np.float32)

    one = ScoredPairs("STSB", ("a", "b", "a"), ("b", "c", "c"), np.array([5.0, 4.0, 3.9]))
    two = ScoredPairs("STSB", ("a", "b"), ("d", "e"), np.array([0.0, 1.0]))
    found = {r.aggregate: r for r in by_rating(encode, [one, two], "all")}
    assert list(found) == ["0-1", "1-2", "3-4", "4-5"]
    assert found["0-1"].value == pytest.approx(np.cos(2.0))
    assert found["1-2"].value == pytest.approx(np.cos(2.7))
    assert found["4-5"].value == pytest.approx((np.cos(0.3) + np.cos(0.7)) / 2)
    assert [r.count for r in found.values()] == [1, 1, 1, 2]
    assert {r.metric for r in found.values()} == {"mean_cosine"}


def test_what_is_measured_on_decides_the_digest(folder):
    one = measures.texts_digest("pair_similarity", {"query": "a", "texts": ("b",)}, folder)
    two = measures.texts_digest("pair_similarity", {"query": "a", "texts": ("c",)}, folder)
    assert one != two
    wiki = measures.texts_digest("repetition_bias", {"text": "wiki"}, folder)
    assert wiki == measures.texts_digest("repetition_bias", {"text": "wiki"}, folder)
    assert wiki not in (one, two)


def test_a_curve_is_what_a_run_was_evaluated_by():
    def at(own):
        tasks, values = (("STSB", 0.0), ("SICKR", 0.1)), (("pearson", 0.0), ("spearman", own))
        rows = [Row(t, "dev", m, "all", v + add, 9) for t, add in tasks for m, v in values]
        return Report(tuple(rows)).to_json()

    record = {"trace": [(0, at(0.5)), (10, at(0.8)), (20, at(0.7))]}
    found = MEASURES["curve"].run(record, tasks=("STSB", "SICKR"), every=10, split="dev")
    for task, add in (("STSB", 0.0), ("SICKR", 0.1)):
        for name, value in (("0", 0.5), ("10", 0.8), ("20", 0.7), ("best", 0.8), ("last", 0.7)):
            row = found.one(task=task, metric="spearman", aggregate=name)
            assert row.value == pytest.approx(value + add)
    assert found.notes["curves"]["STSB"] == [[0, 0.5], [10, 0.8], [20, 0.7]]
    assert [row.value for row in found.rows if row.metric == "best_step"] == [10, 10]
    assert len(found.rows) == 12


def test_the_development_set_that_chose_a_step():
    history = [(0, 0.9), (10, 0.5), (20, 0.8), (30, 0.7)]  # step 0 is the base, and no choice
    found = MEASURES["development"].run({"history": history})
    rows = {(r.metric, r.aggregate): r.value for r in found.rows}
    assert rows == {("spearman", "best"): 0.8, ("spearman", "last"): 0.7, ("best_step", ""): 20}
    assert found.notes["curves"] == {"STSB": [list(point) for point in history]}
    for untrained in ([], history[:1]):
        with pytest.raises(DataError, match="never evaluated"):
            MEASURES["development"].run({"history": untrained})


def test_the_terms_of_a_run_and_their_ratio_to_the_contrast():
    # The first ten steps are logged, then every tenth, and the last.
    steps = [*range(1, 11), 11, 21, 31, 41, 51, 61, 71, 80]
    log = [{"step": i, "loss": 1.0, "contrast": 16.0 / i, "difference": 8.0} for i in steps]
    kept = run._late_terms(
        [*log, {"step": 80, "evaluation": []}], {"contrast": 1.0, "difference": 9}
    )
    mean = sum(16.0 / i for i in (41, 51, 61, 71, 80)) / 5
    assert kept == {"contrast": pytest.approx(mean), "difference": 8.0}
    kept["contrast"] = 0.75
    found = MEASURES["terms"].run({"late_terms": kept, "steps": 8})
    rows = {(row.task, row.metric): row.value for row in found}
    ratio = ("difference", "to_contrast")
    assert rows == {("contrast", "loss"): 0.75, ("difference", "loss"): 8.0, ratio: 8.0 / 0.75}
    with pytest.raises(DataError, match="has no terms by name"):
        MEASURES["terms"].run({"late_terms": {}, "steps": 8})


def test_lexical_overlap_counts_each_word_as_often_as_both_have_it(folder):
    texts = (("A cat, a dog.", "a dog and a Cat", 4), ("so", "not", 0), ("", "", 0))
    for one, two, shared in texts:
        lengths = [len(re.findall(r"\w+", text)) for text in (one, two)]
        precision, recall = (shared / max(1, n) for n in lengths)
        f1 = 2 * precision * recall / (precision + recall) if shared else 0.0
        assert measures.lexical_overlap(one, two) == pytest.approx(f1, abs=1e-12)
    report = MEASURES["lexical_overlap"].run(None, folder, corpora=("nli_entailment", "qqp"))
    assert [(row.task, row.count) for row in report.rows] == [("nli_entailment", 10), ("qqp", 2)]
    assert [row.value for row in report.rows] == [0, 0]
    same = folder / "qqp/qqp_subset.tsv"
    same.write_text(same.read_text("utf-8").replace("how so?", "so why"), "utf-8")
    report = MEASURES["lexical_overlap"].run(None, folder, corpora=("qqp",))
    assert report.one(task="qqp").value == pytest.approx((2 / 3 + 0) / 2)


def test_figures():
    path = [[0, -1.0, 0.2], [10, -1.5, 0.3]]
    traces = draw({"kind": "trace", "rows": {"one": path, "two": path}})
    assert traces.startswith("<svg")
    assert ">one<" in traces
    points = [
        {"x": 0.1, "line": "", "ours": 70.0, "low": 69.0, "high": 71.0, "paper": 80.0},
        {"x": 0.2, "line": "", "ours": 71.0, "low": None, "high": None},
        {"x": 0.3, "line": "", "paper": 79.0},
    ]
    panels = [{"axis": axis, "column": "dev", "points": points} for axis in ("rate", "size")]
    sweeps = draw({"kind": "sweep", "panels": panels})
    for text in (">rate<", ">size<", ">dev<", ">ours<", ">published<", ">0.3<"):
        assert text in sweeps
    assert draw({}) is None
    # Where values are not comparable the published ones have their own axis.
    apart = draw({"kind": "sweep", "apart": True, "panels": panels})
    assert ">published, right axis<" in apart
    assert ">80.0<" in apart
    # Several figures of one page do not share identifiers, and find their own.
    figures = [draw({"kind": "sweep", "panels": panels}, name) for name in ("a:b", "c:d")]
    own = [set(re.findall(r' id="([^"]+)"', figure)) for figure in figures]
    assert own[0] and not own[0] & own[1]
    for figure, ids in zip(figures, own, strict=True):
        used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', figure)
        assert {a or b for a, b in used} <= ids


def test_the_geometry_of_models_is_drawn_wherever_an_item_measures_it():
    drawn = set()
    for item in ItemFolder().all(settings=False):
        if item.figure in ("plane", "spectrum", "densities"):
            reports = {
                (row.name, name): {0: Report((Row("STSB", "test", kind, "", 0.5, 9),))}
                for row in item.rows
                for name, (kind, _) in item.evaluations.items()
            }
            rows = figure_data(item, "lab", reports, {})["rows"]
            assert {r["metric"] for report in rows.values() for r in report["rows"]} == {"geometry"}
            drawn.add(item.name)
    assert {"own:small", "simcse:figure3"} <= drawn


def test_the_plane_shows_the_mean_of_the_seeds():
    (item,) = ItemFolder().find(["own:small"])
    seeds = {s: Report((Row("STSB", "test", "alignment", "", v, 9),)) for s, v in enumerate((1, 3))}
    data = figure_data(item, "lab", {(item.rows[0].name, "geometry"): seeds}, {})
    (report,) = data["rows"].values()
    assert [row["value"] for row in report["rows"]] == [2.0]


def test_a_sweep_shows_the_rows_of_its_own_scale():
    (recipe,) = ItemFolder().find(["simcse:a1"])
    column = next(iter(recipe.columns))
    for scale, count in (("lab", 3), ("paper", 3)):
        arms = {column: {r.name: SeedScores((70.0, 71.0), seeded=True) for r in recipe.rows}}
        (panel,) = figure_data(recipe, scale, {}, arms)["panels"]
        own = [r for r in recipe.rows if recipe.sweep in r.point and scale in r.scales]
        assert len(panel["points"]) == len(own) == 12
        lines = {point["line"] for point in panel["points"]}
        drawn = draw({"kind": "sweep", "panels": [panel]})
        assert len(lines) == len(re.findall(">ours learning_rate", drawn)) == count
    assert figure_data(recipe, "lab", {}, {}) == {}


def test_what_one_measurement_lacks_another_does_not_need(tmp_path, bert):
    pair = {"query": "a map", "texts": ("a torn map",)}
    units = [
        Measurement("captions", "listing", MEASURES["listing"].complete({})),
        Measurement("pair", "pair_similarity", pair),
    ]
    by_key = {unit.key: unit for unit in units}
    job = Job("m", "encoder", str(bert), pooling="mean", measurements=by_key)
    store = ResultStore(tmp_path / "results")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="flickr30k"):
        run.do(job, store, tmp_path / "empty")
    assert store.has("pair")
    assert not store.has("captions")
