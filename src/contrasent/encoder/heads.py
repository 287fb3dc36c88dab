"""What is trained beside a backbone: heads on the pooled vector, and LoRA's matrices inside it.

A head inside the encoder is kept at inference; one inside an objective is dropped after training.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder.tensors import read_tensors
from contrasent.errors import check_choice, import_extra
from contrasent.model.description import ACTIVATIONS, read_dense


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
            "activation_function": names[type(self.activation).__name__],
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

    def forward(self, rows: Tensor) -> Tensor:
        """(n, d) to (n, d); in training the statistics are those of the rows of all processes."""
        if parallel.world() == 1 or not self[1].training:
            return cast(Tensor, super().forward(rows))  # type: ignore[no-untyped-call]
        start, every = parallel.first_row(len(rows)), parallel.gather(rows)
        projected: Tensor = super().forward(every)  # type: ignore[no-untyped-call]
        return projected[start : start + len(rows)]


HEADS = ("none", "tanh", "batchnorm")


def make_head(name: str, size: int) -> nn.Module | None:
    """A freshly initialized head: "none" (None), "tanh" (SimCSE, section 6.1) or "batchnorm"."""
    check_choice("head", name, HEADS)
    if name == "tanh":
        return Dense(size, size, nn.Tanh())
    if name == "batchnorm":
        return BatchNormProjector(size)
    return None


def as_dense(head: nn.Module) -> list[Dense]:
    """The head as layers for a model folder, equal at inference."""
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
        return dense_of(linear.weight.double() * scale[:, None], shift, activation)


@torch.no_grad()
def dense_of(weight: Tensor, bias: Tensor | None, activation: nn.Module) -> Dense:
    """A layer with these weights (d_out, d_in) and (d_out,)."""
    layer = Dense(weight.shape[1], weight.shape[0], activation, bias=bias is not None)
    layer.linear.weight.copy_(weight)
    if bias is not None:
        layer.linear.bias.copy_(bias)
    return layer


def stacked(layers: Sequence[Dense]) -> nn.Module | None:
    """Layers as one module; None if there are none."""
    return nn.Sequential(*layers) if len(layers) > 1 else layers[0] if layers else None


def read_head(paths: Sequence[Path]) -> nn.Module | None:
    """The dense layers of a model folder as one module; None if it has none."""
    read = (read_dense(path, read_tensors) for path in paths)
    return stacked([dense_of(weight, bias, getattr(nn, kind)()) for kind, weight, bias in read])


def add_lora(backbone: nn.Module, rank: int) -> None:
    """Freeze a backbone; add LoRA's matrices to its linear layers, scaled by 2 (Hu et al. 2022)."""
    peft = import_extra("peft", "lora", "lora")
    # GPT-2's layers have their weights transposed.
    transposed = any(type(module).__name__ == "Conv1D" for module in backbone.modules())
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", fan_in_fan_out=transposed
    )
    peft.inject_adapter_in_model(config, backbone)


@contextmanager
def merged_lora(backbone: nn.Module) -> Iterator[None]:
    """Merge the matrices into the weights for the block; then restore the frozen ones exactly."""
    layers: list[Any] = [
        m for m in backbone.modules() if hasattr(m, "lora_A") and not getattr(m, "merged", False)
    ]
    before = [layer.base_layer.weight.detach().clone() for layer in layers]
    for layer in layers:
        layer.merge()
    try:
        yield
    finally:
        for layer, weight in zip(layers, before, strict=True):
            layer.base_layer.weight.data.copy_(weight)
            layer.merged_adapters.clear()


def without_lora(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names without LoRA; its matrices are left out."""
    return {k.replace(".base_layer.", "."): v for k, v in state.items() if ".lora_" not in k}
