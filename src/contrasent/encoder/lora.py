"""LoRA: low-rank matrices trained instead of a backbone's weights (Hu et al. 2022)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from contrasent.errors import import_extra


def add(backbone: nn.Module, rank: int) -> None:
    """Freeze a backbone and add matrices of a rank to all its linear layers, scaled by 2."""
    peft = import_extra("peft", "lora", "lora")
    # GPT-2's layers have their weights transposed.
    transposed = any(type(module).__name__ == "Conv1D" for module in backbone.modules())
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", fan_in_fan_out=transposed
    )
    peft.inject_adapter_in_model(config, backbone)


@contextmanager
def merged(backbone: nn.Module) -> Iterator[None]:
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


def plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names without LoRA; its matrices are left out."""
    return {k.replace(".base_layer.", "."): v for k, v in state.items() if ".lora_" not in k}
