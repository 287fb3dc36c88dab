"""LangChain: ``ContrasentEmbeddings("my-model")`` goes wherever its ``Embeddings`` go."""

from contrasent.adapters.loading import Model, encoder_of
from contrasent.errors import MissingExtraError

try:
    from langchain_core.embeddings import Embeddings
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain", "the LangChain adapter") from error


class ContrasentEmbeddings(Embeddings):
    """Embeddings for LangChain's vector stores and retrievers."""

    def __init__(self, model: Model, *, batch: int = 64) -> None:
        self.encoder, self.batch = encoder_of(model), batch

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text, with the model's prompt for documents, if it has one."""
        return self._embed(texts, self.encoder.prompts.of_task("document"))

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query, with the model's prompt for queries, if it has one."""
        return self._embed([text], self.encoder.prompts.of_task("query"))[0]

    def _embed(self, texts: list[str], prompt: str) -> list[list[float]]:
        vectors = self.encoder.encode(texts, batch=self.batch, prompt=prompt)
        found: list[list[float]] = vectors.tolist()
        return found
