"""LlamaIndex: ``ContrasentEmbedding("my-model")`` goes into ``Settings.embed_model``."""

import asyncio
from typing import Any

from contrasent.adapters.loading import Model, encoder_of
from contrasent.errors import MissingExtraError
from contrasent.types import Task

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from pydantic import PrivateAttr
except ImportError as error:
    raise MissingExtraError("llama-index-core", "llama-index", "the LlamaIndex adapter") from error


class ContrasentEmbedding(BaseEmbedding):
    """Embeddings for LlamaIndex."""

    _encoder: Any = PrivateAttr()

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(**{"model_name": str(model)[:100], "embed_batch_size": 64, **options})
        self._encoder = encoder_of(model)

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex stores."""
        return "ContrasentEmbedding"

    def _get_text_embeddings(self, texts: list[str], task: Task = "document") -> list[list[float]]:
        prompt = self._encoder.prompts.of_task(task)
        vectors = self._encoder.encode(texts, batch=self.embed_batch_size, prompt=prompt)
        found: list[list[float]] = vectors.tolist()
        return found

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embeddings([query], "query")[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
