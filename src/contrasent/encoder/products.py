"""Which library multiplies float32 matrices on CPU: the one that torch takes, or oneDNN.

torch leaves them to Intel's MKL, which on other makers' processors takes kernels of half the width
of theirs (AVX2). oneDNN, in the same torch, takes AVX-512. Both are exact; the last digits differ.
"""

import os
from functools import cache

import torch

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
