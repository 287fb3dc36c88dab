"""Terms that see vectors alone: the contrast and its queue, of dimensions, of rated pairs."""

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import losses, parallel
from contrasent.encoder import dropout
from contrasent.encoder.encoder import Encoder
from contrasent.engine.encodings import BatchEncodings, Source, Term, Terms
from contrasent.errors import OptionError, TrainingError
from contrasent.text.batches import random_for
from contrasent.types import Tokens

Duplicates = Literal["contrast", "mask"]
"""Treatment of negatives that share a text with the pair: contrasted, or masked."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Settings of the contrastive term; the defaults are plain SimCSE.

    Attributes:
        symmetric: average with the direction from positives to anchors.
        alpha: weight of a row's own hard negatives (SimCSE, equation 8).
        positives: encodings that make the positive pairs.
        negatives: encodings that make the negative pairs, see ``BatchEncodings.vectors``.
        factor: m of SimCSE++ (equation 3).
        factor_form: where m stands, see ``two_source_info_nce``.
        passes: K of "mean" (SimCSE++, section 3.1).
        hardness: beta (Robinson et al. 2021), see ``info_nce``; 0 counts all negatives alike.
        debias: tau^+ (Chuang et al. 2020), see ``info_nce``; 0 takes all negatives for true.
        duplicates: "mask" leaves out negatives of pairs that share a text with the anchor's.
        dimensions: sizes below the full one; the term is the sum of the losses of the first so many
            dimensions, and of all (Matryoshka: Kusupati et al. 2022, equation 1).
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
    duplicates: Duplicates = "contrast"
    dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.symmetric and not self.plain:
            raise OptionError(
                "symmetric", True, "is defined only where both pairs come from the same encodings"
            )

    @property
    def plain(self) -> bool:
        """Whether positive and negative pairs come from the same encodings, unweighted."""
        return self.positives == "noisy" == self.negatives and self.factor == 1.0

    def __call__(self, encodings: BatchEncodings) -> Terms:
        """The term "contrast", and the mean cosines that are logged with it."""
        count = 1 + encodings.roles.count("positive")
        vectors = encodings.vectors(self.positives, self.passes, self.noise_variance)
        anchors, *positives = vectors[:count]
        found = []
        for column, rows in enumerate(positives):
            given = self._compared(encodings, anchors, rows)
            weights = _not_shared(encodings, column) if self.duplicates == "mask" else None
            found += [self._loss(given, weights, size) for size in (*self.dimensions, None)]
        same, others = losses.mean_cosines(anchors.detach(), positives[0].detach())
        return {
            "contrast": torch.stack(found).sum() / len(positives),
            "cosine_positive": same,
            "cosine_negative": others,
        }

    def _compared(
        self, encodings: BatchEncodings, anchors: Tensor, positives: Tensor
    ) -> dict[str, Tensor | None]:
        """The vectors that the loss compares, by the names of its arguments."""
        given: dict[str, Tensor | None] = {"anchors": anchors}
        if self.plain:
            given["positives"] = parallel.gather(positives)
            given["anchors_all"] = parallel.gather(anchors) if self.symmetric else None
        else:
            left, *right = encodings.vectors(self.negatives, self.passes, self.noise_variance)
            given |= {"positives": positives, "negative_anchors": left}
            given["negatives"] = parallel.gather(right[0] if right else left)
        hard = encodings.hard_negatives(clean=self.negatives == "off_dropout")
        given["hard_negatives"] = None if hard is None else parallel.gather(hard)
        given["extra_negatives"] = encodings.queued()
        return given

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
        }
        if self.plain:
            return losses.info_nce(**rows, symmetric=self.symmetric, **options)
        return losses.two_source_info_nce(
            **rows, factor=self.factor, factor_form=self.factor_form, **options
        )


def _not_shared(encodings: BatchEncodings, column: int) -> Callable[[slice], Tensor]:
    """Weights of the negatives, of which those of pairs that share a text are masked."""
    anchors, *positives = encodings.columns("anchor", "positive")
    own = [_keys(anchors), _keys(positives[column])]
    texts = [parallel.gather(keys) for keys in own]
    hard = [_keys(negatives) for negatives in encodings.columns("negative")]
    others = parallel.gather(torch.stack(hard, dim=1)).flatten() if hard else texts[0][:0]
    queued = encodings.queued()
    device = encodings.networks.encoder.device

    def weights(part: slice) -> Tensor:
        mine = [keys[part, None] for keys in own]
        pairs = torch.stack([one == other for one in mine for other in texts]).any(dim=0)
        equal = torch.stack([one == others for one in mine]).any(dim=0)
        older = pairs.new_zeros(len(pairs), 0 if queued is None else len(queued))
        return ~torch.cat([pairs, equal, older], dim=1).to(device)

    return weights


def _keys(tokens: Tokens) -> Tensor:
    """(n,) a number for each text; equal texts have equal ones."""
    digests = [
        hashlib.blake2b(row.tobytes(), digest_size=8).digest()
        for row in map(tokens.__getitem__, range(len(tokens)))
    ]
    return torch.from_numpy(np.frombuffer(b"".join(digests), np.int64).copy())


def merge(settings: list[Contrast]) -> Contrast:
    """One contrast out of several: each setting from the one that departs from plain SimCSE."""
    kinds = sorted({type(s) for s in settings} - {Contrast}, key=lambda kind: kind.__name__)
    if len(kinds) > 1:
        two = " and ".join(kind.__name__ for kind in kinds)
        raise OptionError("--objective", two, "two contrasts of different kinds cannot be one")
    kind = kinds[0] if kinds else Contrast
    merged: dict[str, Any] = {}
    for field in fields(kind):
        values = [getattr(s, field.name) for s in settings if hasattr(s, field.name)]
        departing = sorted({v for v in values if v != field.default}, key=str)
        if len(departing) > 1:
            raise OptionError(
                field.name,
                departing[0],
                f"the combined objectives want {' and '.join(map(repr, departing))}; set it",
            )
        merged[field.name] = departing[0] if departing else field.default
    return kind(**merged)


ARTIFICIAL = 200


class DimensionWise(Term):
    """The term "dimensions": dimension-wise contrast of the projected views (SimCSE++, 4.3).

    The rows of all processes are taken together, so that the statistics are those of the batch.
    """

    vectors_only = True

    def __init__(self, **settings: Any) -> None:
        """Of the settings of :func:`contrasent.losses.dimension_wise_contrast`."""
        super().__init__()
        self.settings = settings

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch."""
        views = (parallel.gather(view) for view in encodings.noisy[:2])
        loss = losses.dimension_wise_contrast(*views, **self.settings)
        return {"dimensions": loss}


class Barlow(Term):
    """The term "barlow": Barlow Twins with artificial rows (SimCSE++, 4.1 and 4.2).

    The artificial rows are drawn anew in every step, the same for both views.

    Args:
        off_diagonal: weight of the correlations between dimensions.
        artificial: rows of Gaussian noise that are appended to both views.
    """

    vectors_only = True

    def __init__(self, *, off_diagonal: float, artificial: int, norm: losses.BarlowNorm) -> None:
        super().__init__()
        self.off_diagonal, self.artificial, self.norm = off_diagonal, artificial, norm

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch."""
        first, second = (parallel.gather(view) for view in encodings.noisy[:2])
        seed = int(
            random_for(encodings.batch.seed, ARTIFICIAL, encodings.batch.step).integers(2**62)
        )
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(self.artificial, first.shape[1], generator=generator)
        options: dict[str, Any] = {"off_diagonal": self.off_diagonal, "norm": self.norm}
        return {"barlow": losses.barlow_twins(first, second, artificial=noise.to(first), **options)}


class GradedPairs(Term):
    """A term of the pairs' similarities and their scores, both of all processes.

    Attributes:
        loss: maps similarities (n,) and scores (n,) to a scalar.
        similarity: maps two columns (n, d) to similarities (n,).
        unit: scores are divided by it, and must then lie from -1 to 1; None leaves them alone.
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

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch."""
        scores = encodings.batch.scores
        if scores is None:
            raise TrainingError(f"the term {self.name!r} needs a corpus with scores")
        if self.unit is not None:
            worst = scores[abs(scores).argmax()]
            if abs(worst) > self.unit:
                raise TrainingError(
                    f"score {worst:g} is beyond the highest, {self.unit:g}, which stands for pairs "
                    "that mean the same; set highest_score"
                )
            scores = scores / self.unit
        found = self.similarity(*encodings.noisy[:2])
        given = torch.from_numpy(scores).to(found)
        return {self.name: self.loss(parallel.gather(found), parallel.gather(given))}


Init = Literal["copy", "random"]
Column = Literal["first", "second"]
Start = Literal["grow", "full"]


class MomentumQueue(nn.Module):
    """Vectors of the last batches by a slowly following encoder (ESimCSE, section 3.2).

    After every optimizer step theta_m <- momentum * theta_m + (1 - momentum) * theta_e (equation
    5); buffers, which are no weights, are copied. Every training batch is encoded by theta_m
    without dropout and without gradient, put through the objective's own projector (there is no
    momentum copy of it, as in the released code), and enters the queue after the step; the oldest
    rows leave. With several processes the rows of all of them enter every process's queue, so that
    the loss is that of one process.

    A batch normalisation, in the projector or in a head of the encoder, takes the statistics of the
    rows that enter together, as the views that they will be compared with take those of theirs, and
    as the key encoder does in MoCo (He et al., 2020, section 3.3; rows of the queue are negatives
    alone, so there is no positive for the statistics to give away). Running statistics would still
    be near their start in the first steps, and all rows of the queue nearly parallel. ESimCSE's
    paper and code have no batch normalisation.

    Attributes:
        momentum_encoder: theta_m, equal to the encoder at step 0 unless ``init`` is "random".
        rows: (size, d) buffer, the newest rows last.
        filled: how many of them are in use.
    """

    rows: Tensor
    filled: Tensor

    def __init__(
        self,
        encoder: Encoder,
        *,
        size: int,
        momentum: float,
        init: Init = "copy",
        column: Column = "first",
        start: Start = "grow",
    ) -> None:
        """Make an empty queue.

        Args:
            encoder: theta_e.
            size: rows at most.
            momentum: lambda of equation 5.
            init: "copy" of the encoder; "random" is what the released code does, by accident: its
                copy is made before the weights are loaded.
            column: "first" enqueues the original sentence (released code), "second" its view.
            start: "grow" uses the queue from its first rows on (released code), "full" only once
                it is filled.
        """
        super().__init__()
        self.size, self.momentum, self.column, self.start = size, momentum, column, start
        self.momentum_encoder = copy_encoder(encoder)
        if init == "random":
            randomise(self.momentum_encoder)
        self.momentum_encoder.requires_grad_(False)
        self.register_buffer("rows", torch.zeros(size, encoder.dimension))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        self._waiting: list[Tensor] = []

    def negatives(self) -> Tensor | None:
        """(q, d) rows to contrast with, or None while there are none."""
        filled = int(self.filled)
        if filled == 0 or (self.start == "full" and filled < self.size):
            return None
        return self.rows[self.size - filled :]

    @torch.no_grad()
    def encode(self, encodings: BatchEncodings) -> None:
        """Encode a batch; its rows enter with ``after_step``."""
        networks = encodings.networks
        tokens = encodings.columns("anchor" if self.column == "first" else "positive")[0]
        with _without_running_statistics(self.momentum_encoder) as normalised:
            if normalised and len(tokens) < 2:
                return  # one row has no statistics
            vectors = parallel.gather(self.momentum_encoder(tokens))
        if networks.projector is not None:
            with _without_running_statistics(networks.projector) as normalised:
                if normalised and len(vectors) < 2:
                    return
                vectors = networks.projector(vectors)
        self._waiting.append(vectors.to(self.rows.dtype))

    @torch.no_grad()
    def after_step(self, encoder: Encoder) -> None:
        """Let the step's rows in and let the momentum encoder follow."""
        for vectors in self._waiting:
            self.rows = torch.cat([self.rows, vectors.to(self.rows)])[-self.size :]
            self.filled = (self.filled + len(vectors)).clamp_max(self.size)
        self._waiting.clear()
        mine = [p.detach() for p in self.momentum_encoder.parameters()]
        theirs = [p.detach() for p in encoder.parameters()]
        torch._foreach_lerp_(mine, theirs, 1 - self.momentum)
        for own, other in zip(self.momentum_encoder.buffers(), encoder.buffers(), strict=True):
            own.copy_(other)


@contextmanager
def _without_running_statistics(module: nn.Module) -> Iterator[bool]:
    """Dropout off; batch normalisation by the rows alone, their statistics kept nowhere."""
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d)]
    with dropout.off(module):
        for norm in norms:
            norm.training, norm.track_running_stats = True, False
        try:
            yield bool(norms)
        finally:
            for norm in norms:
                norm.track_running_stats = True


def copy_encoder(encoder: Encoder) -> Encoder:
    """A copy of an encoder with weights of its own; the tokenizer is shared."""
    memo: dict[int, Any] = {id(encoder.tokenizer): encoder.tokenizer}
    return copy.deepcopy(encoder, memo)


def randomise(encoder: Encoder) -> None:
    """Give a backbone the weights that its architecture starts from before pre-training."""
    from transformers import AutoModel

    config = copy.deepcopy(cast(Any, encoder.backbone).config)
    weights = AutoModel.from_config(config).state_dict()
    own = encoder.backbone.state_dict()
    encoder.backbone.load_state_dict({k: weights[k] for k in own})
