"""Several methods at once: "esimcse+simcse_plus_plus"."""

from collections.abc import Sequence
from typing import Any

from contrasent.engine import contrast
from contrasent.engine.objective import Objective
from contrasent.errors import OptionError
from contrasent.model.encoder import Encoder
from contrasent.text.views import Identity, View

OWN = ("forward", "loss", "after_step", "check")
"""Methods of an objective of which a combination has its own."""

PARTS = {"encoder", "projector", "second", "second_projector", "contrast", "queue", "terms"}
"""Modules of an objective that a combination takes over."""


class Combination(Objective):
    """The parts of several methods in one objective."""

    # Terms, queues and views add up; the contrastive term is one, and each of its settings comes
    # from the method that departs from plain SimCSE. Parameters of the same name are shared, and
    # the first method named says their default. Two methods that want different things are an
    # error.

    def __init__(
        self, encoder: Encoder, parts: Sequence[Objective], description: dict[str, Any]
    ) -> None:
        """Join the parts of several methods."""
        super().__init__(encoder)
        self._description = description
        self._assemble(parts, str(description["name"]), description.get("contrast_weight"))

    def _assemble(
        self, parts: Sequence[Objective], names: str, contrast_weight: float | None
    ) -> None:
        for part in parts:
            lost = [own for own in OWN if getattr(type(part), own) is not getattr(Objective, own)]
            lost += [*sorted(part._modules.keys() - PARTS), *part._parameters, *part._buffers]
            if lost:
                problem = f"{part.name} has a {lost[0]} of its own; use it alone, or make it a term"
                raise OptionError("--objective", names, problem)
        if contrast_weight is None:
            weights = {p.weights["contrast"] for p in parts if "contrast" in p.weights}
            contrast_weight = _one(weights, 1.0, names, "weights of the contrast")
        self.labelled = any(part.labelled for part in parts)
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
        self.contrast = contrast.merge(contrasts) if contrasts and contrast_weight else None
        queues = [part.queue for part in parts if part.queue is not None]
        self.queue = queues[0] if queues else None
        self.weights = {}
        for part in parts:
            for name, term in part.terms.items():
                if name in self.terms and type(self.terms[name]) is not type(term):
                    raise OptionError("--objective", names, f"both bring a term {name!r}")
                self.terms[name] = term
            for name, weight in part.weights.items():
                if name != "contrast":
                    self.weights[name] = weight
        if self.contrast is not None:
            self.weights["contrast"] = contrast_weight
        self._check_parts(names, twice=len(queues) > 1)

    def _check_parts(self, names: str, *, twice: bool) -> None:
        """Reject parts that would be ignored."""
        problem = None
        if self.graded and self.contrast is not None:
            problem = "a contrast takes every pair for a positive, and pairs with scores are not"
        elif twice:
            problem = "both bring a queue"
        elif self.queue is not None and self.contrast is None:
            problem = "a queue needs a contrast"
        elif self.queue is not None and self.second is not None:
            problem = "a queue with two independent encoders is not defined"
        elif self.queue is not None and self.baseline is not None:
            problem = "from a queue's vectors no template is subtracted; set denoise=false"
        elif self.labelled and any(view.level == "row" for view in self.views):
            problem = "next sentences and a corpus of pairs exclude each other"
        elif self.labelled and len(self.roles) > 2:
            problem = "copies and next sentences are made of single sentences, not of pairs"
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
    found: list[View] = []
    for column in range(width):
        views = [part.views[column] for part in parts if column < len(part.views)]
        changing = [view for view in views if not isinstance(view, Identity)]
        if len(changing) > 1 and any(view != changing[0] for view in changing):
            kinds = " and ".join(type(view).__name__ for view in changing)
            raise OptionError("--objective", names, f"they want different views ({kinds})")
        found.append(changing[0] if changing else Identity())
    return tuple(found)


def _one(values: set[Any], plain: Any, names: str, what: str) -> Any:
    departing = values - {plain}
    if len(departing) > 1:
        raise OptionError("--objective", names, f"they want different {what}")
    return departing.pop() if departing else plain
