"""The script benchmarks/base.py: attention removed and put back, gates, what pack writes."""

import json

import pytest
import torch
from benchmarks import base as base_
from benchmarks.base import chosen, gates, pack, shown, without_attention
from benchmarks.pretrain import main
from safetensors.torch import load_file

from contrasent.encoder.encoder import TorchEncoder
from tiny_models import collapse_head

STS7 = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR", "STS7", "dev")
PASSED = {"entropy of at least 0.5 nats in every layer": True}
GATES = {"entropy": [2.0, 1.5], "first_token": [0.1, 0.2], "dev": 60.0}
GATES |= {"dev_without_attention": 50.0, "passed": PASSED}


def test_without_attention_a_token_sees_itself_alone(bert, sentences):
    encoder = TorchEncoder.load(bert, pooling="cls")
    texts = sentences[:4]
    before = encoder.encode(texts)
    with without_attention(encoder):
        alone = encoder.encode(texts)
    assert abs(alone - alone[0]).max() < 1e-6  # [CLS] is the same in all
    assert abs(before - before[0]).max() > 1e-3
    assert (encoder.encode(texts) == before).all()


def test_gates_name_what_fails(bert, sentences, tmp_path, monkeypatch):
    encoder = TorchEncoder.load(bert, pooling="mean")
    for head in range(2):
        collapse_head(encoder.eval(), 1, head, sentences[:20])
    encoder.save(tmp_path / "m")
    (tmp_path / "wiki").mkdir()
    (tmp_path / "wiki" / "wiki1m_for_simcse.head.txt").write_text("\n".join(sentences[:20]))
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path))
    scores = iter([61.0, 52.5])
    monkeypatch.setattr(base_, "development", lambda encoder: next(scores))
    found = gates(tmp_path / "m")
    assert list(found["passed"].values()) == [False, False, True]
    assert (found["entropy"][1] < 0.5 < found["entropy"][0]) and found["first_token"][1] > 0.9
    said = shown("m", found)
    assert "dev 61.00, without attention 52.50 (-8.50)" in said
    assert said.count("FAILED") == 2


def test_the_rate_is_chosen_by_development_scores():
    runs = {
        "wiki, mean, learning_rate 0.1, 9 steps, seed 0": {"dev": 50.0, "STS7": 90.0},
        "wiki, mean, learning_rate 0.2, 9 steps, seed 0": {"dev": 60.0, "STS7": 40.0},
        "wiki, mean, learning_rate 0.2, 9 steps, seed 1": {"dev": 58.0, "STS7": 42.0},
    }
    assert [run["STS7"] for run in chosen({"simcse": runs})["wiki"]] == [40.0, 42.0]


def test_pack_writes_half_precision_and_a_card(sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(sentences[:200]) + "\n")
    shape = ["--layers", "2", "--hidden", "32", "--vocabulary", "160"]
    settings = ["batch_size=8", "width=48", "max_seq_length=24", "max_steps=2"]
    settings += ["qk_clip=4", "bound=margin"]
    main(["text.txt", "-o", "made", *shape, *(word for s in settings for word in ("--set", s))])
    scores = dict.fromkeys(STS7, 50.0)
    facts = {"gates": GATES, "before": {"mean": scores}}
    facts["simcse"] = {
        "wiki, mean, learning_rate 0.0001, 9 steps, seed 0": {**scores, "STS7": 53.0}
    }
    model = tmp_path / "bases" / "src" / "small" / "model"
    model.parent.mkdir(parents=True)
    pack(tmp_path / "made", tmp_path / "bases", facts)
    assert {v.dtype for v in load_file(model / "model.safetensors").values()} == {torch.float16}
    assert json.loads((model / "config.json").read_text())["dtype"] == "float32"
    text = (model / "README.md").read_text()
    for part in (
        "attention margins clipped at 4; the rate",
        "--set batch_size=8 --set width=48",
        "+3.0 points on wiki (seeds: 1)",
        "ok     entropy of at least 0.5 nats",
        "768 tokens of a million sentences",
    ):
        assert part in text
    assert TorchEncoder.load(model, pooling="mean").encode(["A map."]).shape == (1, 32)
    with pytest.raises(SystemExit, match="made: exists"):
        main(["text.txt", "-o", "made", *shape])
