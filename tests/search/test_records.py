"""Rows of parquet that come with their vectors."""

import json

import numpy as np
import pytest

from contrasent.errors import InputError
from contrasent.search.records import Records, TableColumns, blocks

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = {
    "id": ["a", "b", "c"],
    "text": ["A boat.", "A train.", "A lamp."],
    "vector": [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]],
    "year": [1999, 2005, None],
    "place": ["Rome", None, "Oslo"],
}


@pytest.mark.parametrize(("metadata", "names"), [
    ((), ()), (("year",), ("year",)), (("place", "year"), ("place", "year")),
    (("*",), ("year", "place")),
])  # fmt: skip
def test_the_columns_that_are_metadata(tmp_path, metadata, names):
    parquet.write_table(arrow.table(ROWS), tmp_path / "rows.parquet")
    columns = TableColumns(metadata=metadata, encoded=True)
    records = columns.read(str(tmp_path / "rows.parquet"))
    assert not isinstance(records, Records)
    read = list(blocks(records, 2))
    assert [len(block.texts) for block in read] == [2, 1]
    assert [name for block in read for name in block.ids] == ROWS["id"]
    assert [text for block in read for text in block.texts] == ROWS["text"]
    assert np.concatenate([block.vectors for block in read]) == pytest.approx(
        np.array(ROWS["vector"], np.float32)
    )
    expected = [{name: ROWS[name][row] for name in names} or None for row in range(3)]
    assert [one for block in read for one in block.metadata] == expected


@pytest.mark.parametrize("metadata", [("*",), ("year", "place")])
def test_rows_of_jsonl_may_lack_keys_that_later_ones_have(tmp_path, metadata):
    rows = [{"text": "A lamp."}] * 300 + [{"text": "A boat.", "year": 1999}, {"place": "Rome"}]
    rows[-1] |= {"text": "A train."}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = list(TableColumns("text", metadata=metadata).read(str(tmp_path / "rows.jsonl")))
    assert [one for _, _, one in read[299:]] == [{}, {"year": 1999}, {"place": "Rome"}]


def test_metadata_is_of_whole_characters_and_an_id_that_is_not_names_its_row(tmp_path):
    broken = {"text": "A lamp.", "n": "x\0\\u0000\ud83dy", "k\ud83d": [1]}
    rows = [{"id": name} | broken for name in ("a", "a\ud83d")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = TableColumns("text", identity="id", metadata=("*",)).read(str(tmp_path / "rows.jsonl"))
    rows = iter(read)
    assert next(rows) == ("A lamp.", "a", {"n": "x\\u0000y", "k": [1]})
    with pytest.raises(InputError, match=r"rows.jsonl:2: half a surrogate pair"):
        next(rows)


def test_metadata_that_is_no_json_names_its_row(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"text": "A lamp.", "n": 1}\n{"text": "A cup.", "n": NaN}\n'
    )
    with pytest.raises(InputError, match=r"rows.jsonl:2: metadata {'n': nan} holds NaN"):
        list(TableColumns("text", metadata=("n",)).read(str(tmp_path / "rows.jsonl")))
    rows = {**ROWS, "year": [1.0, float("nan"), None]}
    parquet.write_table(arrow.table(rows), tmp_path / "rows.parquet")
    records = TableColumns(metadata=("year",), encoded=True).read(str(tmp_path / "rows.parquet"))
    with pytest.raises(InputError, match=r"rows.parquet, rows up to 2: .*holds NaN"):
        list(blocks(records, 2))


@pytest.mark.parametrize("missing", ["text", "id", "year"])
def test_parquet_files_of_different_columns_are_a_line(tmp_path, missing):
    parquet.write_table(arrow.table(ROWS), tmp_path / "a.parquet")
    parquet.write_table(arrow.table(ROWS).drop([missing]), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=f"b.parquet: has no column '{missing}', which other"):
        TableColumns(metadata=("*",), encoded=True).read(str(tmp_path))


def test_a_file_without_vectors_is_no_other_model(tmp_path):
    facts = {"contrasent": json.dumps({"model": "one"})}
    parquet.write_table(arrow.table(ROWS).replace_schema_metadata(facts), tmp_path / "a.parquet")
    parquet.write_table(arrow.table(ROWS).drop(["vector"]), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: has no column 'vector'"):
        TableColumns(encoded=True).read(str(tmp_path))
    parquet.write_table(arrow.table(ROWS), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="vectors of several models, 'one' and None"):
        TableColumns(encoded=True).read(str(tmp_path))
