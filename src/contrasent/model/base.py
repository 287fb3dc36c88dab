"""Shared by all models: prompts, and texts in calls of bounded size, equal ones once."""

# Prompts are kept as sentence-transformers does, in config_sentence_transformers.json. One with [X]
# is a template: its tokens stand around those of the text, which is cut so that they always fit.

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import ModelError, OptionError
from contrasent.files import read_object
from contrasent.processes import threads
from contrasent.text.tokens import SLOT, Tokenizer, lowered
from contrasent.types import EncodeFn, Task, Tokens, Vectors

log = logging.getLogger(__name__)

PROMPTS = "config_sentence_transformers.json"
TASKS: dict[str, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""Names of the prompts of a task; the first that a model has is taken."""
BUDGET = 2048
"""Padded tokens of a call: enough to keep a core busy, little enough to share calls among cores."""
FEW = 8  # up to so many texts are computed in one call by all cores, more by a call for each core


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a model; most models have none.

    Attributes:
        default: name of the one that is used where nobody names one, or None.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def text(self, name: str | None = None) -> str:
        """The text of a prompt; of the default if no name is given."""
        if name is None:
            return self.texts[self.default] if self.default else ""
        if name not in self.texts:
            known = f"it has {', '.join(self.texts)}" if self.texts else "it has none"
            problem = f"the model has no prompt of that name; {known}"
            raise OptionError("--prompt", name, problem, choices=self.texts)
        return self.texts[name]

    def of_task(self, task: Task) -> str:
        """The text for queries or documents; none if there is none, whatever the default is."""
        return next((self.texts[name] for name in TASKS[task] if name in self.texts), "")

    @classmethod
    def read(cls, folder: Path) -> "Prompts":
        """The prompts of a model folder, or of an export; empty ones are none."""
        path = folder / PROMPTS
        config = read_object(path)
        size = config.get("truncate_dim")
        if size is not None:
            raise ModelError(
                f"{path}: truncate_dim {size!r} is not supported; set it to null, knowing that the "
                "vectors are then others"
            )
        texts, default = config.get("prompts") or {}, config.get("default_prompt_name")
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise ModelError(f"{path}: prompts must map names to texts")
        if default is not None and default not in texts:
            raise ModelError(f"{path}: default_prompt_name {default!r} is none of its prompts")
        found = {str(name): text for name, text in texts.items() if text}
        return cls(found, default if default in found else None)


class Model:
    """Sentences in, vectors out, whatever computes them.

    Attributes:
        truncated: how many of the sentences of the last ``encode`` were cut at ``max_tokens``.
    """

    tokenizer: Tokenizer
    prompts: Prompts
    lower_case = False
    truncated = 0

    @property
    def identity(self) -> str:
        """A hash of all that decides the vectors: weights, tokenizer, settings, prompts."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        raise NotImplementedError

    @property
    def max_tokens(self) -> int:
        """Sentences are cut at this many tokens, special tokens included."""
        return self.tokenizer.max_tokens

    def tokenise(
        self, sentences: Sequence[str], prompt: str = ""
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Token ids of sentences after (or in) a prompt, and which were cut at ``max_tokens``."""
        if self.lower_case:
            sentences, prompt = lowered(sentences, prompt)
        return self.tokenizer(sentences, prompt)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a document, prompt included; one more where it was cut."""
        tokens, cut = self.tokenise(texts, self.prompts.of_task("document"))
        found: list[int] = (tokens.lengths + cut).tolist()
        return found

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenised sentences in one forward pass, without dropout, as of ``encode``."""
        raise NotImplementedError

    def encode(
        self, sentences: Sequence[str], *, batch: int = 64, prompt: str | None = None
    ) -> Vectors:
        """Vectors of sentences, float32, in the order given.

        Inside, equal sentences are computed once and the longest come first. How many sentences
        were cut is logged as a warning and kept in ``truncated``.

        Args:
            sentences: any number of strings, empty ones included.
            batch: sentences a forward pass at most. On CPU 2,048 tokens are enough for one too,
                and several are made at once.
            prompt: text to put before each, such as ``prompts.of_task("query")``, or a template;
                if None, the model's default prompt, if it has one.
        """
        texts, where = distinct(sentences)
        tokens, cut = self.tokenise(texts, self.prompts.text() if prompt is None else prompt)
        self.truncated = int(cut[where].sum())
        if self.truncated:
            counts = (self.truncated, len(sentences), self.max_tokens)
            log.warning("%d of %d sentences were cut at %d tokens", *counts)
        return self._encode(tokens, batch)[where]

    def _encode(self, tokens: Tokens, batch: int) -> Vectors:
        """Vectors of distinct rows in calls of at most ``batch`` of them."""
        raise NotImplementedError

    def _by_cores(
        self,
        embed: Callable[[Tokens], Vectors],
        tokens: Tokens,
        batch: int,
        widths: NDArray[np.int64],
        cores: int,
    ) -> Vectors:
        """Vectors of rows whose calls have these widths, a call for each core at once."""
        most = max(1, min(batch, -(-len(tokens) // cores)))
        calls = by_budget(widths, most, budget=BUDGET)
        if cores == 1:
            return in_calls(embed, tokens, self.dimension, calls)
        with ThreadPoolExecutor(cores, "contrasent-encode") as pool:
            return in_calls(embed, tokens, self.dimension, calls, pool)


class TaskEncoder:
    """A model's ``EncodeFn``, with one for each task for :func:`contrasent.types.for_task`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """Vectors with the default prompt, if there is one."""
        return self.model.encode(sentences)

    def for_task(self, task: Task) -> EncodeFn:
        """Itself, or the encoder of queries or documents where they have a prompt of their own."""
        text = self.model.prompts.of_task(task)
        if text == self.model.prompts.text():
            return self
        return lambda sentences: self.model.encode(sentences, prompt=text)


def cores_for(tokens: Tokens) -> int:
    """How many calls to make at once: one for a few texts, else one for each core."""
    return threads() if len(tokens) > FEW else 1


def distinct(sentences: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Every sentence once, and for each of those given (n,) which of them it is."""
    if isinstance(sentences, str):
        raise TypeError("encode takes a sequence of sentences, not one string")
    place: dict[str, int] = {}
    where = np.fromiter(
        (place.setdefault(s, len(place)) for s in sentences), np.int64, len(sentences)
    )
    return list(place), where


def in_calls(
    embed: Callable[[Tokens], Vectors],
    tokens: Tokens,
    dimension: int,
    calls: Iterable[NDArray[np.int64]],
    pool: Executor | None = None,
) -> Vectors:
    """Vectors (n, d) of rows of tokens, computed a few at a time."""
    out = np.empty((len(tokens), dimension), dtype=np.float32)

    def call(rows: NDArray[np.int64]) -> int:
        out[rows] = embed(tokens.select(rows))
        return len(rows)

    with progress.task("encode", len(tokens), "sentences") as advance:
        for count in map(call, calls) if pool is None else pool.map(call, calls):
            advance(count)
    return out


def by_budget(
    lengths: NDArray[np.int64], most: int, *, budget: int | None = None
) -> list[NDArray[np.int64]]:
    """Partition rows into calls, longest rows first, with little padding and bounded memory."""
    order = np.argsort(-lengths, kind="stable")
    calls, start = [], 0
    while start < len(order):
        room = most if budget is None else budget // max(1, int(lengths[order[start]]))
        calls.append(order[start : start + max(1, min(most, room))])
        start += len(calls[-1])
    return calls


def encode_batch_invariant(
    embed: Callable[[Tokens], Vectors], tokens: Tokens, dimension: int, *, budget: int = 256
) -> Vectors:
    """Vectors that do not depend, to the bit, on which other rows there are or in which order."""
    # The order of additions depends on a matrix's shape: rows of one length go together without
    # padding, always as many as fit, spare places filled by repetition.
    out = np.empty((len(tokens), dimension), dtype=np.float32)
    lengths = tokens.lengths
    with progress.task("encode", len(tokens), "sentences") as advance:
        for length in np.unique(lengths):
            count = max(1, budget // max(1, int(length)))
            rows = np.flatnonzero(lengths == length)
            for start in range(0, len(rows), count):
                part = rows[start : start + count]
                filled = np.resize(part, count)
                out[part] = embed(tokens.select(filled))[: len(part)]
                advance(len(part))
    return out


def dropout_view(encoder: Any, sentences: Sequence[str], *, seed: int, batch: int = 64) -> Vectors:
    """(n, d) float32 vectors, not normalised, with dropout on: a view that SimCSE compares."""
    # A function of the sentences, the seed and the batch size: the caller's random state is neither
    # read nor moved.
    import torch

    prompt = encoder.prompts.text()
    tokens, _ = encoder.tokenise(list(sentences), prompt if SLOT in prompt else "")
    calls = by_budget(tokens.lengths, batch)
    was = encoder.training
    encoder.train()
    try:
        with torch.inference_mode(), torch.random.fork_rng():
            torch.manual_seed(seed)
            embed = lambda part: encoder(part).cpu().numpy()  # noqa: E731
            return in_calls(embed, tokens, encoder.dimension, calls)
    finally:
        encoder.train(was)
