"""The script benchmarks/base.py: attention removed and put back, gates."""

from benchmarks import base as base_
from benchmarks.base import gates, shown, without_attention

from contrasent.encoder.encoder import TorchEncoder
from tiny_models import collapse_head


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
