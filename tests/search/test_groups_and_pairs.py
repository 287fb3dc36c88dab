"""Near-duplicates, paraphrases and clusters against plain loops over all pairs."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import run
from contrasent.errors import OptionError, OutputError
from contrasent.search import pairs as pairs_
from contrasent.search.cluster import kmeans, leaders
from contrasent.search.index import Index
from contrasent.search.pairs import near_duplicates, paraphrases
from contrasent.search.writer import Writer


def build(vectors, texts=None):
    array = np.array(vectors, dtype=np.float32)
    names = texts or [f"text {n}" for n in range(len(array))]
    return Index.build(lambda _: array, names)


def cosine(a, b):
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return float(sum(a * b) / (sum(a * a) * sum(b * b)) ** 0.5)


angles = st.lists(st.integers(0, 71), min_size=1, max_size=25)


def on_circle(degrees):
    return [[np.cos(np.radians(5 * d)), np.sin(np.radians(5 * d))] for d in degrees]


@settings(max_examples=80, deadline=None)
@given(angles, st.integers(1, 30), st.integers(1, 5), st.integers(1, 5))
def test_near_duplicates(degrees, away, rows, columns):
    vectors = on_circle(degrees)
    threshold = float(np.cos(np.radians(5 * away + 2.5)))
    kept, partner = [], {}
    for at, vector in enumerate(vectors):
        close = [(cosine(vector, vectors[k]), -k) for k in kept]
        if close and max(close)[0] >= threshold:
            partner[at] = max(close)[0]
        else:
            kept.append(at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs_, "ROWS", rows)
        patch.setattr(pairs_, "COLUMNS", columns)
        found = near_duplicates(build(vectors), threshold)
    assert found.kept.tolist() == kept
    assert {p.second: p.score for p in found.pairs} == pytest.approx(partner, abs=1e-5)
    for pair in found.pairs:
        assert pair.first in kept
        assert pair.first < pair.second
        assert cosine(vectors[pair.first], vectors[pair.second]) == pytest.approx(
            pair.score, abs=1e-5
        )


@settings(max_examples=80, deadline=None)
@given(angles, st.integers(1, 40), st.integers(1, 5), st.integers(1, 5))
def test_paraphrases(degrees, limit, rows, columns):
    vectors = on_circle(degrees)
    every = sorted(
        (cosine(vectors[a], vectors[b]) for b in range(len(vectors)) for a in range(b)),
        reverse=True,
    )
    wanted = [score for score in every if score >= 0.3][:limit]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs_, "ROWS", rows)
        patch.setattr(pairs_, "COLUMNS", columns)
        found = paraphrases(build(vectors), limit=limit, threshold=0.3)
    assert [pair.score for pair in found] == pytest.approx(wanted, abs=1e-5)
    assert len({(p.first, p.second) for p in found}) == len(found)
    assert all(p.first < p.second for p in found)


def test_the_same_text_is_no_paraphrase():
    index = build([[1, 0], [1, 0], [1, 0.1]], ["a", "a", "b"])
    assert [(p.first, p.second) for p in paraphrases(index)] == [(0, 2), (1, 2)]
    assert len(paraphrases(index, identical=True)) == 3


def test_deleted_rows_take_no_part(tmp_path):
    build([[1, 0], [1, 0.01], [0, 1]]).save(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.delete(["0"])
    index = Index.open(tmp_path / "index")
    assert near_duplicates(index, 0.9).pairs == ()
    assert {(p.first, p.second) for p in paraphrases(index, threshold=-1)} <= {(0, 1), (1, 2)}
    assert len(kmeans(index, 2).rows) == 2


def blobs(count=300, seed=0):
    rng = np.random.default_rng(seed)
    middles = np.eye(4, 16)
    labels = rng.integers(0, 4, count)
    return middles[labels] + rng.normal(size=(count, 16)) * 0.08, labels


def test_kmeans_finds_what_is_there():
    vectors, labels = blobs()
    found = kmeans(build(vectors), 4)
    pairs = {(int(a), int(b)) for a, b in zip(labels, found.labels, strict=True)}
    assert len(pairs) == 4
    sizes = np.bincount(found.labels)
    assert (np.diff(sizes) <= 0).all()
    for at in range(0, 300, 37):
        centre = found.centres[found.labels[at]]
        assert found.scores[at] == pytest.approx(cosine(vectors[at], centre), abs=1e-5)
    members = found.members(2)
    assert (np.diff(found.scores[members]) <= 0).all()
    again = kmeans(build(vectors), 4)
    assert (again.labels == found.labels).all()


def test_kmeans_edges():
    one = kmeans(build([[1, 0], [0, 1], [1, 1]]), 1)
    assert set(one.labels.tolist()) == {0}
    copies = kmeans(build([[1, 0]] * 5), 3)
    assert len(copies.labels) == 5
    assert sorted(np.unique(copies.labels)) == list(range(len(copies.centres)))
    for wrong in (0, 4):
        with pytest.raises(OptionError, match="1 to 3"):
            kmeans(build([[1, 0], [0, 1], [1, 1]]), wrong)


@settings(max_examples=60, deadline=None)
@given(angles, st.integers(1, 20))
def test_leaders(degrees, away):
    vectors = on_circle(degrees)
    threshold = float(np.cos(np.radians(5 * away + 2.5)))
    first, joined = [], []
    for vector in vectors:
        close = [cosine(vector, vectors[leader]) for leader in first]
        if close and max(close) >= threshold:
            joined.append(max(close))
        else:
            first.append(len(joined))
            joined.append(1.0)
    found = leaders(build(vectors), threshold)
    assert len(found.centres) == len(first)
    assert found.scores == pytest.approx(np.array(joined), abs=1e-5)


def test_blobs_by_leaders():
    vectors, labels = blobs()
    found = leaders(build(vectors), 0.7)
    assert len({(int(a), int(b)) for a, b in zip(labels, found.labels, strict=True)}) == 4


# ---------------------------------------------------------------------- commands


@pytest.fixture
def folder(tmp_path):
    vectors = [[1, 0, 0], [0.999, 0.01, 0], [0, 1, 0], [0, 0.98, 0.2], [0, 0, 1]]
    build(vectors, ["cat", "the cat", "dog", "hound", "fish"]).save(tmp_path / "index")
    return tmp_path / "index"


def test_dedupe_command(folder, tmp_path):
    said = json.loads(run("dedupe", folder, "--json", "-o", tmp_path / "d.jsonl"))
    assert (said["texts"], said["kept"], said["near_duplicates"]) == (5, 3, 2)
    assert said["pairs"][0]["kept"]["text"] == "cat"
    rows = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert [row["repeats"] for row in rows] == [None, "0", None, "2", None]
    assert "2 near-duplicates found among 5" in run("dedupe", folder)
    assert "2 near-duplicates removed" in run("dedupe", folder, "--remove")
    assert len(Index.open(folder)) == 3
    assert "0 near-duplicates" in run("dedupe", folder)
    with pytest.raises(OutputError, match="exists"):
        run("dedupe", folder, "-o", tmp_path / "d.jsonl")
    with pytest.raises(OptionError, match="jsonl"):
        run("dedupe", folder, "-o", tmp_path / "d.txt")
    with pytest.raises(OptionError, match="-1 to 1"):
        run("dedupe", folder, "--threshold", 2)


def test_mine_command(folder, tmp_path):
    said = json.loads(run("mine", folder, "--json", "-o", tmp_path / "p.jsonl"))
    assert [(row["first"], row["second"]) for row in said["pairs"]] == [
        ("cat", "the cat"),
        ("dog", "hound"),
    ]
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert rows == said["pairs"]
    assert "1 pairs among 5" in run("mine", folder, "--limit", 1)


def test_mined_pairs_are_a_corpus(folder, tmp_path):
    from contrasent.text.corpus import open_corpus

    run("mine", folder, "-o", tmp_path / "p.jsonl")
    corpus = open_corpus(tmp_path / "p.jsonl", columns=["first", "second"])
    assert list(corpus) == [("cat", "the cat"), ("dog", "hound")]


def test_cluster_command(folder, tmp_path):
    said = json.loads(run("cluster", folder, "-c", 3, "--json", "-o", tmp_path / "c.jsonl"))
    assert [group["texts"] for group in said["clusters"]] == [2, 2, 1]
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert rows[0]["cluster"] == rows[1]["cluster"] != rows[2]["cluster"]
    assert "clusters of 5 texts" in run("cluster", folder)
    assert "3 clusters of 5" in run("cluster", folder, "--threshold", 0.9)
    with pytest.raises(OptionError, match="choose one"):
        run("cluster", folder, "-c", 2, "--threshold", 0.5)
    with pytest.raises(OptionError, match="1 to 5"):
        run("cluster", folder, "-c", 6)
