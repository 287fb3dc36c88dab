"""Which of torch's kernels a training uses on CPU."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def steady(precision: str) -> Iterator[None]:
    """Use, for the block, no kernels that are made anew for every shape, where they gain nothing.

    In fp32 on x86 torch leaves GELU alone to oneDNN. That makes a kernel, of hundreds of small
    blocks of memory, for every number of rows, and drops the oldest; batches have ever other
    numbers. So new blocks always lay among a step's activations and tore the memory that is kept
    into pieces: a process of 1.2 GB grew to 2.6 GB over 320 steps, and on. Steps take as
    long with torch's own. In bf16 oneDNN multiplies too, as in fp32 on other processors, and stays.

    For steps alone. Vectors computed during a training are those that its model gives later, bit
    for bit, and those of ``--invariant`` need a GELU that does not depend on where a number
    stands: torch's takes the last of them, and of every thread's share, in another way.

    Args:
        precision: of ``Settings``.
    """
    if precision != "fp32" or platform.machine().lower() not in ("x86_64", "amd64"):
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before
