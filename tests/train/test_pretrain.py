"""Pre-training: vocabulary, masks, loss, resuming, and what is left in the folder."""

import json
import math
import re
import shutil
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from commands import run
from contrasent.engine import edits
from contrasent.engine.masked_models import MaskedModel
from contrasent.errors import InputError, OptionError, OutputError, TrainingError
from contrasent.model import packed
from contrasent.model.encoder import Encoder
from contrasent.text.corpus import open_corpus
from contrasent.text.vocabulary import MARKS, word_pieces
from contrasent.train import pretrain as pretrain_
from contrasent.train.defaults import LANGUAGE_MODEL, base_kind
from contrasent.train.pretrain import MaskedPretraining, pretrain
from contrasent.train.settings import Settings
from contrasent.train.shape import Shape, pretraining_settings
from contrasent.types import Batch, Tokens

TINY = Shape(layers=2, hidden=32, heads=2, vocabulary=160)
SHORT = Settings(batch=16, max_tokens=24, steps=8, lr=3e-3, checkpoint_every=3, seed=5)


def merges(words, size):
    """Byte-pair merges written out: the most frequent neighbours, of equal ones the first."""
    pieces = {w: [w[0], *(f"##{letter}" for letter in w[1:])] for w in words}
    letters = sorted({letter for word in words for letter in word})
    ids = dict.fromkeys([*letters, *(f"##{letter}" for letter in letters)])
    ids = {piece: i for i, piece in enumerate(ids)}
    while len(ids) + len(MARKS) < size:
        counts = Counter()
        for word, count in words.items():
            for pair in pairwise(pieces[word]):
                counts[pair] += count
        counts = {pair: count for pair, count in counts.items() if count >= 2}
        if not counts:
            break
        one, two = min(counts, key=lambda p: (-counts[p], ids[p[0]], ids[p[1]]))
        joined = one + two.removeprefix("##")
        ids.setdefault(joined, len(ids))
        for word, own in pieces.items():
            i, made = 0, []
            while i < len(own):
                both = own[i : i + 2] == [one, two]
                made.append(joined if both else own[i])
                i += 2 if both else 1
            pieces[word] = made
    return set(ids)


def test_word_pieces_are_merged_by_frequency(sentences):
    texts = [s.lower().replace(".", "").replace(",", "") for s in sentences[:120]]
    words = Counter(word for text in texts for word in text.split())
    for size in (70, 90, 120):
        found = word_pieces(lambda: texts, size)
        assert set(found.get_vocab()) == merges(words, size) | set(MARKS)
        assert found.get_vocab_size() == size


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
def corpus(sentences):
    return open_corpus(sentences[:200])


@pytest.fixture(scope="module")
def start(corpus, tmp_path_factory):
    """Vocabulary and random weights."""
    folder = tmp_path_factory.mktemp("start")
    pretrain_._write_start(corpus, folder, TINY, SHORT)
    return folder


def objective(start, **changes):
    encoder = Encoder.load(start, pooler="cls", dropout=0.0, attention_dropout=0.0)
    made = MaskedPretraining(encoder, **changes)
    encoder.packed = packed.supports_backbone(encoder.backbone)
    assert encoder.packed
    return made


def batch(encoder, sentences, step=3):
    tokens, _ = encoder.tokenise(sentences)
    return Batch((tokens,), np.arange(len(sentences)), step=step, seed=7)


def test_masks_are_those_of_bert(start, sentences):
    """80 % [MASK], 10 % a random token, 10 % left, of 15 %; token by token, and in shares."""
    encoder = objective(start).encoder
    tokenizer, special = encoder.tokenizer, encoder.tokenizer.specials
    tokens, _ = encoder.tokenise(sentences * 3)
    randoms = [np.random.default_rng([1, i]) for i in range(len(tokens))]
    again = [np.random.default_rng([1, i]) for i in range(len(tokens))]
    found = edits.mask(tokens, 0.15, tokenizer, randoms)
    fates = Counter()
    for i, random in enumerate(again):
        row = tokens[i]
        chosen, fate = random.random(len(row)), random.random(len(row))
        other = random.integers(tokenizer.size, size=len(row))
        start_, stop = int(tokens.offsets[i]), int(tokens.offsets[i + 1])
        new, labels = found.tokens.ids[start_:stop], found.labels[start_:stop]
        for k, token in enumerate(row.tolist()):
            if token in special.all or chosen[k] >= 0.15:
                assert (new[k], labels[k]) == (token, -1)
                fates["special" if token in special.all else "left alone"] += 1
                continue
            assert labels[k] == token
            kind = "mask" if fate[k] < 0.8 else "random" if fate[k] < 0.9 else "kept"
            want = {"mask": special.mask, "random": other[k], "kept": token}[kind]
            assert new[k] == want
            fates[kind] += 1
    picked = fates["mask"] + fates["random"] + fates["kept"]
    assert picked / (picked + fates["left alone"]) == pytest.approx(0.15, abs=0.01)
    for kind, share in (("mask", 0.8), ("random", 0.1), ("kept", 0.1)):
        assert fates[kind] / picked == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("packing", [True, False])
def test_the_loss_is_that_of_a_plain_loop(start, sentences, packing):
    """Sentence by sentence through transformers' own model; gradients of the tied layer too."""
    made = objective(start)
    made.encoder.packed = packing
    given = batch(made.encoder, sentences[:12])
    edited = edits.mask(given.columns[0], 0.15, made.encoder.tokenizer, edits.generators(given, 0))
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


def test_nothing_masked_is_no_loss(start):
    made = objective(start, mask_ratio=1e-9)
    terms = made(batch(made.encoder, ["a torn map"]))
    assert terms["masked_lm"].item() == 0.0
    made.loss(terms).backward()


class Killed(BaseException):
    """What a kill looks like from inside: nobody catches it."""


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


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_to_the_bit(corpus, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    told = pretrain(corpus, whole, TINY, SHORT)
    assert (told.steps, told.vocabulary) == (8, 160)
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert contents(whole).keys() == names
    run_ = {"settings.json", "log.jsonl", "result.json", "shape.json", "model.json"}
    assert {p.name for p in (whole / "run").iterdir()} == run_
    assert {p.name for p in whole.iterdir()} == {*names, "run"}
    for owner, name, at in (
        (pretrain_, "word_pieces", 1),
        (torch.optim.AdamW, "step", 2),  # before the first checkpoint
        (torch.optim.AdamW, "step", 6),
        (MaskedPretraining, "save", 1),
        (pretrain_._Place, "clean", 1),
    ):
        folder = tmp_path / f"{name}{at}"
        with monkeypatch.context() as patch:
            kill(patch, owner, name, at)
            with pytest.raises(Killed):
                pretrain(corpus, folder, TINY, SHORT)
        with pytest.raises(OutputError, match="--resume goes on with it"):
            pretrain(corpus, folder, TINY, SHORT)
        again = pretrain(corpus, folder, TINY, SHORT, resume=True)
        assert contents(folder) == contents(whole), (name, at)
        assert (again.steps, again.loss) == (told.steps, told.loss)
        assert {p.name for p in folder.iterdir()} == {*names, "run"}


def test_what_is_there_is_not_lost(corpus, sentences, tmp_path):
    folder = tmp_path / "base"
    pretrain(corpus, folder, TINY, SHORT)
    for shape, settings, text in (
        (Shape(layers=1, hidden=32, heads=2, vocabulary=160), SHORT, "has layers 2, this one 1"),
        (TINY, pretraining_settings(["max_tokens=24"], 6), "has seed 5, this one 6"),
    ):
        with pytest.raises(OutputError, match=text):
            pretrain(corpus, folder, shape, settings, resume=True)
    with pytest.raises(OutputError, match="has corpus"):
        pretrain(open_corpus(sentences[:150]), folder, TINY, SHORT, resume=True)
    before = contents(folder)
    assert pretrain(corpus, folder, TINY, SHORT, resume=True).steps == 8
    assert contents(folder) == before
    pretrain(corpus, folder, TINY, Settings(batch=16, max_tokens=24, steps=2), overwrite=True)
    assert contents(folder) != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(OutputError, match=r"holds 'letter\.txt'"):
        pretrain(corpus, tmp_path / "mine", TINY, SHORT, overwrite=True)
    assert (tmp_path / "mine" / "letter.txt").is_file()


TEXT = """\
the harbour master counts the boats at {} o'clock
at {} o'clock the lamp on the pier is lit by her brother
nobody fishes after {} o'clock when the wind turns north
her brother counts {} nets and hangs them on the pier
"""
HOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")


def test_it_learns(tmp_path):
    """Far below what is known without context: the entropy of single tokens."""
    lines = [line.format(hour) for hour in HOURS for line in TEXT.splitlines()]
    corpus = open_corpus(lines)
    settings = Settings(batch=32, max_tokens=24, steps=110, lr=8e-3, warmup=0.1, dropout=0.0)
    shape = Shape(layers=2, hidden=48, heads=4, vocabulary=120)
    told = pretrain(corpus, tmp_path / "base", shape, settings)
    tokenizer = Encoder.load(tmp_path / "base", pooler="cls").tokenizer
    tokens, _ = tokenizer(lines)
    inner = [int(t) for t in tokens.ids if int(t) not in tokenizer.specials.all]
    shares = [count / len(inner) for count in Counter(inner).values()]
    entropy = -sum(share * math.log(share) for share in shares)
    log = map(json.loads, (tmp_path / "base" / "run" / "log.jsonl").read_text().splitlines())
    first = next(log)["loss"]
    assert first > entropy
    assert told.loss < 0.6 * entropy, (told.loss, entropy)
    # It fills in what only the context can tell.
    encoder = Encoder.load(tmp_path / "base", pooler="cls")
    filler = MaskedModel.load(str(tmp_path / "base"), encoder, option="filler")
    row, _ = tokenizer(["at two o'clock the lamp on the pier is lit by her [MASK]"])
    best = filler.predict(row, row.ids == tokenizer.specials.mask)
    words = [tokenizer.backend.id_to_token(int(i)) for i in best[row.ids != best]]
    assert words[-1] == "brother"


def test_it_is_a_base_for_train(corpus, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(sentences[:200]) + "\n")
    small = "--layers 1 --hidden 32 --heads 2 --vocabulary 160 --seed 3"
    small += " --set steps=3 --set batch=16 --set max_tokens=24"
    told = json.loads(run("pretrain", "text.txt", "-o", "base", *small.split(), "--json"))
    assert (told["steps"], told["folder"], told["vocabulary"]) == (3, "base", 160)
    text = run("pretrain", "text.txt", "-o", "base", *small.split(), "--resume")
    assert re.search(r"base: 3 steps, 0\.0 M weights, 160 entries; masked-LM loss \d\.\d\d", text)
    assert base_kind(tmp_path / "base") == LANGUAGE_MODEL
    assert not list((tmp_path / "base").rglob("*.bin"))
    run("train", "text.txt", "-o", "model", "--base", "base", "--set", "steps=2", "-q")
    vectors = Encoder.load(tmp_path / "model").encode(sentences[:3])
    assert vectors.shape == (3, 32)


def test_bad_lines_are_named(tmp_path):
    path = tmp_path / "text.csv"
    path.write_text("text\na good line\n \nanother\n", "utf-8")
    with pytest.raises(InputError, match=r"text\.csv:3"):
        pretrain(open_corpus(str(path)), tmp_path / "base", TINY, SHORT)
    path = tmp_path / "text.txt"
    path.write_bytes(b"a good line\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"text\.txt:2"):
        pretrain(open_corpus(str(path)), tmp_path / "base2", TINY, SHORT)
    assert not (tmp_path / "base2" / "config.json").exists()
    shutil.rmtree(tmp_path / "base2")
    with pytest.raises(OptionError, match="takes one column of text"):
        pretrain(open_corpus([("a", "b"), ("c", "d")]), tmp_path / "base2", TINY, SHORT)
    assert not (tmp_path / "base2").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--layers 0", "layers 0: must be 1 or more"),
        ("--hidden 60 --heads 7", "does not divide the 60 dimensions"),
        ("--hidden 193", "name their number with --heads"),
        ("--vocabulary 3", "vocabulary 3: must be 16 or more"),
        ("--set pooler=mean", "no such setting of pretraining"),
        ("--set step=4", "did you mean 'steps'"),
        ("--set steps=0", "must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, options, problem):
    with pytest.raises(OptionError, match=re.escape(problem)):
        run("pretrain", "nowhere.txt", "-o", tmp_path / "base", *options.split())


def test_several_processes_are_refused(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="one process"):
        pretrain(corpus, tmp_path / "base", TINY, SHORT)


def test_rows_of_one_token(start):
    """A text that is cut to nothing but its marks has nothing to mask."""
    made = objective(start)
    tokens = Tokens.from_rows([np.array([2, 3], np.int32), np.array([2, 9, 3], np.int32)])
    given = Batch((tokens,), np.arange(2), step=0, seed=0)
    assert made(given)["masked_lm"].item() >= 0
