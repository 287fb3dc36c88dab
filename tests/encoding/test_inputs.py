"""Inputs that are divided by counting: every row in one shard, none read twice or left out."""

import csv
import gzip
import json
import os

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrasent.encoding.inputs import plan
from contrasent.errors import InputError, OptionError, UserError

TEXTS = [f"row {number} of a list" for number in range(57)]


def write_parquet(path, texts, first=0, group=7):
    table = pa.table({"key": [f"k{first + n}" for n in range(len(texts))], "body": texts})
    pq.write_table(table, path, row_group_size=group)


def rows(planned):
    return [row for shard in range(planned.shards) for row in planned.read(shard)]


@pytest.mark.parametrize("size", [1, 5, 7, 20, 57, 1000])
def test_shards_of_several_parquet_files_are_the_rows_in_order(tmp_path, size):
    for name, (first, last) in {"a": (0, 20), "b": (20, 21), "c": (21, 57)}.items():
        write_parquet(tmp_path / f"{name}.parquet", TEXTS[first:last], first)
    found = plan(str(tmp_path / "*.parquet"), shard_rows=size, text="body", identity="key")
    assert (found.rows, found.shards) == (57, -(-57 // size))
    assert rows(found) == [(text, f"k{number}") for number, text in enumerate(TEXTS)]
    assert [len(list(found.read(n))) for n in range(found.shards)] == [
        found.size(n) for n in range(found.shards)
    ]
    unnamed = plan(str(tmp_path), shard_rows=size, text="body")
    assert [name for _, name in rows(unnamed)] == [str(n) for n in range(57)]


def test_only_the_row_groups_of_a_shard_are_read(tmp_path):
    """The others are damaged."""
    path = tmp_path / "a.parquet"
    write_parquet(path, TEXTS, group=10)
    groups, data = pq.read_metadata(path), bytearray(path.read_bytes())
    for number in range(groups.num_row_groups):
        for column in range(groups.num_columns if number != 3 else 0):
            chunk = groups.row_group(number).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(data)
    found = plan(str(tmp_path), shard_rows=10, text="body")
    assert [text for text, _ in found.read(3)] == TEXTS[30:40]
    with pytest.raises((InputError, OSError)):
        list(found.read(2))


def test_other_formats_are_counted_and_blank_lines_are_no_rows(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n two \nthree\n")
    found = plan(str(tmp_path / "a.txt"), shard_rows=2)
    assert rows(found) == [("one", "0"), ("two", "1"), ("three", "2")]
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps({"n": n, "text": t}) + "\n" for n, t in enumerate(TEXTS))
    found = plan(str(tmp_path / "b.jsonl.gz"), shard_rows=10, identity="n")
    assert rows(found) == [(text, str(number)) for number, text in enumerate(TEXTS)]
    with (tmp_path / "c.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["key", "body"], ["x", "a,\nb"], ["y", "c"]])
    assert rows(plan(str(tmp_path / "c.csv"), shard_rows=1, text="body", identity="key")) == [
        ("a,\nb", "x"),
        ("c", "y"),
    ]
    assert rows(plan(str(tmp_path / "c.csv"), shard_rows=9, text=1))[0] == ("a,\nb", "0")


def test_a_url_is_read_as_a_file_is(tmp_path):
    system = fsspec.filesystem("memory")
    write_parquet(tmp_path / "a.parquet", TEXTS)
    system.put_file(str(tmp_path / "a.parquet"), "/bucket/in/a.parquet")
    system.pipe_file("/bucket/lines/b.txt", b"one\ntwo\n")
    found = plan("memory://bucket/in/*.parquet", shard_rows=20, text="body", identity="key")
    assert rows(found) == [(text, f"k{number}") for number, text in enumerate(TEXTS)]
    assert rows(plan("memory://bucket/lines", shard_rows=9)) == [("one", "0"), ("two", "1")]
    with pytest.raises(InputError, match="no such file"):
        plan("memory://bucket/none/*.parquet", shard_rows=20)
    system.rm("/bucket", recursive=True)


def test_a_file_that_has_lost_rows_is_named(tmp_path):
    write_parquet(tmp_path / "a.parquet", TEXTS)
    first = plan(str(tmp_path), shard_rows=20, text="body")
    write_parquet(tmp_path / "a.parquet", TEXTS[:30])
    assert plan(str(tmp_path), shard_rows=20, text="body").rows == 30
    with pytest.raises(InputError, match="has changed since the run started"):
        list(first.read(2))


def test_a_file_that_is_written_again_between_shards_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    found = plan(str(path), shard_rows=1)
    assert list(found.read(0)) == [("one", "0")]
    rows, began = found.read(1), path.stat()
    assert next(rows) == ("two", "1")
    path.write_text("one\nsix\n")  # as many rows and bytes
    os.utime(path, ns=(began.st_atime_ns, began.st_mtime_ns + 1_000_000))
    with pytest.raises(InputError, match=r"a\.txt: has changed"):
        list(rows)


@pytest.mark.parametrize(("content", "options", "error", "words"), [
    ("a\n\x00b\n", {}, InputError, r"a\.jsonl:"),
    ('{"text": "a"}\n{"text": 3}\n', {}, InputError, r"a\.jsonl:2: .*contains 3"),
    ('{"text": "a"}\n{"text": " "}\n', {}, InputError, r"a\.jsonl:2: blank"),
    ('{"text": "a", "id": null}\n', {"identity": "id"}, InputError, r":1: the id is empty"),
    ('{"one": "a", "two": "b"}\n', {}, InputError, "choose one with --column"),
    ('{"one": "a", "two": "b"}\n', {"text": "tow"}, OptionError, "did you mean 'two'"),
    ("\n\n", {}, InputError, "contains no text"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path, content, options, error, words):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(error, match=words):
        rows(plan(str(tmp_path / "a.jsonl"), shard_rows=20, **options))


def test_what_cannot_be_divided_is_refused(tmp_path):
    with pytest.raises(OptionError, match="standard input"):
        plan("-", shard_rows=20)
    with pytest.raises(UserError, match="no such file"):
        plan(str(tmp_path / "none.parquet"), shard_rows=20)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="not a complete parquet file"):
        plan(str(tmp_path / "a.parquet"), shard_rows=20)
