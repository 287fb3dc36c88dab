"""Keeping freed memory at hand: the buffers of one step are those of the next."""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
"""Names of glibc's ``mallopt``."""
MEBIBYTE = 2**20


@contextmanager
def kept() -> Iterator[None]:
    """Let the C library keep what is freed, for the block; it goes back to the system afterwards.

    By default glibc returns large blocks at once, and the system hands out fresh pages, cleared and
    mapped one by one, in every step. Elsewhere than on glibc nothing happens.
    """
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
