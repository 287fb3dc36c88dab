"""What the C library does with freed memory: keep it for the next training step, or return it."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
"""Names of glibc's ``mallopt``."""
MEBIBYTE = 2**20

KERNELS = 128
"""Kernels that oneDNN (bf16 products, OpenVINO) may cache.

It caches one, with its scratch memory, for each shape, 1,024 by default, and batches of sentences
have a new shape at every step. With 128 a small encoder trained in 0.9 GB; without a bound it grew
past 3 GB.
"""


def limit_onednn_cache() -> None:
    """Bound oneDNN's cache of kernels; has an effect only before its first use in the process."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))


def release_freed_memory() -> None:
    """Return large blocks to the system as soon as they are freed, from now on.

    For a long-lived process whose batches vary in size: by default glibc soon takes large blocks
    from its own heaps, which fragment and grow. Without glibc this does nothing.
    """
    limit_onednn_cache()
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, MEBIBYTE)
        library.mallopt(TRIM_THRESHOLD, MEBIBYTE)


@contextmanager
def retain_freed_memory() -> Iterator[None]:
    """Keep freed memory in the process for the block; it is returned to the system afterwards.

    By default glibc returns large blocks at once, and every step pays for fresh pages, cleared and
    mapped one by one. Without glibc only oneDNN's cache is bounded.
    """
    limit_onednn_cache()
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
