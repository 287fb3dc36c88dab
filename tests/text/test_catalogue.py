"""The list of named data sets, and their rows as tables and files."""

import csv
import json
from collections import Counter

import pytest

from commands import invoke
from contrasent.errors import DataError, OptionError, OutputError
from contrasent.text.catalogue import entries, entry, locate, table
from contrasent.text.official import STS_TASKS


def test_every_set_is_listed_once():
    found = entries()
    assert Counter(e.kind for e in found) == {"similarity": 10, "transfer": 7, "captions": 1}
    assert len({e.name for e in found}) == 18
    assert set(STS_TASKS) <= {e.name for e in found}
    assert entry("STS12").rows == {"test": 750 + 750 + 459 + 750 + 399}
    assert entry("SICKR-all").rows == {"test": 9927}
    assert entry("MR").rows == {"all": 10662}
    assert entry("SST2").rows == {"train": 67349, "dev": 872, "test": 1821}
    assert entry("STSB").hub.startswith("mteb/stsbenchmark-sts@")
    with pytest.raises(OptionError, match="did you mean 'STSB'"):
        entry("STBS")


def test_where_a_set_is_read_from(tmp_path, monkeypatch):
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    assert locate(entry("MR"), tmp_path) == {"": ""}
    path = tmp_path / "downstream" / "MR" / "rt-polarity.pos"
    path.parent.mkdir(parents=True)
    path.touch()
    assert locate(entry("MR"), tmp_path) == {"": str(path)}
    told = locate(entry("STSB"), tmp_path)
    assert told == {"senteval": "", "raw": entry("STSB").hub}
    assert locate(entry("SICKR"), tmp_path) == {"senteval": "", "raw": ""}


def test_the_list_says_what_to_put_where(tmp_path):
    out = invoke("data", "list", "--data", tmp_path).stdout
    assert "STSB        similarity  train 5,749, dev 1,500, test 1,379" in out
    assert "put it at SentEval/downstream/TREC/train_5500.label" in out
    listed = json.loads(invoke("data", "list", "--data", tmp_path, "--json").stdout)
    assert len(listed) == 18
    with pytest.raises(OptionError, match="no such folder"):
        invoke("data", "list", "--data", tmp_path / "nowhere")


def trec(folder):
    """A data folder whose TREC has the official number of rows."""
    place = folder / "downstream" / "TREC"
    place.mkdir(parents=True)
    lines = [f"{('HUM', 'LOC')[i % 2]}:x What is number {i // 2} ?" for i in range(5452)]
    (place / "train_5500.label").write_text("\n".join(lines) + "\n")
    (place / "TREC_10.label").write_text("\n".join(lines[:500]) + "\n")
    return folder


def test_a_set_becomes_a_file_of_each_kind(tmp_path):
    folder = trec(tmp_path)
    asked = ("data", "get", "TREC", "--data", folder, "-o")
    invoke(*asked, tmp_path / "a.tsv")
    with (tmp_path / "a.tsv").open(newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))
    assert rows[0] == ["text", "label"]
    assert rows[2] == ["What is number 0 ?", "4"]
    assert len(rows) == 501
    invoke(*asked, tmp_path / "a.csv", "--split", "train")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 5453
    invoke(*asked, tmp_path / "a.jsonl")
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert first == {"text": "What is number 0 ?", "label": "3"}
    result = invoke(*asked, tmp_path / "a.txt", "--split", "train")
    assert "5452" not in result.output
    assert "2,726 rows" in result.output
    assert (tmp_path / "a.txt").read_text().splitlines()[1] == "What is number 1 ?"
    with pytest.raises(OutputError, match="exists"):
        invoke(*asked, tmp_path / "a.tsv")
    invoke(*asked, tmp_path / "a.tsv", "--overwrite")


def test_what_cannot_be_had_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    with pytest.raises(OptionError, match=r"must end in \.tsv"):
        invoke("data", "get", "TREC", "-o", tmp_path / "a.xls")
    with pytest.raises(OptionError, match="--split 'dev'"):
        table("TREC", split="dev")
    with pytest.raises(OptionError, match="one form only"):
        table("TREC", form="raw")
    with pytest.raises(OptionError, match=r"--form 'rw'.*did you mean 'raw'"):
        table("STSB", form="rw")
    with pytest.raises(DataError, match="put the file at"):
        invoke("data", "get", "MR", "-o", tmp_path / "a.tsv")
    assert not (tmp_path / "a.tsv").exists()


@pytest.mark.data
def test_every_set_that_is_here_has_its_official_rows(data_folder):
    counted = 0
    for found in entries():
        for split, count in found.rows.items():
            columns, rows = table(found.name, split=split, folder=data_folder)
            got = sum(len(row) == len(columns) for row in rows)
            assert got == count or found.kind == "captions"
            counted += 1
    # Years 5, STSB and SICKR 3 each, German and Spanish 2 each, SICKR-all 1; four sets without
    # splits, SST2 3, TREC and MRPC 2 each; captions 1.
    assert counted == 5 + 6 + 4 + 1 + 4 + 3 + 4 + 1
