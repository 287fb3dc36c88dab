"""Any ``EncodeFn`` as a model that ``mteb.evaluate`` accepts (mteb 2's encoder protocol)."""

# mteb.evaluate(MtebModel(encoder.encode, name=...), tasks); for prompts of queries and documents
# give `contrasent.model.base.TaskEncoder(encoder)`.

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from contrasent import metrics
from contrasent.errors import DataError, OptionError, import_extra
from contrasent.evaluate.vectors import check_vectors
from contrasent.types import EncodeFn, Task, Vectors, for_task

UNSTATED = (
    "loader", "release_date", "languages", "n_parameters", "memory_usage_mb", "license",
    "open_weights", "public_training_code", "public_training_data", "training_datasets",
)  # fmt: skip
"""Fields of mteb's description of a model that an ``EncodeFn`` knows nothing of."""


class MtebModel:
    """A model for mteb: encodes batches of texts, compares by cosine, and describes itself."""

    def __init__(
        self,
        encode: EncodeFn,
        *,
        name: str = "contrasent/model",
        revision: str = "local",
        dimension: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        if name.count("/") != 1:
            raise OptionError("name", name, "mteb files results under owner/name")
        self._encode = encode
        self.name, self.revision = name, revision
        self.dimension, self.max_tokens = dimension, max_tokens

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **_: Any
    ) -> Vectors:
        """(n, d) vectors of the "text" of all batches, in order."""
        # mteb says of a search's texts whether they are queries or documents, for which the model
        # may have prompts of its own (`types.for_task`); mteb's own are not used.
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise DataError(f"the batch holds {', '.join(batch)}; this model reads text")
            texts.extend(batch["text"])
        task = getattr(prompt_type, "value", prompt_type)
        encode = for_task(self._encode, task) if task in get_args(Task) else self._encode
        return check_vectors(encode(texts), texts)

    def similarity(self, first: ArrayLike, second: ArrayLike) -> Vectors:
        """(n, m) cosine of each row of one with each row of the other."""
        one, two = (metrics.normalize(np.asarray(v, np.float64)) for v in (first, second))
        product: Vectors = (one @ two.T).astype(np.float32)
        return product

    def similarity_pairwise(self, first: ArrayLike, second: ArrayLike) -> Vectors:
        """(n,) cosine of paired rows."""
        return metrics.cosine(first, second).astype(np.float32)

    @property
    def mteb_model_meta(self) -> Any:
        """The description that mteb writes with the results."""
        meta = import_extra("mteb.models.model_meta", "mteb", "mteb's evaluation", package="mteb")
        return meta.ModelMeta(
            name=self.name,
            revision=self.revision,
            max_tokens=self.max_tokens,
            embed_dim=self.dimension,
            framework=["PyTorch"],
            similarity_fn_name=meta.ScoringFunction.COSINE,
            use_instructions=False,
            **dict.fromkeys(UNSTATED),
        )
