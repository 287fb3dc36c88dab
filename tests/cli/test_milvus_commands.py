"""Every command that takes an index, on one in Milvus (a local file)."""

import json
import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))
from serving import get_from, post_to, running

from commands import printed
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import InputError, OptionError, OutputError
from contrasent.search.opening import open_index
from contrasent.serve.app import create_app

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")
pytestmark = pytest.mark.filterwarnings("ignore")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def model(models):
    return models / "mean"


@pytest.fixture
def made(model, sentences, tmp_path, monkeypatch):
    """The index, and what there is to add to it: one new row, and one that replaces another."""
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    rows = [{"id": f"n{n}", "text": text, "n": n} for n, text in enumerate(sentences[:60])]
    rows.append({"id": "twin", "text": sentences[7], "n": 100})
    file = write(tmp_path / "rows.jsonl", rows)
    folder = tmp_path / "index"
    options = ("--id", "id", "--metadata", "n")
    monkeypatch.chdir(tmp_path)
    place = ("--milvus-uri", "rows.db")
    assert printed("index", file, "--model", model, "-o", folder, *place, *options)["texts"] == 61
    monkeypatch.chdir(model)  # commands may be given anywhere
    new = [{"id": "n3", "text": sentences[70], "n": 3}, {"id": "x", "text": sentences[71], "n": 0}]
    return folder, write(tmp_path / "new.jsonl", new), options


def test_change_and_search(made, model, sentences):
    folder, new, options = made
    with pytest.raises(OptionError, match="'n3': is in the index already"):
        printed("index", new, "--model", model, "-o", folder, "--add", *options)
    told = printed("index", new, "--model", model, "-o", folder, "--upsert", *options)
    assert told["texts"] == 62
    hits = printed("search", folder, sentences[70], "-k", 1)["results"][0]["hits"]
    assert [(hit["id"], hit["metadata"]) for hit in hits] == [("n3", {"n": 3})]
    told = printed("index", folder, "--remove-where", "n>=50", "--remove", "n1")
    assert (told["removed"], told["texts"]) == (12, 50)


def test_dedupe(made):
    folder, _, _ = made
    found = printed("dedupe", folder, "--min-cosine", 0.9999, "--remove")
    assert [pair["repeat"]["id"] for pair in found["pairs"]] == ["twin"]
    assert (found["near_duplicates"], found["removed"]) == (1, 1)
    assert len(open_index(folder)) == 60


def test_vectors_of_encode_are_loaded_and_words_are_searched_too(model, sentences, tmp_path):
    """The files that ``encode`` writes, in Milvus and in a folder; the same options search both."""
    texts = sorted({*sentences[:80]})
    file = write(tmp_path / "rows.jsonl", [{"text": text} for text in texts])
    vectors = tmp_path / "vectors.parquet"
    printed("encode", model, file, "-o", vectors)
    options = ("--encoded", "--bm25-weight", 0.5)
    for name, place in (("milvus", ("--milvus-uri", tmp_path / "v.db")), ("folder", ())):
        folder = tmp_path / name
        made = printed("index", vectors, "--model", model, "-o", folder, *place, *options)
        assert (made["texts"], made["bm25_weight"]) == (len(texts), 0.5)
        found = printed("search", folder, texts[11], "-k", 3)
        assert found["bm25_weight"] == 0.5 and found["results"][0]["hits"][0]["text"] == texts[11]
        plain = printed("search", folder, texts[11], "-k", 3, "--vectors-only")
        assert plain["results"][0]["hits"][0]["text"] == texts[11]
    index = open_index(tmp_path / "milvus")
    with running(create_app(TorchEncoder.load(model), "mini", index=index)) as url:
        assert get_from(f"{url}/health").json()["texts"] == len(texts)
        answer = post_to(f"{url}/search", json={"query": texts[5]})
        (result,) = answer.json()["results"]
        assert result["hits"][0]["text"] == texts[5]
    with pytest.raises(OptionError, match="cannot be combined with --add"):
        printed("index", vectors, "--model", model, "-o", folder, "--add", "--encoded")


def test_what_makes_no_sense_is_refused_in_a_line(made, model, tmp_path):
    folder, new, options = made
    with pytest.raises(OptionError, match="approximately"):
        printed("search", folder, "x", "--all-rows")
    other = tmp_path / "other"
    printed("index", new, "--model", model, "-o", other, *options)
    made_with = ("index", new, "--model", model, *options)
    for place, more, error, words in (
        (folder, ("--overwrite", "--milvus-uri", "x.db"), OutputError, "drop its collection"),
        (other, ("--add", "--milvus-uri", "x.db"), OptionError, "cannot be combined with --add"),
    ):
        with pytest.raises(error, match=words):
            printed(*made_with, "-o", place, *more)
    (folder / "milvus.json").write_text('{"uri": "", "collection": "c", "manifest": {"model": 3}}')
    for command in (("dedupe", folder), ("index", folder, "--remove", "a")):
        with pytest.raises(InputError, match=r"milvus\.json: is missing or damaged"):
            printed(*command)
