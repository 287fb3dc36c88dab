"""Milvus for real, on a local file: what it finds is what the exact index finds."""

import json
import logging
import signal
import subprocess
import sys

import numpy as np
import pytest

from contrasent.encoding.table import TableWriter
from contrasent.errors import InputError, ModelError, OptionError, OutputError, UserError
from contrasent.search.encoded import EncodedRecords
from contrasent.search.filters import ids_in
from contrasent.search.hybrid import MilvusHybrid, searcher
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
    with pytest.raises(OptionError, match=r"of rows 0 and 1.*is there twice"):
        build_milvus(tmp_path / "c", encode, [("x", "1", None), ("y", "1", None)])
    assert not [*tmp_path.iterdir()]


FUSED = {"hybrid": {"lexical_weight": 0.4, "method": "weighted"}}
WORDY = [
    f"the lamp of harbour {n % 11} is {'lit' if n % 3 else 'dark'}, keeper {n}" for n in range(150)
]


@pytest.fixture(scope="module")
def wordy(tmp_path_factory):
    """A collection that is searched by words too, one of its texts without any."""
    from contrasent.search.milvus_writer import build_milvus

    folder = tmp_path_factory.mktemp("words") / "index"
    rows = [(text, None, {"n": n}) for n, text in enumerate([*WORDY, "!?"])]
    index = build_milvus(folder, encode, rows, model="m", settings=FUSED)
    yield index
    index.close()


@pytest.mark.parametrize("where", [None, {"n": {"$lt": 60}}])
def test_hybrid_is_the_fusion_of_cosine_and_milvus_own_bm25(wordy, where):
    """By hand: all cosines, all BM25 scores of Milvus, each from the last proposal to the best."""
    texts = [*WORDY, "!?"]
    vectors = encode(texts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = "Harbour 7, dark"
    q = encode([query])[0] / np.linalg.norm(encode([query])[0])
    condition = "" if where is None else 'metadata["n"] < 60'
    (all_words,) = wordy.nearest([query], 1000, condition, words=True)
    bm25 = {int(hit.id): abs(hit.score) for hit in all_words}
    rows = [n for n in range(len(texts)) if where is None or n < 60]
    assert set(bm25) == {n for n in rows if n < 150}  # every text but the one without words
    cosine = vectors @ q
    by_cosine = sorted(rows, key=lambda n: -cosine[n])[:100]
    # Ties at the hundredth: Milvus proposes some of them, all with the same score.
    (proposed,) = wordy.nearest([query], 100, condition, words=True)
    union = sorted({*by_cosine, *(int(hit.id) for hit in proposed)})
    last = min(abs(hit.score) for hit in proposed) if len(proposed) == 100 else 0.0
    given = {int(hit.id) for hit in proposed}
    words = {n: bm25[n] if n in given else last for n in union}

    def scaled(scores):
        floor = sorted(scores.values(), reverse=True)[min(100, len(scores)) - 1]
        high = max(scores.values())
        return {n: (value - floor) / (high - floor) for n, value in scores.items()}

    left, right = scaled({n: cosine[n] for n in union}), scaled(words)
    expected = sorted(((0.6 * left[n] + 0.4 * right[n], n) for n in union), reverse=True)[:10]
    search = searcher(wordy)
    assert isinstance(search, MilvusHybrid)
    (hits,) = search.search(query, encode=encode, k=10, where=where)
    assert [hit.score for hit in hits] == pytest.approx([s for s, _ in expected], abs=1e-4)
    assert {int(hit.id) for hit in hits[:3]} == {n for _, n in expected[:3]}
    assert all(hit.metadata == {"n": int(hit.id)} for hit in hits)
    assert all(hit.text == texts[int(hit.id)] for hit in hits)


def test_words_alone_vectors_alone_and_refusals(wordy, both):
    (by_words,) = searcher(wordy, lexical_weight=1.0).search("harbour 3 lit", encode=encode, k=5)
    assert all("harbour 3 " in hit.text for hit in by_words)
    (plain,) = searcher(wordy, hybrid=False).search("harbour 3 lit", encode=encode, k=5)
    (dense,) = searcher(wordy, lexical_weight=0.0).search("harbour 3 lit", encode=encode, k=5)
    assert [hit.id for hit in dense] == [hit.id for hit in plain]
    (none,) = searcher(wordy, lexical_weight=0.5).search("x", encode=encode, where={"n": -1})
    assert none == []
    with pytest.raises(OptionError, match="this collection in Milvus has no words; build it with"):
        searcher(both[0], hybrid=True)
    with pytest.raises(UserError, match="hybrid search needs the queries' texts"):
        searcher(wordy).search(encode(["x"]))


def stored(folder, rows, *, model="m", names=("one", "two")):
    """Parquet files with vectors, texts and ids, as ``contrasent encode`` writes them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    size = -(-len(rows) // len(names))
    for number, name in enumerate(names):
        part = rows[number * size : (number + 1) * size]
        flat = pa.array(encode([text for text, _ in part]).reshape(-1))
        columns = {
            "vector": pa.FixedSizeListArray.from_arrays(flat, 16),
            "text": [text for text, _ in part],
            "id": [key for _, key in part],
            "length": [len(text) for text, _ in part],
        }
        table = pa.table(columns)
        if model:
            stated = {b"contrasent": json.dumps({"model": model}).encode()}
            table = table.replace_schema_metadata(stated)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=37)
    return folder


def test_vectors_of_files_are_loaded_as_they_are(tmp_path):
    from contrasent.search.milvus_writer import build_milvus

    def never(texts):
        raise AssertionError

    given = [(f"lamp {n}", f"key {n}") for n in range(101)]
    rows = EncodedRecords(str(stored(tmp_path / "v", given)), metadata=["length"])
    assert rows.model == "m"
    in_milvus = build_milvus(tmp_path / "milvus", never, rows, model="m")
    in_folder = Index.create(tmp_path / "folder", never, rows, model="m")
    for index in (in_milvus, in_folder):
        assert len(index) == 101
        for n in (0, 50, 51, 100):
            (hit,) = index.search(encode([f"lamp {n}"]), k=1)[0]
            assert (hit.id, hit.text) == (f"key {n}", f"lamp {n}")
            assert hit.metadata == {"length": len(f"lamp {n}")}
            assert hit.score == pytest.approx(1, abs=1e-5)
    in_milvus.close()
    for skip in (0, 1, 36, 50, 51, 52, 101):
        ids = [name for part in rows.blocks("dot", 20, skip) for name in part.ids]
        assert ids == [f"key {n}" for n in range(skip, 101)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_every_type_that_encode_writes_is_read(tmp_path, dtype):
    """But signs, of which no vector can be made again."""
    texts = [f"lamp {n}" for n in range(40)]
    vectors = 3 * encode(texts)
    for kind in (dtype, "binary"):
        with (
            (tmp_path / f"{kind}.parquet").open("wb") as stream,
            TableWriter(stream, 16, kind, texts=True) as writer,
        ):
            writer.append(vectors, ids=[f"k{n}" for n in range(40)], texts=texts)
            writer.finish({"model": "m"})
    rows = EncodedRecords(str(tmp_path / f"{dtype}.parquet"), metadata=["*"])
    found = [*rows.blocks("dot", 15)]
    assert [*found[0].texts, *found[1].texts, *found[2].texts] == texts
    read = np.concatenate([block.vectors for block in found])
    half = np.abs(vectors).max(axis=1, keepdims=True) / {"int8": 253, "float16": 2000}.get(
        dtype, 1e9
    )
    assert (np.abs(read - vectors) <= half).all()
    assert rows.metadata == []
    with pytest.raises(InputError, match="no lists of float or int8"):
        list(EncodedRecords(str(tmp_path / "binary.parquet")).blocks("dot", 15))


def test_files_that_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = EncodedRecords(str(stored(tmp_path / "v", [("a", "1"), ("b", "2")])))
    rows.check("m", "mini", words=True)
    with pytest.raises(ModelError, match="holds vectors of model 'm' and mini is 'n'"):
        rows.check("n", "mini", words=False)
    with pytest.raises(OptionError, match=r"--metadata 'lenght'.*did you mean 'length'"):
        EncodedRecords(str(tmp_path / "v"), metadata=["lenght"])
    stored(tmp_path / "w", [("a", "1"), ("b", "2")], model="other", names=("three",))
    (tmp_path / "w" / "three.parquet").rename(tmp_path / "v" / "three.parquet")
    with pytest.raises(InputError, match="vectors of several models, 'm' and 'other'"):
        EncodedRecords(str(tmp_path / "v"))
    bare = tmp_path / "bare.parquet"
    pq.write_table(pa.table({"vector": [[1.0, 2.0], [3.0]]}), bare)
    made = EncodedRecords(str(bare))
    assert (made.model, made.text, made.identity) == (None, None, None)
    with pytest.raises(InputError, match="a row has no vector, or one of another length"):
        list(made.blocks("dot", 10))
    with pytest.raises(InputError, match="has no texts to search by words"):
        made.check("m", "mini", words=True)
    pq.write_table(pa.table({"vector": ["a"]}), bare)
    with pytest.raises(InputError, match="holds string, no lists of float"):
        list(EncodedRecords(str(bare)).blocks("dot", 10))
    pq.write_table(pa.table({"text": ["a"]}), bare)
    with pytest.raises(InputError, match="has no column 'vector', but text"):
        EncodedRecords(str(bare))
    bare.write_bytes(b"no parquet")
    with pytest.raises(InputError, match="this is no whole parquet file"):
        EncodedRecords(str(bare))
    (tmp_path / "texts.txt").write_text("a\n")
    with pytest.raises(InputError, match="vectors are read from parquet"):
        EncodedRecords(str(tmp_path / "texts.txt"))


LOADER = """
import os, signal, sys
import numpy as np
from contrasent.search import milvus, milvus_writer

at, folder, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
milvus_writer.BATCH = milvus.BATCH = 20
calls = 0

def killed(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

def encode(texts):
    rows = [np.random.default_rng(list(text.encode())).normal(size=16) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, 16)

milvus.MilvusIndex.__init__ = (
    lambda self, *a, init=milvus.MilvusIndex.__init__, **k: (
        init(self, *a, **k),
        setattr(self.client, "insert", killed(self.client.insert)),
        setattr(self.client, "upsert", killed(self.client.upsert)),
        setattr(self.client, "create_collection", killed(self.client.create_collection)),
    )[0]
)
rows = [(f"text {n}", None, None) for n in range(count)]
milvus_writer.build_milvus(folder, encode, rows, model="m").close()
"""


@pytest.mark.parametrize("kills", [[1], [2], [3], [4], [9], [10, 3], [12, 2, 4]])
def test_a_killed_load_goes_on_and_every_row_is_there_once(tmp_path, kills, monkeypatch):
    """Before and after the collection is made, before and after any block; some twice."""
    from contrasent.search import milvus, milvus_writer

    monkeypatch.setattr(milvus, "BATCH", 20)
    monkeypatch.setattr(milvus_writer, "BATCH", 20)
    folder = tmp_path / "index"
    for at in kills:
        command = [sys.executable, "-c", LOADER, str(at), str(folder), "150"]
        assert subprocess.run(command, timeout=300).returncode == -signal.SIGKILL
    with pytest.raises(InputError, match=r"was not loaded whole|not readable"):
        milvus.MilvusIndex.open(folder)
    make = milvus_writer._make_collection

    def watched(index, stated):
        """A server keeps a row twice that is inserted twice; a local file does not."""
        make(index, stated)
        insert = index.client.insert

        def checked(name, given):
            condition = ids_in([row["id"] for row in given])
            assert not index.client.query(name, filter=condition, output_fields=["id"])
            return insert(name, given)

        index.client.insert = checked

    monkeypatch.setattr(milvus_writer, "_make_collection", watched)
    rows = [(f"text {n}", None, None) for n in range(150)]
    loaded = (folder / "loaded.u8").stat().st_size // 8
    encoded = []

    def counted(texts):
        encoded.extend(texts)
        return encode(texts)

    made = milvus_writer.build_milvus(folder, counted, rows, model="m")
    assert len(encoded) == 150 - max(0, loaded - 20)
    found = [name for block in made.blocks() for name in block.ids]
    assert sorted(map(int, found)) == list(range(150))
    assert len(made) == 150
    (hit,) = made.search(encode(["text 41"]), k=1)[0]
    assert (hit.id, hit.text) == ("41", "text 41")
    made.close()
    assert sorted(path.name for path in folder.iterdir()) == ["milvus.db", "milvus.json"]


def test_a_killed_load_is_not_mixed_with_another(tmp_path, monkeypatch):
    from contrasent.search import milvus_writer

    monkeypatch.setattr(milvus_writer, "BATCH", 20)
    folder = tmp_path / "index"
    command = [sys.executable, "-c", LOADER, "9", str(folder), "150"]
    assert subprocess.run(command, timeout=300).returncode == -signal.SIGKILL
    before = (folder / "loaded.u8").read_bytes()
    rows = [(f"text {n}", None, None) for n in range(150)]
    with pytest.raises(OutputError, match="was begun with other settings"):
        milvus_writer.build_milvus(folder, encode, rows, model="other")
    other = [(text, f"other {text}", None) for text, _, _ in rows]
    with pytest.raises(OutputError, match="was begun with other rows"):
        milvus_writer.build_milvus(folder, encode, other, model="m")
    assert (folder / "loaded.u8").read_bytes() == before
