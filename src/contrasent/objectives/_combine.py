"""Several methods at once: "esimcse+simcse_plus_plus"."""

from typing import Any

from contrasent.errors import OptionError
from contrasent.model.encoder import Encoder
from contrasent.objectives import _contrast
from contrasent.objectives._base import Objective
from contrasent.objectives._find import agree, described, find, parameters
from contrasent.text.views import Identity, View


class Combination(Objective):
    """What several methods are made of, in one objective.

    Terms, queues and views add up; the contrastive term is one, and each of its settings comes from
    the method that departs from plain SimCSE. Parameters of the same name are shared, and the
    first method named says their default. Two methods that want different things are an error.
    """

    def __init__(self, encoder: Encoder, *, methods: tuple[str, ...], **given: Any) -> None:
        super().__init__(encoder)
        self.methods = methods
        names = "+".join(methods)
        known = parameters(names)
        for option in given:
            if option not in known:
                problem = f"no such parameter of {names}"
                raise OptionError("parameter", option, problem, choices=known)
        agree(names, given)
        values = {key: parameter.default for key, parameter in known.items()} | given
        parts = []
        for method in methods:
            own = {key: values[key] for key in parameters(method)}
            parts.append(find(method)(encoder, **own))
        self._assemble(parts, names, values.get("contrast_weight", 1.0))

    def _assemble(self, parts: list[Objective], names: str, contrast_weight: float) -> None:
        for part in parts:
            for own in ("forward", "loss", "after_step"):
                if getattr(type(part), own) is not getattr(Objective, own):
                    problem = f"{part.name} has a {own} of its own; use it alone"
                    raise OptionError("--objective", names, problem)
        self.labelled = any(part.labelled for part in parts)
        self.views = _views(parts, names)
        self.roles = _one({p.roles for p in parts}, ("anchor", "positive"), names, "columns")
        self.masks = _one({p.masks for p in parts}, "independent", names, "dropout masks")
        self.fresh = all(part.fresh for part in parts)
        self.projector = next((p.projector for p in parts if p.projector is not None), None)
        seconds = [p for p in parts if p.second is not None]
        if seconds:
            self.second, self.second_projector = seconds[0].second, seconds[0].second_projector
        contrasts = [part.contrast for part in parts if part.contrast is not None]
        self.contrast = _contrast.merge(contrasts) if contrasts and contrast_weight else None
        queues = [part.queue for part in parts if part.queue is not None]
        self.queue = queues[0] if queues else None
        self.weights = {}
        for part in parts:
            for name, term in part.terms.items():
                self.terms[name] = term
            for name, weight in part.weights.items():
                if name != "contrast":
                    self.weights[name] = weight
        if self.contrast is not None:
            self.weights["contrast"] = contrast_weight
        self._refuse(names, twice=len(queues) > 1)

    def _refuse(self, names: str, *, twice: bool) -> None:
        """Refuse what would be ignored."""
        problem = None
        if twice:
            problem = "both bring a queue"
        elif self.queue is not None and self.contrast is None:
            problem = "a queue needs a contrast"
        elif self.queue is not None and self.second is not None:
            problem = "a queue with two independent encoders is not defined"
        elif self.labelled and any(view.level == "row" for view in self.views):
            problem = "next sentences and a corpus of pairs exclude each other"
        elif self.labelled and len(self.roles) > 2:
            problem = "copies and next sentences are made of single sentences, not of pairs"
        if problem:
            raise OptionError("--objective", names, problem)

    @property
    def name(self) -> str:
        """The methods' names, joined by "+"."""
        return "+".join(self.methods)

    def describe(self) -> dict[str, Any]:
        """Name and all parameters."""
        given = {key: value for key, value in self._given.items() if key != "methods"}
        return described(self.name, given)


def _views(parts: list[Objective], names: str) -> tuple[View, ...]:
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
