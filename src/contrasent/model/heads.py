"""Heads: small networks on top of the pooled vector."""

# A head inside the encoder is kept at inference; one inside an objective is dropped after training.

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent.errors import check_choice

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
    # `matrix`: (d, k). `bias`: (k,).
    layer = Dense(matrix.shape[0], matrix.shape[1], nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(matrix.T.copy()))
        layer.linear.bias.copy_(torch.from_numpy(bias.copy()))
    below = as_dense(head) if head is not None else []
    return nn.Sequential(*below, layer) if below else layer
