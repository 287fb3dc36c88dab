"""The served model and the limits of the server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contrasent.types import Tokens, Vectors


@dataclass(frozen=True, slots=True)
class Served:
    """A model as the server sees it: text to tokens, tokens to vectors.

    Attributes:
        identity: a hash of all that decides its vectors.
        max_tokens: texts are cut at this many tokens, special ones included.
        tokenise: sentences and the prompt of each to rows of ids, and which were cut.
        wrap: rows of bare token ids to rows with special tokens, and which were cut.
        embed: rows of ids to vectors; called from one thread.
        prompts: by name.
        default_prompt: before texts for which none is named.
        nested: sizes that vectors were trained to be cut to.
    """

    name: str
    identity: str
    dimension: int
    max_tokens: int
    vocabulary: int
    tokenise: Callable[[Sequence[str], str], tuple[Tokens, NDArray[np.bool_]]]
    wrap: Callable[[Sequence[Sequence[int]]], tuple[Tokens, NDArray[np.bool_]]]
    embed: Callable[[Tokens], Vectors]
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    query_prompt: str = ""
    nested: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the server.

    Attributes:
        queue_tokens: tokens that may wait; beyond it a request gets 429.
        max_requests: requests at work at once; beyond it a request gets 429.
        client_share: share of the requests at work and of the queue that one client may have.
        max_compared: texts on each side of a comparison.
        max_body: bytes of one request's body.
        timeout: seconds for one request, its body and its answer each.
        api_key: the bearer token that clients must send, or "" for none.
        hosts: names that the Host header may have; empty allows any.
    """

    batch_tokens: int = 4096
    queue_tokens: int = 262_144
    max_requests: int = 512
    client_share: float = 0.5
    max_inputs: int = 2048
    max_compared: int = 512
    max_body: int = 8 * 1024 * 1024
    max_k: int = 1000
    timeout: float = 60.0
    api_key: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def client_requests(self) -> int:
        """Requests at work at once of one client."""
        return max(1, int(self.client_share * self.max_requests))

    @property
    def client_tokens(self) -> int:
        """Tokens of one client that may wait."""
        return max(1, int(self.client_share * self.queue_tokens))
