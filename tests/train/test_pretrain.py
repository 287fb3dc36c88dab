"""The script benchmarks/pretrain.py: vocabulary, rows, masks, loss, bound, resuming, the result."""

import json

import numpy as np
import pytest
import torch
from benchmarks import pretrain as pretrain_
from benchmarks.pretrain import (
    Masking,
    Recipe,
    load_start,
    main,
    masked_loss,
    orthogonal,
    packed_rows,
    word_pieces,
    write_start,
)
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from commands import run
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import TrainingError
from contrasent.text.corpus import open_corpus
from contrasent.text.tokens import Tokenizer
from contrasent.train.settings import LANGUAGE_MODEL, base_kind

TINY = ["--layers", "2", "--hidden", "32", "--vocabulary", "160"]
SHORT = [
    "batch_size=8",
    "width=48",
    "max_seq_length=24",
    "max_steps=8",
    "learning_rate=3e-3",
    "precision=fp32",
    "seed=5",
]
SHAPE = {"layers": 2, "hidden": 32, "heads": 2, "wide": 64, "vocabulary": 160, "cased": False}
RECIPE = Recipe(width=48, max_seq_length=24, dropout=0.0, attention_dropout=0.0, seed=5)


def test_a_vocabulary_is_the_same_whatever_the_order(sentences):
    random = np.random.default_rng(0)
    found = [
        word_pieces(lambda: random.permutation(sentences[:200]).tolist(), 150).to_str()
        for _ in range(4)
    ]
    assert len(set(found)) == 1
    one = word_pieces(lambda: sentences[:200], 150)
    assert one.encode("An old sailor").tokens[0] == "[CLS]"
    assert one.encode("[MASK]").ids[1] == one.token_to_id("[MASK]")
    cased = word_pieces(lambda: sentences[:200], 150, lower_case=False)
    assert "T" in cased.get_vocab()
    with pytest.raises(TrainingError, match="too small: the text has"):
        word_pieces(lambda: sentences[:200], 40)


@pytest.fixture(scope="module")
def start(sentences, tmp_path_factory):
    """Vocabulary and random weights."""
    folder = tmp_path_factory.mktemp("start")
    write_start(open_corpus(sentences[:200]), folder, SHAPE, RECIPE, None)
    return folder


@pytest.fixture(scope="module")
def packed(start, sentences):
    """The tokenizer and rows of 200 sentences."""
    tokenizer = Tokenizer.load(start, max_seq_length=24)
    return tokenizer, packed_rows(open_corpus(sentences[:200]), tokenizer, RECIPE)


def test_every_sentence_is_whole_in_one_row(packed, sentences):
    tokenizer, rows = packed
    cls, pad = int(tokenizer.frame[0][0]), tokenizer.specials.pad
    found = []
    for row in rows.tolist():
        for token in row:
            if token == cls:
                found.append([])
            if token != pad:
                found[-1].append(token)
    tokens = tokenizer(sentences[:200])[0]
    assert sorted(found) == sorted(tokens[i].tolist() for i in range(200))
    assert (rows == pad).mean() < 0.08  # and few places are free


def test_the_loss_is_that_of_a_plain_loop(start, packed, monkeypatch):
    """Sentence by sentence through transformers' own model; gradients of the tied layer too."""
    tokenizer, rows = packed
    ids = torch.from_numpy(rows[:6].astype(np.int64))
    masking = Masking.of(tokenizer, 0.3, torch.device("cpu"))
    edited, places, targets = masking.apply(ids)
    assert (places.shape[1], len(set(map(tuple, places.tolist())))) == (14, 6)
    assert (ids.gather(1, places)[targets >= 0] == targets[targets >= 0]).all()
    assert not masking.special[targets[targets >= 0]].any()
    share = (edited.gather(1, places) == masking.mask).float().mean()
    assert 0.6 < share < 0.95
    monkeypatch.setattr(Masking, "apply", lambda self, ids: (edited, places, targets))
    made = load_start(start, RECIPE)
    loss = masked_loss(made, ids, masking)
    whole = AutoModelForMaskedLM.from_pretrained(start).eval()
    total, count = torch.zeros(()), 0
    for row, (old, new) in enumerate(zip(ids.tolist(), edited.tolist(), strict=True)):
        begins = [i for i, token in enumerate(old) if token == masking.cls]
        wanted = dict(zip(places[row].tolist(), targets[row].tolist(), strict=True))
        for begin, end in zip(begins, [*begins[1:], len(old)], strict=True):
            part = [n for o, n in zip(old[begin:end], new[begin:end], strict=True) if o]
            scores = whole(input_ids=torch.tensor([part])).logits[0].log_softmax(-1)
            for place in range(len(part)):
                if wanted.get(begin + place, -1) >= 0:
                    total = total - scores[place, wanted[begin + place]]
                    count += 1
    assert count > 60
    assert loss.item() == pytest.approx((total / count).item(), rel=1e-5)
    loss.backward()
    (total / count).backward()
    own, theirs = (m.get_input_embeddings().weight for m in (made, whole))
    assert torch.allclose(own.grad, theirs.grad, atol=1e-6)
    assert own.grad.abs().max() > 1e-3
    assert sum(p is own for p in made.parameters()) == 1  # the output layer is no second one


def test_orthogonal_steps_are_those_of_torch(packed):
    """Matrices of one shape together as torch's Muon makes them one by one."""
    random = torch.Generator().manual_seed(3)
    given = [torch.randn(*shape, generator=random) for shape in ((24, 8), (24, 8), (8, 24))]
    theirs = [torch.nn.Parameter(torch.zeros_like(g)) for g in given]
    muon = torch.optim.Muon(theirs, lr=1.0, weight_decay=0.0)
    for parameter, grad in zip(theirs, given, strict=True):
        parameter.grad = grad
    muon.step()
    ours = [*orthogonal(torch.stack(given[:2])), *orthogonal(given[2][None])]
    for parameter, one in zip(theirs, ours, strict=True):
        rows, columns = one.shape
        step = one.float() * max(1, rows / columns) ** 0.5
        assert torch.allclose(-parameter, step, atol=0.03)
        assert torch.linalg.svdvals(one.float()).min() > 0.6


class Killed(BaseException):
    """A kill, seen from inside: nobody catches it."""


def kill(monkeypatch, owner, name, at):
    """Let the call number ``at`` of a function be the last."""
    function, calls = getattr(owner, name), []

    def counted(*args, **kwargs):
        calls.append(name)
        if len(calls) == at:
            raise Killed
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.fixture
def text(sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(sentences[:200]) + "\n")
    return tmp_path


def pretrain(output, *changes, shape=TINY):
    settings = [word for value in (*SHORT, *changes) for word in ("--set", value)]
    main(["text.txt", "-o", str(output), *shape, *settings])


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_to_the_bit(text, monkeypatch, capsys):
    changes = "checkpoint=0", "log=2"
    pretrain("whole", *changes)
    line = capsys.readouterr().out.rpartition(", ")[0]
    assert line.startswith("whole: 8 steps, 0.0 M weights, 160 entries; masked-LM loss ")
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in text.iterdir()} == {"text.txt", "whole"}
    log = [json.loads(line) for line in (text / "whole/run/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [2, 4, 6, 8]
    assert all(len(line["entropy"]) == 2 for line in log)
    for owner, name, at in (
        (pretrain_, "word_pieces", 1),
        (torch.optim.AdamW, "step", 1),  # before the first checkpoint
        (torch.optim.AdamW, "step", 6),
        (pretrain_, "save_model", 1),
    ):
        folder = text / f"{name}{at}"
        with monkeypatch.context() as patch:
            kill(patch, owner, name, at)
            with pytest.raises(Killed):
                pretrain(folder, *changes)
        assert not folder.exists()
        pretrain(folder, *changes)
        assert contents(folder).keys() == names
        assert contents(folder) == contents(text / "whole"), (name, at)
        assert {p.name for p in (folder / "run").iterdir()} == {
            *("settings.json", "log.jsonl", "result.json")
        }


def test_what_it_leaves_is_a_base(text, sentences):
    pretrain("base", "max_steps=2", "precision=bf16", "queries_keys=adamw")
    assert base_kind(text / "base") == LANGUAGE_MODEL
    assert {v.dtype for v in load_file(text / "base/model.safetensors").values()} == {torch.float16}
    run("train", "text.txt", "-o", "model", "--base", "base", "--set", "max_steps=2", "-q")
    assert TorchEncoder.load(text / "model").encode(sentences[:3]).shape == (3, 32)


def test_a_limit_of_time_ends_it(text):
    pretrain("base", "max_steps=100000", "seconds=0.1")
    result = json.loads((text / "base/run/result.json").read_text())
    assert 0 < result["steps"] < 100_000
    assert len((text / "base/run/log.jsonl").read_text().splitlines()) >= 1


def test_a_tokenizer_of_another_model_is_taken(text):
    pretrain("base", "max_steps=2")
    pretrain("other", "max_steps=2", shape=[*TINY[:-1], "100", "--tokenizer", "base"])
    assert contents(text / "base") == contents(text / "other")


def test_another_shape_or_setting_does_not_resume(text, monkeypatch):
    with monkeypatch.context() as patch:
        kill(patch, torch.optim.AdamW, "step", 6)
        with pytest.raises(Killed):
            pretrain("base")
    with pytest.raises(SystemExit, match="a run of another shape"):
        pretrain("base", shape=[*TINY, "--cased"])
    with pytest.raises(SystemExit, match="a run of another setting"):
        pretrain("base", "seed=6")
    (text / "base").mkdir()
    with pytest.raises(SystemExit, match="base: exists"):
        pretrain("base")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("queries_keys=muons", "did you mean .muon"),
        ("stepz=3", "no setting of pre-training"),
        ("max_steps=many", "must be of type int"),
        ("learning_rate=-1", "must be greater than 0"),
        ("width=16", "must hold 24 tokens"),
        ("dropout=1", "less than 1"),
    ],
)
def test_settings_that_cannot_be(text, setting, problem):
    with pytest.raises(SystemExit, match=problem):
        pretrain("base", setting)
