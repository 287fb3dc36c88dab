"""The share of every term in the gradient of the encoder: does a term act at all?"""

from collections.abc import Mapping

import torch
from torch import Tensor

from contrasent import parallel
from contrasent.engine.objective import Objective

LONG = 300
"""Steps for each further term from which four backward passes of it are below 1 % of a run."""


def moments(objective: Objective, total: int) -> frozenset[int]:
    """Numbers of the steps that are measured: the first, those at 10 % and 50 %, and the last."""
    further = len(_acting(objective)) - 1
    ends = {0, total - 1}
    return frozenset(ends | {total // 10, total // 2} if total >= LONG * further else ends)


def to_contrast(shares: Mapping[str, float]) -> dict[str, float]:
    """The sizes of the other terms' gradients relative to that of the contrast."""
    contrast = shares.get("contrast", 0.0)
    return {k: v / contrast for k, v in shares.items() if k != "contrast"} if contrast else {}


class GradientShares:
    """Measures the shares of one forward pass around its backward pass, which it leaves as it is.

    The share of a term is weight * |gradient of the term| / |gradient of the loss|, both on the
    encoder's parameters. Each term but one has a backward pass of its own; the gradient of that one
    is what the others leave of the whole.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.names = _acting(objective)
        self.parameters = [p for p in objective.encoder.parameters() if p.requires_grad]
        self.norms: dict[str, float] = {}
        self.left: list[Tensor] = []

    @staticmethod
    def possible(objective: Objective, *, compiled: bool) -> bool:
        """Whether the loss is the weighted sum, and its graph can be walked more than once."""
        return type(objective).loss is Objective.loss and not compiled

    def before(self, terms: Mapping[str, Tensor], factor: float) -> None:
        """Measure all terms but one, whose gradients are multiplied by a factor on the way."""
        for name in self.names[1:]:
            grads = self._gradient(factor * self.objective.weights[name] * terms[name])
            self.norms[name] = _norm(grads) / factor
            if self.left:
                torch._foreach_add_(self.left, grads)
            else:
                self.left = grads

    def after(self, factor: float) -> dict[str, float]:
        """The shares, once the gradient of the loss times the factor is in the parameters."""
        zeros = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        whole = _norm(zeros) / factor
        rest = torch._foreach_sub(zeros, self.left) if self.left else zeros
        norms = {self.names[0]: _norm(list(rest)) / factor, **self.norms}
        finite = bool(torch.tensor([whole, *norms.values()]).isfinite().all())
        if not finite or not whole:
            return {}
        return {name: norms.get(name, 0.0) / whole for name in self.objective.weights}

    def _gradient(self, value: Tensor) -> list[Tensor]:
        """Gradient of a scalar on the encoder, the mean over processes."""
        if not value.requires_grad:
            return [torch.zeros_like(p) for p in self.parameters]
        grads = torch.autograd.grad(value, self.parameters, retain_graph=True, allow_unused=True)
        pairs = zip(grads, self.parameters, strict=True)
        return [parallel.average(torch.zeros_like(p) if g is None else g) for g, p in pairs]


def _acting(objective: Objective) -> list[str]:
    """Terms with a weight, the contrast first."""
    names = [name for name, weight in objective.weights.items() if weight]
    return sorted(names, key=lambda name: name != "contrast")


def _norm(grads: list[Tensor]) -> float:
    return float(torch.stack(torch._foreach_norm(grads)).norm())
