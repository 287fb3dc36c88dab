"""Mined hard negatives against plain loops, and through a run."""

import numpy as np
import pytest

from contrasent import Encoder, fit, open_corpus
from contrasent.errors import OptionError
from contrasent.text.cache import tokenized
from contrasent.train.prepare import mine


def test_against_loops(bert, sentences, tmp_path, caplog):
    encoder = Encoder.load(bert, pooling="mean")
    mean = encoder.encode(sentences).mean(0, dtype=np.float64)
    encoder.add_layer(np.eye(32), -mean)  # random weights give vectors of one direction
    # Questions with several answers, and answers to several questions.
    pairs = [(sentences[i * (5, 7, 7)[i % 3] % 30][:20], sentences[i * 7 % 30]) for i in range(60)]
    # The model reads no capitals.
    pairs = [(q.upper() if i % 30 < 15 else q, a) for i, (q, a) in enumerate(pairs)]
    cache = tokenized(open_corpus(pairs), encoder.tokenizer, tmp_path / "t", lower=False)
    rows = np.arange(3, 60, 2)
    found = mine(encoder, cache, rows, 4)
    assert found.shape == (60, 4) and not found[[0, 1, 2, 4]].any()
    vectors = {t: encoder.encode(t).astype(float) for t in {t for pair in pairs for t in pair}}

    def cosine(a, b):
        a, b = vectors[a], vectors[b]
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    trained = [pairs[row] for row in rows]
    short = 0
    for row, (question, answer) in zip(rows, trained, strict=True):
        own = {a for q, a in trained if q.lower() == question.lower()}
        others = {a: cosine(question, a) for _, a in trained if a not in own}
        most = 0.95 * cosine(question, answer)
        allowed = sorted((a for a in others if others[a] <= most), key=lambda a: -others[a])
        beyond = sorted((a for a in others if others[a] > most), key=lambda a: others[a])
        picked = [pairs[at][1] for at in found[row]]
        assert picked == (allowed + beyond)[:4]
        assert set(found[row]) <= set(rows)
        short += len(allowed) < 4
    assert 0 < short < len(rows)
    assert f"{short} of {len(rows)} pairs have fewer than 4 answers below 95 %" in caplog.text


def test_a_run_learns_from_them_and_its_card_says_so(bert, sentences, tmp_path):
    pairs = [(f"what about {text}", text) for text in sentences[:40]]
    given = {"base": bert, "pooling": "mean", "max_steps": 2, "batch_size": 8, "evaluate": "none"}
    plain, mined = (
        fit("simcse_supervised", pairs, output_dir=tmp_path / str(k), hard_negatives=k, **given)
        for k in (0, 2)
    )
    assert mined.log[0]["contrast"] > plain.log[0]["contrast"]  # more to be told apart
    label = "2 per pair, mined by the base among the answers"
    assert label in (tmp_path / "2" / "README.md").read_text()
    assert "mined by" not in (tmp_path / "0" / "README.md").read_text()
    with pytest.raises(OptionError, match=r"hard_negatives 40: the training pairs have only 40"):
        fit("simcse_supervised", pairs, output_dir=tmp_path / "few", hard_negatives=40, **given)
    with pytest.raises(OptionError, match=r"hard_negatives 2: needs pairs .* simcse does not use"):
        fit("simcse", sentences[:40], output_dir=tmp_path / "no", hard_negatives=2, **given)
