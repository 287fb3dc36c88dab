"""Heads: small networks on top of the pooled vector."""

# A head inside the encoder is kept at inference; one inside an objective is dropped after training.

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent.errors import ModelError, check_choice
from contrasent.files import read_object
from contrasent.model.golden import read_tensors

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.linear.Identity": nn.Identity,
}


class Dense(nn.Module):
    """A linear layer and an activation: (n, d_in) to (n, d_out)."""

    def __init__(
        self, size_in: int, size_out: int, activation: nn.Module, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(size_in, size_out, bias=bias)
        nn.init.normal_(self.linear.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.linear.bias)
        self.activation = activation

    def forward(self, vectors: Tensor) -> Tensor:
        """(n, d_in) to (n, d_out)."""
        return cast(Tensor, self.activation(self.linear(vectors)))

    def describe(self) -> dict[str, Any]:
        """Its config.json in a model folder."""
        names = {kind: name for name, kind in ACTIVATIONS.items()}
        return {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": names[type(self.activation)],
        }


class BatchNormProjector(nn.Sequential):
    """Linear, BatchNorm, ReLU, Linear, BatchNorm without scale (DiffCSE, section 3 and Table 5)."""

    def __init__(self, size: int) -> None:
        super().__init__(
            nn.Linear(size, 2 * size, bias=False),
            nn.BatchNorm1d(2 * size),
            nn.ReLU(),
            nn.Linear(2 * size, size, bias=False),
            nn.BatchNorm1d(size, affine=False),
        )
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.02)


HEADS = ("none", "tanh", "batchnorm")


def check_head(name: str | None) -> None:
    """Reject a name that no head has; None is no name."""
    if name is not None:
        check_choice("head", name, HEADS)


def make_head(name: str, size: int) -> nn.Module | None:
    """A freshly initialised head: "none" (None), "tanh" (SimCSE, section 6.1) or "batchnorm"."""
    check_head(name)
    if name == "tanh":
        return Dense(size, size, nn.Tanh())
    if name == "batchnorm":
        return BatchNormProjector(size)
    return None


def as_dense(head: nn.Module) -> list[Dense]:
    """The head as layers that a model folder can hold, equal at inference."""
    if isinstance(head, Dense):
        return [head]
    if isinstance(head, BatchNormProjector):
        first, norm1, _, second, norm2 = head
        return [_fold(first, norm1, nn.ReLU()), _fold(second, norm2, nn.Identity())]
    if isinstance(head, nn.Sequential) and all(isinstance(layer, Dense) for layer in head):
        return [cast(Dense, layer) for layer in head]
    raise TypeError(f"a head of type {type(head).__name__} cannot be written to a model folder")


@torch.no_grad()
def _fold(linear: nn.Module, norm: nn.Module, activation: nn.Module) -> Dense:
    linear, norm = cast(nn.Linear, linear), cast(nn.BatchNorm1d, norm)
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    scale = 1 / torch.sqrt(variance.double() + norm.eps)
    shift = -mean.double() * scale
    if norm.affine:
        scale = scale * norm.weight.double()
        shift = shift * norm.weight.double() + norm.bias.double()
    with torch.random.fork_rng(devices=[]):  # its first weights are overwritten
        folded = Dense(linear.in_features, linear.out_features, activation)
    folded.linear.weight.copy_(linear.weight.double() * scale[:, None])
    folded.linear.bias.copy_(shift)
    return folded


def with_layer(
    head: nn.Module | None, matrix: NDArray[np.float64], bias: NDArray[np.float64]
) -> nn.Module:
    """A head, and a linear layer x @ matrix + bias on top of it."""
    layer = Dense(matrix.shape[0], matrix.shape[1], nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(matrix.T.copy()))
        layer.linear.bias.copy_(torch.from_numpy(bias.copy()))
    below = as_dense(head) if head is not None else []
    return nn.Sequential(*below, layer) if below else layer


def _read_dense(path: Path) -> Dense:
    """Read a dense layer of a model folder."""
    config = read_object(path / "config.json", needed=True)
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(
            f"{path / 'config.json'}: activation {name!r} is not one of {', '.join(ACTIVATIONS)}"
        )
    weights = read_tensors(path / "model.safetensors")
    bias = bool(config.get("bias", True))
    sizes = (config.get("out_features"), config.get("in_features"))
    shapes = {"linear.weight": sizes, **({"linear.bias": sizes[:1]} if bias else {})}
    # Before anything is made of that size.
    if {key: tuple(tensor.shape) for key, tensor in weights.items()} != shapes:
        raise ModelError(f"{path}: the weights do not fit its config.json")
    size_out, size_in = weights["linear.weight"].shape
    layer = Dense(size_in, size_out, ACTIVATIONS[name](), bias=bias)
    layer.load_state_dict(weights)
    return layer


def read_head(paths: Sequence[Path]) -> nn.Module | None:
    """The dense layers of a model folder as one module; None if it has none."""
    layers = [_read_dense(path) for path in paths]
    return nn.Sequential(*layers) if len(layers) > 1 else layers[0] if layers else None
