"""User queries teach a map, and every query is judged by one that it did not teach."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from contrasent.adapt import teaching
from contrasent.adapt.candidates import Encoded
from contrasent.adapt.evidence import judged_evidence
from contrasent.adapt.reading import read_queries
from contrasent.adapt.selection import Selection, SelectionContext
from contrasent.adapt.teaching import AGAIN, FOLDS, NEW, WAYS, Lessons, best_way, teach, too_few
from contrasent.adapt.verdict import General
from contrasent.adapt.work import Work
from contrasent.metrics import normalize
from contrasent.model.base import Prompts
from contrasent.search.ranking import Ranker
from contrasent.search.words import Bm25

DOCUMENTS, SIZE = 60, 16
TEXTS = [f"the note on matter {n}" for n in range(DOCUMENTS)]
OWN = [(n,) for n in range(DOCUMENTS)]


def collection(seed, *, meaning=True, each=2):
    """Documents and queries that share half of their directions; in the others stands noise."""
    random = np.random.default_rng(seed)
    documents = random.normal(size=(DOCUMENTS, SIZE)).astype(np.float32)
    of = np.repeat(np.arange(DOCUMENTS), each)
    queries = random.normal(size=(len(of), SIZE)).astype(np.float32) * 1.5
    if meaning:
        queries[:, : SIZE // 2] = documents[of, : SIZE // 2] + queries[:, : SIZE // 2] / 2
    asked = [(f"question {n}", {int(document): 1.0}) for n, document in enumerate(of)]
    return normalize(documents), normalize(queries), asked


def selection_of(folder, documents, queries, asked):
    """A selection whose base gives the queries the vectors at hand."""
    folder.mkdir(exist_ok=True)
    evidence = judged_evidence(TEXTS, range(DOCUMENTS), OWN, asked)
    place = {text: vector for (text, _), vector in zip(asked, queries, strict=True)}
    base = SimpleNamespace(
        encode=lambda texts, **prompt: np.stack([place[text] for text in texts]), prompts=Prompts()
    )
    context = SelectionContext(
        base_folder=folder, base=base, documents=range(DOCUMENTS), raw=documents,
        lexical=Bm25.of(TEXTS), select=evidence,
        part=SimpleNamespace(evidence=evidence, rows=np.arange(DOCUMENTS)), seed=0,
    )  # fmt: skip
    said = []
    resumed = (folder / "config.json").is_file()
    selection = Selection(context, Work(folder, {}, resume=resumed), said.append)
    selection.encoder = lambda chosen: base
    return selection, said


@pytest.fixture(autouse=True)
def no_general(monkeypatch):
    monkeypatch.setattr(teaching, "check_general", lambda *encoders: General("none", 1.0, 1.0))
    monkeypatch.setattr(teaching, "RANDOM", 20)
    monkeypatch.setattr(teaching, "LR", 0.02)


def test_what_queries_teach_is_kept_where_it_helps_with_new_documents_too(tmp_path):
    selection, said = selection_of(tmp_path / "w", *collection(0, each=4))
    chosen, sealed = teach(selection, Ranker(0.2))
    assert sealed.verdict.improved, sealed.verdict.reason
    assert chosen.model == "mapped"
    assert chosen.share in teaching.SHARES
    kinds = sealed.verdict.kinds
    assert list(kinds) == [AGAIN, NEW]
    assert all(one.queries == 240 for one in kinds.values())
    assert kinds[AGAIN].difference.low > 0
    assert kinds[NEW].after > kinds[NEW].before
    assert sum(line.startswith("learning") for line in said) == 2 * FOLDS
    names = [trial.candidate.name for trial in selection.tried]
    assert names == ["base", "vectors alone", "BM25", chosen.name]
    # The report shows what was found by maps that a query did not teach.
    shown = {one["query"]: one for one in sealed.changes}
    assert all(len(one["chosen"]) == 3 for one in shown.values())
    # A killed run does none of the folds again.
    again, _ = selection_of(tmp_path / "w", *collection(0, each=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lessons, "fit", None)
        assert teach(again, Ranker(0.2)) == (chosen, sealed)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_kept_of_queries_that_have_nothing_to_do_with_their_answers(tmp_path, seed):
    selection, _ = selection_of(tmp_path / "w", *collection(seed, meaning=False))
    _, sealed = teach(selection, Ranker(0.2))
    assert not sealed.verdict.improved


def test_folds_hold_out_queries_or_whole_documents():
    _, _, asked = collection(0)
    evidence = judged_evidence(TEXTS, range(DOCUMENTS), OWN, asked)
    by_query, by_document = (teaching.folds_of(evidence, kind, 3) for kind in (AGAIN, NEW))
    assert np.bincount(by_query).tolist() == np.bincount(by_document).tolist() == [24] * FOLDS
    same = [(f[::2] == f[1::2]).all() for f in (by_query, by_document)]
    assert same == [False, True]


def test_held_out_documents_teach_in_no_way(monkeypatch):
    """Neither as answers of other queries nor as what does not answer them."""
    monkeypatch.setattr(teaching, "RANDOM", 200)
    documents, queries, asked = collection(1)
    # Another query is answered by a held-out document and by one that is not.
    asked[-1] = (asked[-1][0], {0: 1.0, DOCUMENTS - 1: 1.0})

    def learnt(rows, new):
        evidence = judged_evidence(TEXTS, range(DOCUMENTS), OWN, asked)
        answers = [dict(zip(g, g, strict=True)) for _, g in asked]
        hard = [np.arange(4)] * len(asked)
        lessons = Lessons(evidence, Encoded(queries, rows), answers, hard)
        judged = np.arange(len(asked)) < 2  # both queries about the first document
        return lessons.fit(judged, new=new, seed=0)

    moved = documents.copy()
    moved[0] = -moved[0]
    np.testing.assert_array_equal(learnt(documents, True), learnt(moved, True))
    assert not np.array_equal(learnt(documents, False), learnt(moved, False))


def test_a_fold_is_judged_by_the_way_that_is_best_for_the_others():
    values = np.zeros((len(WAYS), 10))
    folds = np.repeat(np.arange(FOLDS), 2)
    values[3, folds != 0] = 0.5
    values[5, folds == 0] = 1.0
    found = teaching.cross_fitted({AGAIN: values, NEW: values}, {AGAIN: folds, NEW: folds}, 0)
    assert found[AGAIN].tolist() == [0.0] * 2 + [0.5] * 8
    values[3] = values[5] = 0.0  # of equal ones it is the default
    values[7, 0] = 1e-12
    assert best_way({AGAIN: values}, folds < FOLDS, 2) == 2


@pytest.mark.parametrize(("again", "new", "general", "improved", "said"), [
    (0.1, 0.0, 0.9, True, "asked for again"), (0.0, 0.1, 0.9, False, "may be nothing"),
    (0.1, -0.1, 0.9, False, "forgets"), (0.1, 0.0, 0.5, False, "falls from 0.900 to 0.500"),
])  # fmt: skip
def test_the_verdict_is_about_what_is_asked_again_and_what_is_new(
    again, new, general, improved, said
):
    random = np.random.default_rng(0)
    _, _, asked = collection(0)
    evidence = judged_evidence(TEXTS, range(DOCUMENTS), OWN, asked)
    before = random.uniform(0.3, 0.6, len(asked))
    noise = random.normal(size=len(asked)) * 0.02
    noise -= noise.mean()
    after = {AGAIN: before + again + noise, NEW: before + new + noise}
    found = teaching.judge(evidence, before, after, "map", General("STS", 0.9, general), 0)
    assert found.improved == improved
    assert said in found.reason


@pytest.mark.parametrize(
    ("queries", "documents", "enough"), [(40, 20, True), (39, 39, False), (200, 1, False)]
)
def test_few_queries_or_documents_neither_teach_nor_judge(queries, documents, enough):
    asked = [(f"q{n}", {n % documents: 1.0}) for n in range(queries)]
    assert (too_few(asked) == "") == enough
    assert enough or f"{queries} queries about {documents} of these" in too_few(asked)


def test_queries_about_documents_that_are_not_there_are_counted(tmp_path):
    path = tmp_path / "asked.jsonl"
    rows = [{"query": "a", "document": "one.md"}, {"query": "b", "document": "gone.md"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    said = []
    assert read_queries(path, ["one.md"], say=said.append) == [("a", {0: 1.0})]
    assert said == [
        f"{path}: 1 of 2 queries are left out: their documents were not read "
        "(for example 'gone.md')"
    ]
