"""The base class of objectives, and their views from parameters."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from contrasent.encoder.backbone import longest_input
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.heads import make_head
from contrasent.engine.contrast import Contrast, Duplicates
from contrasent.engine.encodings import Baseline, BatchEncodings, Term, Terms
from contrasent.engine.momentum_queue import MomentumQueue, copy_encoder
from contrasent.engine.parameters import (
    Positive,
    Projector,
    Range,
    Weight,
    check_values,
    parameters_of,
    source_digest,
)
from contrasent.errors import OptionError, TrainingError
from contrasent.losses import Form, Similarity
from contrasent.text.views import VIEWS, Identity, View, make_view, options_of
from contrasent.types import Batch


class Objective(nn.Module):
    """A training method; subclass it for one of your own, in any file.

    The constructor takes the encoder and keyword-only parameters with types and defaults; they are
    settings of ``fit`` and ``--set``. What is trained must be a sub-module. What a resumed run
    needs must be a parameter or a buffer. Torch's random state at the start of ``forward`` depends
    on (seed, step, rank) alone.

    Most methods do not need their own ``forward``: their constructor sets the attributes below.
    Such methods can be combined, as in "esimcse+simcse_plus_plus".

    Attributes:
        published: settings with which the method was published for BERT base.
        labeled: whether it trains on pairs, and on hard negatives in further columns.
        graded: whether it trains on pairs with scores.
        checks: functions of the parameters that reject invalid combinations, before weights are
            loaded.
        vectors_only: for a method with its own ``forward``: whether it uses nothing of the encoder
            but its vectors, so that ``mini_batch_size`` limits its memory.
        views: one view for each column of a batch, which makes it from the sentence.
        resample_views: whether views are drawn again in every epoch.
        roles: the role of each column: "anchor", "positive", "negative" or "edited" (not
            contrasted). Further columns of a corpus of pairs are hard negatives.
        projector: network on the pooled vectors that is removed after training, or None.
        second: another encoder for all columns but the first, or None.
        baseline: function whose vectors are subtracted from the encoder's, or None.
        masks: "fixed" gives both views the same dropout masks.
        queue: negatives from earlier batches, or None.
        terms: further terms of the loss by name, see :class:`contrasent.engine.Term`.
        weights: weight of each term.

    Examples:
        >>> from contrasent import fit
        >>> from contrasent.engine import Objective, TorchEncoder
        >>> class Plain(Objective):
        ...     def __init__(self, encoder: TorchEncoder, *, temperature: float = 0.05) -> None:
        ...         super().__init__(encoder)
        ...         self.use_contrast(1.0, temperature=temperature)
        >>> method = Plain(TorchEncoder.load("contrasent-small", pooling="cls"), temperature=0.1)
        >>> fit(method, ["a map", "a lamp", "a boat"], output_dir="plain", batch_size=3).steps
        1
    """

    published: ClassVar[dict[str, Any]] = {}
    labeled: bool = False
    graded: bool = False
    checks: ClassVar[tuple[Callable[[Mapping[str, Any]], Any], ...]] = ()
    vectors_only: bool = False
    method_name: ClassVar[str | None] = None
    _given: dict[str, Any]

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Remember the parameters given, for logs and model cards."""
        self = super().__new__(cls)
        self.__dict__["_given"] = {k: v for k, v in given.items() if k != "encoder"}
        return self

    def __init__(self, encoder: TorchEncoder) -> None:
        super().__init__()
        check_values(parameters_of(type(self)).values(), self._given)
        self.encoder = encoder
        self.views: tuple[View, ...] = (Identity(), Identity())
        self.resample_views = True
        self.roles: tuple[str, ...] = ("anchor", "positive")
        self.projector: nn.Module | None = None
        self.second: TorchEncoder | None = None
        self.second_projector: nn.Module | None = None
        self.masks = "independent"
        self.baseline: Baseline | None = None
        self.contrast: Contrast | None = None
        self.queue: MomentumQueue | None = None
        self.terms = nn.ModuleDict()
        self.weights: dict[str, float] = {"contrast": 1.0}

    def forward(self, batch: Batch) -> Terms:
        """Compute the terms of a batch: scalars by name.

        Args:
            batch: the rows of this process.
        """
        if self.training and batch.step < self.warmup_steps:
            # Only the terms with a warm-up, of vectors without gradient; the others are 0.
            encodings = BatchEncodings(self, batch, frozen=True)
            device = self.encoder.device
            terms: Terms = {name: torch.zeros((), device=device) for name in self.weights}
            for term in self.terms.values():
                if isinstance(term, Term) and batch.step < term.warmup_steps:
                    terms.update(term(encodings))
            return terms
        encodings = BatchEncodings(self, batch)
        terms = self.contrast(encodings) if self.contrast is not None else {}
        for term in self.terms.values():
            terms.update(term(encodings))
        if self.queue is not None and self.training:
            self.queue.encode(encodings)
        return terms

    @property
    def warmup_steps(self) -> int:
        """Number of first steps in which only terms with a warm-up train."""
        return max((t.warmup_steps for t in self.terms.values() if isinstance(t, Term)), default=0)

    def loss(self, terms: Terms) -> Tensor:
        """The weighted sum of the terms that have a weight."""
        return torch.stack([w * terms[name] for name, w in self.weights.items()]).sum()

    def optimizer(self, *, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """Make the optimizer of a run over all that is trained: AdamW, unless a method has its own.

        Args:
            learning_rate: peak learning rate. Each step sets the rate of every parameter group; a
                group may have its own "peak", and "start" at a later step.
            weight_decay: weight decay of all weights.
        """
        start = self.warmup_steps
        groups: list[dict[str, Any]] = []
        for term in self.terms.values():
            if isinstance(term, Term) and (term.learning_rate or term.warmup_steps):
                own = [p for p in term.parameters() if p.requires_grad]
                peak = term.learning_rate or learning_rate
                begins = 0 if term.warmup_steps else start
                groups.append({"params": own, "peak": peak, "start": begins})
        apart = {p for group in groups for p in group["params"]}
        others = [p for p in self.parameters() if p.requires_grad and p not in apart]
        groups.insert(0, {"params": others, "peak": learning_rate, "start": start})
        return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay, fused=True)

    def describe(self) -> dict[str, Any]:
        """The name and the parameters, for logs and model cards; a digest of a file of your own."""
        digest = source_digest(type(self))
        defaults = {key: p.default for key, p in parameters_of(type(self)).items()}
        return {"name": self.name, **digest, **defaults, **self._given}

    @property
    def name(self) -> str:
        """The name of the method, or else of its module."""
        return type(self).__dict__.get("method_name") or type(self).__module__.rsplit(".", 1)[-1]

    def after_step(self) -> None:
        """Update momentum encoder, queue and terms; called after every optimizer step."""
        if self.queue is not None:
            self.queue.after_step(self.encoder)
        for term in self.terms.values():
            if isinstance(term, Term):
                term.after_step(self.encoder)

    def use_projector(self, name: str, *, encoders: int = 1) -> None:
        """Put a new projector on the encoder, and make a second encoder.

        Args:
            name: "tanh", "batchnorm" or "none".
            encoders: 2 for another encoder and projector for all columns but the first. It starts
                from the same weights and is not saved.
        """
        self.projector = make_head(name, self.encoder.dimension)
        if encoders == 2:
            self.second = copy_encoder(self.encoder)
            self.second_projector = make_head(name, self.encoder.dimension)

    def use_contrast(self, weight: float, **settings: Any) -> None:
        """Set the contrastive term and its weight.

        Args:
            weight: weight of the term; 0 removes it.
            **settings: fields of :class:`contrasent.engine.Contrast`.
        """
        self.contrast = Contrast(**settings) if weight else None
        self.weights = {"contrast": weight} if weight else {}

    def check(self, width: int, *, ordered: bool = False, scored: bool = False) -> None:
        """Reject a corpus that does not fit the objective.

        Args:
            width: number of columns.
            ordered: whether it is in document order, with boundaries between documents.
            scored: whether its rows have scores.

        Raises:
            TrainingError: the corpus lacks pairs, scores or boundaries of documents that the method
                needs, or has pairs or scores that it would ignore.
        """
        if self.graded != scored or (self.graded and width != 2):
            wanted = "two columns of text and a score" if self.graded else "text without scores"
            actual = f"{width} and {'scores' if scored else 'none'}"
            raise TrainingError(f"objective {self.name}: learns from {wanted}; this has {actual}")
        if self.labeled and width < 2:
            raise TrainingError(
                f"objective {self.name}: needs a corpus of pairs (two columns or more); "
                "this one has single sentences; use simcse"
            )
        if not self.labeled and width > 1:
            raise TrainingError(
                f"objective {self.name}: takes single sentences, but this corpus has {width} "
                "columns; choose one column, or use simcse_supervised"
            )
        if any(view.level == "row" for view in self.views) and not ordered:
            raise TrainingError(
                f"objective {self.name}: next sentences need a corpus in document order, with a "
                "blank line between documents"
            )


class ContrastObjective(Objective):
    """A method with an in-batch contrast on top of a projector, which is removed after training.

    A subclass adds parameters and passes these on.

    Args:
        encoder: the encoder to train.
        temperature: tau.
        similarity: "cosine" or "dot".
        projector: "tanh", "batchnorm" or "none"; removed after training.
    """

    def __init__(
        self,
        encoder: TorchEncoder,
        *,
        temperature: Positive = 0.05,
        similarity: Similarity = "cosine",
        projector: Projector = "tanh",
    ) -> None:
        super().__init__(encoder)
        self.contrast: Contrast = Contrast(temperature=temperature, similarity=similarity)
        self.use_projector(projector)

    def refine(self, **settings: Any) -> None:
        """Change settings of the contrastive term.

        Args:
            **settings: fields of :class:`contrasent.engine.Contrast`.
        """
        self.contrast = replace(self.contrast, **settings)


def check_contrast(values: Mapping[str, Any]) -> None:
    """Reject parameters of a contrast that exclude each other."""
    Contrast(**{f.name: values[f.name] for f in fields(Contrast) if f.name in values})


class PairObjective(Objective):
    """SimCSE's contrast of pairs, with its published variants.

    Args:
        encoder: the encoder to train.
        temperature: tau.
        similarity: "cosine", or "dot" (SimCSE, Table D.1).
        projector: "tanh", "batchnorm" or "none"; removed after training.
        symmetric: average the loss with its reverse, from positives to anchors.
        hardness: beta: weight negatives in proportion to exp(beta s / tau) (Robinson et al. 2021).
        debias: tau^+: assumed share of negatives that are positives (Chuang et al. 2020).
        loss: "softmax"; "decoupled", without the positive in the sum (Yeh et al. 2022); or
            "sigmoid", pair by pair (SigLIP: Zhai et al. 2023).
        bias: bias of "sigmoid", added to similarities over tau.
        duplicates: "contrast" negatives that share a text with the pair, or "mask" them.
        encoders: 1, or 2 for another encoder for all columns but the anchors, which is not saved.
    """

    checks = (check_contrast,)

    def __init__(
        self,
        encoder: TorchEncoder,
        *,
        temperature: Positive = 0.05,
        similarity: Similarity = "cosine",
        projector: Projector = "tanh",
        symmetric: bool = False,
        hardness: Weight = 0.0,
        debias: Annotated[float, Range(least=0, below=1)] = 0.0,
        loss: Form = "softmax",
        bias: Annotated[float, Range()] = -10.0,
        duplicates: Duplicates = "contrast",
        encoders: Literal[1, 2] = 1,
    ) -> None:
        super().__init__(encoder)
        self.contrast: Contrast = Contrast(
            temperature=temperature,
            similarity=similarity,
            symmetric=symmetric,
            hardness=hardness,
            debias=debias,
            loss=loss,
            bias=bias,
            duplicates=duplicates,
        )
        self.use_projector(projector, encoders=encoders)


OPTIONS = {option for name in VIEWS for option in options_of(name)} | {"filler"}
"""What some view takes."""
Which = Literal["second", "both"]  # which of the two views change the sentence


def check_view(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options of a view from the parameters of a method.

    Args:
        values: parameters by name: "view" is the name of the view, the others its options or None.

    Raises:
        OptionError: the view is unknown, or does not have an option.
    """
    name = values["view"]
    known = options_of(name)
    if name in {"masked_lm", "insert_prediction"}:
        known = [*known, "filler"]
        if not values.get("filler"):
            raise OptionError(
                "filler", "", f"the view {name!r} needs a folder with a masked language model"
            )
    options = {k: v for k, v in values.items() if k in OPTIONS and v is not None}
    for option, value in options.items():
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise OptionError(option, value, f"does not belong to the view {name!r}, which {takes}")
    return options


def make_views(
    encoder: "TorchEncoder", values: Mapping[str, Any], *, views: Which = "second"
) -> tuple[View, View]:
    """Make the views of anchor and positive.

    Args:
        encoder: the encoder, whose tokenizer is used.
        values: parameters by name, as for :func:`check_view`.
        views: "second" changes the positive only, "both" also the anchor.

    Returns:
        The view of the anchor and that of the positive.

    Raises:
        OptionError: the view is unknown, or does not have an option.
        ModelError: the tokenizer lacks [MASK], or the masked language model has another vocabulary.
        DataError: WordNet is missing.
    """
    options = check_view(values)
    filler = options.pop("filler", None)

    def fill() -> Any:
        from contrasent.engine.masked_models import MaskedModel

        return MaskedModel.load(str(filler), encoder, option="filler").fill

    room = longest_input(encoder.backbone.config) - sum(map(len, encoder.tokenizer.frame))
    view = make_view(values["view"], options, encoder.tokenizer, fill, room)
    if views == "second":
        return Identity(), view
    if view.level == "row":
        raise OptionError("views", views, f"the view {values['view']!r} has an anchor of its own")
    return view, view
