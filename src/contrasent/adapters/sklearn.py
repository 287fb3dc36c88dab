"""scikit-learn: ``make_pipeline(SentenceEncoder("my-model"), LogisticRegression())``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.adapters import Model, encoder_of
from contrasent.errors import MissingExtraError
from contrasent.types import Vectors

try:
    from sklearn.base import BaseEstimator, TransformerMixin
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn", "the scikit-learn adapter") from error


class SentenceEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Texts to vectors as a step of a pipeline; there is nothing to fit."""

    def __init__(self, model: Model, *, batch: int = 64) -> None:
        self.model = model
        self.batch = batch

    def fit(self, texts: Any = None, labels: Any = None) -> "SentenceEncoder":
        """Do nothing."""
        return self

    def transform(self, texts: Sequence[str]) -> Vectors:
        """(n, d) vectors of n texts."""
        encoder = self._loaded()
        return np.asarray(encoder.encode([str(text) for text in texts], batch=self.batch))

    def get_feature_names_out(self, names: Any = None) -> NDArray[np.object_]:
        """Names of the dimensions: sentence0, sentence1, ..."""
        count = self._loaded().dimension
        return np.array([f"sentence{at}" for at in range(count)], dtype=object)

    def _loaded(self) -> Any:
        if "_encoder" not in self.__dict__:
            self._encoder = encoder_of(self.model)
        return self._encoder

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_encoder", None)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
