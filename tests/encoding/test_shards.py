"""Vectors in shards: exact rows, duplicates once, a kill costs one shard; tables of vectors."""

import json
import math
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from openers import vectors

from contrasent.encoding import shards
from contrasent.encoding.shards import (
    GROUP,
    TYPES,
    Seen,
    TableWriter,
    encode_shards,
    hashes,
    join_shards,
    read_manifest,
    to_int8,
)
from contrasent.errors import InputError, OutputError

FACTS = {"model": "made up"}
TEXTS = [f"text {number * number % 397}" for number in range(250)]


class Counted:
    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return vectors(texts)


def run(folder, encode, texts=TEXTS, **options):
    given = {"facts": FACTS, "dimension": 3, "rows": 20, **options}
    return encode_shards(folder, encode, iter(texts), **given)


def stored(folder):
    join_shards(whole := folder.with_name("whole.npy"), folder, read_manifest(folder))
    return np.load(whole)


def test_rows_are_exact_and_equal_texts_are_computed_once(tmp_path):
    encode = Counted()
    manifest = run(tmp_path / "v", encode, keep_texts=True)
    assert np.array_equal(stored(tmp_path / "v"), vectors(TEXTS))
    join_shards(tmp_path / "v.parquet", tmp_path / "v", manifest)
    assert pq.read_table(tmp_path / "v.parquet").column("text").to_pylist() == TEXTS
    assert manifest.complete
    assert [shard.rows for shard in manifest.shards] == [20] * 12 + [10]
    assert sorted(encode.texts) == sorted(set(TEXTS))


def test_other_texts_settings_or_writers_are_refused(tmp_path):
    run(tmp_path / "v", vectors)
    with pytest.raises(InputError, match="made of other texts"):
        run(tmp_path / "v", vectors, ["text 5", *TEXTS[1:]])
    with pytest.raises(InputError, match="250 vectors and the input has 240"):
        run(tmp_path / "v", vectors, TEXTS[:240])
    with pytest.raises(OutputError, match=r"other settings \(model\)"):
        run(tmp_path / "v", vectors, facts={"model": "another"})

    def inside(texts):
        with pytest.raises(OutputError, match="another process"):
            run(tmp_path / "w", vectors)
        return vectors(texts)

    run(tmp_path / "w", inside, TEXTS[:20])
    (tmp_path / "v" / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="no manifest of vectors"):
        run(tmp_path / "v", vectors)


def test_beyond_the_bound_texts_are_computed_again_and_right(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MOST", 7)
    encode = Counted()
    run(tmp_path / "v", encode)
    assert np.array_equal(stored(tmp_path / "v"), vectors(TEXTS))
    assert len(encode.texts) > len(set(TEXTS))


def test_seen_is_a_dictionary_of_first_rows():
    random = np.random.default_rng(0)
    seen, plain, row = Seen(), {}, 0
    for _ in range(30):
        block = [str(n) for n in random.integers(0, 400, random.integers(1, 60))]
        wanted = [plain.get(text, -1) for text in block]
        assert seen.find(hashes(block)).tolist() == wanted
        seen.add(hashes(block), row)
        for text in block:
            plain.setdefault(text, row)
            row += 1
    assert seen.find(np.array([[seen.high[3], seen.low[3] + 1]], np.uint64)).tolist() == [-1]


PROGRAM = """
import sys, time
import numpy as np
from contrasent.encoding.shards import encode_shards
def encode(texts):
    with open(sys.argv[2], "a") as log:
        log.write("".join(t + "\\n" for t in texts))
    time.sleep(0.02)
    numbers = [int(t.split()[1]) for t in texts]
    return np.array([[len(t), n, 1 / (1 + n)] for t, n in zip(texts, numbers)], np.float32)
texts = (f"text {n * n % 4999}" for n in range(3000))
encode_shards(__import__("pathlib").Path(sys.argv[1]), encode, texts,
              facts={"model": "made up"}, dimension=3, rows=50, keep_texts=True)
"""


def test_killed_at_any_time_it_ends_row_exact_with_one_shard_repeated(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "v"), str(log)]
    manifest = tmp_path / "v" / "manifest.json"
    kills = 0
    for number in range(5):
        process = subprocess.Popen(command)
        done = len(json.loads(manifest.read_text())["shards"]) if manifest.exists() else 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if manifest.exists() and len(json.loads(manifest.read_text())["shards"]) > done + 2:
                time.sleep(0.007 * number)
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                break
    assert kills == 5
    assert not read_manifest(tmp_path / "v").complete
    (tmp_path / "v" / "shard-000099.npy").write_bytes(b"written, but not named yet")
    subprocess.run(command, check=True)
    texts = [f"text {n * n % 4999}" for n in range(3000)]
    assert np.array_equal(stored(tmp_path / "v"), vectors(texts))
    computed = log.read_text().split("\n")[:-1]
    # A kill repeats at most the shard that was being computed, of 50 texts.
    assert len(set(computed)) == len(set(texts))
    assert len(computed) - len(set(computed)) <= 50 * kills
    assert not [p for p in (tmp_path / "v").iterdir() if p.name.startswith((".shard", ".manif"))]
    assert not (tmp_path / "v" / "shard-000099.npy").exists()
    assert (tmp_path / "v" / "shard-000000.npy").stat().st_size == 128 + 50 * 3 * 4


VECTORS = np.random.default_rng(5).normal(size=(40, 24)).astype(np.float32)
IDS = [f"k{number}" for number in range(40)]


def write(path, dtype="float32", vectors=VECTORS):
    size = vectors.shape[1]
    with path.open("wb") as stream, TableWriter(stream, size, dtype, texts=True) as writer:
        for start in range(0, len(vectors), 25):
            rows = slice(start, start + 25)
            writer.append(vectors[rows], ids=IDS[rows], texts=TEXTS[:40][rows])
        writer.finish({"model": "made up"})
    return path


def wanted(dtype):
    """What is stored, a number at a time."""
    if dtype == "float32":
        return VECTORS.tolist()
    if dtype == "float16":
        return [[float(np.float16(x)) for x in row] for row in VECTORS]
    if dtype == "binary":
        bits = [["1" if x > 0 else "0" for x in row] for row in VECTORS]
        return [[int("".join(row[at : at + 8]), 2) for at in range(0, 24, 8)] for row in bits]
    found = []
    for row in VECTORS.tolist():
        scale = max(abs(x) for x in row) / 127
        found.append([round(x / scale) for x in row])
    return found


@pytest.mark.parametrize("dtype", TYPES)
def test_pyarrow_reads_what_was_written(tmp_path, dtype):
    table = pq.read_table(write(tmp_path / "v.parquet", dtype))
    assert table.column("id").to_pylist() == IDS
    assert table.column("text").to_pylist() == TEXTS[:40]
    assert table.column("vector").to_pylist() == wanted(dtype)
    kind = table.schema.field("vector").type
    assert pa.types.is_fixed_size_list(kind)
    assert kind.list_size == (3 if dtype == "binary" else 24)
    assert ("scale" in table.column_names) == (dtype == "int8")
    footer = pq.read_metadata(tmp_path / "v.parquet")
    assert json.loads(footer.metadata[b"contrasent"]) == {"model": "made up"}
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [25, 15]
    column = footer.row_group(0).column(2)
    assert column.has_offset_index
    assert footer.row_group(0).column(0).has_column_index


def test_row_groups_are_of_bounded_size(tmp_path):
    vectors = np.zeros((GROUP + 3, 1), np.float32)
    with (tmp_path / "v.parquet").open("wb") as stream, TableWriter(stream, 1, ids=False) as writer:
        writer.append(vectors)
        writer.finish({})
    footer = pq.read_metadata(tmp_path / "v.parquet")
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [GROUP, 3]


@pytest.mark.parametrize("dtype", TYPES)
def test_duckdb_reads_it(tmp_path, dtype):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = write(tmp_path / "v.parquet", dtype)
    rows = duckdb.sql(f"select id, text, vector from read_parquet('{path}')").fetchall()
    assert [row[0] for row in rows] == IDS
    assert [list(row[2]) for row in rows] == wanted(dtype)


@given(arrays(np.float32, (4, 5), elements=st.floats(-1024, 1024, width=32)))
def test_int8_is_half_a_step_off_at_most(vectors):
    numbers, scales = to_int8(vectors)
    for row, integers, scale in zip(
        vectors.tolist(), numbers.tolist(), scales.tolist(), strict=True
    ):
        largest = max(abs(x) for x in row)
        assert math.isclose(scale * 127, largest, rel_tol=1e-6, abs_tol=1e-40)
        for x, n in zip(row, integers, strict=True):
            assert abs(n * scale - x) <= 0.5001 * scale + 1e-40
