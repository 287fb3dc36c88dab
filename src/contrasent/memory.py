"""What becomes of freed memory: kept at hand for the next step of a training, or given back."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
"""Names of glibc's ``mallopt``."""
MEBIBYTE = 2**20

KERNELS = 128
"""How many kernels oneDNN, which multiplies in bf16 and for OpenVINO, may keep.

It keeps one with its scratch memory for each shape that it has met, 1,024 by default, and batches
of sentences are of a new shape at every step. With 128 a small encoder trained in 0.9 GB; without
a bound it grew past 3 GB.
"""


def few_kernels() -> None:
    """Tell oneDNN to keep few kernels; heard only if it was not used before in this process."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))


def returned() -> None:
    """Let the C library give large blocks back as soon as they are freed, from now on.

    For a process that lives long and computes batches of ever new sizes: by default glibc soon
    takes large blocks from its own heaps, which then grow by what lies between them. Elsewhere
    than on glibc nothing happens.
    """
    few_kernels()
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, MEBIBYTE)
        library.mallopt(TRIM_THRESHOLD, MEBIBYTE)


@contextmanager
def kept() -> Iterator[None]:
    """Let the C library keep what is freed, for the block; it goes back to the system afterwards.

    By default glibc returns large blocks at once, and the system hands out fresh pages, cleared and
    mapped one by one, in every step. Elsewhere than on glibc nothing happens but that oneDNN is
    told to keep few kernels.
    """
    few_kernels()
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, -1)
    library.mallopt(TOP_PAD, 64 * MEBIBYTE)
    try:
        yield
    finally:
        # Where glibc's own adjustment ends: it is off once any of these has been set.
        library.mallopt(MMAP_MAX, 65536)
        library.mallopt(MMAP_THRESHOLD, 32 * MEBIBYTE)
        library.mallopt(TRIM_THRESHOLD, 64 * MEBIBYTE)
        library.mallopt(TOP_PAD, 128 * 1024)
        library.malloc_trim(0)
