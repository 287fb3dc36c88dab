"""sentence-transformers: an encoder as a ``SentenceTransformer``, with the same vectors.

A saved model folder needs no adapter: ``SentenceTransformer("my-model")`` reads it.
"""

import tempfile
from typing import TYPE_CHECKING, Any

from contrasent.adapters import Model, encoder_of
from contrasent.errors import MissingExtraError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def sentence_transformer(model: Model, **options: Any) -> "SentenceTransformer":
    """Build a ``SentenceTransformer`` of an encoder, by way of a temporary model folder."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(
            "sentence-transformers", "bench", "the sentence-transformers adapter"
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        encoder_of(model).save(f"{folder}/model")
        return SentenceTransformer(f"{folder}/model", **options)
