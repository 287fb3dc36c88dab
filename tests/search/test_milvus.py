"""Milvus for real, on a local file: what it finds is what an index in a folder finds."""

import json
import logging
import math
import os
import signal
import subprocess
import sys
from copy import copy

import numpy as np
import pytest
from whole_states import encoder

from contrasent.errors import InputError, ModelError, OptionError, OutputError, UserError
from contrasent.search.folder import in_milvus
from contrasent.search.index import Index
from contrasent.search.milvus import MilvusIndex
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 400
PLACES = ["harbour", "lighthouse", "readFile", "東京の天気", "café", "quays", "storm"]


encode = encoder(1, 16)
TEXTS = [
    f"the {PLACES[n % 7]} of the {'lamps' if n % 3 else 'keeper'} is by the sea {n % 29} "
    + "and the storms " * (n % 4)
    for n in range(ROWS)
]
IDS = [f"id {n:03}" for n in range(ROWS)]
METADATA = [
    {"n": n, "lang": "en" if n % 2 else "de", "tags": ["a", "b"][: n % 3], "deep": {"x": n % 5}}
    if n % 7
    else None
    for n in range(ROWS)
]
ALL = list(zip(TEXTS, IDS, METADATA, strict=True))


class InSmallBlocks(MilvusIndex):
    batch = 20


def build(folder, encode, rows, kind=MilvusIndex, **about):
    return kind.build(folder, encode, rows, Facts(**about))


@pytest.fixture(scope="module", autouse=True)
def quiet():
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("milvus") / "index"
    build(folder, encode, ALL, model="m", source="here").close()
    opened = MilvusIndex.open(folder)
    yield opened, Index.build(encode, TEXTS, ids=IDS, metadata=METADATA, model="m")
    opened.close()


WHERES = [
    None, {"lang": "en"}, {"lang": {"$ne": "en"}}, {"n": {"$gte": 100, "$lt": 200}},
    {"n": {"$in": [1, 2, 3]}}, {"n": {"$in": []}}, {"lang": {"$nin": ["en"]}}, {"deep.x": 3},
    {"tags": {"$contains": "b"}}, {"tags": "b"}, {"tags": {"$ne": "b"}}, {"tags": {"$nin": ["b"]}},
    {"lang": {"$exists": False}}, {"lang": {"$exists": True}},
    {"$or": [{"lang": "de"}, {"n": {"$gt": 390}}]},
    {"$and": [{"lang": "de"}, {"$not": {"n": {"$gt": 50}}}]},
    {"$not": {"lang": "en"}}, {"$not": {"n": {"$gt": 50}}}, {"lang": {"$contains": "n"}},
    {"$not": {"lang": {"$contains": "n"}}}, {"$not": {"lang": {"$ne": "en"}}},
]  # fmt: skip
QUERIES = ["Storms of the cafe café, 東京 and a harbor", "read file", "the", "unheard-of"]


@pytest.mark.parametrize(
    ("where", "weight"),
    [(where, 0.2) for where in WHERES] + [(w, n) for w in WHERES[:2] for n in (0.0, 0.6)],
)
def test_finds_what_an_index_in_memory_finds(both, where, weight):
    """Hits, fused scores, cosines and BM25 scores, of words in scripts and cases of all kinds."""
    ours, theirs = (
        index.search(QUERIES, encode=encode, k=12, where=where, ranker=Ranker(weight))
        for index in both
    )
    assert sum(map(len, theirs)) == (0 if where == {"n": {"$in": []}} else len(theirs[0]) * 4)
    for found, expected in zip(ours, theirs, strict=True):
        assert [hit.id for hit in found] == [hit.id for hit in expected]
        assert [(h.text, h.metadata) for h in found] == [(h.text, h.metadata) for h in expected]
        for name in ("score", "cosine", "bm25"):
            left, right = ([getattr(hit, name) for hit in hits] for hits in (found, expected))
            assert left == pytest.approx(right, abs=1e-4), name


def test_few_proposals_and_a_sample_come_near(both, monkeypatch):
    """As in a large collection: not all rows are sampled, scored or proposed."""
    index, exact = copy(both[0]), both[1]
    index.sampled, index.scored, index.proposed, index._drawn = 100, 60, 40, None
    index._counted = None
    monkeypatch.setattr("contrasent.search.milvus.COUNT_EVERY", math.inf)
    counted = index.count
    monkeypatch.setattr(MilvusIndex, "__len__", None)  # a request, which no search makes each time
    (found,) = index.search("storm in the harbour", encode=encode, k=4)
    assert counted == ROWS
    (expected,) = exact.search("storm in the harbour", encode=encode, k=400)
    assert 50 < len(index._drawn) < 160
    known = {hit.id: hit for hit in expected}
    for hit in found:
        assert hit.bm25 == pytest.approx(known[hit.id].bm25, rel=0.1)
        assert hit.cosine == pytest.approx(known[hit.id].cosine, abs=1e-5)
    assert {hit.id for hit in found} <= {hit.id for hit in expected[:12]}


def test_threshold_model_and_limits(both):
    index, _ = both
    assert (len(index), index.dimension, index.model, index.metric) == (ROWS, 16, "m", "cosine")
    assert (index.ranker, index.facts.source, in_milvus(index.folder)) == (Ranker(), "here", True)
    found, expected = (i.search(encode(["x"]), threshold=0.4, k=50) for i in both)
    assert [hit.id for hit in found[0]] == [hit.id for hit in expected[0]]
    assert index.search([], encode=encode) == []
    with pytest.raises(ModelError, match="cannot be compared"):
        index.search("x", encode=encode, model="other")
    with pytest.raises(OptionError, match="16,384"):
        index.search("x", encode=encode, k=20_000)
    with pytest.raises(OptionError, match="approximately"):
        index.search("x", encode=encode, all_rows=True)
    with pytest.raises(OptionError, match="control character"):
        index.search("x", encode=encode, where={"a": 'x"\n'})
    with pytest.raises(OptionError, match="no part of a text with %"):
        index.search("x", encode=encode, where={"lang": {"$contains": "e_"}})
    assert index.search("x", encode=encode, where={"lang": 'en" or "1" == "1'}) == [[]]


def test_queries_are_searched_as_they_are_typed(both):
    """It is not known which words its rows hold."""
    milvus, _ = both
    for query in ("the harbuor", "abuot the sea"):
        assert milvus.repaired([query], lambda word: False) == [query]


def test_changes_are_those_of_a_writer(tmp_path):
    extra = [{"n": n} if n % 2 else None for n in range(20)]
    index = build(
        tmp_path / "index", encode, [(f"t{n}", None, m) for n, m in enumerate(extra)], model="m"
    )
    new = [{"a": 1}, None]
    assert index.update(["new", "3 again"], encode, ids=["new", "3"], metadata=new) == (1, 1)
    assert index.add(["x"], encode, ids=["20"]) == 1
    assert index.add(["y", "z"], encode, model="m") == 2  # numbers that are free
    assert (index.add([], encode), index.update([], encode, ids=[])) == (0, (0, 0))
    assert index.delete(["5"]) == 1
    assert index.delete_where({"n": {"$gte": 17}}) == 2
    with pytest.raises(OptionError, match="'new': is in the index already"):
        index.add(["w"], encode, ids=["new"])
    with pytest.raises(OptionError, match="'7': is repeated"):
        index.update(["w", "v"], encode, ids=["7", "7"])
    with pytest.raises(OptionError, match="'5': is not in the index"):
        index.delete(["5"])
    for given in (lambda: index.delete("67"), lambda: index.add("67", np.ones((2, 8)))):
        with pytest.raises(OptionError, match="'67': is one string"):
            given()
    with pytest.raises(OptionError, match="must give one id for each of 2 texts"):
        index.add(["w", "v"], encode, ids=["7"])
    with pytest.raises(OptionError, match="metadata 2: must have one value for each of 1 texts"):
        index.add(["w"], encode, metadata=[1, 2])
    with pytest.raises(ModelError, match="cannot be compared"):
        index.add(["w"], encode, model="other")
    there = {row.id for row in index.every()}
    assert index.refreshed().count == len(index) == len(there) == 21
    assert {"new", "3", "20"} < there
    assert not {"5", "17", "19"} & there
    for text, name, facts in (("new", "new", {"a": 1}), ("3 again", "3", None), ("t4", "4", None)):
        (hit,) = index.search(encode([text]), k=1)[0]
        assert (hit.text, hit.id, hit.metadata) == (text, name, facts)
    (hit,) = index.search("z", encode=encode, k=1)[0]
    assert (hit.text, hit.bm25 > 0) == ("z", True)


def test_blocks_are_the_rows_of_the_index_in_memory(both):
    index, exact = both
    vectors = {row.id: (row.text, row.metadata, exact.vectors[row.row]) for row in exact.every()}
    rows = [row for part in index.blocks() for row in zip(*part, strict=True)]
    assert len(rows) == ROWS
    for name, text, extra, vector in rows[::37]:
        assert (text, extra) == vectors[name][:2]
        assert vector == pytest.approx(vectors[name][2], abs=1e-6)


def test_errors_in_a_line(tmp_path):
    with pytest.raises(InputError, match="missing or damaged"):
        MilvusIndex.open(tmp_path)
    with pytest.raises(UserError, match="no texts"):
        build(tmp_path / "a", encode, [], InSmallBlocks)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(OptionError, match=r"'1'.*is repeated"):
        build(tmp_path / "c", encode, [("x", "1", None), ("y", "1", None)])
    with pytest.raises(UserError, match="lone surrogate"):
        build(tmp_path / "d", lambda _: np.ones((1, 4)), [("x\ud800", "1", None)])
    taken = tmp_path / "here.db"
    build(tmp_path / "e", encode, [("x", "1", None)], settings={"uri": str(taken)}).close()
    with pytest.raises(InputError, match="already has a collection of that name"):
        build(tmp_path / "f", encode, [("y", "1", None)], settings={"uri": str(taken)})
    with pytest.raises(OutputError, match="exists"):
        build(tmp_path / "e", encode, [("y", "1", None)], settings={"uri": str(taken)})
    index = MilvusIndex.open(tmp_path / "e")
    assert [row.text for row in index.every()] == ["x"]
    index._call("drop_collection")
    with pytest.raises(InputError, match=r"here\.db: Milvus says: .*contrasent"):
        index.search(encode(["x"]))
    index.close()
    path = tmp_path / "e" / "milvus.json"
    whole = path.read_text()
    for damage in ("", "[]", "{}", whole.replace("uri", "u"), whole.replace('"cosine"', "3")):
        path.write_text(damage)
        with pytest.raises(InputError, match="missing or damaged"):
            MilvusIndex.open(tmp_path / "e")


def test_a_load_that_failed_goes_on(tmp_path):
    rows = [(f"text {n}", f"{n}", None) for n in range(50)]
    with pytest.raises(UserError, match="65,535 bytes"):
        build(
            tmp_path / "a", encode, kind=InSmallBlocks, rows=[*rows, ("x" * 70_000, "long", None)]
        )
    with pytest.raises(InputError, match="holds 50 of 51 rows: ids are repeated"):
        build(tmp_path / "a", encode, [*rows, ("again", "0", None)], InSmallBlocks)
    with pytest.raises(InputError, match="was not loaded completely"):
        MilvusIndex.open(tmp_path / "a")
    index = build(tmp_path / "a", encode, [*rows, ("short", "long", None)], InSmallBlocks)
    assert {(row.text, row.id) for row in index.every()} == {
        *((text, name) for text, name, _ in rows),
        ("short", "long"),
    }


LOADER = """
import os, signal, sys
from whole_states import encoder
from contrasent.search.milvus import MilvusIndex
from contrasent.search.store import Facts

at, folder, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0

def counted():
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)

class Killed(MilvusIndex):
    batch = 20

    def _call(self, name, **given):
        if name not in ("upsert", "create_collection"):
            return super()._call(name, **given)
        counted()
        result = super()._call(name, **given)
        counted()
        return result

rows = [(f"text {n}", None, None) for n in range(count)]
Killed.build(folder, encoder(1, 16), rows, Facts(model="m")).close()
"""


def killed(at, folder, count=150):
    command = [sys.executable, "-c", LOADER, str(at), str(folder), str(count)]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, timeout=600, env=here).returncode == -signal.SIGKILL


@pytest.mark.parametrize("kills", [[1], [2], [3], [12, 2, 4]])
def test_a_killed_load_goes_on_and_every_row_is_there_once(tmp_path, kills):
    """Before and after the collection is made, before and after any block; some twice."""
    folder, texts = tmp_path / "index", []
    for at in kills:
        killed(at, folder)
    with pytest.raises(InputError, match="was not loaded completely"):
        MilvusIndex.open(folder)
    made = build(
        folder,
        lambda some: (texts.extend(some), encode(some))[1],
        [(f"text {n}", None, None) for n in range(150)],
        kind=InSmallBlocks,
        model="m",
    )
    # The first two calls make the collection, two more load 20 rows each; one row is encoded twice.
    loaded = 20 * max(0, sum(at // 2 - 1 for at in kills[:1]))
    assert len(texts) <= 150 - loaded + 1
    assert sorted(int(row.id) for row in made.every()) == list(range(150)) and len(made) == 150
    (hit,) = made.search(encode(["text 41"]), k=1)[0]
    assert (hit.id, hit.text) == ("41", "text 41")
    made.close()
    assert sorted(path.name for path in folder.iterdir()) == ["milvus.db", "milvus.json"]


def test_a_killed_load_is_not_mixed_with_another(tmp_path):
    folder = tmp_path / "index"
    killed(9, folder)
    rows = [(f"text {n}", None, None) for n in range(150)]
    with pytest.raises(OutputError, match="was started with other settings"):
        build(folder, encode, rows, InSmallBlocks, model="other")
    with pytest.raises(InputError, match=r"holds 150 of 30 rows|holds \d+ of 30 rows: ids are"):
        build(folder, encode, rows[:30], InSmallBlocks, model="m")
    with pytest.raises(InputError, match="was not loaded completely"):
        MilvusIndex.open(folder)
    other = [(f"ship {n}", None, {"n": n}) for n in range(150)]
    made = build(folder, encode, other, InSmallBlocks, model="m")
    assert {row.text for row in made.every()} == {text for text, _, _ in other}
    made.close()
    assert json.loads((folder / "milvus.json").read_text())["generation"] == 1
