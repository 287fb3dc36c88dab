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

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    folder = tmp_path_factory.mktemp("milvus") / "index"
    rows = zip(TEXTS, [f"id {n}" for n in range(ROWS)], METADATA, strict=True)
    made = MilvusIndex.create(folder, encode, rows, model="m", source="here")
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


def test_changes(tmp_path):
    from contrasent.search.milvus import MilvusIndex

    rows = [(f"t{n}", None, None) for n in range(20)]
    index = MilvusIndex.create(tmp_path / "index", encode, rows, model="m")
    index.update(["new", "t3 again"], encode, ids=["new", "3"], metadata=[{"a": 1}, None])
    index.delete(["5"])
    assert len(index) == 20
    assert index.search("new", encode=encode, k=1)[0][0].metadata == {"a": 1}
    assert index.search("t3 again", encode=encode, k=1)[0][0].id == "3"
    assert "5" not in [hit.id for hit in index.search("t5", encode=encode, k=20)[0]]
    index.close()
    again = MilvusIndex.open(tmp_path / "index")
    assert len(again) == 20
    again.close()


def test_refused(tmp_path):
    from contrasent.search.milvus import MilvusIndex

    with pytest.raises(InputError, match="not readable"):
        MilvusIndex.open(tmp_path)
    with pytest.raises(UserError, match="no texts"):
        MilvusIndex.create(tmp_path / "a", encode, [])
    with pytest.raises(UserError, match="65,535 bytes"):
        MilvusIndex.create(tmp_path / "b", encode, [("x" * 70_000, None, None)])
    with pytest.raises(OptionError, match="twice"):
        MilvusIndex.create(tmp_path / "c", encode, [("x", "1", None), ("y", "1", None)])
