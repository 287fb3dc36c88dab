"""Milvus for real, on a local file: what it finds is what the exact index finds."""

import logging

import numpy as np
import pytest

from contrasent.errors import InputError, ModelError, OptionError, UserError
from contrasent.search.index import Index

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 400


def encode(texts):
    rows = [np.random.default_rng(list(text.encode())).normal(size=16) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, 16)


TEXTS = [f"text {n} é" for n in range(ROWS)]
METADATA = [
    {"n": n, "lang": "en" if n % 2 else "de", "tags": ["a", "b"][: n % 3], "deep": {"x": n % 5}}
    if n % 7
    else None
    for n in range(ROWS)
]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    from contrasent.search.milvus import MilvusIndex
    from contrasent.search.milvus_writer import build_milvus

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    folder = tmp_path_factory.mktemp("milvus") / "index"
    rows = zip(TEXTS, [f"id {n}" for n in range(ROWS)], METADATA, strict=True)
    made = build_milvus(folder, encode, rows, model="m", source="here")
    assert made.recall > 0.95
    made.close()
    opened = MilvusIndex.open(folder)
    exact = Index.build(
        encode, TEXTS, ids=[f"id {n}" for n in range(ROWS)], metadata=METADATA, model="m"
    )
    yield opened, exact
    opened.close()


WHERES = [
    None,
    {"lang": "en"},
    {"lang": {"$ne": "en"}},
    {"n": {"$gte": 100, "$lt": 200}},
    {"n": {"$in": [1, 2, 3]}},
    {"n": {"$in": []}},
    {"lang": {"$nin": ["en"]}},
    {"deep.x": 3},
    {"tags": {"$contains": "b"}},
    {"lang": {"$exists": False}},
    {"lang": {"$exists": True}},
    {"$or": [{"lang": "de"}, {"n": {"$gt": 390}}]},
    {"$and": [{"lang": "de"}, {"$not": {"n": {"$gt": 50}}}]},
]


@pytest.mark.parametrize("where", WHERES)
def test_finds_what_the_exact_index_finds(both, where):
    milvus, exact = both
    queries = encode(["one query", "another"])
    for ours, theirs in zip(
        milvus.search(queries, k=10, where=where),
        exact.search(queries, k=10, where=where),
        strict=True,
    ):
        assert [hit.id for hit in ours] == [hit.id for hit in theirs]
        assert [hit.text for hit in ours] == [hit.text for hit in theirs]
        assert [hit.metadata for hit in ours] == [hit.metadata for hit in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)


def test_threshold_model_and_texts(both):
    milvus, exact = both
    assert (len(milvus), milvus.dimension, milvus.model) == (ROWS, 16, "m")
    (hits,) = milvus.search("one query", encode=encode, threshold=0.5)
    assert [h.id for h in hits] == [
        h.id for h in exact.search("one query", encode=encode, threshold=0.5)[0]
    ]
    with pytest.raises(ModelError, match="cannot be compared"):
        milvus.search("x", encode=encode, model="other")
    with pytest.raises(OptionError, match="16,384"):
        milvus.search("x", encode=encode, k=20_000)
    with pytest.raises(OptionError, match="control character"):
        milvus.search("x", encode=encode, where={"a": 'x"\n'})
    (none,) = milvus.search("x", encode=encode, where={"lang": 'en" or "1" == "1'})
    assert none == []


@pytest.mark.parametrize("kind", ["folder", "milvus"])
def test_a_writer_does_what_the_other_does(tmp_path, kind):
    """The same changes, asked of the writer of a folder and of Milvus."""
    from contrasent.search.milvus_writer import build_milvus
    from contrasent.search.opening import local_index, open_index, open_writer

    folder = tmp_path / "index"
    rows = [(f"t{n}", None, {"n": n} if n % 2 else None) for n in range(20)]
    if kind == "milvus":
        build_milvus(folder, encode, rows, model="m").close()
    else:
        Index.create(folder, encode, rows, model="m")
    with open_writer(folder) as writer:
        new = [{"a": 1}, None]
        assert writer.update(["new", "3 again"], encode, ids=["new", "3"], metadata=new) == (1, 1)
        assert writer.add(["x"], encode, ids=["20"]) == 1
        assert writer.add(["y", "z"], encode, model="m") == 2  # numbers that are free
        assert writer.delete(["5", "nowhere"], missing="ignore") == 1
        assert writer.delete_where({"n": {"$gte": 17}}) == 2
        with pytest.raises(OptionError, match="'new': is in the index already"):
            writer.add(["w"], encode, ids=["new"])
        with pytest.raises(OptionError, match="'7': is there twice"):
            writer.update(["w", "v"], encode, ids=["7", "7"])
        with pytest.raises(OptionError, match="'5': is not in the index"):
            writer.delete(["5"])
        with pytest.raises(OptionError, match="not one id for each of 2 texts"):
            writer.add(["w", "v"], encode, ids=["7"])
        with pytest.raises(OptionError, match="metadata 2: is not one value for 1 texts"):
            writer.add(["w"], encode, metadata=[1, 2])
        with pytest.raises(ModelError, match="cannot be compared"):
            writer.add(["w"], encode, model="other")
        writer.compact()
    with local_index(folder) as at_hand:
        there = {at_hand.named(row)["id"] for row in np.flatnonzero(at_hand.alive())}
        assert len(at_hand) == len(there) == 21
        every = at_hand.search("t4", encode=encode, k=1)[0][0]
        assert (every.id, every.text) == ("4", "t4")
    assert {"new", "3", "20"} < there
    assert not {"5", "17", "19"} & there
    index = open_index(folder)
    assert len(index) == 21
    assert index.search("new", encode=encode, k=1)[0][0].metadata == {"a": 1}
    assert index.search("3 again", encode=encode, k=1)[0][0].id == "3"
    assert index.search("z", encode=encode, k=1)[0][0].text == "z"


def test_rows_of_milvus_are_those_of_the_exact_index(both, tmp_path):
    milvus, exact = both
    copy = milvus.copied(tmp_path)
    assert (copy.model, copy.metric, len(copy)) == ("m", "cosine", ROWS)
    rows = {copy.named(row)["id"]: row for row in range(ROWS)}
    for row in range(0, ROWS, 37):
        here = rows[f"id {row}"]
        assert copy.hit(here, 0.0) == exact.hit(row, 0.0)
        assert copy.vectors_of(np.array([here])) == pytest.approx(
            exact.vectors_of(np.array([row])), abs=1e-6
        )
    assert len(milvus.sample(50)) == 50


def test_refused(tmp_path):
    from contrasent.search.milvus import MilvusIndex
    from contrasent.search.milvus_writer import build_milvus

    with pytest.raises(InputError, match="not readable"):
        MilvusIndex.open(tmp_path)
    with pytest.raises(UserError, match="no texts"):
        build_milvus(tmp_path / "a", encode, [])
    with pytest.raises(UserError, match="65,535 bytes"):
        build_milvus(tmp_path / "b", encode, [("x" * 70_000, None, None)])
    with pytest.raises(OptionError, match="twice"):
        build_milvus(tmp_path / "c", encode, [("x", "1", None), ("y", "1", None)])
