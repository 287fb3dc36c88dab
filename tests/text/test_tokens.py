"""The tokenizer and ragged rows: against transformers' own, and against plain lists."""

import json
import shutil

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.trainers import BpeTrainer

from contrasent.text.tokens import CHUNK, Tokenizer
from contrasent.types import Tokens

KINDS = ("bert", "roberta", "distilbert", "mpnet", "electra", "modernbert")
ragged = st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=9), max_size=8)


def lists(tokens):
    return [tokens[i].tolist() for i in range(len(tokens))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_ids_as_transformers(tiny, kind, sentences):
    from transformers import AutoTokenizer

    texts = [*sentences[:40], "", " ", "naïve 老水手 🎻", "a\tb\nc", "x" * 300, "[MASK] <mask>"]
    theirs = AutoTokenizer.from_pretrained(tiny[kind])(texts, truncation=True, max_length=12)
    tokens, cut = Tokenizer.load(tiny[kind], max_seq_length=12)(texts)
    assert lists(tokens) == theirs["input_ids"]
    whole = AutoTokenizer.from_pretrained(tiny[kind])(texts)["input_ids"]
    assert cut.tolist() == [len(ids) > 12 for ids in whole]
    assert True in cut.tolist()


@pytest.mark.parametrize(("kind", "stated"), [
    ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "strip_accents": None}),
    ("bert", {"tokenizer_class": "BertTokenizer", "strip_accents": False}),
    ("mpnet", {"tokenizer_class": "MPNetTokenizer", "tokenize_chinese_chars": False}),
    ("roberta", {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}),
    ("bert", {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}),
])  # fmt: skip
def test_the_settings_of_a_tokenizer_count_as_in_transformers(tiny, tmp_path, kind, stated):
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny[kind], tmp_path / "m")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | stated))
    texts = ["The Gardener", "a map", "naïve 老水手", "kettle"]
    theirs = AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]
    assert lists(Tokenizer.load(folder, max_seq_length=32)(texts)[0]) == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_the_frame_is_what_stands_around_every_sentence(tiny, kind):
    tokenizer = Tokenizer.load(tiny[kind], max_seq_length=20)
    before, after = tokenizer.frame
    assert (len(before), len(after)) == (1, 1)
    for ids in lists(tokenizer(["a map", "", "kettle " * 30])[0]):
        assert (ids[:1], ids[-1:]) == (before.tolist(), after.tolist())
    found = tokenizer.specials
    if kind in ("bert", "roberta"):
        wanted = {"bert": (0, 1, 4), "roberta": (1, 3, 4)}
        assert (found.pad, found.unknown, found.mask) == wanted[kind]
        assert found.all == frozenset(range(5))


def test_many_sentences_keep_their_order(tiny):
    tokenizer = Tokenizer.load(tiny["bert"], max_seq_length=20)
    texts = [f"kettle {'a ' * (i % 7)}" for i in range(2 * CHUNK + 3)]
    tokens, seven = tokenizer(texts)[0], lists(tokenizer(texts[:7])[0])
    assert len(tokens) == len(texts)
    assert all(tokens[i].tolist() == seven[i % 7] for i in range(0, len(texts), 501))
    tokens, cut = tokenizer([])
    assert (len(tokens), len(cut), tokens.ids.dtype) == (0, 0, np.int32)


def test_a_text_without_tokens_gets_one():
    backend = tokenizers.Tokenizer(WordLevel({"<unk>": 0, "a": 1, "<pad>": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    names = {"unk_token": "<unk>", "pad_token": {"content": "<pad>", "special": True}}
    tokenizer = Tokenizer(backend, max_seq_length=3, names=names)
    assert lists(tokenizer(["", "a", "a b"])[0]) == [[0], [1], [1, 0]]
    assert tokenizer.specials.pad == 2
    assert [part.tolist() for part in tokenizer.frame] == [[], []]


def test_only_texts_name_special_tokens(tiny, tmp_path):
    """null, true and lists are common in tokenizer_config.json and are no tokens."""
    config = json.loads((tiny["bert"] / "tokenizer_config.json").read_text())
    config |= {"bos_token": None, "add_bos_token": False, "add_eos_token": True, "x_token": ["y"]}
    config["sep_token"] = {"content": "[SEP]", "lstrip": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_bytes((tiny["bert"] / "tokenizer.json").read_bytes())
    tokenizer = Tokenizer.load(tmp_path, max_seq_length=20)
    names = ("pad", "unk", "cls", "sep", "mask")
    assert tokenizer.names == {f"{name}_token": f"[{name.upper()}]" for name in names}
    (tmp_path / "out").mkdir()
    tokenizer.save(tmp_path / "out")
    again = Tokenizer.load(tmp_path / "out", max_seq_length=20)
    assert again.names == tokenizer.names
    assert again.to_str() == tokenizer.to_str()
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert len(theirs) == tokenizer.size == 78
    assert theirs.model_max_length == 20


def test_a_saved_tokenizer_without_padding_is_read_alike(tmp_path):
    """As GPT-2's, whose first token is "!"."""
    backend = tokenizers.Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    backend.train_from_iterator(["A map!!! And a lamp!!!"], trainer)
    backend.add_special_tokens(["<|endoftext|>"])
    tokenizer, texts = Tokenizer(backend, max_seq_length=9), ["My map!!!", "a lamp!"]
    assert backend.id_to_token(0) == "!" and "!!!" in backend.get_vocab()
    tokenizer.save(tmp_path)
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(texts)["input_ids"] == lists(tokenizer(texts)[0])
    assert theirs.pad_token == "<|endoftext|>"


def test_size_is_one_more_than_the_largest_id():
    for vocabulary, added, size in (({"a": 70}, [], 71), ({"a": 1}, ["new"], 3)):
        backend = tokenizers.Tokenizer(WordLevel({"<unk>": 0, **vocabulary}, unk_token="<unk>"))
        backend.add_tokens(added)
        assert Tokenizer(backend, max_seq_length=5).size == size


def test_the_backend_is_copied(tiny):
    backend = tokenizers.Tokenizer.from_file(str(tiny["bert"] / "tokenizer.json"))
    backend.enable_padding(length=50)
    one, two = Tokenizer(backend, max_seq_length=5), Tokenizer(backend, max_seq_length=9)
    text = "the gardener sold his violin to my neighbor"
    assert [len(t([text])[0][0]) for t in (one, two)] == [5, 9]
    assert len(backend.encode("a").ids) == 50


@settings(deadline=None)
@given(ragged)
def test_rows_against_lists(rows):
    tokens = Tokens.from_rows(rows)
    assert lists(tokens) == rows
    assert tokens.lengths.tolist() == [len(row) for row in rows]
    picked = [i for i in range(len(rows)) for _ in range(i % 3)][::-1]
    assert lists(tokens.select(np.array(picked, np.int64))) == [rows[i] for i in picked]
    ids, mask = tokens.pad(7)
    width = max((len(row) for row in rows), default=0)
    assert ids.tolist() == [row + [7] * (width - len(row)) for row in rows]
    assert mask.tolist() == [[True] * len(r) + [False] * (width - len(r)) for r in rows]


@settings(deadline=None)
@given(st.lists(ragged, min_size=1, max_size=4), st.data())
def test_blocks_are_stacked(blocks, data):
    parts = []
    for rows in blocks:
        # A block may be a window into a longer array, as those of a cache are.
        whole = Tokens.from_rows([[1, 2], *rows, [3]])
        parts.append(Tokens(whole.ids, whole.offsets[1 : len(rows) + 2]))
    assert lists(Tokens.concatenate(parts)) == [row for rows in blocks for row in rows]
    some = data.draw(st.sampled_from(parts))
    assert some.pad(0)[0][some.pad(0)[1]].tolist() == [i for row in lists(some) for i in row]
