"""``contrasent adapt`` from documents to a better search, with a tiny model."""

import errno
import json
import os
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from notes import write_notes

from commands import invoke, run
from contrasent import files
from contrasent.adapt import cross_validation, learner
from contrasent.adapt import run as adaptation
from contrasent.adapt.bench import Difference
from contrasent.adapt.run import adapt_index, make_index, update_adaptation
from contrasent.documents.folder import DocumentSource
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError, UserError
from contrasent.indexing.following import sync_index
from contrasent.model.base import PROMPTS
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts
from contrasent.search.writer import Writer, new_index

QUERIES = "queries.jsonl"
ENCODING = "encoding them takes about"  # told before documents are encoded


@pytest.fixture(scope="module", autouse=True)
def few_strategies():
    """What decides does not depend on how many strategies there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "WEIGHTS", (0.0, 0.2))
        patch.setattr(learner, "BONUSES", learner.FEW_BONUSES)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory, bert):
    """The tiny BERT as a sentence encoder, which says how it pools."""
    folder = tmp_path_factory.mktemp("base") / "tiny"
    TorchEncoder.load(bert, pooling="mean", normalize=True).save(folder)
    return folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory, sentences):
    """A hundred and twenty notes of a title and three sentences."""
    return write_notes(tmp_path_factory.mktemp("notes"), sentences, range(120))


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    """A hundred queries with a word that their note alone has."""
    path = tmp_path_factory.mktemp("queries") / "asked.csv"
    rows = [f"where is k{n:03d} filed,note-{n:03d}.md" for n in range(100)]
    path.write_text("query,document\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, model, documents, queries):
    folder, said = tmp_path_factory.mktemp("out") / "s", []
    done = adapt_index(documents, folder, model=str(model), queries=queries, log=said.append)
    return folder, done, said


@pytest.mark.slow
def test_it_leaves_an_index_and_a_report(adapted, model):
    folder, done, said = adapted
    assert {path.name for path in folder.iterdir()} == {
        "index", "queries.jsonl", "report.html", "report.json",
    }  # fmt: skip
    index, facts = Index.open(folder / "index"), json.loads((folder / "report.json").read_text())
    assert index.model == TorchEncoder.load(model).identity
    assert facts == done.facts and index.ranker == Ranker(**facts["kept"])
    assert (facts["documents"], facts["passages"]) == (120, len(index))
    assert facts["queries"] == {"users": 100}
    assert any("Index ready; you can search it now: contrasent search" in line for line in said)
    assert any(ENCODING in line for line in said)
    # The default search finds every note by its number, so nothing can gain.
    learned = facts["from_queries"]
    assert not (done.improved or learned["kept"] or facts["changes"])
    assert (learned["before"], learned["after"]) == (1, 1)
    assert learned["with_training_queries"]["level"] == 0.99 and done.reason == learned["reason"]
    assert facts["verdict"] != "improved"
    assert [name for name, _ in facts["statements"]] == [
        "default search", "BM25 added to vectors", "documents with training queries",
        "documents without training queries", "saved search",
    ]  # fmt: skip
    page = (folder / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    assert f"contrasent search {folder}" in page
    for head in ("What is saved", "User queries", "What was read"):
        assert sum(head in line for line in page.splitlines() if line.startswith("<h2>")) == 1
    result = invoke("search", folder, "the gardener", "-k", 2, "--json")
    assert len(json.loads(result.stdout)["results"][0]["hits"]) == 2


@pytest.mark.slow
def test_its_index_follows_its_documents_and_learns_again(adapted, documents, tmp_path):
    folder = shutil.copytree(adapted[0], tmp_path / "s")
    notes = shutil.copytree(documents, tmp_path / "notes")
    ranker = Index.open(folder / "index").ranker
    assert "0 added, 0 changed, 0 deleted, 120 unchanged" in run("index", folder, notes, "--sync")
    (notes / "more.md").write_text("# Boats\n\nThe ferry leaves at noon.\n")
    (notes / "note-000.md").unlink()
    assert "1 added, 0 changed, 1 deleted, 119 unchanged" in run("index", folder, "--sync")
    assert Index.open(folder / "index").ranker == ranker
    (notes / "note-001.md").write_text("# Other\n\nSomething else is said here.\n")
    asked = tmp_path / "new.csv"
    asked.write_text("query,document\nwhen does the ferry leave,more.md\n")
    said = []
    again = update_adaptation(folder, queries=asked, log=said.append)
    assert any("0 added, 1 changed, 0 deleted, 119 unchanged" in line for line in said)
    assert again.facts["queries"]["users"] == 100  # one is new, and one document is gone
    assert {row.metadata["document"] for row in Index.open(folder / "index").every()} == {
        path.name for path in notes.iterdir()
    }
    result = invoke("adapt", folder, "--update", "--resume", "--json", "--quiet")
    assert json.loads(result.stdout)["queries"]["users"] == 100
    with pytest.raises(OptionError, match="cannot be combined with --update"):
        invoke("adapt", folder, "--update", "-o", tmp_path / "other")
    with pytest.raises(InputError, match="is not an output of 'contrasent adapt'"):
        update_adaptation(notes)


def test_an_index_is_copied_with_its_settings_and_without_what_it_learned(
    tmp_path, model, documents
):
    given = ("--model", model, "--max-seq-length", 20, "--quiet")
    run("index", documents, "-o", tmp_path / "i", *given)
    size = Index.open(tmp_path / "i").vectors.shape[1]
    swapped = Learned(np.eye(size, dtype=np.float32)[::-1].copy())
    with Writer(tmp_path / "i") as writer:
        writer.set(ranker=Ranker(0.3, map_share=1.0), learned=swapped)
    for given in ({"model": str(model)}, {"columns": ["a"]}, {"max_file_text": 9}):
        with pytest.raises(
            OptionError, match=f"{next(iter(given))} .*an index already has a model"
        ):
            adapt_index(tmp_path / "i", tmp_path / "s", **given)
    said = []
    done = adapt_index(tmp_path / "i", tmp_path / "s", log=said.append)
    assert said[0] == f"copying {tmp_path / 'i'}" and not any(ENCODING in line for line in said)
    assert done.facts["default"] == Ranker(0.3).to_json()
    made = Index.open(done.folder / "index")
    assert np.array_equal(made.vectors, Index.open(tmp_path / "i").vectors)
    identity = TorchEncoder.load(model, max_seq_length=20).identity
    assert made.model == identity != TorchEncoder.load(model).identity
    (hits,) = json.loads(invoke("search", tmp_path / "s", "violin", "--json").stdout)["results"]
    assert hits["hits"]
    again = update_adaptation(tmp_path / "s")
    assert Index.open(again.folder / "index").model == identity


def test_a_complete_one_is_the_result_of_the_same_input_alone(tmp_path, model, sentences, queries):
    notes, said = write_notes(tmp_path / "notes", sentences, range(20)), []
    same = tmp_path / "same.csv"
    same.write_bytes(queries.read_bytes())
    more = {"model": str(model), "resume": True}
    done = adapt_index(notes, tmp_path / "s", queries=queries, **more)
    again = adapt_index(notes, tmp_path / "s", queries=same, **more, log=said.append)
    assert again == done and "already finished; 'contrasent adapt" in said[0]
    with pytest.raises(OutputError, match="--overwrite"):
        adapt_index(notes, tmp_path / "s", model=str(model))
    others = "started with other queries, collections or clicks; give the same"
    for source, given, match in (
        (tmp_path, {"queries": same}, "was started with source"),
        (notes, {}, others),
        (notes, {"clicks": same}, others),
        (notes, {"queries": [same, queries]}, others),
        (notes, {"queries": same, "seed": 1}, "was started with seed 0, not 1"),
    ):
        with pytest.raises(OutputError, match=match):
            adapt_index(source, tmp_path / "s", **given, **more)
    update_adaptation(tmp_path / "s")  # knows what it was started with
    adapt_index(notes, tmp_path / "s", queries=same, **more)
    with pytest.raises(OutputError, match=others):
        adapt_index(notes, tmp_path / "s", **more)


def stopped(line):
    """A log that ends the run at a line."""

    def log(said):
        if said.startswith(line):
            raise KeyboardInterrupt

    return log


@pytest.mark.slow
def test_a_killed_one_continues_and_comes_to_the_same(tmp_path, adapted, model, documents, queries):
    """The index searches by what was learned already; the default to beat stays."""
    options = {"model": str(model), "queries": queries}
    with pytest.raises(KeyboardInterrupt):
        adapt_index(documents, tmp_path / "s", **options, log=stopped("finished in"))
    with pytest.raises(OutputError, match="--resume continues it, --overwrite starts again"):
        adapt_index(documents, tmp_path / "s", **options)
    with pytest.raises(OutputError, match="was started with seed 0, not 1; give the same, or"):
        adapt_index(documents, tmp_path / "s", **options, seed=1, resume=True)
    # What a kill leaves of a folder half written.
    (tmp_path / "s" / ".index.contrasent-abcd_123").mkdir()
    said = []
    done = adapt_index(documents, tmp_path / "s", **options, resume=True, log=said.append)
    assert not any(ENCODING in line for line in said)  # the index is there
    assert not list(done.folder.glob(".*")) and not (done.folder / "unfinished.json").exists()
    for key in ("default", "kept", "reason", "from_queries", "changes", "read"):
        assert done.facts[key] == adapted[1].facts[key]


@pytest.mark.slow
def test_an_update_that_was_killed_comes_to_the_same(tmp_path, adapted):
    folder = shutil.copytree(adapted[0], tmp_path / "s")
    default = {**adapted[1].facts["default"], "bm25_weight": 0.3}
    report = folder / "report.json"
    report.write_text(json.dumps({**json.loads(report.read_text()), "default": default}))
    with pytest.raises(KeyboardInterrupt):
        update_adaptation(folder, log=stopped("finished in"))
    killed = Index.open(folder / "index").ranker
    done = update_adaptation(folder)
    assert done.facts["default"] == default
    assert done.facts["kept"] == killed.to_json()


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, adapted, model, documents, queries):
    """The disk is full three times, later each time, and stays so until a run ends."""
    options = {"model": str(model), "queries": queries}
    flush, room = os.fsync, 0

    def full(handle):
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        for resume, room in ((False, 0), (True, 2), (True, 4)):  # noqa: B007
            with pytest.raises(OutputError, match=r"No space left on device.*free some space"):
                adapt_index(documents, tmp_path / "s", **options, resume=resume)
    done = adapt_index(documents, tmp_path / "s", **options, resume=True)
    assert done.facts["kept"] == adapted[1].facts["kept"]
    there, whole = ({p.name for p in one.iterdir()} for one in (done.folder, adapted[0]))
    assert there == whole


@pytest.mark.slow
def test_corrected_queries_continue_the_run(tmp_path, adapted, model, documents, queries):
    bad = tmp_path / "asked.csv"
    bad.write_text("query,document\nwhat,nowhere.md\n")
    with pytest.raises(InputError, match=r"nowhere\.md"):
        adapt_index(documents, tmp_path / "s", model=str(model), queries=bad)
    assert not (tmp_path / "s" / "index").exists()  # nothing is encoded for queries of no use
    done = adapt_index(documents, tmp_path / "s", model=str(model), queries=queries, resume=True)
    assert done.facts["kept"] == adapted[1].facts["kept"]


def test_few_queries_are_ignored_and_a_no_can_be_an_exit_code(tmp_path, model, sentences):
    few = tmp_path / "few.csv"
    few.write_text("query,document\n" + "".join(f"q{n},note-{n:03d}.md\n" for n in range(30)))
    notes = write_notes(tmp_path / "notes", sentences, range(30))
    result = invoke(
        "adapt", notes, "-o", tmp_path / "s", "--model", model, "--queries", few,
        "--require-improvement", "--report", tmp_path / "s" / "pages" / "page.html",
    )  # fmt: skip
    assert result.exit_code == 3
    why = "there are 30; 40 queries about 20 documents are required"
    verdict, *evidence = result.stdout.splitlines()
    assert f"Not measured here (queries ignored: {why}). Saved the default: BM25 0.4" in verdict
    assert any("whether BM25 helps (queries ignored" in line for line in evidence)
    assert f"Warning: queries ignored: {why}" in result.stderr
    page = (tmp_path / "s" / "pages" / "page.html").read_text()
    assert page == (tmp_path / "s" / "report.html").read_text()
    assert 'class="verdict default"' in page and "changed most" not in page


def test_what_is_not_proven_is_not_kept(tmp_path, model, sentences, queries, monkeypatch):
    """A gain whose interval holds zero: the search stays, and no page is green."""
    close = Difference(0.003, -0.003, 0.008, 0.3, 0.99)
    monkeypatch.setattr(cross_validation, "difference", lambda *_, **__: close)
    monkeypatch.setattr(
        cross_validation, "best_strategy", lambda values, among: len(values["again"]) - 1
    )
    notes = write_notes(tmp_path / "notes", sentences, range(24))
    lines = queries.read_text().splitlines()[1:25]
    (tmp_path / "asked.csv").write_text("\n".join(["query,document", *lines, *map(again, lines)]))
    given = {"model": str(model), "queries": tmp_path / "asked.csv"}
    done = adapt_index(notes, tmp_path / "s", **given)
    index = Index.open(done.folder / "index")
    assert not done.improved and index.ranker.to_json() == done.facts["default"]
    assert index.learned.matrix is index.learned.known is None and not done.facts["changes"]
    assert done.reason.startswith("Your queries gave no reliable improvement (+0.003, 99 % CI")
    page = (done.folder / "report.html").read_text()
    assert 'class="verdict unproven"' in page and "changed most" not in page


def again(line):
    """A row that asks for the same in other words."""
    return line.replace("where is", "please find")


def test_a_short_budget_searches_some_documents_and_says_so(
    tmp_path, model, documents, monkeypatch
):
    monkeypatch.setattr(adaptation, "_estimate", lambda rows, encode: 28_000.0)
    (tmp_path / "s").mkdir()  # as a run that was killed at its first step leaves it
    (tmp_path / "s" / ".unfinished.json.contrasent-abcd_123").write_text("half")
    said = []
    # Five minutes may pass before it counts what is left.
    done = adapt_index(documents, tmp_path / "s", model=str(model), budget=1e4, log=said.append)
    (line,) = (line for line in said if "--budget" in line)
    assert "only 29 of 120 documents are searched: encoding all takes about 7 h 47 min" in line
    assert line in done.facts["read"] and done.facts["documents"] == 29
    assert "91 added, 0 changed, 0 deleted, 29 unchanged" in run("index", done.folder, "--sync")


def test_a_sync_adds_the_rest_of_a_table_that_the_budget_cut(tmp_path, model, monkeypatch):
    lengths, quick = [], adaptation.quick  # as `index` encodes, in bfloat16 where that is faster
    monkeypatch.setattr(adaptation, "quick", lambda *of: (lengths.append(of[1]), quick(*of))[1])
    lines = [f"k{n},Note number {n} says that the roof was repaired." for n in range(100)]
    (tmp_path / "table.csv").write_text("\n".join(["id,text", *lines]))
    source = DocumentSource(tmp_path / "table.csv")
    make_index(source, tmp_path / "i", str(model), 1e-9, lambda line: None)
    assert (len(Index.open(tmp_path / "i")), len(lengths)) == (1, 1)
    assert sync_index(tmp_path / "i").changed == 1
    assert len(Index.open(tmp_path / "i")) == 100
    assert sync_index(tmp_path / "i").unchanged == 1


def test_documents_that_are_searched_are_whole():
    rows = [
        (f"part {part} of {n}", f"row {part * 40 + n}", {"document": f"d{n}"})
        for part in range(3)
        for n in range(40)
    ]
    sampled, count = adaptation._sample(rows, 0.25)
    names = [about["document"] for _, _, about in sampled]
    assert len(set(names)) == count == 10 and {names.count(name) for name in names} == {3}


def test_bad_options_and_inputs_end_before_any_work(tmp_path, model, documents):
    for options, match in (
        ({"budget": 1.0}, "at least 10"),
        ({"queries": "nowhere.csv"}, "no such file"),
    ):
        with pytest.raises((OptionError, InputError), match=match):
            adapt_index(documents, tmp_path / "s", model=str(model), **options)
        assert not (tmp_path / "s").exists()
    with pytest.raises(OptionError, match="at least 10"):  # what is learned would be lost
        update_adaptation(tmp_path / "s", budget=1.0)
    Index.build(lambda texts: np.ones((len(texts), 2)), ["a"], metric="dot").save(tmp_path / "dot")
    with pytest.raises(OptionError, match="metric 'dot': cannot be learned from"):
        adapt_index(tmp_path / "dot", tmp_path / "s")
    assert not (tmp_path / "s").exists()
    of_dots = shutil.copytree(model, tmp_path / "of dots")
    (of_dots / PROMPTS).write_text('{"similarity_fn_name": "dot"}')
    with pytest.raises(OptionError, match="metric 'dot': cannot be learned from"):
        make_index(DocumentSource(documents), tmp_path / "s", str(of_dots), 1e4, print)
    with pytest.raises(OutputError, match="is a folder; name a file"):
        run("adapt", documents, "-o", tmp_path / "s", "--report", tmp_path)
    assert not (tmp_path / "s").exists()
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "milvus.json").write_text("{}")
    with pytest.raises(InputError, match="remote: is in Milvus; adapt needs a local"):
        adapt_index(tmp_path / "remote", tmp_path / "s")
    with pytest.raises(OutputError, match="contains the documents"):
        adapt_index(documents, documents, model=str(model), overwrite=True)
    assert len(list(documents.iterdir())) == 120
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match="choose another"):
        adapt_index(documents, mine, model=str(model), overwrite=True)
    assert (mine / "thesis.txt").read_text() == "precious"


@pytest.fixture
def finished(tmp_path):
    """A folder that holds an adaptation, with a file of another's."""
    folder = tmp_path / "made"
    Index.build(lambda texts: np.ones((len(texts), 2)), ["old"]).save(folder / "index")
    (folder / "report.json").write_text('{"format": 2}')
    (folder / "queries.jsonl").write_text('{"query": "a", "document": "note-000.md"}\n')
    (folder / "thesis.txt").write_text("precious")
    return folder


def test_one_process_learns_again_at_a_time(finished, queries, monkeypatch):
    """The queries of the other would be lost."""
    monkeypatch.setattr(adaptation, "WAIT", 0.0)
    with (
        files.only_process(finished, "is learning again here", 0.0),
        pytest.raises(OutputError, match="is learning again here; try again when it has ended"),
    ):
        update_adaptation(finished, queries=queries)


def test_overwrite_removes_what_adapt_made_and_nothing_else(tmp_path, model, sentences, finished):
    """What it made answers until all documents are encoded."""
    few, answering = write_notes(tmp_path / "few", sentences, range(2)), []
    (tmp_path / "link").symlink_to(finished)

    def log(line):
        if ENCODING in line:
            answering.extend(row.text for row in Index.open(finished / "index").every())

    how = {"model": str(model), "seed": np.int64(1), "overwrite": True}
    adapt_index(few, tmp_path / "link", **how, log=log)
    assert answering == ["old"]
    made = {"index", "report.json", "report.html"}
    assert {path.name for path in finished.iterdir()} == {*made, "thesis.txt"}
    assert Index.open(finished / "index").model == TorchEncoder.load(model).identity
    (finished / "index" / "index.db").unlink()  # what is broken is made anew
    adapt_index(few, finished, **how)
    assert Index.open(finished / "index").model == TorchEncoder.load(model).identity


def test_overwrite_keeps_what_is_yet_to_be_read(tmp_path, documents, finished):
    (finished / "model" / "qrels").mkdir(parents=True)
    (finished / "model" / "queries.jsonl").write_text('{"_id": "1", "text": "a"}\n')
    (finished / "model" / "qrels" / "test.tsv").write_text("query\tdocument\tgain\n1\t2\t1\n")
    before = set(finished.iterdir())
    with pytest.raises(OutputError, match=r"contains the index.* --update' learns again"):
        adapt_index(finished, finished, overwrite=True)
    for kind, name in {"queries": QUERIES, "collection": "model", "clicks": QUERIES}.items():
        with pytest.raises(InputError, match=rf"{name}: would be deleted by --overwrite; copy"):
            adapt_index(documents, finished, **{kind: finished / name}, overwrite=True)
    (tmp_path / "numbers.csv").write_text("1,2\n3,4\n")
    (tmp_path / "asked.csv").write_text("query,document\nwhere is it?,nowhere.md\n")
    Index.build(lambda texts: np.ones((len(texts), 2)), ["new"]).save(tmp_path / "other")
    for source, wrong, words in (
        (documents / "nowhere", {}, "no such file"),
        (documents, {"model": "no-model"}, "no-model"),
        (documents, {"queries": tmp_path / "numbers.csv"}, "query"),
        (documents, {"collection": tmp_path}, "queries.jsonl"),
        (documents, {"train_encoder": True}, "needs 40 queries"),
        (tmp_path / "numbers.csv", {"columns": "none"}, "'none': unknown column"),
        (tmp_path / "other", {"queries": tmp_path / "asked.csv"}, "'nowhere.md'"),
    ):
        with pytest.raises(UserError, match=words):
            adapt_index(source, finished, **wrong, overwrite=True)
    assert before == set(finished.iterdir()) and len(Index.open(finished / "index")) == 1


@pytest.mark.parametrize(("where", "said"), [
    ("read_input", "made is as it was; the same command begins again"),
    ("_estimate", "--resume continues"),
])  # fmt: skip
def test_ctrl_c_says_how_overwrite_goes_on(where, said, documents, model, finished, monkeypatch):
    """While documents are read, --resume would give the former result."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(adaptation, where, stop)
    result = invoke("adapt", documents, "-o", finished, "--model", model, "--overwrite")
    assert (result.exit_code, said in result.stderr) == (130, True)
    assert [row.text for row in Index.open(finished / "index").every()] == ["old"]


def test_an_index_that_is_rewritten_meanwhile_keeps_its_search(
    tmp_path, model, sentences, monkeypatch
):
    """What is learned from its rows knows them by numbers, which are others now."""
    notes = write_notes(tmp_path / "notes", sentences, range(2))
    index = adapt_index(notes, tmp_path / "s", model=model).folder / "index"
    log = index / "index.db-wal"
    assert not log.exists() or not log.stat().st_size
    before, learn = Index.open(index).ranker, adaptation.learn_from_text

    def overtaken(*given, **how):
        with Writer(index) as writer:
            writer.rewrite()
        return replace(learn(*given, **how), ranker=Ranker(0.9))

    monkeypatch.setattr(adaptation, "learn_from_text", overtaken)
    with pytest.raises(OutputError, match="was rewritten while it was learned from"):
        update_adaptation(tmp_path / "s")
    assert Index.open(index).ranker == before


# ---------------------------------------------------------------------- --train-encoder


@pytest.fixture
def asked(tmp_path):
    """Two hundred and forty queries about forty notes."""
    path = tmp_path / "asked.csv"
    rows = [f"question {n} about k{n % 40:03d},note-{n % 40:03d}.md" for n in range(240)]
    path.write_text("query,document\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def trained(monkeypatch, bert):
    """What `fit` was given; it leaves another encoder, with a verdict that a test chooses."""
    calls = {"improved": True}

    def fit(method, pairs, settings, *, output_dir, base, **options):
        calls.update(pairs=pairs, base=base, **options)
        TorchEncoder.load(bert, pooling="cls", normalize=True).save(output_dir)
        gain = SimpleNamespace(value=0.1, low=0.02, high=0.2, count=24)
        scores = {"metric": "mrr@10", "base_score": 0.5, "score": 0.6, "gain": gain}
        return SimpleNamespace(improved=calls["improved"], **scores)

    monkeypatch.setattr("contrasent.train.fit.fit", fit)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("improved", [True, False])
def test_an_encoder_is_kept_by_the_verdict_of_training(
    tmp_path, model, sentences, asked, trained, improved
):
    notes, trained["improved"] = write_notes(tmp_path / "notes", sentences, range(40)), improved
    options = {"model": str(model), "queries": asked, "train_encoder": True}
    done = adapt_index(notes, tmp_path / "s", **options)
    assert trained["evaluate"] == "heldout" and str(trained["base"]) == str(model)
    assert len(trained["pairs"]) == 240
    titles = {query: f"Note {int(query.rpartition('k')[2])} " for query, _ in trained["pairs"]}
    assert all(passage.startswith(titles[query]) for query, passage in trained["pairs"])
    folder = tmp_path / "s" / "model"
    assert folder.is_dir() == improved
    index = Index.open(tmp_path / "s" / "index")
    assert index.model == TorchEncoder.load(folder if improved else model).identity
    (line,) = (line for line in done.facts["read"] if line.startswith("Encoder trained"))
    assert "held-out mrr@10 0.500 to 0.600 (+0.100, 95 % CI [+0.020, +0.200]" in line
    if not improved:
        assert "the base stays" in line and done.facts["encoder"] is None
        assert done.facts["queries"]["users"] == 240
        return
    assert done.improved and done.reason.startswith("Improved and saved: an encoder trained")
    seen = done.facts["encoder"]["seen"]  # the others evaluate what they teach on top
    assert 0 < len(seen) < 240 and done.facts["queries"]["users"] in (0, 240 - len(seen))
    again = update_adaptation(tmp_path / "s")
    assert again.facts["encoder"]["seen"] == seen and again.improved
    assert again.facts["queries"] == done.facts["queries"]
    loud = tmp_path / "loud.csv"
    loud.write_text(asked.read_text().replace("question", "QUESTION").replace("about k", "About K"))
    again = update_adaptation(tmp_path / "s", queries=loud)  # the same queries
    assert again.facts["queries"] == done.facts["queries"]
    assert Index.open(tmp_path / "s" / "index").model == index.model


@pytest.mark.parametrize(("by", "stays"), [("s/model", True), ("was/model", True), ("b", False)])
def test_an_update_tells_of_an_encoder_only_if_the_index_is_by_it(tmp_path, monkeypatch, by, stays):
    """Also in a copy of the folder; not once `index OUT --model b` encoded it again."""
    folder, encode = tmp_path / "s", lambda texts: np.eye(len(texts), 50, dtype=np.float32)
    with new_index(folder / "index", Facts(source=str(tmp_path / by))) as writer:
        writer.add([f"row {n}" for n in range(50)], encode)
    trained = {"improved": True, "reason": "mrr@10 0.5 to 0.6", "seen": ["q0"]}
    facts = {"format": 4, "encoder": trained, "base": str(tmp_path / "was" / "model")}
    (folder / "report.json").write_text(json.dumps(facts))
    monkeypatch.setattr(adaptation, "open_index_model", lambda index: encode)
    done = update_adaptation(folder)
    assert (done.improved, done.facts["encoder"]) == (stays, trained if stays else None)
    assert done.facts["base"] == str(tmp_path / by)


def test_an_encoder_needs_queries_and_torch(tmp_path, model, documents, asked, monkeypatch):
    options = {"model": str(model), "train_encoder": True}
    few = tmp_path / "few.csv"
    few.write_text("query,document\nwhere is it filed,note-001.md\n")
    for queries, match in ((None, "needs 40 queries about 20 documents"), (few, "there are 1; 40")):
        with pytest.raises(OptionError, match=match):
            adapt_index(documents, tmp_path / "s", **options, queries=queries)
        assert not (tmp_path / "s" / "index").exists()
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "contrasent.train.fit", raising=False)
    with pytest.raises(MissingExtraError, match=r"--train-encoder.*contrasent\[train\]"):
        adapt_index(documents, tmp_path / "t", **options, queries=asked)
