"""Terms computed from vectors alone: contrastive, of dimensions, and of rated pairs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasent import losses, parallel
from contrasent.engine.encodings import BatchEncodings, Source, Term, Terms
from contrasent.errors import OptionError, TrainingError
from contrasent.losses.contrastive import check_form
from contrasent.text.batches import random_for
from contrasent.text.tokens import Ids, around, row_keys
from contrasent.types import Tokens

ARTIFICIAL = 200  # purpose of the random numbers of artificial rows
Duplicates = Literal["contrast", "mask"]
"""Whether negatives that share a text with the pair are contrasted or masked."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Settings of the contrastive term; the defaults are plain SimCSE.

    Attributes:
        symmetric: average the loss with its reverse, from positives to anchors.
        alpha: weight of a row's own hard negatives (SimCSE, equation 8).
        positives: encodings of the positive pairs.
        negatives: encodings of the negative pairs, see
            :meth:`contrasent.engine.BatchEncodings.vectors`.
        factor: m of SimCSE++ (equation 3).
        factor_form: place of m, see :func:`contrasent.losses.two_source_info_nce`.
        passes: K of "mean" (SimCSE++, section 3.1).
        hardness: beta (Robinson et al. 2021), see :func:`contrasent.losses.info_nce`; 0 weights all
            negatives equally.
        debias: tau^+ (Chuang et al. 2020), see :func:`contrasent.losses.info_nce`; 0 for none.
        loss: "softmax"; "decoupled", without the positive in the sum (Yeh et al. 2022); or
            "sigmoid", pair by pair (SigLIP: Zhai et al. 2023), see ``info_nce``.
        bias: b of "sigmoid".
        duplicates: "mask" leaves out negatives of pairs that share a text with the anchor's pair.
            Prompts are ignored, if a text's first token and its cut are the same with them.
        dimensions: sizes below the full one. The term is the sum of the losses of vectors cut to
            each size, and of full ones (Matryoshka: Kusupati et al. 2022, equation 1).
    """

    temperature: float = 0.05
    similarity: losses.Similarity = "cosine"
    symmetric: bool = False
    alpha: float = 1.0
    positives: Source = "noisy"
    negatives: Source = "noisy"
    factor: float = 1.0
    factor_form: losses.FactorForm = "positive_logit"
    passes: int = 10
    noise_variance: float = 0.1
    hardness: float = 0.0
    debias: float = 0.0
    loss: losses.Form = "softmax"
    bias: float = -10.0
    duplicates: Duplicates = "contrast"
    dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.symmetric and not self.plain:
            raise OptionError("symmetric", True, "needs both pairs from the same encodings")
        check_form(
            self.loss,
            similarity=self.similarity,
            hardness=self.hardness,
            debias=self.debias,
            factor=self.factor,
            factor_form=self.factor_form,
        )

    @property
    def plain(self) -> bool:
        """Whether positive and negative pairs use the same encodings, unweighted."""
        return self.positives == "noisy" == self.negatives and self.factor == 1.0

    def __call__(self, encodings: BatchEncodings) -> Terms:
        """The term "contrast", and the mean cosines that are logged with it."""
        count = 1 + encodings.roles.count("positive")
        vectors = encodings.vectors(self.positives, self.passes, self.noise_variance)
        anchors, *positives = vectors[:count]
        values = []
        for column, rows in enumerate(positives):
            arguments = self._compared(encodings, anchors, rows)
            weights = _not_shared(encodings, column) if self.duplicates == "mask" else None
            values += [self._loss(arguments, weights, size) for size in (*self.dimensions, None)]
        same, others = losses.mean_cosines(anchors.detach(), positives[0].detach())
        return {
            "contrast": torch.stack(values).sum() / len(positives),
            "cosine_positive": same,
            "cosine_negative": others,
        }

    def _compared(
        self, encodings: BatchEncodings, anchors: Tensor, positives: Tensor
    ) -> dict[str, Tensor | None]:
        """The vectors that the loss compares, by the names of its arguments."""
        arguments: dict[str, Tensor | None] = {"anchors": anchors}
        if self.plain:
            arguments["positives"] = parallel.gather(positives)
            arguments["anchors_all"] = parallel.gather(anchors) if self.symmetric else None
        else:
            left, *right = encodings.vectors(self.negatives, self.passes, self.noise_variance)
            arguments |= {"positives": positives, "negative_anchors": left}
            arguments["negatives"] = parallel.gather(right[0] if right else left)
        hard = encodings.hard_negatives(clean=self.negatives == "off_dropout")
        arguments["hard_negatives"] = None if hard is None else parallel.gather(hard)
        arguments["extra_negatives"] = encodings.queued()
        return arguments

    def _loss(
        self,
        given: dict[str, Tensor | None],
        weights: Callable[[slice], Tensor] | None,
        size: int | None,
    ) -> Tensor:
        """The loss of the first dimensions, or of all."""
        rows: Any = {k: None if v is None else v[..., :size] for k, v in given.items()}
        options: dict[str, Any] = {
            "temperature": self.temperature,
            "similarity": self.similarity,
            "first": parallel.first_row(len(rows["anchors"])),
            "alpha": self.alpha,
            "weights": weights,
            "hardness": self.hardness,
            "debias": self.debias,
            "form": self.loss,
            "bias": self.bias,
        }
        if self.plain:
            return losses.info_nce(**rows, symmetric=self.symmetric, **options)
        return losses.two_source_info_nce(
            **rows, factor=self.factor, factor_form=self.factor_form, **options
        )


def _not_shared(encodings: BatchEncodings, column: int) -> Callable[[slice], Tensor]:
    """Weights of the negatives, which mask pairs that share a text."""
    anchors, *positives = encodings.columns("anchor", "positive", unedited=True)
    encoder = encodings.networks.encoder
    query, document = (encoder.prompts.of_task(task) for task in ("query", "document"))
    framed: list[tuple[Ids, Ids] | None] = [None, None]
    if encodings.networks.labeled and query != document:  # equal ones do not distinguish texts
        framed = [around(encoder.tokenize(["", "a"], prompt)[0]) for prompt in (query, document)]
    device = encoder.device  # NCCL gathers nothing that lies elsewhere
    sides = zip((anchors, positives[column]), framed, strict=True)
    pair_keys = [_keys(tokens, marks).to(device) for tokens, marks in sides]
    texts = [parallel.gather(keys) for keys in pair_keys]
    negatives = encodings.columns("negative")
    hard = [_keys(tokens, framed[1]).to(device) for tokens in negatives]
    others = parallel.gather(torch.stack(hard, dim=1)).flatten() if hard else texts[0][:0]
    queued = encodings.queued()

    def weights(part: slice) -> Tensor:
        mine = [keys[part, None] for keys in pair_keys]
        pairs = torch.stack([key == other for key in mine for other in texts]).any(dim=0)
        equal = torch.stack([key == others for key in mine]).any(dim=0)
        older = pairs.new_zeros(len(pairs), 0 if queued is None else len(queued))
        return ~torch.cat([pairs, equal, older], dim=1)

    return weights


def _keys(tokens: Tokens, framed: tuple[Ids, Ids] | None) -> Tensor:
    """(n,) numbers of texts, equal for equal texts, whose rows have those ids around them."""
    return torch.from_numpy(row_keys(tokens, framed).view(np.int64))


class DimensionWise(Term):
    """The term "dimensions": dimension-wise contrast of the projected views (SimCSE++, 4.3).

    Its statistics are over the rows of all processes.
    """

    vectors_only = pulls = True

    def __init__(self, **settings: Any) -> None:
        """Take the settings of :func:`contrasent.losses.dimension_wise_contrast`."""
        super().__init__()
        self.settings = settings

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        views = (parallel.gather(view) for view in encodings.noisy[:2])
        return {"dimensions": losses.dimension_wise_contrast(*views, **self.settings)}


class Barlow(Term):
    """The term "barlow": Barlow Twins with artificial rows (SimCSE++, 4.1 and 4.2).

    The artificial rows are drawn in every step, the same for both views.

    Args:
        off_diagonal: weight of the correlations between dimensions.
        artificial: number of rows of Gaussian noise to append to both views.
    """

    vectors_only = pulls = True

    def __init__(self, *, off_diagonal: float, artificial: int, norm: losses.BarlowNorm) -> None:
        super().__init__()
        self.off_diagonal, self.artificial, self.norm = off_diagonal, artificial, norm

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        first, second = (parallel.gather(view) for view in encodings.noisy[:2])
        random = random_for(encodings.batch.seed, ARTIFICIAL, encodings.batch.step)
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        noise = torch.randn(self.artificial, first.shape[1], generator=generator)
        options: dict[str, Any] = {"off_diagonal": self.off_diagonal, "norm": self.norm}
        return {"barlow": losses.barlow_twins(first, second, artificial=noise.to(first), **options)}


class GradedPairs(Term):
    """A loss of the pairs' similarities and scores, over the rows of all processes.

    Attributes:
        loss: function of similarities (n,) and scores (n,); a scalar.
        similarity: function of two columns (n, d); similarities (n,).
        unit: divide scores by it, after which they must be from -1 to 1; None does not.
    """

    vectors_only = True

    def __init__(
        self,
        name: str,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        similarity: Callable[[Tensor, Tensor], Tensor] = losses.pair_cosines,
        unit: float | None = None,
    ) -> None:
        super().__init__()
        self.name, self.loss, self.similarity, self.unit = name, loss, similarity, unit

    def check_scores(self, scores: NDArray[np.float64]) -> None:
        """Reject scores (n,) above the unit."""
        worst = scores[abs(scores).argmax()]
        if self.unit is not None and abs(worst) > self.unit:
            raise TrainingError(
                f"score {worst:g} is above {self.unit:g}, the score of identical meaning; set "
                "highest_score"
            )

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        scores = encodings.batch.scores
        if scores is None:
            raise TrainingError(f"the term {self.name!r} needs a corpus with scores")
        if self.unit is not None:
            self.check_scores(scores)
            scores = scores / self.unit
        similarities = self.similarity(*encodings.noisy[:2])
        targets = torch.from_numpy(scores).to(similarities)
        return {self.name: self.loss(parallel.gather(similarities), parallel.gather(targets))}
