"""Combinations of several objectives: the parts of each, in one."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.contrast import Contrast, GradedPairs
from contrasent.engine.objective import Objective
from contrasent.errors import OptionError
from contrasent.text.views import Identity, View

OWN = ("forward", "loss", "optimizer", "after_step", "check")
"""Methods of an objective of which a combination has its own."""

PARTS = {"encoder", "projector", "second", "second_projector", "contrast", "queue", "terms"}
"""Modules of an objective that a combination takes over."""


class Combination(Objective):
    """The parts of several methods in one objective.

    Terms, queues and views add up; the contrastive term is one, and each of its settings comes from
    the method that departs from plain SimCSE. Parameters of the same name are shared, and the first
    method named says their default. Two methods that want different things are an error.
    """

    def __init__(
        self, encoder: TorchEncoder, parts: Sequence[Objective], description: dict[str, Any]
    ) -> None:
        """Join the parts of several methods."""
        super().__init__(encoder)
        self._description = description
        names, contrast_weight = str(description["name"]), description.get("contrast_weight")
        for part in parts:
            lost = [own for own in OWN if getattr(type(part), own) is not getattr(Objective, own)]
            lost += [*sorted(part._modules.keys() - PARTS), *part._parameters, *part._buffers]
            if lost:
                problem = f"{part.name} has its own {lost[0]} and cannot be combined; use it alone"
                raise OptionError("--objective", names, problem)
        if contrast_weight is None:
            weights = {p.weights["contrast"] for p in parts if "contrast" in p.weights}
            contrast_weight = _one(weights, 1.0, names, "weights of the contrastive loss")
        self.labeled = any(part.labeled for part in parts)
        self.graded = any(part.graded for part in parts)
        self.views = _views(parts, names)
        self.roles = _one({p.roles for p in parts}, ("anchor", "positive"), names, "columns")
        self.masks = _one({p.masks for p in parts}, "independent", names, "dropout masks")
        self.resample_views = all(part.resample_views for part in parts)
        self.projector = next((p.projector for p in parts if p.projector is not None), None)
        self.baseline = next((p.baseline for p in parts if p.baseline is not None), None)
        seconds = [p for p in parts if p.second is not None]
        if seconds:
            self.second, self.second_projector = seconds[0].second, seconds[0].second_projector
        contrasts = [part.contrast for part in parts if part.contrast is not None]
        self.contrast = merge(contrasts) if contrasts and contrast_weight else None
        queues = [part.queue for part in parts if part.queue is not None]
        self.queue = queues[0] if queues else None
        self.weights = {}
        for part in parts:
            for name, term in part.terms.items():
                if name in self.terms and type(self.terms[name]) is not type(term):
                    raise OptionError("--objective", names, f"both use a term {name!r}")
                self.terms[name] = term
            for name, weight in part.weights.items():
                if name != "contrast" and self.weights.setdefault(name, weight) != weight:
                    raise OptionError("--objective", names, f"both weigh {name!r}; use one")
        if self.contrast is not None:
            self.weights["contrast"] = contrast_weight
        nested = self.contrast is not None and bool(self.contrast.dimensions)
        if own := [p.name for p in parts if p.labeled and p.contrast is None and nested]:
            problem = f"{own[0]} has a loss of its own, which matryoshka would leave unnested"
            raise OptionError("--objective", names, problem)
        self._check_parts(names, twice=len(queues) > 1)
        self._pool_alike()

    def _pool_alike(self) -> None:
        """Give copies of the encoder its pooler, which a later part may have changed."""
        for copy in (m for m in self.modules() if isinstance(m, TorchEncoder)):
            shared = copy.tokenizer is self.encoder.tokenizer  # so it is a copy
            if shared and copy.pooling != self.encoder.pooling:
                copy.use_pooler(self.encoder.pooling)

    def _check_parts(self, names: str, *, twice: bool) -> None:
        """Reject parts that would be ignored."""
        problem = None
        columns = zip(self.views, self.roles, strict=False)
        contrasted = [view for view, role in columns if role != "edited"]
        plain = not self.labeled and contrasted == [Identity(), Identity()]
        graded = [
            (getattr(term.loss, "func", term.loss), term.similarity)
            for name, term in self.terms.items()
            if isinstance(term, GradedPairs) and self.weights.get(name)
        ]
        pulls = any(getattr(term, "pulls", False) for term in self.terms.values())
        if self.graded and (self.contrast is not None or pulls):
            problem = (
                "a contrastive loss treats every pair as a positive, which scored pairs are not"
            )
        elif len(set(graded)) < len(graded):
            problem = "both have the same loss of rated pairs, which would count twice; use one"
        elif twice:
            problem = "both use a queue"
        elif self.queue is not None and self.contrast is None:
            problem = "a queue needs a contrastive loss"
        elif self.queue is not None and self.second is not None:
            problem = "a queue with two independent encoders is not defined"
        elif self.queue is not None and self.baseline is not None:
            problem = "templates are not subtracted from a queue's vectors; set denoise=false"
        elif self.labeled and any(view.level == "row" for view in self.views):
            problem = "next sentences cannot be combined with a corpus of pairs"
        elif self.labeled and len(self.roles) > 2:
            problem = "copies and next sentences need single sentences, not pairs"
        elif self.masks == "fixed" and (not plain or self.second is not None):
            problem = "masks=fixed uses the anchor's vector for all others; set masks=independent"
        if problem:
            raise OptionError("--objective", names, problem)

    @property
    def name(self) -> str:
        """The methods' names, joined by "+"."""
        return str(self._description["name"])

    def describe(self) -> dict[str, Any]:
        """Name and all parameters; digests of files that are not this library's."""
        return dict(self._description)


def _views(parts: Sequence[Objective], names: str) -> tuple[View, ...]:
    """Column by column the one view that is not the sentence itself."""
    width = max(len(part.views) for part in parts)
    chosen: list[View] = []
    for column in range(width):
        views = [part.views[column] for part in parts if column < len(part.views)]
        changing = [view for view in views if not isinstance(view, Identity)]
        if len(changing) > 1 and any(view != changing[0] for view in changing):
            kinds = " and ".join(type(view).__name__ for view in changing)
            raise OptionError("--objective", names, f"they need different views ({kinds})")
        chosen.append(changing[0] if changing else Identity())
    return tuple(chosen)


def _one(values: set[Any], plain: Any, names: str, what: str) -> Any:
    departing = values - {plain}
    if len(departing) > 1:
        raise OptionError("--objective", names, f"they need different {what}")
    return departing.pop() if departing else plain


def merge(settings: list[Contrast]) -> Contrast:
    """Merge several contrasts: each setting from the one that differs from plain SimCSE."""
    kinds = sorted({type(s) for s in settings} - {Contrast}, key=lambda kind: kind.__name__)
    if len(kinds) > 1:
        two = " and ".join(kind.__name__ for kind in kinds)
        raise OptionError("--objective", two, "contrasts of different kinds cannot be combined")
    kind = kinds[0] if kinds else Contrast
    merged: dict[str, Any] = {}
    for field in fields(kind):
        values = [getattr(s, field.name) for s in settings if hasattr(s, field.name)]
        departing = sorted({v for v in values if v != field.default}, key=str)
        if len(departing) > 1:
            raise OptionError(
                field.name,
                departing[0],
                f"the combined objectives differ ({' and '.join(map(repr, departing))}); set it",
            )
        merged[field.name] = departing[0] if departing else field.default
    return kind(**merged)
