"""What every objective is: the encoder and all else that trains, and a forward of named terms."""

import inspect
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from contrasent.errors import TrainingError
from contrasent.losses import similarities
from contrasent.model.encoder import Encoder
from contrasent.text.views import Identity, View
from contrasent.types import Batch, Tokens

Terms = dict[str, Tensor]
"""Named scalars of one batch; those with a weight make the loss, all are logged."""


class Objective(nn.Module):
    """A training method: subclass it in a file of this folder, named after the method.

    The constructor takes the encoder and keyword-only parameters with defaults; their names are
    the keys of recipes and of ``--set``. Everything that trains is a sub-module, and everything
    that must survive a resume a parameter or a buffer. Torch's random state at the start of
    ``forward`` is a function of (seed, step, rank).

    Attributes:
        encoder: what will be saved.
        views: view c makes column c of a batch, see :mod:`contrasent.text.batches`.
        weights: weight of each term in the loss.
        labelled: whether the corpus must have pairs (positives), and hard negatives beyond.
    """

    labelled: ClassVar[bool] = False

    _given: dict[str, Any]

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Remember the parameters given, so that logs and cards can tell them."""
        self = super().__new__(cls)
        self.__dict__["_given"] = given
        return self

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.views: tuple[View, ...] = (Identity(), Identity())
        self.weights: dict[str, float] = {"contrast": 1.0}

    def forward(self, batch: Batch) -> Terms:
        """The terms of one batch.

        Args:
            batch: the rows of this process.
        """
        raise TypeError(f"{type(self).__name__} has no forward")

    def loss(self, terms: Terms) -> Tensor:
        """The weighted sum of the terms that have a weight."""
        return torch.stack([w * terms[name] for name, w in self.weights.items()]).sum()

    def describe(self) -> dict[str, Any]:
        """Name and own parameters, as logs and model cards show them."""
        defaults = {
            key: parameter.default
            for key, parameter in inspect.signature(type(self).__init__).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        return {"name": self.name, **defaults, **self._given}

    @property
    def name(self) -> str:
        """The objective's name, which is its file's."""
        return type(self).__module__.rsplit(".", 1)[-1]

    def after_step(self) -> None:
        """Called after every optimizer step: momentum, queues."""

    def check(self, width: int) -> None:
        """Refuse a corpus that does not fit the objective.

        Args:
            width: the number of its columns.

        Raises:
            TrainingError: it has no pairs, or has pairs that would be ignored.
        """
        if self.labelled and width < 2:
            raise TrainingError(
                f"objective {self.name}: needs a corpus of pairs (two columns or more); "
                "this one has single sentences, for which there is simcse"
            )
        if not self.labelled and width > 1:
            raise TrainingError(
                f"objective {self.name}: takes single sentences and this corpus has "
                f"{width} columns; name one column, or use simcse_supervised"
            )


def encode_columns(encoder: nn.Module, columns: tuple[Tokens, ...]) -> list[Tensor]:
    """Vectors of every column, each (n, d), by one forward of the encoder over all rows."""
    vectors = encoder(Tokens.concatenate(columns))
    return list(vectors.split([len(column) for column in columns]))


@torch.no_grad()
def watch(anchors: Tensor, positives: Tensor) -> Terms:
    """Mean cosine of the positive pairs and of the other pairs of a batch; not part of the loss."""
    cosines = similarities(anchors, positives)
    diagonal = cosines.diagonal()
    count = len(cosines)
    others = (cosines.sum() - diagonal.sum()) / max(count * (count - 1), 1)
    return {"cosine_positive": diagonal.mean(), "cosine_negative": others}
