"""The index against plain loops over all rows, and everything it must refuse."""

import gc
import json
import math
import sqlite3
import weakref
from contextlib import closing
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_states import encoder

from commands import another_user
from contrasent.errors import InputError, ModelError, OptionError, OutputError, UserError
from contrasent.metrics import normalize
from contrasent.search import opening
from contrasent.search.doctor import examine
from contrasent.search.folder import checksum
from contrasent.search.index import Hit, Index
from contrasent.search.opening import KeptVectors, create, reembed
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts
from contrasent.search.writer import Writer

TEXTS = [f"line {n} about {'rivers' if n % 2 else 'roads'}" for n in range(40)]
STORED = st.characters(codec="utf-8", exclude_characters="\0")  # in metadata


encode = encoder(1)


@pytest.fixture
def index():
    return Index.build(
        encode,
        TEXTS,
        ids=[f"id-{n}" for n in range(len(TEXTS))],
        metadata=[
            {"n": n, "tags": ["\\u0000", None, 1.5]} if n % 3 else None for n in range(len(TEXTS))
        ],
        model="model-one",
    )


@pytest.mark.parametrize("k", [1, 3, 40, 100])
@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_finds_what_a_full_sort_finds(k, metric):
    ids, extra = [f"id-{n}" for n in range(40)], [{"n": n, "tags": ["a", None]} for n in range(40)]
    index = Index.build(encode, TEXTS, ids=ids, metadata=extra, metric=metric)
    queries = encode(["where do roads end?", "a river", TEXTS[7]])
    for query, hits in zip(queries, index.search(queries, k=k), strict=True):
        scores = {}
        for n, vector in enumerate(encode(TEXTS)):
            q, v = query.astype(float), vector.astype(float)
            scores[n] = sum(q * v) / ((sum(q * q) * sum(v * v)) ** 0.5 if metric == "cosine" else 1)
        order = sorted(scores, key=lambda n: -scores[n])[:k]
        assert [(h.id, h.text, h.metadata) for h in hits] == [
            (ids[n], TEXTS[n], extra[n]) for n in order
        ]
        assert [hit.score for hit in hits] == pytest.approx([scores[n] for n in order], abs=1e-5)


def test_text_and_vector_queries_agree(index):
    alone = Ranker(bm25_weight=0)
    by_text = index.search("a river", encode=encode, k=5, ranker=alone)
    assert by_text == index.search(["a river"], encode=encode, k=5, ranker=alone)
    assert by_text == index.search("a river", vectors=encode(["a river"]), k=5, ranker=alone)
    assert by_text == index.search(encode(["a river"]), k=5)
    assert by_text == index.search(encode(["a river"])[0], k=5)
    assert index.search([], encode=encode) == []


@pytest.mark.parametrize(
    ("threshold", "count"),
    [(1e40, 0), (-1e40, 3), (math.inf, 0), (-math.inf, 3), (0.1, 2), (0.3, 1), (-3.5e38, 3)],
)
def test_threshold_of_any_size(threshold, count):
    """0.1 as float32 is a little more than 0.1, and is found; 0.3's is more than 0.3 too."""
    vectors = np.array([[0.1], [0.3], [-1]], dtype=np.float32)
    index = Index.build(lambda _: vectors, ["a", "b", "c"], metric="dot")
    (hits,) = index.search(np.ones(1, dtype=np.float32), threshold=threshold)
    assert len(hits) == count
    (every,) = index.search(np.ones(1, dtype=np.float32))
    assert index.search(np.ones(1, dtype=np.float32), threshold=every[1].score) == [every[:2]]


def test_many_queries_find_what_each_finds_alone(index):
    queries = encode([f"query {n}" for n in range(600)])
    found = index.search(queries, k=7)
    for at in (0, 255, 256, 511, 512, 599):
        (alone,) = index.search(queries[at : at + 1], k=7)
        assert [hit.id for hit in found[at]] == [hit.id for hit in alone]


def test_unit_keeps_zero_and_survives_huge_values():
    vectors = np.array([[0, 0], [3e30, 4e30], [3e-30, 4e-30]], dtype=np.float32)
    assert normalize(vectors) == pytest.approx(np.array([[0, 0], [0.6, 0.8], [0.6, 0.8]]), abs=1e-6)


def create_by(count, *given):
    """Make an index of some rows at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "ROWS_AT_ONCE", count)
        return create(*given)


def created(index, folder):
    """From a stream of rows, some at a time."""
    rows = ((row.text, row.id, row.metadata) for row in index.every())
    create_by(7, folder, encode, rows, replace(index.facts, rows=0))


@pytest.mark.parametrize("make", [Index.save, created])
def test_saved_index_gives_the_same(index, tmp_path, make):
    make(index, tmp_path / "index")
    again = Index.open(tmp_path / "index")
    queries = encode(["where?", "a river"])
    assert again.search(queries, k=9) == index.search(queries, k=9)
    assert (len(again), again.dimension, again.model) == (40, 8, "model-one")
    assert isinstance(again.vectors, np.memmap)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=12),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(STORED, max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(st.text(STORED, max_size=3), inner, max_size=2)
                ),
                max_leaves=4,
            ),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_text_and_json_survive(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any") / "index"
    made = create_by(3, folder, encode, ((t, None, m) for t, m in rows), Facts())
    hits = {hit.id: hit for hit in made.search(encode(["q"]), k=len(rows))[0]}
    assert len(hits) == len(rows)
    for number, (text, value) in enumerate(rows):
        assert hits[str(number)].text == text
        assert hits[str(number)].metadata == value


def test_many_rows_in_bounded_memory(tmp_path):
    """Building encodes some texts at a time."""
    sizes = []

    def fast(texts):
        sizes.append(len(texts))
        return encode(texts)

    index = create(
        tmp_path / "index", fast, ((f"text {n}", None, None) for n in range(5000)), Facts()
    )
    assert max(sizes) == 256
    (hits,) = index.search(index.vectors[4321], k=2)
    assert (hits[0].id, hits[0].text) == ("4321", "text 4321")


# ---------------------------------------------------------------------- what is refused


def fails(texts):
    raise UserError("the model is gone")


@pytest.mark.parametrize(("rows", "made", "words"), [
    ([], encode, "no texts"), ([("a", None, None)], fails, "gone"),
    ([("x", "a", None), ("y", "b", None), ("z", "a", None)], encode, r"'a'.*is repeated"),
])  # fmt: skip
def test_what_cannot_be_made_leaves_nothing(tmp_path, rows, made, words):
    with pytest.raises(UserError, match=words):
        create_by(1, tmp_path / "index", made, rows, Facts())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "words"), [
    ({"texts": []}, "no texts"), ({"ids": ["a", "a"]}, "'a'.*repeated, for text 1"),
    ({"ids": ["a"]}, "one id for each of 2 texts"),
    ({"ids": ["a", 3]}, r"ids\[1\] 3: is not a text"),
    ({"ids": "ab"}, "ids 'ab': is one string; pass a list"),
    ({"texts": "ab"}, "texts 'ab': is one string; pass a list"),
    ({"ids": ["a", "\ud83d"]}, r"ids\[1\] '.ud83d': contains a lone surrogate"),
    ({"metadata": [{"a\0b": 1}, None]}, "contains a NUL"), ({"metadata": ["\\\0", None]}, "a NUL"),
    ({"metadata": [1]}, "one value for each of"), ({"metadata": [object(), None]}, "is not JSON"),
    ({"metadata": [float("nan"), None]}, "is not JSON"),
    ({"metric": "cosin"}, "did you mean 'cosine'"),
    ({"texts": ["x", "a\ud800b"]}, "lone surrogate"),
    ({"encode": lambda _: np.ones((3, 4))}, r"shape \(2, d\)"),
    ({"encode": lambda _: [[1, 2], [1, math.nan]]}, "1 of 2 vectors contain NaN .*first in row 1"),
    ({"encode": lambda _: [[math.inf, 2], [1, 2]]}, "1 of 2 vectors contain .*infinity, .*row 0"),
])  # fmt: skip
def test_bad_rows(options, words):
    options = {"encode": lambda _: np.ones((2, 8)), "texts": ["x", "y"]} | options
    with pytest.raises(UserError, match=words):
        Index.build(**options)


@pytest.mark.parametrize("k", [20, 16_384, 16_385, 20_000])
def test_as_many_documents_as_one_may_want(index, k):
    (hits,) = index.search_documents(["a river"], encode(["a river"]), k)
    assert len(hits) == min(k, 40)


@pytest.mark.parametrize(("count", "weight"), [(1, 0.0), (3, 0.5)])
def test_a_vector_for_each_query(index, count, weight):
    for search in (index.search, index.search_documents):
        with pytest.raises(
            OptionError, match=f"vectors {count}: must be one for each of 2 queries"
        ):
            search(["a", "b"], vectors=encode(["x"] * count), k=3, ranker=Ranker(weight))


@pytest.mark.parametrize(
    "make", [list, tuple, iter, np.array, lambda texts: np.array(texts, object)]
)
def test_texts_in_any_sequence(make):
    index = Index.build(encode, make(TEXTS), ids=make([*map(str, range(40))]))
    assert [row.text for row in index.every()] == TEXTS
    found = index.search(make(["a river", "roads"]), k=3)
    assert found == index.search(["a river", "roads"], vectors=encode(["a river", "roads"]), k=3)
    assert index.remove(make(["5", "6"])) == 2 and len(index) == 38


@pytest.mark.parametrize(("queries", "how", "words"), [
    (None, {}, "queries None: is neither a text nor"),
    (["a", "\ud83d"], {}, r"queries\[1\] .*lone surrogate"),
    ([np.ones(300)], {}, r"queries\[0\] ndarray of shape \(300,\): is not a text"),
    ("a", {"threshold": "30"}, "threshold '30': is not a number"),
    ("a", {"where": {1: 2}}, "where {1: 2}: a filter is a JSON object"),
    *(("a", {"k": k}, "at least 1") for k in (0, -1, True, 2.5, "3")),
])  # fmt: skip
def test_what_cannot_be_searched_for(index, queries, how, words):
    with pytest.raises(OptionError, match=words):
        index.search(queries, encode=encode, **how)


def test_an_index_is_closed_by_with(index, tmp_path):
    index.save(tmp_path / "index")
    with Index.open(tmp_path / "index") as opened, index:
        assert len(opened.search("a river", encode=encode, k=3)[0]) == 3
    for closed in (opened, index):
        with pytest.raises(InputError, match="index: is closed; open it again"):
            closed.search("a river", encode=encode)


def test_other_model_and_dimension(index, tmp_path):
    with pytest.raises(ModelError, match=r"model-one.*model-two"):
        index.search(encode(["a"]), model="model-two")
    index.search(encode(["a"]), model="model-one")
    with pytest.raises(ModelError, match=r"9 dimensions.*index has 8"):
        index.search(np.ones((2, 9), dtype=np.float32))
    assert index.search("a river", k=1) == index.search("a river", encode=encode, k=1)
    with pytest.raises(ModelError, match="1 of 2 vectors contain NaN or infinity, first in row 1"):
        index.search(np.array([[1.0] * 8, [math.nan] * 8], dtype=np.float32))
    with pytest.raises(OptionError, match="not a number"):
        index.search(encode(["a"]), threshold=math.nan)


@pytest.mark.parametrize("use", [Index.open, examine, Writer])
@pytest.mark.parametrize(("name", "words"), [
    ("none", "no such folder"), ("empty", "is not an index"),
])  # fmt: skip
def test_no_index(tmp_path, name, words, use):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=words):
        use(tmp_path / name)
    assert len([*tmp_path.rglob("*")]) == 1


@pytest.mark.parametrize(("facts", "words"), [
    ({"vectors": "../vectors.f32"}, r"vectors\.f32 is missing"),
    ({"synonyms": 3}, "is of a newer version .*'synonyms'.*; install that or rebuild the index"),
])  # fmt: skip
def test_neither_a_file_outside_the_folder_nor_what_is_unknown_is_opened(
    index, tmp_path, facts, words
):
    index.save(tmp_path / "index")
    stated = json.dumps({**asdict(index.facts), **facts})
    with closing(sqlite3.connect(tmp_path / "index/index.db")) as database:
        database.execute("UPDATE facts SET json = ?, sum = ?", (stated, checksum(stated)))
        database.commit()
    (tmp_path / "index/index.sum").unlink()
    with pytest.raises(InputError, match=words):
        Index.open(tmp_path / "index")


def test_never_overwrites_unasked(index, tmp_path):
    index.save(tmp_path / "index")
    with pytest.raises(OutputError, match="exists; choose another target or add --overwrite"):
        index.save(tmp_path / "index")
    with pytest.raises(OutputError, match="exists"):
        create(tmp_path / "index", encode, [("a", None, None)], Facts())
    Index.build(encode, ["only"]).save(tmp_path / "index", overwrite=True)
    assert len(Index.open(tmp_path / "index")) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


def unfinished(folder, count=10):
    """An index of 40 rows, as many of which are encoded as said."""
    rows = [(text, f"id-{n}", None) for n, text in enumerate(TEXTS)]
    create(folder, None, rows, Facts(dimension=8), asked={"source": "here"}).close()
    with Writer(folder) as writer:
        writer.put_vectors(normalize(encode(TEXTS[:count])))


def test_an_index_whose_last_rows_to_encode_were_removed_is_whole(tmp_path):
    unfinished(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.delete([f"id-{n}" for n in range(10, 40)])
    changed = Index.open(tmp_path / "index")
    changed.save(tmp_path / "copy")
    copy, query = Index.open(tmp_path / "copy"), encode(["where?"])
    found = [[hit.id for hit in one.search(query, k=99)[0]] for one in (changed, copy)]
    assert found[0] == found[1] and len(found[0]) == 10 and not changed.facts.encoding


def test_words_alone_search_what_is_not_encoded(index, tmp_path):
    unfinished(tmp_path / "index")
    early = Index.open(tmp_path / "index")
    assert (early.unfinished, early.bm25_only) == (30, "BM25 only: 25 % encoded")
    (hits,) = early.search(["rivers"], vectors=encode(["rivers"]), k=99)
    (words,) = index.search(["rivers"], vectors=encode(["rivers"]), k=20, ranker=Ranker(1.0))
    assert {hit.id: hit.bm25 for hit in hits} == {hit.id: hit.bm25 for hit in words}
    assert len(hits) == 20 and hits[0].shown.startswith("BM25 ") and hits[0].confidence is None
    assert early.search(["nowhere"], vectors=encode(["nowhere"])) == [[]]
    for refused in (
        lambda: early.search(encode(["x"])),
        lambda: early.search(["x"], encode=encode, threshold=0.5),
        lambda: early.save(tmp_path / "copy"),
        lambda: early.add(["another"], encode),
    ):
        with pytest.raises(InputError, match="30 of its rows are not encoded yet"):
            refused()
    with Writer(tmp_path / "index") as writer:
        writer.put_vectors(normalize(encode(TEXTS[10:])))
    done = early.refreshed()
    assert done.bm25_only == "" and np.array_equal(done.vectors, index.vectors)
    assert examine(tmp_path / "index")[0].good


@pytest.mark.parametrize("kind", ["notes.txt", "index.db"])
def test_overwrite_spares_what_is_no_index(index, tmp_path, kind):
    """index.db is another program's."""
    file = tmp_path / "mine" / kind
    file.parent.mkdir()
    if kind == "index.db":
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE songs (name TEXT)")
    else:
        file.write_text("{}")
    content = file.read_bytes()
    with pytest.raises(OutputError, match="exists and is not an index of this format"):
        index.save(file.parent, overwrite=True)
    assert file.read_bytes() == content


def test_an_index_is_made_by_one_process_whatever_link_leads_to_it(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    first, second = (KeptVectors(tmp_path / name, encode, Facts()) for name in ("real", "link"))
    with first, pytest.raises(OutputError, match="another process is building it"), second:
        pass


def test_known_vectors_on_a_full_disk_are_one_line(tmp_path):
    with (
        pytest.raises(OutputError, match=r"cannot write .*full.*free some space"),
        KeptVectors(tmp_path / "index", encode, Facts()) as memo,
    ):
        memo._database.execute("PRAGMA max_page_count = 1")
        memo.put([f"text {n}" for n in range(999)], np.ones((999, 4), np.float32))


def test_vectors_are_kept_within_an_index_whose_parent_cannot_be_written(
    index, tmp_path, monkeypatch
):
    """Such as a volume of a container; what a stopped run left there is no obstacle."""
    folder, seen = tmp_path / "data" / "index", []
    index.save(folder)
    monkeypatch.setattr("contrasent.search.opening.BATCH_SIZE", 2)

    def other(texts):
        seen.extend(texts)
        assert (folder / ".encoded").is_dir()
        if len(seen) == 4:
            raise UserError("stopped")
        return encode(texts)

    for path in (folder, *folder.iterdir()):
        path.chmod(0o777)
    folder.parent.chmod(0o555)
    with another_user(tmp_path):  # chmod does not stop root
        with pytest.raises(UserError, match="stopped"):
            reembed(folder, other, model="other")
        assert reembed(folder, other, model="other").model == "other"
    folder.parent.chmod(0o755)
    assert seen[4:] == TEXTS[2:]
    assert not (folder / ".encoded").exists()
    (folder / ".encoded").mkdir()
    index.save(folder, overwrite=True)


@pytest.mark.parametrize("name", ["notes.txt", "index.db.backup", ".env", "photos"])
def test_overwrite_spares_what_lies_in_an_index(index, tmp_path, name):
    index.save(tmp_path / "index")
    foreign = tmp_path / "index" / name
    foreign.mkdir() if name == "photos" else foreign.write_text("keep")
    with pytest.raises(OutputError, match=f"index/{name}: is not part of the index"):
        index.save(tmp_path / "index", overwrite=True)
    assert foreign.exists()
    foreign.rename(tmp_path / "elsewhere")
    (tmp_path / "index" / ".DS_Store").write_text("of the system")
    with Writer(tmp_path / "index") as writer:  # leaves its lock
        writer.delete(["id-1"])
    index.save(tmp_path / "index", overwrite=True)
    assert len(Index.open(tmp_path / "index")) == 40


def test_a_hit_is_a_table_of_html():
    made = Hit("r<0>", "a & b", 1.0, confidence=87.3)._repr_html_()
    heads = "<tr><th>score</th><th>text</th><th>id</th></tr>"
    assert (
        made == f"<table>{heads}<tr><td>87 %</td><td>a &amp; b</td><td>r&lt;0&gt;</td></tr></table>"
    )


def test_an_index_that_is_dropped_lets_go_of_its_folder(index, tmp_path):
    index.save(tmp_path / "i")
    opened = Index.open(tmp_path / "i")
    opened.search(index.vectors[0], k=1, where={"n": {"$gt": 1}})
    store = weakref.ref(opened.store)
    del opened
    gc.collect()
    assert store() is None
