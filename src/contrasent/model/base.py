"""Shared by all encoders: prompts, and texts in calls of bounded size, equal ones once.

Prompts are kept as sentence-transformers does, in config_sentence_transformers.json. One with [X]
is a template: its tokens stand around those of the text, which is cut so that they always fit.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from contrasent import progress
from contrasent.errors import ModelError, OptionError, check_count, import_extra, texts_of
from contrasent.files import read_object
from contrasent.metrics import normalize
from contrasent.model.golden import PROBES, EncoderConfig, Golden
from contrasent.processes import threads
from contrasent.text.tokens import Tokenizer, lowered
from contrasent.types import EncodeFn, Task, Tokens, Vectors

log = logging.getLogger(__name__)

PROMPTS = "config_sentence_transformers.json"
TASKS: dict[str, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""Names of the prompts of a task; the first that a model has is taken."""
SIMILARITIES = ("cosine", "dot")
BUDGET = 2048
"""Padded tokens of a call: enough to keep a core busy, little enough to share calls among cores."""
FEW = 8  # up to this many texts are computed in one call by all cores, more by a call for each core


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a model, if it has any, and the similarity that its vectors are made for.

    Attributes:
        default: name of the prompt that is used if none is named, or None.
        similarity: "cosine" or "dot".
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    similarity: str = "cosine"

    def text(self, name: str | None = None) -> str:
        """The text of the prompt with this name, or of the default prompt; "" without one."""
        if name is None:
            return self.texts[self.default] if self.default else ""
        if name not in self.texts:
            known = f"the model has {', '.join(self.texts)}" if self.texts else "the model has none"
            problem = f"unknown prompt; {known}"
            raise OptionError("--prompt", name, problem, choices=self.texts)
        return self.texts[name]

    def of_task(self, task: Task) -> str:
        """The prompt for queries or for documents; "" without one, not the default prompt."""
        return next((self.texts[name] for name in TASKS[task] if self.texts.get(name)), "")

    @classmethod
    def read(cls, folder: Path) -> "Prompts":
        """Read the prompts of a model folder or of an export."""
        path = folder / PROMPTS
        config = read_object(path)
        kind, size = config.get("model_type"), config.get("truncate_dim")
        if kind in ("CrossEncoder", "MultiVectorEncoder", "SparseEncoder"):
            raise ModelError(f"{path}: is of a {kind}; use a SentenceTransformer")
        if size is not None:
            problem = f"truncate_dim {size!r} is not supported; null disables it"
            raise ModelError(f"{path}: {problem}, which changes the vectors")
        texts, default = config.get("prompts") or {}, config.get("default_prompt_name")
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise ModelError(f"{path}: prompts must map names to texts")
        if default is not None and default not in [*texts]:
            raise ModelError(f"{path}: default_prompt_name {default!r} is not one of its prompts")
        stated = config.get("similarity_fn_name") or "cosine"
        if stated not in SIMILARITIES:
            problem = f"similarity_fn_name {stated!r} is not supported; use cosine or dot"
            raise ModelError(f"{path}: {problem}")
        return cls(texts, default if texts.get(default) else None, stated)


class Encoder(ABC):
    """A model that encodes sentences as vectors, by torch, by numpy or by an exported graph.

    Attributes:
        runtime: what runs it: torch, numpy, onnx, onnx-int8, openvino or openvino-int8.
        prompts: texts that ``encode`` can prepend to sentences, by name.
        matryoshka_dims: sizes that vectors were trained to be cut to, largest first.
        truncated: how many sentences of the last ``encode`` were cut at ``max_seq_length``.

    Examples:
        >>> from contrasent import Encoder
        >>> encoder = Encoder.load("all-MiniLM-L6-v2")
        >>> encoder.encode(["a broken drill", "a train ticket"]).shape
        (2, 384)
        >>> texts = ["damaged tools", "travel expenses"]
        >>> encoder.similarity("a broken drill", texts).round(2)
        array([0.65, 0.03], dtype=float32)
    """

    opener: ClassVar[Callable[..., "Encoder"]]  # of :mod:`contrasent.model.opening`, which sets it
    tokenizer: Tokenizer
    prompts: Prompts
    runtime: str
    loaded_by: tuple[str, dict[str, Any]] | None = None  # name and settings, of :meth:`load`
    lower_case = False
    matryoshka_dims: tuple[int, ...] = ()  # of most models none
    truncated = 0
    longest = 0  # the most that ``max_seq_length`` can be; 0 if it is fixed

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        runtime: str | None = None,
        pooling: str | None = None,
        max_seq_length: int | None = None,
        revision: str | None = None,
        check: bool = True,
        **torch_settings: Any,
    ) -> "Encoder":
        """Load a model; settings that are None are those of its folder.

        Args:
            name: a folder, an installed model such as "all-MiniLM-L6-v2", or a name on the hub,
                with a commit to download it (NAME@COMMIT).
            runtime: what runs it; by default torch if it is installed, else numpy, whose vectors
                are the same to 1e-5. An exported model has its own.
            pooling: needed for a plain transformers encoder, whose folder does not name one.
            max_seq_length: cut sentences at this many tokens, special tokens included.
            revision: commit of a model on the hub.
            check: verify the weights by the digests that were saved with them.
            torch_settings: ``head``, ``normalize``, ``dropout``, ``attention_dropout``,
                ``bidirectional`` and ``device``, as :meth:`contrasent.engine.TorchEncoder.load`
                takes them.

        Raises:
            ModelError: the folder is not a model, or its weights are missing, damaged or of another
                shape.
            OptionError: a value is invalid.
            MissingExtraError: torch, or the runtime of an exported model, is not installed.
        """
        given = {"pooling": pooling, "max_seq_length": max_seq_length, "check": check}
        return cls.opener(name, revision, runtime=runtime, torch_settings=torch_settings, **given)

    @property
    @abstractmethod
    def identity(self) -> str:
        """A hash of what determines the vectors: weights, tokenizer, settings, prompts."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Size of the vectors."""

    @property
    def max_seq_length(self) -> int:
        """Sentences are cut at this many tokens, special tokens included."""
        return self.tokenizer.max_seq_length

    def tokenize(
        self, sentences: Sequence[str], prompt: str = ""
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Token ids of sentences with a prompt, and (n,) which were cut at ``max_seq_length``."""
        if self.lower_case:
            sentences, prompt = lowered(sentences, prompt)
        return self.tokenizer(sentences, prompt)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text as a document, with its prompt; one more if it was cut."""
        tokens, cut = self.tokenize(texts, self.prompts.of_task("document"))
        counts: list[int] = (tokens.lengths + cut).tolist()
        return counts

    @abstractmethod
    def embed(self, tokens: Tokens) -> Vectors:
        """Encode tokenized sentences in one forward pass without dropout, as ``encode`` does."""

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        batch_size: int = 64,
        show_progress_bar: bool | None = None,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Vectors:
        """Encode sentences as float32 vectors (n, d), in their order; (d,) for one string.

        Equal sentences are computed once, the longest first. A warning says how many were cut, and
        ``truncated`` keeps the number. The arguments have the names of sentence-transformers.

        Args:
            sentences: one string or several, also empty ones; an array or a column of a data frame.
            prompt: text to prepend to each sentence, or a template with "[X]"; the model's default
                prompt if None.
            prompt_name: name of a prompt of the model, such as "query", instead of ``prompt``.
            batch_size: most sentences in a forward pass. On a CPU a pass also ends at 2,048 tokens,
                and several run at once.
            show_progress_bar: show a bar, or lines if the output is not a terminal; if None, as
                chosen by :func:`contrasent.progress.show`.
            convert_to_tensor: return a torch tensor instead of a numpy array.
            normalize_embeddings: scale the vectors to length one.
            truncate_dim: keep this many dimensions, for models trained with Matryoshka.

        Returns:
            A numpy array, or a torch tensor.

        Raises:
            OptionError: an input is not a text (the message has its position), or a prompt or size
                is unknown.
            MissingExtraError: ``convert_to_tensor`` without torch.
        """
        if prompt_name is not None:
            if prompt is not None:
                raise OptionError("prompt_name", prompt_name, "cannot be combined with prompt")
            prompt = self.prompts.text(prompt_name)
        if truncate_dim is not None and not 1 <= truncate_dim <= self.dimension:
            problem = f"must be from 1 to {self.dimension}, the dimension of the model"
            raise OptionError("truncate_dim", truncate_dim, problem)
        given = [sentences] if isinstance(sentences, str) else sentences
        several = texts_of("sentences", given)
        with progress.shown(show_progress_bar):
            vectors, self.truncated = self.encode_and_count(
                several, batch_size=batch_size, prompt=prompt
            )
        if self.truncated:
            counts = (self.truncated, len(several), self.max_seq_length)
            log.warning("%d of %d sentences were truncated to %d tokens", *counts)
        vectors = vectors[:, :truncate_dim]
        if normalize_embeddings:
            vectors = normalize(vectors).astype(np.float32)
        if convert_to_tensor:
            torch = import_extra("torch", "train", "tensors")
            vectors = torch.from_numpy(np.ascontiguousarray(vectors))
        return vectors[0] if isinstance(sentences, str) else vectors

    def similarity(
        self, first: str | Sequence[str], second: str | Sequence[str]
    ) -> NDArray[np.float32] | np.float32:
        """Cosines (n, m) of texts, or dot products if the model is trained for these.

        One string instead of a list has no axis in the result.

        Args:
            first: one string or n of them.
            second: one string or m of them.
        """
        one, other = (np.atleast_2d(self.encode(texts)) for texts in (first, second))
        if self.prompts.similarity == "cosine":
            one, other = normalize(one), normalize(other)
        cosines: NDArray[np.float32] = one @ other.T
        rows = cosines[0] if isinstance(first, str) else cosines
        return rows[..., 0] if isinstance(second, str) else rows

    def encode_and_count(
        self, sentences: Sequence[str], *, batch_size: int = 64, prompt: str | None = None
    ) -> tuple[Vectors, int]:
        """Vectors (n, d) as of ``encode``, and how many sentences were cut, without a warning."""
        check_count("batch_size", batch_size)
        texts, where = distinct(sentences)
        tokens, cut = self.tokenize(texts, self.prompts.text() if prompt is None else prompt)
        return self.encode_tokens(tokens, batch_size)[where], int(cut[where].sum())

    @property
    @abstractmethod
    def config(self) -> EncoderConfig:
        """The settings that determine the vectors, with :attr:`identity`."""

    def golden(self, texts: Sequence[str] = PROBES) -> Golden:
        """The vectors of texts, each computed alone, for ``contrasent doctor``."""
        tokens, _ = self.tokenize(texts, self.prompts.text())
        rows = [self.embed(tokens.select(np.array([row]))) for row in range(len(texts))]
        return Golden(tuple(texts), tokens, np.concatenate(rows), self.config)

    @abstractmethod
    def encode_tokens(self, tokens: Tokens, batch_size: int) -> Vectors:
        """Vectors of distinct rows in calls of at most ``batch_size`` of them."""

    def _by_cores(
        self,
        embed: Callable[[Tokens], Vectors],
        tokens: Tokens,
        batch_size: int,
        widths: NDArray[np.int64],
        cores: int,
    ) -> Vectors:
        """Vectors of rows whose calls have these widths, a call for each core at once."""
        most = max(1, min(batch_size, -(-len(tokens) // cores)))
        calls = by_budget(widths, most, budget=BUDGET)
        if cores == 1:
            return in_calls(embed, tokens, self.dimension, calls)
        with ThreadPoolExecutor(cores, "contrasent-encode") as pool:
            return in_calls(embed, tokens, self.dimension, calls, pool)


class TaskEncoder:
    """An encoder's ``EncodeFn``, with one for each task for :func:`contrasent.types.for_task`."""

    def __init__(
        self, encoder: Encoder, *, batch_size: int = 64, batch_invariant: bool = False
    ) -> None:
        self.encoder, self.batch_size, self.batch_invariant = encoder, batch_size, batch_invariant
        self.texts = self.truncated = 0  # how many were encoded, and how many of these cut
        self.prompt: str | None = None  # put before each; the encoder's default prompt if None

    def again(self) -> "TaskEncoder":
        """The same with counts of its own."""
        return TaskEncoder(
            self.encoder, batch_size=self.batch_size, batch_invariant=self.batch_invariant
        )

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """Vectors (n, d)."""
        return self._encode(sentences, self.prompt)

    def for_task(self, task: Task) -> EncodeFn:
        """Itself, or the encoder of queries or documents where they have a prompt of their own."""
        prompts = self.encoder.prompts
        text = prompts.of_task(task)
        if text == (prompts.text() if self.prompt is None else self.prompt):
            return self
        return lambda sentences: self._encode(sentences, text)

    def _encode(self, sentences: Sequence[str], prompt: str | None) -> Vectors:
        encoder = self.encoder
        if self.batch_invariant:
            chosen = encoder.prompts.text() if prompt is None else prompt
            tokens, marks = encoder.tokenize(sentences, chosen)
            vectors = encode_batch_invariant(encoder.embed, tokens, encoder.dimension)
            cut = int(marks.sum())
        else:
            vectors, cut = encoder.encode_and_count(
                sentences, batch_size=self.batch_size, prompt=prompt
            )
        self.texts += len(sentences)
        self.truncated += cut
        return vectors

    @property
    def notes(self) -> list[str]:
        """A line about the texts that were cut, if any were."""
        if not self.truncated:
            return []
        most = self.encoder.max_seq_length
        cut = f"{self.truncated:,} of {self.texts:,} texts were truncated to {most} tokens"
        return [f"{cut} (--max-seq-length)" if most < self.encoder.longest else cut]


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
    embed: Callable[[Tokens], Vectors], tokens: Tokens, dimension: int
) -> Vectors:
    """Vectors that do not depend, to the bit, on which other rows there are or in which order."""
    # The order of additions depends on the shape of a product, and with some kernels (OpenBLAS for
    # AVX2) on the place of a row in it, so each text has a call of its own, on one core.
    with threadpool_limits(1, "blas"):
        return in_calls(embed, tokens, dimension, np.arange(len(tokens))[:, None])
