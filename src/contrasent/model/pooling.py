"""Poolers, which make one vector per sentence of token vectors: each is one class here.

A pooler says what it makes in the few operations of :class:`Rows`, which torch and numpy both have:
training (:mod:`contrasent.encoder.poolers`) and encoding without torch
(:mod:`contrasent.model.numpy_model`) compute it from the same lines.

"First-last" means two things in the literature, so there are two names: SimCSE's paper table was
computed with the embedding output (here ``embeddings_last``), its later code and BERT-whitening
average layer 1 and the last layer (here ``first_last``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from contrasent.errors import ModelError, check_choice

if TYPE_CHECKING:  # settings read the names, and need no numpy
    from numpy.typing import NDArray

    from contrasent.text.tokens import Tokenizer
    from contrasent.types import Tokens

MODULES = "sentence_transformers.models"
FLAGS = {
    "cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens",
}  # fmt: skip
"""Modes of sentence-transformers' pooling, and what its older schema calls them."""
OWN = "contrasent"
"""Modules of poolers that sentence-transformers lacks have types of this name, so that it rejects
the folder instead of pooling otherwise."""
Part = tuple[str, dict[str, Any], dict[str, Any]]
"""A module of a model folder: its type, its config.json and its tensors."""


class Rows(Protocol):
    """Rows of tokens, in torch or numpy.

    Values are one number or vector per token: (n, t) or (n, t, d) of padded rows in torch, (T,) or
    (T, d) of rows one after the other in numpy. What is reduced is one per row: (n,) or (n, d).
    ``among`` picks tokens of each row by booleans.
    """

    library: Any  # torch or numpy, for functions that both have by the same name
    ids: Any  # of the tokens

    def real(self, values: Any) -> Any:
        """Whole numbers as float32."""

    def any(self, among: Any) -> Any:
        """Whether each row has such a token."""

    def first(self, values: Any) -> Any:
        """The values of each row's first token."""

    def last(self, values: Any, among: Any = None) -> Any:
        """The values of each row's last token, ``among`` those of which every row has one."""

    def max(self, values: Any) -> Any:
        """The largest of each row, dimension by dimension."""

    def mean(self, values: Any, weights: Any = None) -> Any:
        """The mean of each row, weighted if there are weights of its tokens."""


class Pooler(ABC):
    """How the vectors of a sentence's tokens make its own.

    The docstring of a subclass says it in one sentence, which docs/methods.md has in its table.

    Attributes:
        name: in settings, options and model folders.
        layers: the hidden states whose mean is pooled, 0 for the embedding output, -1 for the last.
        mode: what sentence-transformers calls it, if that pools a saved model in the same way; of a
            pooler that keeps nothing.
        exportable: whether a graph for ONNX or OpenVINO can pool so.
        code: how its vectors are made, for the cards of models: with ``mode`` lines of torch that
            make ``vectors`` of ``states`` and ``mask`` (n, t, 1), else prose, where TEMPLATE stands
            for the model's prompt.
    """

    name: ClassVar[str]
    layers: ClassVar[tuple[int, ...]] = (-1,)
    mode: ClassVar[str | None] = None
    exportable: ClassVar[bool] = True
    code: ClassVar[str]

    def __init__(self, tokenizer: "Tokenizer") -> None:
        """For the tokens of that tokenizer."""
        self.tokenizer = tokenizer

    @abstractmethod
    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """Vectors (n, d) of rows whose tokens have the vectors ``states``.

        ``kept``: the arrays that ``initial`` names, as they are by now.
        """

    def initial(self, size: int, vocabulary: int) -> "dict[str, NDArray[Any]]":
        """What it keeps, before training: weights (float32), which are trained, and counts.

        For vectors of that size and a vocabulary. Saved with a model, and part of its identity.
        """
        return {}

    def count(self, corpus: "Iterable[Tokens]", vocabulary: int) -> "dict[str, NDArray[Any]]":
        """Statistics of the training corpus, block by block; taken when training starts."""
        return {}

    def check(self, kept: Mapping[str, Any]) -> None:  # noqa: B027 (most can pool at once)
        """Reject what is kept if it cannot pool yet."""


class First(Pooler):
    """The first token's vector in the last layer (SimCSE, section 6.1)."""

    name = mode = "cls"
    code = "vectors = states[:, 0]"

    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """(n, d) vectors."""
        return rows.first(states)


class Mean(Pooler):
    """The mean over the tokens of the last layer."""

    name = mode = "mean"
    code = "vectors = (states * mask).sum(1) / mask.sum(1)"

    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """(n, d) vectors."""
        return rows.mean(states)


class Maximum(Pooler):
    """The maximum over the tokens of the last layer, dimension by dimension."""

    name = mode = "max"
    code = "vectors = states.masked_fill(mask == 0, -torch.inf).amax(1)"

    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """(n, d) vectors."""
        return rows.max(states)


class LastToken(Pooler):
    """The last token's vector in the last layer; for embedding models that are decoders.

    In a decoder it is the only one that has seen the whole text.
    """

    name, mode = "last_token", "lasttoken"
    code = (
        "last = (torch.arange(mask.shape[1]) * mask[..., 0]).amax(1)\n"
        "vectors = states[torch.arange(len(texts)), last]"
    )

    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """(n, d) vectors."""
        return rows.last(states)


class FirstLast(Mean):
    """The mean over the tokens of layer 1 and the last (BERT-whitening, SimCSE's code)."""

    name, layers = "first_last", (1, -1)


class EmbeddingsLast(Mean):
    """The mean over the tokens of the embedding output and the last layer (SimCSE, Table 5)."""

    name, layers = "embeddings_last", (0, -1)


class LastTwo(Mean):
    """The mean over the tokens of the last two layers ("avg_top2" in SimCSE's code)."""

    name, layers = "last_two", (-2, -1)


class MaskPooling(Pooler):
    """The last layer's vector at the last mask token of a template (PromptBERT, section 3.2)."""

    name = "mask"
    exportable = False
    code = (
        "A vector is the last hidden state at the mask token of the template `TEMPLATE`, [X] being "
        "the text.\nsentence-transformers and exports have no such pooling and reject the model.\n"
    )

    def __init__(self, tokenizer: "Tokenizer") -> None:
        """For the mask token of that tokenizer."""
        super().__init__(tokenizer)
        mask = tokenizer.specials.mask
        self.mask = -1 if mask is None else mask

    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """(n, d) vectors."""
        masked = rows.ids == self.mask
        if not bool(rows.any(masked).all()):
            raise ModelError(
                "pooling at the mask token needs a prompt with [MASK], as the objective "
                "promptbert saves it"
            )
        return rows.last(states, masked)


class IdfPooling(Pooler):
    """The mean, weighted by inverse document frequency in the training corpus.

    Weights are ln((1 + N) / (1 + n_t)) + 1 (Spärck Jones 1972, smoothed): N texts of the training
    corpus, n_t of which hold token t. The least weight is 1, that of [CLS] and [SEP], so that an
    empty text has a vector too.
    """

    name = "idf"
    code = (
        "A vector is the mean of the last hidden states, each token weighted by its inverse "
        "document frequency in the training corpus.\nsentence-transformers has no such pooling and "
        "rejects the model.\n"
    )

    def initial(self, size: int, vocabulary: int) -> "dict[str, NDArray[Any]]":
        """The texts, and those that hold each token."""
        import numpy as np

        return {"texts": np.zeros((), np.int64), "frequencies": np.zeros(vocabulary, np.int64)}

    def count(self, corpus: "Iterable[Tokens]", vocabulary: int) -> "dict[str, NDArray[Any]]":
        """Count the texts, and those that hold each token."""
        import numpy as np

        kept = self.initial(0, vocabulary)
        for tokens in corpus:
            rows = np.repeat(np.arange(len(tokens)), tokens.lengths)
            ids = tokens.ids[tokens.offsets[0] : tokens.offsets[-1]]
            once = np.unique(rows * vocabulary + ids) % vocabulary
            kept["frequencies"] += np.bincount(once, minlength=vocabulary)
            kept["texts"] += len(tokens)
        return kept

    def check(self, kept: Mapping[str, Any]) -> None:
        """Reject frequencies that nothing has counted."""
        if not int(kept["texts"]):
            raise ModelError(
                "pooling 'idf' needs token frequencies; contrasent train --set pooling=idf "
                "counts and saves them"
            )

    def pool(self, rows: Rows, states: Any, kept: Mapping[str, Any]) -> Any:
        """(n, d) vectors."""
        texts, holding = rows.real(1 + kept["texts"]), rows.real(1 + kept["frequencies"][rows.ids])
        return rows.mean(states, rows.library.log(texts / holding) + 1)


POOLERS: dict[str, type[Pooler]] = {
    kind.name: kind
    for kind in (
        First, Mean, Maximum, LastToken, FirstLast, EmbeddingsLast, LastTwo, MaskPooling, IdfPooling
    )
}  # fmt: skip
"""All poolers, by name."""


def averaged(states: Sequence[Any]) -> Any:
    """The mean of the hidden states that a pooler reads, in torch or numpy."""
    return states[0] if len(states) == 1 else sum(states[1:], states[0]) / len(states)


def modes() -> dict[str, str]:
    """The poolers of the last layer that sentence-transformers has, by its names for them."""
    found: dict[str, str] = {}
    for name, kind in POOLERS.items():
        if kind.mode in FLAGS and kind.layers == (-1,):
            found.setdefault(kind.mode, name)
    return found


def check_pooler(name: str) -> None:
    """Reject an unknown pooler."""
    check_choice("pooling", name, POOLERS)


def layer_weights(read: tuple[int, ...], depth: int) -> list[float] | None:
    """Weights of the depth + 1 hidden states if several are averaged; None for the last alone."""
    if len(read) == 1:
        return None
    picked = {layer % (depth + 1) for layer in read}
    return [float(i in picked) for i in range(depth + 1)]


def averaging(weights: list[float]) -> str | None:
    """The name of the pooler whose mean over the tokens is of layers with these weights, if any."""
    depth = len(weights) - 1
    means = (name for name, kind in POOLERS.items() if kind.mode == "mean")
    return next((n for n in means if layer_weights(POOLERS[n].layers, depth) == weights), None)
