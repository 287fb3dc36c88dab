"""``contrasent adapt --update``: old and new text, and what forgets is not kept."""

import json
import shutil
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from notes import write_notes
from pydantic import TypeAdapter

from commands import run
from contrasent.adapt.evidence import OLD, Evidence, Query, made_evidence
from contrasent.adapt.pairs import Pair
from contrasent.adapt.run import adapt
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN
from contrasent.adapt.update import open_previous, passage_of, updated_parts
from contrasent.adapt.verdict import FORGOTTEN, Verdict, decide
from contrasent.documents.passages import Passage, passages
from contrasent.documents.sections import Document, Section
from contrasent.errors import InputError, ModelError, OptionError, OutputError
from contrasent.model.encoder import Encoder
from contrasent.search.index import Index
from contrasent.search.writer import Writer


@pytest.fixture(scope="module")
def home(tmp_path_factory, bert, sentences):
    """An adapted model with a hundred notes, and a folder of notes of which ninety are new."""
    place = tmp_path_factory.mktemp("update")
    Encoder.load(bert, pooler="mean", normalise=True).save(place / "tiny")
    old = write_notes(place / "old", sentences, range(100))
    write_notes(place / "new", sentences, range(90, 180), " By the harbour.")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CONTRASENT_DATA", raising=False)
        adapt(old, place / "model", base=str(place / "tiny"), budget=10.0)
    return place


OPTIONS = {"budget": 3600.0}


@pytest.fixture(scope="module")
def updated(home):
    """The update, and what it said."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CONTRASENT_DATA", raising=False)
        given = {"update": home / "model", **OPTIONS, "say": said.append}
        done = adapt(home / "new", home / "updated", **given)
    return done, said


def test_old_and_new_are_judged_and_indexed(home, updated):
    done, said = updated
    before = Index.open(home / "model" / "index")
    names = [trial.candidate.name for trial in done.trials]
    assert names[0] == "base"
    assert done.trials[0].candidate.fusion == (before.ranker if before.ranker.uses_words else None)
    assert all(name.startswith(("base", "BM25")) for name in names)
    kinds = done.verdict.kinds
    assert {kind + OLD for kind in kinds if not kind.endswith(OLD)} & set(kinds)
    old = [one.queries for kind, one in kinds.items() if kind.endswith(OLD)]
    assert done.verdict.old.queries == sum(old)
    index = Index.open(home / "updated" / "index")
    texts = {}
    for hit in index.every():
        texts.setdefault(hit.metadata["document"], []).append(hit.text)
    assert set(texts) == {f"note-{n:03d}.md" for n in range(180)}
    assert "harbour" in " ".join(texts["note-095.md"])  # the new version alone
    assert len(texts["note-095.md"]) == len(set(texts["note-095.md"]))
    assert "harbour" not in " ".join(texts["note-085.md"])
    facts = json.loads((home / "updated" / "report.json").read_text())
    earlier = json.loads((home / "model" / "report.json").read_text())
    for part in ("choose", "judge"):
        old = {name for name in earlier["held_out"][part] if int(name[5:8]) < 90}
        assert old == {name for name in facts["held_out"][part] if int(name[5:8]) < 90}
        assert len(facts["held_out"][part]) > len(old) + 10
    assert facts["reading"]["old_documents"] == 90
    fresh = len(index) - facts["reading"]["old_passages"]
    assert f"encoding {fresh} passages by {home / 'model'}" in said


def test_few_new_documents_are_indexed_with_the_earlier_model(home, sentences):
    """Four documents of twenty are sealed: no gain can be proven."""
    ferries = [f"The ferry of pier {n} carries {n} tons of coal." for n in range(800)]
    few = write_notes(home / "few", ferries, range(180, 200))
    arguments = ("adapt", few, "-o", home / "more", "--update", home / "model", "--budget", "10s")
    assert "the earlier model is shipped, unchanged" in run(*arguments).splitlines()[-1]
    earlier, index = (Index.open(home / name / "index") for name in ("model", "more"))
    assert (index.model, index.ranker) == (earlier.model, earlier.ranker)
    assert len(index) > len(earlier) + 20
    assert np.allclose(index.vectors[: len(earlier)], earlier.vectors, atol=1e-6)


def test_a_killed_update_goes_on_and_another_one_does_not(home, updated, tmp_path):
    model = shutil.copytree(home / "model", tmp_path / "model")

    def killed_at(beginning):
        def stop(line):
            if line.startswith(beginning):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adapt(home / "new", tmp_path / "m", update=model, **OPTIONS, say=stop)

    killed_at("chosen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contrasent.adapt.run.read_source", None)
        patch.setattr("contrasent.adapt.stages.old_vectors", None)
        done = adapt(home / "new", tmp_path / "m", update=model, **OPTIONS, resume=True)
    assert (done.shipped, done.verdict) == (updated[0].shipped, updated[0].verdict)
    shutil.rmtree(tmp_path / "m")
    killed_at("encoding")
    with Writer(model / "index") as writer:
        writer.delete(["note-001.md#1"])
    with pytest.raises(OutputError, match="was begun with update"):
        adapt(home / "new", tmp_path / "m", update=model, **OPTIONS, resume=True)


def evidence_of(documents):
    queries = tuple(
        Query(f"{kind} {document}", kind, document, {document % 30: 1.0})
        for document in range(documents)
        for kind in (("a", "b") if document % 2 else ("a" + OLD, "b" + OLD))
    )
    return Evidence(tuple(f"text {n}" for n in range(30)), 30, np.arange(30), queries)


def test_what_forgets_is_refused():
    """A gain on new text of 0.1, and on old text nothing, a slight loss, a loss."""
    evidence = evidence_of(160)
    is_old = np.array([query.kind.endswith(OLD) for query in evidence.queries])
    random = np.random.default_rng(0)
    before = random.uniform(0.3, 0.7, len(is_old))

    def judged(loss, gain=0.1, noise=0.05):
        after = before + np.where(is_old, -loss, gain) + noise * random.standard_normal(len(is_old))
        return decide(evidence, before, after, name="trained")

    kept = judged(0.0)
    assert kept.improved
    assert kept.difference.value == pytest.approx(0.1, abs=0.02)
    assert kept.before == pytest.approx(before[~is_old].mean())  # all kinds are of one size
    assert kept.old.before == pytest.approx(before[is_old].mean())
    assert kept.old.queries == is_old.sum()
    assert "on that of the old" in kept.reason
    assert TypeAdapter(Verdict).validate_json(json.dumps(asdict(kept))) == kept
    assert judged(FORGOTTEN / 3).improved
    lost = judged(2 * FORGOTTEN)
    assert not lost.improved
    assert f"a loss of more than {FORGOTTEN}" in lost.reason
    unsure = judged(0.02, noise=0.5, gain=0.3)
    assert unsure.difference.low > 0
    assert not unsure.improved  # the interval reaches below the margin
    assert not judged(0.0, gain=0.0).improved  # all that it gains is on old text: nothing
    few = decide(evidence_of(30), np.zeros(60), np.full(60, 0.1), name="trained")
    assert not few.improved
    half = evidence_of(60)
    some = [n for n, q in enumerate(half.queries) if not q.kind.endswith(OLD) or q.document < 20]
    none = np.zeros(len(some))
    found = decide(half.part(np.array(some)), none, none + 0.1, name="trained")
    assert "too little old text" in found.reason


def test_kinds_of_either_side_count_if_they_are_about_enough_documents():
    texts = [f"text number {n} of many" for n in range(100)]
    pairs = [Pair(f"ask {n}", texts[n], n, "title", old=n < 60) for n in range(100)]
    pairs += [Pair(f"more {n}", texts[n], n, "question", old=n < 60) for n in range(50, 75)]
    options = {"limit": 30, "terms": str.split, "copied": 0.0, "seed": 0}
    found = made_evidence(texts, list(range(100)), pairs, **options)
    # Ten old documents have questions, and fifteen new ones.
    assert set(found.kinds) == {"title", "title" + OLD}
    few = [pair for pair in pairs if 45 <= pair.passage < 75]
    found = made_evidence(texts, list(range(100)), few, **options)
    assert set(found.kinds) == {kind + side for kind in ("title", "question") for side in ("", OLD)}


def test_old_documents_stay_what_they_were(home):
    previous = open_previous(home / "model", home / "elsewhere")
    names = tuple(f"note-{n:03d}.md" for n in range(100))
    reading = SimpleNamespace(documents=(*names, "a", "b"), facts={"old_documents": 100})
    parts = updated_parts(previous, reading, seed=0)
    stated = json.loads((home / "model" / "report.json").read_text())["held_out"]
    assert [names[at] for at in np.flatnonzero(parts[:100] == SELECT)] == stated["choose"]
    assert [names[at] for at in np.flatnonzero(parts[:100] == SEALED)] == stated["judge"]
    assert (parts[:100] == TRAIN).sum() == 60
    unknown = updated_parts(replace(previous, held_out=None), reading, seed=0)
    assert (unknown[:100] == SEALED).sum() == 20


def test_what_cannot_be_updated_is_refused_in_a_line(home, tmp_path, sentences):
    new = home / "new"

    def update(model, target=None, source=new, **options):
        return adapt(source, target or tmp_path / "m", update=model, budget=10.0, **options)

    with pytest.raises(InputError, match="was not made by 'contrasent adapt'"):
        update(home / "tiny")
    held = "the model that is updated"
    for error, match, options in (
        (OutputError, held, {"target": home / "model", "overwrite": True}),
        (OutputError, held, {"target": home / "model" / "index", "overwrite": True}),
        (OptionError, "base", {"base": "another"}),
        (OptionError, "leave it out", {"queries": new / "note-095.md"}),
        (InputError, r"the new text: is in .*, all of it", {"source": home / "old"}),
    ):
        with pytest.raises(error, match=match):
            update(home / "model", **options)
    assert (home / "model" / "index" / "index.db").is_file()
    other = shutil.copytree(home / "model", tmp_path / "other")
    for text, error, match in (
        ("a", ModelError, "holds vectors of model 'x'"),
        (" ", InputError, "holds no texts"),
    ):
        shutil.rmtree(other / "index")
        Index.build(lambda t: np.ones((len(t), 8)), [text], model="x").save(other / "index")
        with pytest.raises(error, match=match):
            update(other)
    assert not (tmp_path / "m").exists()
    (tmp_path / "empty").mkdir()
    asked = ("adapt", tmp_path / "empty", "-o", tmp_path / "m", "--update", home / "model")
    with pytest.raises(InputError, match="the folder is empty"):
        run(*asked, "--budget", "10s")


def test_a_row_of_an_index_is_the_passage_that_it_was():
    winter = "In a long and snowy winter that nobody had expected at all"
    sections = (
        Section((), ("Bees are kept in hives.", "Hives stand in rows.")),
        Section(("Care",), ("Feed them in spring. " * 8,)),
        Section(("Care", winter), ("Wait. " * 30,)),
    )
    read = [Document("bees.md", "Keeping bees", sections), Document("no.md", "", sections[:1])]

    def count(texts):
        return [len(text.split()) + 2 for text in texts]

    made = passages(read, count_tokens=count, max_tokens=32).passages
    assert len({passage.prefix for passage in made}) > 2
    for passage in made:
        again = passage_of(*passage.row, passage.document)
        for name in ("text", "prefix", "headings"):
            assert getattr(again, name) == getattr(passage, name)
    assert passage_of("plain\ntext", "7", None, 3) == Passage("7", 3, "", (), 0, "plain\ntext", "")
