"""How far a model has moved: the numbers against plain loops, the warning, and no trace of it."""

import json
import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from contrasent.encoder.encoder import TorchEncoder
from contrasent.train import monitor
from contrasent.train.fit import fit
from contrasent.train.monitor import LEAST_OVERLAP, LEAST_RANK_SHARE, MOST_COSINE_GAIN, Drift
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings
from contrasent.types import Tokens
from plain_loops import cosine

COUNT = 60
NUMBERS = ("mean_cosine", "effective_rank", "neighbor_overlap")
random = np.random.default_rng(0)


def cosines(vectors):
    return [[cosine(one, other) for other in vectors] for one in vectors]


def by_loops(base, vectors):
    """The three numbers from their definitions."""
    n = len(vectors)
    near = cosines(vectors)
    mean = sum(near[i][j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    size = np.linalg.svd(np.asarray(vectors, dtype=np.float64), compute_uv=False)
    shares = [s / size.sum() for s in size if s > 1e-9]
    rank = math.exp(-sum(p * math.log(p) for p in shares))
    shared = 0
    for i, rows in enumerate(zip(cosines(base), near, strict=True)):
        ten = [sorted((j for j in range(n) if j != i), key=lambda j: -row[j])[:10] for row in rows]
        shared += len(set(ten[0]) & set(ten[1]))
    return mean, rank, shared / (10 * n)


def trained(bert, texts, folder, rows=None, **given):
    settings = Settings(
        batch_size=10, max_steps=12, learning_rate=1e-3, max_seq_length=8, pooling="mean", **given
    )
    fit(prepare(bert, "simcse", {}, settings), texts, settings, output_dir=folder, rows=rows)
    lines = (folder / "run" / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_lines_carry_the_numbers_and_the_training_knows_nothing_of_it(
    bert, sentences, tmp_path, monkeypatch, kept_steps
):
    texts = sentences[:COUNT]
    monkeypatch.setattr(monitor, "ROWS_BETWEEN", 0)
    lines = trained(bert, texts, tmp_path / "m")
    assert [line["measured_at"] for line in lines] == [0] * 9 + [10] * 2 + [12]
    # As training sees them: cut at its length.
    base = TorchEncoder.load(bert, pooling="mean", max_seq_length=8).encode(texts)
    first = lines[0]
    assert [first[name] for name in NUMBERS] == pytest.approx(by_loops(base, base), abs=2e-5)
    checkpoint = (tmp_path / "m" / "run" / "checkpoint.safetensors").read_bytes()
    header = json.loads(checkpoint[8 : 8 + int.from_bytes(checkpoint[:8], "little")])
    drift = json.loads(header["__metadata__"]["contrasent"])["drift"]
    assert drift["values"]["measured_at"] == 12
    after = TorchEncoder.load(tmp_path / "m", max_seq_length=8).encode(texts)
    last = [drift["values"][name] for name in NUMBERS]
    assert last == pytest.approx(by_loops(base, after), abs=2e-3)
    assert last[2] < 1
    # Of fewer texts nothing is known, and the weights are the same to the bit.
    monkeypatch.setattr(monitor, "FEWEST_TEXTS", COUNT + 1)
    plain = trained(bert, texts, tmp_path / "plain")
    assert [{k: v for k, v in line.items() if k in plain[0]} for line in lines] == plain
    one, two = (TorchEncoder.load(tmp_path / name).state_dict() for name in ("m", "plain"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def made_cache(count, tokens):
    """A corpus of that many rows, as far as a drift knows it."""

    class Cache(SimpleNamespace):
        __len__ = lambda self: count  # noqa: E731

    return Cache(tokens=tokens)


def test_held_out_texts_are_preferred_and_spread(bert):
    model = TorchEncoder.load(bert, pooling="mean")
    objective = SimpleNamespace(encoder=model, labeled=False)

    def rows(count, trained, total=100, batch_size=64):
        plan = SimpleNamespace(rows=np.asarray(trained), batch_size=batch_size)
        cache = made_cache(count, lambda column, rows: (column, rows))
        batches = SimpleNamespace(cache=cache, plan=plan)
        drift = Drift(objective, batches, total)
        assert not drift.guards
        return drift.every, drift.tokens and drift.tokens[1]

    every, found = rows(3000, range(1000))
    assert (len(found), found[0], found[-1]) == (500, 1000, 2996)
    assert len(set(found)) == 500
    assert every == 50  # 3,200 rows of 64
    assert rows(1000, range(700))[1].tolist() == list(range(0, 1000, 2))
    assert rows(60, range(60))[1].tolist() == list(range(60))
    assert rows(49, range(49))[1] is None
    assert rows(60, range(60), total=4000)[0] == 200
    assert rows(60, range(60), batch_size=512)[0] == 10


def test_neighbors_of_an_encoder_are_guarded_unless_pairs_say_what_is_near(bert, tmp_path):
    TorchEncoder.load(bert, pooling="mean").save(tmp_path / "m")
    plan = SimpleNamespace(rows=np.arange(40), batch_size=8)
    batches = SimpleNamespace(cache=range(40), plan=plan)  # too few texts to take any
    for folder, labeled, expected in (
        (tmp_path / "m", False, True),
        (tmp_path / "m", True, False),
        (bert, False, False),
    ):
        encoder = TorchEncoder.load(folder, pooling="mean")
        objective = SimpleNamespace(encoder=encoder, labeled=labeled)
        assert Drift(objective, batches, 10).guards is expected


def made(*, guards):
    """A drift of an encoder whose vectors the test sets."""
    encoder = SimpleNamespace(device=torch.device("cpu"), dimension=16)
    encoder.embed = lambda tokens: encoder.vectors[
        [row[0] for row in map(tokens.__getitem__, range(len(tokens)))]
    ]
    encoder.source = None
    cache = made_cache(COUNT, lambda column, rows: Tokens.from_rows([[i, 1, 2] for i in rows]))
    plan = SimpleNamespace(rows=np.arange(COUNT), batch_size=320)
    objective = SimpleNamespace(encoder=encoder, labeled=False)
    drift = Drift(objective, SimpleNamespace(cache=cache, plan=plan), 35)
    assert (drift.every, drift.guards) == (10, False)
    drift.guards = guards
    return encoder, drift


BASE = random.normal(size=(COUNT, 16)).astype(np.float32)
OTHER = random.normal(size=(COUNT, 16)).astype(np.float32)


def test_it_warns_once_and_says_what_to_change(caplog):
    caplog.set_level(logging.WARNING)
    encoder, drift = made(guards=True)
    encoder.vectors = BASE
    drift.look(0, 1e-4)
    encoder.vectors = OTHER
    drift.look(9, 1e-4)
    assert drift.values["measured_at"] == 0
    assert not caplog.messages
    drift.look(10, 1e-4)
    expected = by_loops(BASE, OTHER)
    assert [drift.values[name] for name in NUMBERS] == pytest.approx(expected, abs=1e-5)
    assert expected[2] < LEAST_OVERLAP
    (line,) = caplog.messages
    for words in (
        f"step 10: {100 * expected[2]:.0f} % of the base's nearest",
        "learning_rate (now 1.0e-04)",
    ):
        assert words in line
    assert "\n" not in line
    # A run on pairs is not advised to train on pairs.
    encoder, paired = made(guards=True)
    paired.labeled = True
    for paired_step, encoder.vectors in ((0, BASE), (10, OTHER)):
        paired.look(paired_step, 1e-4)
    assert caplog.messages.pop().endswith("lower learning_rate (now 1.0e-04) or take fewer steps")
    caplog.clear()
    # Not again, after a resume neither.
    encoder, again = made(guards=True)
    again.restore(json.loads(json.dumps(drift.state())))
    encoder.vectors = OTHER
    again.look(35, 1e-4)  # the last step
    assert again.values["measured_at"] == 35
    assert again.values["neighbor_overlap"] == drift.values["neighbor_overlap"]
    assert not caplog.messages


def test_a_language_model_may_move_but_not_collapse(caplog):
    caplog.set_level(logging.WARNING)
    crowded, flat = OTHER + 1, OTHER.copy()
    flat[:, 3:] *= 0.01
    for vectors, words in (
        (OTHER, None),
        (crowded, "mean cosine of random pairs"),
        (flat, "effective rank"),
    ):
        caplog.clear()
        encoder, drift = made(guards=False)
        encoder.vectors = BASE
        drift.look(0, 1e-4)
        encoder.vectors = vectors
        drift.look(10, 1e-4)
        assert [words in line for line in caplog.messages] == ([True] if words else [])
    before, after = by_loops(BASE, BASE), by_loops(BASE, crowded)
    assert after[0] > before[0] + MOST_COSINE_GAIN
    assert by_loops(BASE, flat)[1] < before[1] * LEAST_RANK_SHARE
