"""A model with a flow on top, to be used as any other model."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from contrasent.types import Tokens, Vectors

if TYPE_CHECKING:
    from contrasent.postprocess.flow import Flow


class Flowed:
    """An encoder whose vectors a flow takes on to its own space.

    Args:
        encoder: an :class:`contrasent.model.encoder.Encoder` whose vectors are not scaled.
        flow: fitted on its vectors.

    Attributes:
        tokenizer: the encoder's.
        truncated: how many of the sentences of the last ``encode`` were cut.
    """

    def __init__(self, encoder: Any, flow: "Flow") -> None:
        self.encoder, self.flow, self.tokenizer = encoder, flow, encoder.tokenizer
        self.truncated = 0

    @property
    def identity(self) -> str:
        """A hash of all that decides the vectors: the encoder and the flow."""
        digest = hashlib.sha256(str(self.encoder.identity).encode())
        for key, value in sorted(self.flow.state_dict().items()):
            digest.update(key.encode())
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
        return digest.hexdigest()

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        return int(self.encoder.dimension)

    @property
    def max_tokens(self) -> int:
        """Sentences are cut at this many tokens, special tokens included."""
        return int(self.encoder.max_tokens)

    def tokenise(self, sentences: Sequence[str]) -> Any:
        """Token ids of sentences, and which were cut."""
        return self.encoder.tokenise(sentences)

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenised sentences."""
        return self.flow.transform(self.encoder.embed(tokens))

    def encode(self, sentences: Sequence[str], *, batch: int = 64) -> Vectors:
        """Vectors of sentences, float32, in the order given."""
        vectors = self.encoder.encode(sentences, batch=batch)
        self.truncated = self.encoder.truncated
        return self.flow.transform(vectors)
