"""How matrices are multiplied on CPU: float32 by the faster library, bfloat16 without instructions.

torch leaves float32 to Intel's MKL, which on other makers' processors takes kernels of half the
width of theirs (AVX2). oneDNN, in the same torch, takes AVX-512. Both are exact; the last digits
differ. bfloat16 it leaves to oneDNN too, which needs AVX-512; without it torch's own loop takes 23
times as long as float32, so that these products are computed in float32 (:class:`Widened`).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from contrasent.errors import OptionError
from contrasent.processes import instructions, limit_onednn_cache, vendor

VARIABLE = "CONTRASENT_PRODUCTS"
TORCH, ONEDNN = "torch", "onednn"
EXACT = 1e-5
"""Largest error, relative to the largest value, of a product that counts as float32."""


@cache
def fastest() -> str:
    """The library that this processor multiplies fastest by, or the one that the user states."""
    stated = os.environ.get(VARIABLE)
    if stated:
        if stated not in (TORCH, ONEDNN):
            raise OptionError(VARIABLE, stated, "no such library", choices=(ONEDNN, TORCH))
        return stated
    # On other makers' processors MKL takes kernels of half the width of theirs; oneDNN does not.
    wide = "avx512f" in instructions()
    # With AMX, oneDNN would be asked for bfloat16 inside.
    amx = any(name.startswith("amx") for name in instructions())
    here = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return ONEDNN if wide and not amx and here and vendor() != "GenuineIntel" else TORCH


def takes_onednn() -> bool:
    """Whether torch would leave float32 to oneDNN when asked to: not without AVX-512."""
    known = instructions()
    return not known or "avx512f" in known


def use(library: str) -> str:
    """Multiply by a library from now on; by torch's own where oneDNN cannot, or not exactly."""
    if library == ONEDNN and not (takes_onednn() and _is_exact()):
        library = TORCH
    _set(library)
    _used[:] = [library]
    return library


def used() -> str:
    """The library that multiplies, which is the fastest unless another was named before."""
    return _used[0] if _used else use(fastest())


_used: list[str] = []  # of this process


def _set(library: str) -> None:
    # The setting allows oneDNN to compute in bfloat16. It does where there is AMX, and elsewhere in
    # float32 by kernels for AVX-512, and these are what is wanted.
    setting = "bf16" if library == ONEDNN else "none"
    torch.backends.mkldnn.matmul.fp32_precision = setting  # type: ignore[attr-defined]


@cache
def _is_exact() -> bool:
    """Whether oneDNN computes a product in float32 when it need not."""
    limit_onednn_cache()
    drawn = torch.Generator().manual_seed(0)
    one, two = (torch.randn(n, 256, generator=drawn) for n in (64, 128))
    _set(ONEDNN)
    found = torch.nn.functional.linear(one, two)
    _set(_used[0] if _used else TORCH)
    exact = one.double() @ two.double().T
    return bool((found - exact).abs().max() <= EXACT * exact.abs().max())


def widens() -> bool:
    """Whether this processor is faster by :class:`Widened` products of bfloat16 than by torch's."""
    return "avx2" in instructions() and not takes_onednn()


@contextmanager
def autocast(device: str, dtype: torch.dtype, *, enabled: bool = True) -> Iterator[None]:
    """``torch.autocast`` for the block, with :class:`Widened` products where those are faster."""
    wide = enabled and device == "cpu" and dtype == torch.bfloat16 and widens()
    with torch.autocast(device, dtype, enabled=enabled), Widened() if wide else nullcontext():
        yield


class Widened(TorchFunctionMode):
    """Products of bfloat16 by float32 units, rounded where bfloat16 units round.

    Operands are rounded to bfloat16, multiplied and summed in float32, and the result is rounded,
    as instructions for bfloat16 do; gradients likewise. Only the order of the sums differs.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func not in PRODUCTS or not _in_bfloat16(*args, *given.values()):
            return func(*args, **given)
        with torch.autocast("cpu", enabled=False):
            named = {name: _rounded(value) for name, value in given.items()}
            return func(*map(_rounded, args), **named).bfloat16()


def in_batches(like: Tensor) -> Callable[[Tensor, Tensor, float, Tensor], Tensor]:
    """How ``scale`` times the products of two batches are written to ``out``.

    Functions of autograd multiply by this themselves: no mode of torch is active in a backward.
    """
    bfloat16 = like.dtype == torch.bfloat16 and like.device.type == "cpu"
    return _widened_batches if bfloat16 and widens() else _batches


def _batches(one: Tensor, two: Tensor, scale: float, out: Tensor) -> Tensor:
    return torch.baddbmm(out, one, two, beta=0, alpha=scale, out=out)


def _widened_batches(one: Tensor, two: Tensor, scale: float, out: Tensor) -> Tensor:
    return out.copy_(_batches(one.float(), two.float(), scale, torch.empty(out.shape)))


PRODUCTS = (
    functional.linear,
    torch.addmm,  # GPT-2's linear layers
    torch.bmm,
    torch.matmul,
    Tensor.matmul,
    Tensor.__matmul__,
    functional.scaled_dot_product_attention,
)


def _in_bfloat16(first: Tensor, *others: Any) -> bool:
    """Whether torch would multiply the operands in bfloat16; autocast leaves float64 alone."""
    if torch.is_autocast_enabled("cpu") and first.dtype != torch.float64:
        return torch.get_autocast_dtype("cpu") == torch.bfloat16
    return first.dtype == torch.bfloat16


def _rounded(value: Any) -> Any:
    """A tensor's numbers as bfloat16 holds them, in float32."""
    real = isinstance(value, Tensor) and value.is_floating_point()
    return value.bfloat16().float() if real else value
