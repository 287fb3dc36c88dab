"""Runs that would mislead in silence: what is said, or refused, before or in the first steps."""

import threading

import numpy as np
import pytest

from contrasent import Encoder
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError, TrainingError
from contrasent.files import read_object, write_object
from contrasent.text.tokens import TextKeys, Tokenizer
from contrasent.train.fit import fit, row_numbers
from contrasent.train.monitor import NO_GRADIENT, as_report

QUICK = {"max_steps": 2, "batch_size": 8, "pooling": "mean", "evaluate": "none"}


@pytest.fixture
def pairs(sentences):
    return list(zip(sentences[:40], sentences[60:100], strict=True))


@pytest.fixture
def start(bert, tmp_path):
    def start(corpus, method="simcse_supervised", **given):
        return fit(method, corpus, output_dir=tmp_path / "m", **{"base": bert} | QUICK | given)

    return start


@pytest.mark.parametrize(("given", "said"), [
    ({"rows": np.zeros(7, bool)}, r"rows 'bool of shape \(7,\)': .*a mask of 40 with at least"),
    ({"rows": np.zeros(40, bool)}, r"rows 'bool of shape \(40,\)': .*at least one true"),
    ({"rows": [1, 40, 41]}, "rows 40: must be from 0 to 39"),
    ({"rows": [0.5]}, "must be from 0"),
    ({"base": 7}, "base 'int': must be the name or the folder of a model"),
    ({"evaluate": lambda encode: None}, "evaluate None: must give a Report with a row or more"),
    ({"max_seq_length": 600}, "max_seq_length 600: must be from 3 to"),
    ({"query_prompt": "a lamp " * 30}, "leaves no room for a text"),
])  # fmt: skip
def test_arguments_that_cannot_be(start, pairs, given, said):
    with pytest.raises(OptionError, match=said):
        start(pairs, **given)


def test_masks_and_numbers_are_taken_for_what_they_are(start, pairs, tmp_path):
    mask = np.arange(40) < 20
    assert row_numbers(mask, 40).tolist() == list(range(20)) == row_numbers(range(20), 40).tolist()
    run = start(pairs, rows=mask, evaluate=lambda encode: 0.25)
    assert (run.score, run.metric) == (0.25, "score")
    card = (tmp_path / "m" / "README.md").read_text()
    assert '"rows": 20' in card and '"columns": "query: 0, positive: 1"' in card
    with pytest.raises(OptionError, match="a finite number"):
        as_report(float("nan"))


@pytest.mark.parametrize("side", [0, 1])
def test_a_run_without_gradient_says_so(start, pairs, caplog, tmp_path, side):
    same = [(pair[0], "ask the desk")[:: 1 if side else -1] for pair in pairs]
    start(same, max_steps=4)
    assert [line for line in caplog.messages if NO_GRADIENT in line] == [f"step 3: {NO_GRADIENT}"]
    assert "so nothing is learned" in (tmp_path / "m" / "README.md").read_text()
    caplog.clear()
    start(pairs, max_steps=4, overwrite=True)
    assert not any("gradient" in line for line in caplog.messages)


def test_scores_are_checked_before_the_first_step(start, pairs, tmp_path, caplog):
    rated = [(*pair, float(n == 39)) for n, pair in enumerate(pairs)]
    with pytest.raises(TrainingError, match="have the score 0, as 98 % of all do; add pairs"):
        start(rated, method="cosent", evaluate="heldout")
    with pytest.raises(TrainingError, match="all 40 scores are 2; training needs different"):
        start([(*pair, 2.0) for pair in pairs], method="cosent", evaluate="heldout")
    late = [(*pair, 5.0 if n == 39 else n / 40) for n, pair in enumerate(pairs)]
    with pytest.raises(TrainingError, match="score 5 is above 1"):
        start(late, method="cosine_regression")
    assert not (tmp_path / "m" / "run" / "log.jsonl").exists()
    lines = [f"{one}\t{two}\t{n % 5}" for n, (one, two) in enumerate(pairs)]
    (tmp_path / "own.tsv").write_text("\n".join(["first\tsecond\tscore", *lines]))
    start(tmp_path / "own.tsv", "cosent", evaluate=str(tmp_path / "own.tsv"), overwrite=True)
    assert any(
        "40 of the 40 pairs of" in line and "in the training data" in line
        for line in caplog.messages
    )


def test_equal_texts_are_those_with_equal_tokens(bert):
    tokenizer = Tokenizer.load(bert, max_seq_length=24)
    keys = TextKeys(tokenizer, True, ("find a lamp: ", ""))
    texts = ["The kettle", "the KETTLE", "the map", "the kettle " * 30, "the kettle " * 40]
    queries, documents = keys(texts, 0), keys(texts, 1)
    assert queries[0] == queries[1] == documents[0] != queries[2] == documents[2]
    assert documents[3] == documents[4] != documents[0]  # alike as far as they are read


def test_settings_of_models_are_honored_or_refused(bert, tmp_path, sentences):
    encoder = TorchEncoder.load(bert, pooling="mean", max_seq_length=8)
    encoder.save(tmp_path / "m")
    config = tmp_path / "m" / "tokenizer_config.json"
    write_object(config, read_object(config) | {"truncation_side": "left"})
    left = TorchEncoder.load(tmp_path / "m", check=False)
    long = " ".join(sentences[:6])
    assert left.tokenize([long])[0][0][-2] == left.tokenize([long.split()[-1]])[0][0][-2]
    left.save(tmp_path / "n")
    assert read_object(tmp_path / "n" / "tokenizer_config.json")["truncation_side"] == "left"
    assert np.allclose(TorchEncoder.load(tmp_path / "n").encode(long), left.encode(long), atol=1e-6)
    left.tokenizer.backend.save(str(tmp_path / "m" / "tokenizer.json"))  # which says left, too
    write_object(config, read_object(config) | {"truncation_side": "right"})
    right = TorchEncoder.load(tmp_path / "m", check=False)
    assert np.array_equal(right.tokenize([long])[0][0], encoder.tokenize([long])[0][0])
    stated = tmp_path / "m" / "config_sentence_transformers.json"
    write_object(stated, read_object(stated) | {"similarity_fn_name": "dot"})
    dot = TorchEncoder.load(tmp_path / "m", check=False)
    one, two = dot.encode(sentences[:2])
    assert dot.similarity(*sentences[:2]) == pytest.approx(float(one @ two), rel=1e-5)
    dot.save(tmp_path / "o")
    saved = tmp_path / "o" / "config_sentence_transformers.json"
    assert read_object(saved)["similarity_fn_name"] == "dot"
    write_object(stated, read_object(stated) | {"similarity_fn_name": "manhattan"})
    with pytest.raises(ModelError, match="similarity_fn_name 'manhattan' is not supported"):
        TorchEncoder.load(tmp_path / "m", check=False)


def test_a_tokenizer_without_a_padding_token_names_one(bert, tmp_path):
    loaded = Tokenizer.load(bert, max_seq_length=8)
    Tokenizer(loaded.backend, max_seq_length=8, names={"eos_token": "[SEP]"}).save(tmp_path)
    assert read_object(tmp_path / "tokenizer_config.json")["pad_token"] == "[SEP]"


@pytest.mark.parametrize(("given", "said"), [
    (["a", None], r"sentences\[1\] None: is not a text"),
    ([("q", "a")], r"sentences\[0\] \('q', 'a'\): is a pair"),
    ({"text": ["a"]}, "sentences 'a dict': contains columns"),
    ("\ud83d", r"sentences\[0\] .*lone surrogate"),
    (["ok", "\ud83d"], r"sentences\[1\] '.ud83d': contains a lone surrogate"),
    ([np.ones(300)], r"sentences\[0\] ndarray of shape \(300,\): is not a text"),
    (None, "sentences None: is neither a text nor a seq"), (b"a", "is neither a text nor a seq"),
])  # fmt: skip
def test_what_is_no_text_is_not_encoded(bert, given, said):
    encoder = TorchEncoder.load(bert, pooling="mean")
    with pytest.raises(OptionError, match=said):
        encoder.encode(given)
    assert encoder.encode(np.array(["a", "b"])).shape == (2, encoder.dimension)
    assert encoder.encode(text for text in "ab").shape == (2, encoder.dimension)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8"])
def test_a_batch_has_a_whole_number_of_sentences(bert, size):
    with pytest.raises(OptionError, match=r"batch_size .*: must be a whole number of at least 1"):
        TorchEncoder.load(bert, pooling="mean").encode(["a"], batch_size=size)


@pytest.mark.parametrize(("name", "how", "said"), [
    ("bert", {"max_seq_length": "16"}, "max_seq_length '16': must be from 3"),
    (None, {}, "model None: is neither a name nor a folder"),
])  # fmt: skip
def test_a_model_that_cannot_be_meant(bert, name, how, said):
    with pytest.raises(OptionError, match=said):
        Encoder.load(name and bert, pooling="mean", **how)


def test_four_threads_load_a_model_at_once(bert):
    found = []
    load = lambda: found.append(TorchEncoder.load(bert, pooling="mean").dimension)  # noqa: E731
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
