"""Near-duplicates against plain loops over all pairs."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_states import logged

from commands import run
from contrasent.cli.app import run as app_run
from contrasent.errors import OptionError, OutputError
from contrasent.indexing.build import index_folder
from contrasent.indexing.contents import near_duplicates
from contrasent.indexing.following import sync_index
from contrasent.search.index import Index
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
@given(angles, st.integers(1, 30))
def test_near_duplicates(degrees, away):
    vectors = on_circle(degrees)
    threshold = float(np.cos(np.radians(5 * away + 2.5)))
    kept, partner = [], {}
    for at, vector in enumerate(vectors):
        close = [(cosine(vector, vectors[k]), -k) for k in kept]
        if close and max(close)[0] >= threshold:
            partner[at] = max(close)[0]
        else:
            kept.append(at)
    found, pairs = near_duplicates(build(vectors), threshold)
    assert found.tolist() == kept
    assert {p.second: p.score for p in pairs} == pytest.approx(partner, abs=1e-5)
    for pair in pairs:
        assert pair.first in kept
        assert pair.first < pair.second
        assert cosine(vectors[pair.first], vectors[pair.second]) == pytest.approx(
            pair.score, abs=1e-5
        )


def test_duplicates_of_rows_in_other_blocks():
    """9,500 rows are compared a thousand at a time, with eight thousand that are kept."""
    vectors = np.random.default_rng(0).normal(size=(9500, 16)).astype(np.float32)
    repeats = {700: 5, 3000: 2999, 9000: 10, 9400: 9001, 9499: 8500}
    vectors[[*repeats]] = vectors[[*repeats.values()]]
    kept, pairs = near_duplicates(build(vectors), 0.9999)
    assert {pair.second: pair.first for pair in pairs} == repeats
    assert len(kept) == 9500 - len(repeats) and not {*kept.tolist()} & {*repeats}


def test_deleted_rows_take_no_part(tmp_path):
    build([[1, 0], [1, 0.01], [0, 1]]).save(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.delete(["0"])
    index = Index.open(tmp_path / "index")
    kept, pairs = near_duplicates(index, 0.9)
    assert (kept.tolist(), pairs) == ([1, 2], [])


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
    assert logged(folder) == 0
    assert len(Index.open(folder)) == 3
    assert "0 near-duplicates" in run("dedupe", folder)
    with pytest.raises(OutputError, match="exists"):
        run("dedupe", folder, "-o", tmp_path / "d.jsonl")
    with pytest.raises(OptionError, match="jsonl"):
        run("dedupe", folder, "-o", tmp_path / "d.txt")
    with pytest.raises(OptionError, match="less than or equal to 1"):
        app_run(["dedupe", str(folder), "--min-cosine", "2"])


def test_a_document_that_dedupe_removed_stays_away_as_one_removed_by_hand(models, tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("a.md", "b.md", "c.md"):
        text = "Roses want sun." if name == "c.md" else "The ferry leaves at noon."
        (tmp_path / "d" / name).write_text(f"{text}\n")
    index_folder(tmp_path / "d", tmp_path / "i", model=models / "mean").index.close()
    assert "1 near-duplicates removed" in run(
        "dedupe", tmp_path / "i", "--remove", "--min-cosine", 0.9999
    )
    assert str(sync_index(tmp_path / "i")).endswith("2 unchanged, 1 removed manually before")
