"""The script benchmarks/pretrain.py: vocabulary, masks, loss, resuming, and what it leaves."""

import numpy as np
import pytest
import torch
from benchmarks import pretrain as pretrain_
from benchmarks.pretrain import MaskedPretraining, load_start, main, word_pieces, write_start
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from commands import run
from contrasent.encoder.encoder import Encoder
from contrasent.engine import encodings
from contrasent.errors import TrainingError
from contrasent.text.corpus import open_corpus
from contrasent.train.settings import LANGUAGE_MODEL, Settings, base_kind
from contrasent.types import Batch

TINY = ["--layers", "2", "--hidden", "32", "--heads", "2", "--vocabulary", "160"]
SHORT = ["batch=16", "max_tokens=24", "steps=8", "lr=3e-3", "checkpoint_every=3", "seed=5"]
SHAPE = {"layers": 2, "hidden": 32, "heads": 2, "vocabulary": 160, "cased": False}


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
    write_start(open_corpus(sentences[:200]), folder, SHAPE, Settings(max_tokens=24, seed=5))
    return folder


def objective(start):
    made = load_start(start, Settings(dropout=0.0))
    assert made.encoder.packs(made.encoder.tokenise(["a map"])[0])
    return made


def batch(encoder, sentences, step=3):
    tokens, _ = encoder.tokenise(sentences)
    return Batch((tokens,), np.arange(len(sentences)), step=step, seed=7)


@pytest.mark.parametrize("packing", [True, False])
def test_the_loss_is_that_of_a_plain_loop(start, sentences, packing):
    """Sentence by sentence through transformers' own model; gradients of the tied layer too."""
    made = objective(start)
    made.encoder.packed = packing
    given = batch(made.encoder, sentences[:12])
    edited = encodings.mask_tokens(
        given.columns[0],
        pretrain_.MASK_RATIO,
        made.encoder.tokenizer,
        encodings.generators(given, 0),
    )
    whole = AutoModelForMaskedLM.from_pretrained(start).eval()
    total, count = torch.zeros(()), 0
    for i in range(12):
        begin, end = (int(edited.tokens.offsets[i + k]) for k in (0, 1))
        logits = whole(input_ids=torch.tensor(edited.tokens[i][None].astype(np.int64))).logits[0]
        for scores, label in zip(logits, edited.labels[begin:end].tolist(), strict=True):
            if label >= 0:
                total = total - scores.log_softmax(0)[label]
                count += 1
    assert count > 10
    loss = made.train()(given)["masked_lm"]
    assert loss.item() == pytest.approx((total / count).item(), rel=1e-5)
    loss.backward()
    (total / count).backward()
    own = made.encoder.backbone.get_input_embeddings().weight
    theirs = whole.get_input_embeddings().weight
    assert torch.allclose(own.grad, theirs.grad, atol=1e-6)
    assert own.grad.abs().max() > 1e-3
    names = [name for name, p in made.named_parameters() if p is own]
    assert len(names) == 1  # the output layer is no second one


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
    pretrain("whole")
    line = capsys.readouterr().out.rpartition(", ")[0]
    assert line.startswith("whole: 8 steps, 0.0 M weights, 160 entries; masked-LM loss ")
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in text.iterdir()} == {"text.txt", "whole"}
    for owner, name, at in (
        (pretrain_, "word_pieces", 1),
        (torch.optim.AdamW, "step", 2),  # before the first checkpoint
        (torch.optim.AdamW, "step", 6),
        (MaskedPretraining, "save", 1),
    ):
        folder = text / f"{name}{at}"
        with monkeypatch.context() as patch:
            kill(patch, owner, name, at)
            with pytest.raises(Killed):
                pretrain(folder)
        assert not folder.exists()
        pretrain(folder)
        assert contents(folder).keys() == names
        assert contents(folder) == contents(text / "whole"), (name, at)
        assert {p.name for p in (folder / "run").iterdir()} == {
            *("settings.json", "log.jsonl", "result.json")
        }


def test_what_it_leaves_is_a_base(text, sentences):
    pretrain("base", "steps=2")
    assert base_kind(text / "base") == LANGUAGE_MODEL
    run("train", "text.txt", "-o", "model", "--base", "base", "--set", "steps=2", "-q")
    assert Encoder.load(text / "model").encode(sentences[:3]).shape == (3, 32)


def test_it_goes_on_from_a_base_with_its_head(text):
    pretrain("base", "steps=2")
    pretrain("more", "steps=1", "lr=1e-9", "warmup=0", shape=["--base", "base"])
    before, after = (load_file(text / name / "model.safetensors") for name in ("base", "more"))
    assert before.keys() == after.keys() and any(key.startswith("cls.") for key in before)
    assert max((before[key] - after[key]).abs().max().item() for key in before) < 1e-6
    for name in ("config.json", "tokenizer.json"):
        assert (text / "base" / name).read_bytes() == (text / "more" / name).read_bytes()


def test_another_shape_or_setting_does_not_resume(text, monkeypatch):
    with monkeypatch.context() as patch:
        kill(patch, torch.optim.AdamW, "step", 6)
        with pytest.raises(Killed):
            pretrain("base")
    with pytest.raises(SystemExit, match="a run of another shape"):
        pretrain("base", shape=[*TINY, "--cased"])
    with pytest.raises(SystemExit, match="has seed 5, this one 6"):
        pretrain("base", "seed=6")
    (text / "base").mkdir()
    with pytest.raises(SystemExit, match="base: exists"):
        pretrain("base")
