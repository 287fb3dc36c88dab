"""Files of vectors: of a stream, and of shards."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from openers import vectors

from contrasent.encoding.shards import GROUP, TYPES, TableWriter, to_int8, write_vectors

TEXTS = [f"text {number * number % 397}" for number in range(250)]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_file_holds_the_blocks_of_a_stream(tmp_path, suffix):
    blocks = (TEXTS[start : start + 20] for start in range(0, 250, 20))
    target = tmp_path / f"v{suffix}"
    assert write_vectors(target, ((texts, vectors(texts)) for texts in blocks), 3) == 250
    if suffix == ".npy":
        np.save(tmp_path / "whole.npy", vectors(TEXTS))
        assert target.read_bytes() == (tmp_path / "whole.npy").read_bytes()
        return
    table = pq.read_table(target)
    assert table.column("text").to_pylist() == TEXTS
    assert np.array_equal(table.column("vector").to_pylist(), vectors(TEXTS))


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
