"""Cached gradients: each chunk of a batch is computed once more in the backward pass.

So a batch takes the memory of a chunk (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch
Size under Memory Limited Setup"). Until then only the chunk's tokens, its vectors and the state of
the random numbers are kept: small blocks that outlive large ones tear the heap, and with the graph
of each chunk a batch of 4,096 took three times the memory of one chunk.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from contrasent.encoder import products

Given = TypeVar("Given")


def recomputed(weights: Iterable[Tensor], work: Callable[[Given], Tensor], given: Given) -> Tensor:
    """``work(given)``, of which only the result is kept, as a function of these weights alone.

    The backward pass computes it again, with the random numbers and the precision of now. A hook on
    the gradient of a weight sees that of each chunk, and then the sum.
    """
    learned = [weight for weight in weights if weight.requires_grad]
    if not torch.is_grad_enabled() or not learned:
        return work(given)
    result: Tensor = _Recomputed.apply(work, given, *learned)  # type: ignore[no-untyped-call]
    return result


class _Recomputed(torch.autograd.Function):
    """A function of the weights, whose gradients are added by autograd to those of other chunks.

    So a second backward pass, ``autograd.grad`` and several processes need nothing of their own.
    """

    @staticmethod
    def forward(ctx: Any, work: Any, given: Any, *weights: Tensor) -> Tensor:
        ctx.work, ctx.given, ctx.weights = work, given, weights
        device = weights[0].device
        ctx.random, ctx.precision = _random_state(device), _precision(device)
        with torch.enable_grad():  # the same kernels, and the same compiled graph, as later
            result: Tensor = work(given)
        return result.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        device, (cpu, *others) = ctx.weights[0].device, ctx.random
        with torch.random.fork_rng([device] * len(others), device_type=device.type):
            torch.set_rng_state(cpu)
            for state in others:
                torch.get_device_module(device).set_rng_state(state, device)
            with torch.enable_grad(), products.autocast(**ctx.precision):
                result = ctx.work(ctx.given)
        return None, None, *torch.autograd.grad(result, ctx.weights, grad, allow_unused=True)


def _precision(device: torch.device) -> dict[str, Any]:
    """Autocast as it is."""
    return {
        "device": device.type,
        "dtype": torch.get_autocast_dtype(device.type),
        "enabled": torch.is_autocast_enabled(device.type),
    }


def _random_state(device: torch.device) -> list[Tensor]:
    """The state of the generators that computing on a device draws from."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states
