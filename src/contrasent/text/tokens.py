"""From strings to ragged token ids, with `tokenizers` directly: no padding, no torch.

A wrapper of transformers costs three times as long per sentence.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import tokenizers
from numpy.typing import NDArray

from contrasent.errors import ModelError, OptionError, brief, import_extra
from contrasent.files import read_object, write_object
from contrasent.progress import check_deadline
from contrasent.stats.bootstrap import mixed
from contrasent.types import Tokens, batched

BLOCK = 65_536  # texts whose tokens are held at once
CHUNK = 256  # sentences between two looks at the clock
SLOT, MASK = "[X]", "[MASK]"
"""Where a template has the sentence, and its mask token, in any vocabulary."""
PADS = ("[PAD]", "<pad>")
SIDE = "truncation_side"
STATED = {
    "do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars",
    "strip_accents": "strip_accents", "add_prefix_space": "add_prefix_space",
}  # fmt: skip
"""Settings in tokenizer_config.json that transformers prefers to those in tokenizer.json."""
AS_IN_FILE = ("PreTrainedTokenizerFast", "TokenizersBackend")  # its classes that do not
VOCABULARIES = ("vocab*", "*.model", "*.vocab")
"""Files of older tokenizers; without one of them transformers makes an empty tokenizer."""


@dataclass(frozen=True, slots=True)
class Specials:
    """Ids of the special tokens that the rest of the library needs; None where there is none."""

    pad: int
    mask: int | None
    unknown: int | None
    all: frozenset[int]


_HANDED_OVER: "WeakValueDictionary[Path, Tokenizer]" = WeakValueDictionary()


class Tokenizer:
    """A ``tokenizers.Tokenizer``, the length it cuts at, and the ids of its special tokens."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        max_seq_length: int,
        names: dict[str, Any] | None = None,
        copy: bool = True,
    ) -> None:
        """Take over a backend; its own padding and truncation settings are switched off."""
        self.backend = tokenizers.Tokenizer.from_str(backend.to_str()) if copy else backend
        self.backend.no_padding()
        # The texts of special tokens; null and settings such as ``add_bos_token`` name none.
        self.names: dict[str, str] = {}
        for key, value in (names or {}).items():
            text = value.get("content") if isinstance(value, dict) else value
            if (key.endswith("_token") or key == SIDE) and isinstance(text, str):
                self.names[key] = text
        self.max_seq_length = max_seq_length
        cut = self.backend.truncation or {}
        side = self.names.pop(SIDE, cut.get("direction", "right"))
        if side not in ("left", "right"):
            raise ModelError(f"truncation_side is {side!r}; it must be left or right")
        self.from_left = side == "left"  # whether the beginning of a long text is cut
        if self.from_left:
            self.names[SIDE] = side
        self.backend.enable_truncation(max_seq_length, direction=side)

    def hand_over(self, folder: Path) -> "Tokenizer":
        """Hand the backend to the next load of this folder; large ones take seconds to read."""
        _HANDED_OVER[folder.resolve()] = self
        return self

    @classmethod
    def load(cls, folder: Path, *, max_seq_length: int) -> "Tokenizer":
        """Read ``tokenizer.json``, or let transformers convert an older format."""
        names = read_object(folder / "tokenizer_config.json")
        path = folder / "tokenizer.json"
        if (loaded := _HANDED_OVER.pop(folder.resolve(), None)) is not None:
            return cls(loaded.backend, max_seq_length=max_seq_length, names=names, copy=False)
        if path.is_file():
            try:
                backend = tokenizers.Tokenizer.from_file(str(path))
                if names.get("tokenizer_class") not in AS_IN_FILE:
                    for part in (backend.normalizer, backend.pre_tokenizer):
                        for key, name in STATED.items():
                            if names.get(key) is not None and hasattr(part, name):
                                setattr(part, name, names[key])
            except Exception as error:
                raise ModelError(f"{path}: not a readable tokenizer ({error})") from error
            return cls(backend, max_seq_length=max_seq_length, names=names, copy=False)
        if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
            raise ModelError(f"{folder}: contains neither tokenizer.json nor a vocabulary")
        purpose = f"building a tokenizer from the vocabulary in {folder}"
        transformers = import_extra("transformers", "train", purpose)
        try:
            slow = transformers.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
            backend = slow.backend_tokenizer
            names = dict(slow.special_tokens_map)
        except Exception as error:
            problem = f"tokenizer.json is missing and could not be built ({brief(error)})"
            raise ModelError(f"{folder}: {problem}; a *.model needs sentencepiece") from error
        return cls(backend, max_seq_length=max_seq_length, names=names)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and the settings that readers need with it."""
        (folder / "tokenizer.json").write_text(self.backend.to_str(pretty=True), "utf-8")
        pad, special = self.specials.pad, self.specials.all
        if special and pad not in special and self.backend.id_to_token(pad) not in PADS:
            pad = min(special)  # readers would cut a character, GPT-2's "!", out of words
        token = self.names.get("eos_token") or self.backend.id_to_token(pad)
        config = {
            # Readers need one, also where the model has none.
            **({} if token is None else {"pad_token": token}),
            **self.names,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": self.max_seq_length,
            # Not every encoder knows token types, and with one text they are all zero.
            "model_input_names": ["input_ids", "attention_mask"],
        }
        write_object(folder / "tokenizer_config.json", config)

    def within(self, rows: int) -> "Tokenizer":
        """This one without special tokens beyond an embedding's rows, such as Gemma's of images."""
        if self.size <= rows:
            return self
        stated = json.loads(self.to_str())
        lost = [t for t in stated["added_tokens"] if t["special"] and t["id"] >= rows]
        stated["added_tokens"] = [t for t in stated["added_tokens"] if t not in lost]
        texts = {token["content"] for token in lost}
        names = {key: text for key, text in self.names.items() if text not in texts}
        backend = tokenizers.Tokenizer.from_str(json.dumps(stated))
        return Tokenizer(backend, max_seq_length=self.max_seq_length, names=names, copy=False)

    @cached_property
    def specials(self) -> Specials:
        """Ids of the special tokens."""
        added = self.backend.get_added_tokens_decoder()
        marked = {i for i, token in added.items() if token.special}
        marked |= {int(i) for i in self.backend.encode("").ids}

        def find(*candidates: str | None) -> int | None:
            ids = (self.backend.token_to_id(text) for text in candidates if text)
            return next((i for i in ids if i is not None), None)

        pad = find(self.names.get("pad_token"), *PADS)
        return Specials(
            pad=0 if pad is None else pad,
            mask=find(self.names.get("mask_token"), "[MASK]", "<mask>"),
            unknown=find(self.names.get("unk_token"), "[UNK]", "<unk>"),
            all=frozenset(marked),
        )

    @cached_property
    def frame(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids that the template puts before and after every sentence, such as [CLS] and [SEP]."""
        return around(Tokens.from_rows([self.backend.encode(text).ids for text in ("", "a")]))

    @cached_property
    def size(self) -> int:
        """One more than the largest id, added tokens included."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def _mark(self) -> str:
        """The mark of a token that begins a word, such as "▁"; "" where none has one."""
        first = next(iter(self.backend.encode("the", add_special_tokens=False).tokens), "")
        return first[:1] if first[:1] in ("▁", "Ġ") else ""

    def knows(self, word: str) -> bool:
        """Whether a word, in small letters or with a capital, is one token."""
        forms = {word, word.lower(), word.capitalize()}
        return any(self.backend.token_to_id(self._mark + form) is not None for form in forms)

    def around(self, prompt: str = "") -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids before and after every sentence: :attr:`frame`, and a template's own within it."""
        before, after = self.frame
        if SLOT not in prompt:
            return before, after
        mask = self.specials.mask
        if mask is not None:
            prompt = prompt.replace(MASK, str(self.backend.id_to_token(mask)))
        parts = prompt.split(SLOT)
        if len(parts) != 2:
            raise OptionError("prompt", prompt, f"a template must contain {SLOT} once")
        encoded = (self.backend.encode(part, add_special_tokens=False).ids for part in parts)
        first, last = (np.asarray(ids, dtype=np.int32) for ids in encoded)
        return np.concatenate([before, first]), np.concatenate([last, after])

    def plain(self, prompt: str) -> list[int]:
        """Ids of a prompt that precedes a sentence; none of a template."""
        if not prompt or SLOT in prompt:
            return []
        return list(self.backend.encode(prompt, add_special_tokens=False).ids)

    def __call__(
        self, sentences: Sequence[str], prompt: str = ""
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Tokenize sentences."""
        templated = SLOT in prompt
        before, after = (ids.tolist() for ids in self.around(prompt)) if templated else ([], [])
        room = self.max_seq_length - len(before) - len(after)
        if room < 1:
            problem = (
                f"the template {prompt!r} leaves no room for a sentence; its own tokens number "
                f"{len(before) + len(after)}"
            )
            raise OptionError("max_seq_length", self.max_seq_length, problem)
        if prompt and not templated:
            sentences = [prompt + sentence for sentence in sentences]
        parts, lengths, cut, specials = [], list[int](), list[bool](), self.specials
        # The token of a text without tokens, where the template adds none.
        nothing = [specials.pad if specials.unknown is None else specials.unknown]
        for chunk in batched(sentences, CHUNK):
            check_deadline()
            flat: list[int] = []
            for encoding in self.backend.encode_batch_fast(chunk, add_special_tokens=not templated):
                ids, over = encoding.ids, bool(encoding.overflowing)
                if templated:
                    kept, over = ids[-room:] if self.from_left else ids[:room], len(ids) > room
                    ids = [*before, *kept, *after]
                flat += ids or nothing
                lengths.append(len(ids or nothing))
                cut.append(over)
            parts.append(np.array(flat, np.int32))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flattened = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return Tokens(flattened, offsets), np.asarray(cut, dtype=np.bool_)

    def to_str(self) -> str:
        """The whole tokenizer as JSON, for hashing."""
        return str(self.backend.to_str())


def lowered(sentences: Sequence[str], prompt: str) -> tuple[list[str], str]:
    """Sentences in lower case, with what precedes them; a template stays as it is."""
    if SLOT in prompt:
        return [sentence.lower() for sentence in sentences], prompt
    return [(prompt + sentence).lower() for sentence in sentences], ""


Ids = NDArray[np.int32]


class TextKeys:
    """Numbers of texts, equal where a model reads equal tokens; those of a prompt do not count."""

    def __init__(self, tokenizer: Tokenizer, lower: bool, prompts: Sequence[str]) -> None:
        """``prompts``: that of each column."""
        self._tokenizer, self._lower, self._prompts = tokenizer, lower, list(prompts)
        different = len(set(prompts)) > 1  # equal ones tell no texts apart
        read = (self._read(["", "a"], prompt) for prompt in prompts)
        self._around = [around(pair) if different else None for pair in read]

    def __call__(self, texts: Sequence[str], column: int) -> NDArray[np.uint64]:
        """(n,) a number for each text of a column."""
        numbers = np.empty(len(texts), np.uint64)
        for start in range(0, len(texts), BLOCK):
            tokens = self._read(texts[start : start + BLOCK], self._prompts[column])
            numbers[start : start + len(tokens)] = row_keys(tokens, self._around[column])
        return numbers

    def _read(self, texts: Sequence[str], prompt: str) -> Tokens:
        if self._lower:
            texts, prompt = lowered(texts, prompt)
        return self._tokenizer(texts, prompt)[0]


def around(pair: Tokens) -> tuple[Ids, Ids]:
    """What the rows of two texts, "" and "a", have in common at both ends."""
    empty, probe = pair[0], pair[1]
    size = min(len(empty), len(probe))
    before = int(np.cumprod(empty[:size] == probe[:size]).sum())
    last = slice(-1, before - size - 1, -1)  # backwards, as far as nothing is before
    after = int(np.cumprod(empty[last] == probe[last]).sum())
    return empty[:before], empty[len(empty) - after :]


def row_keys(tokens: Tokens, framed: tuple[Ids, Ids] | None = None) -> NDArray[np.uint64]:
    """(n,) numbers of rows, equal for equal ids inside those around them."""
    before, after = framed or (np.empty(0, np.int32), np.empty(0, np.int32))
    # What stands around a row is cut off where it is long enough and begins so.
    starts, ends = tokens.offsets[:-1], tokens.offsets[1:]
    cut = ends - starts >= len(before) + len(after)
    for at, token in enumerate(before):
        places = np.minimum(starts + at, max(0, len(tokens.ids) - 1))
        cut &= tokens.ids[places] == token
    first, last = starts + len(before) * cut, ends - len(after) * cut
    # The ids that are left, one row after the other, and their places in the rows.
    sizes = last - first
    total = np.concatenate([[0], np.cumsum(sizes)])
    inside = np.arange(total[-1]) - np.repeat(total[:-1], sizes)
    ids = tokens.ids[np.repeat(first, sizes) + inside].astype(np.uint64)
    # A number for each id at its place, and their sum over each row.
    values = mixed(mixed(ids) + inside.astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    keys: NDArray[np.uint64] = mixed(sums[total[1:]] - sums[total[:-1]] + sizes.astype(np.uint64))
    return keys
