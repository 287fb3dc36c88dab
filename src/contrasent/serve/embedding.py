"""From the inputs of a request to vectors, through the batcher and within the limits."""

import asyncio
import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.search.exact import unit
from contrasent.serve.batcher import Batcher, QueueFull
from contrasent.serve.guard import Refused
from contrasent.serve.settings import Served, Settings
from contrasent.types import Tokens, Vectors


class Embedder:
    """Texts or token ids to vectors."""

    def __init__(self, model: Served, batcher: Batcher, settings: Settings) -> None:
        self.model, self.batcher, self.settings = model, batcher, settings

    async def texts(
        self, texts: Sequence[str], client: str = "", prompt: str | None = None
    ) -> tuple[Vectors, int, int]:
        """Vectors, number of tokens, and number of texts that were cut."""
        first = self.model.default_prompt if prompt is None else prompt
        rows = await asyncio.to_thread(self.model.tokenise, texts, first)
        return await self._embed(*rows, client)

    def prompt(self, name: str | None) -> str | None:
        """The text of a prompt that a request names."""
        if name is not None and name not in self.model.prompts:
            known = ", ".join(self.model.prompts) or "none"
            raise Refused(
                404, f"the model has no prompt {name!r}; it has {known}", "prompt_not_found"
            )
        return None if name is None else self.model.prompts[name]

    async def ids(
        self, rows: Sequence[Sequence[int]], client: str = ""
    ) -> tuple[Vectors, int, int]:
        """The same for token ids without special tokens."""
        refuse_many(len(rows), self.settings.max_inputs)
        for row in rows:
            for token in row:
                if not 0 <= token < self.model.vocabulary:
                    raise Refused(
                        400,
                        f"token id {token} is not in 0 to {self.model.vocabulary - 1}",
                        "invalid_token",
                    )
        return await self._embed(*await asyncio.to_thread(self.model.wrap, rows), client)

    async def _embed(
        self, tokens: Tokens, cut: NDArray[np.bool_], client: str
    ) -> tuple[Vectors, int, int]:
        try:
            async with asyncio.timeout(self.settings.timeout):
                vectors = await self.batcher.submit(tokens, client)
        except QueueFull as full:
            seconds = str(max(1, math.ceil(min(full.seconds, 60.0))))
            raise Refused(
                429,
                f"the queue is full; try again in {seconds} s",
                "queue_full",
                {"Retry-After": seconds},
            ) from full
        except TimeoutError as error:
            raise Refused(
                503, f"not done within {self.settings.timeout:g} s", "timeout", {"Retry-After": "5"}
            ) from error
        return vectors, int(tokens.lengths.sum()), int(cut.sum())


def refuse_many(count: int, most: int) -> None:
    """Refuse more inputs than one request may have."""
    if count > most:
        raise Refused(
            400, f"{count:,} inputs in one list; at most {most:,} are taken", "too_many_inputs"
        )


def shortened(vectors: Vectors, dimensions: int | None, most: int) -> Vectors:
    """The first dimensions, scaled to length one.

    ``vectors``: (n, d).
    """
    if dimensions is None:
        return vectors
    if dimensions > most:
        raise Refused(400, f"the model has {most} dimensions, not {dimensions}", "dimensions")
    return unit(vectors[:, :dimensions])


def encoded(vector: NDArray[np.float32], form: str) -> Any:
    """A vector as an answer holds it.

    ``vector``: (d,).
    """
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return np.ascontiguousarray(vector)
