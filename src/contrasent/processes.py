"""A process on its machine: threads, freed memory, and its end."""

import os
import platform
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

resource: Any
try:
    import resource
except ImportError:  # Windows, where neither memory nor open files are limited
    resource = None

SPINS = 1000
"""How often a thread of GNU OpenMP looks whether it may continue before it sleeps: 10 to 50 us,
about the cost of sleeping and waking. The default of 300,000 looks is longer than a time slice: on
a busy machine the threads of a product spent their time waiting for one that was not scheduled."""
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4  # names of glibc's `mallopt`
MEBIBYTE = 2**20
KERNELS = 128
"""Kernels that oneDNN (bf16 products, OpenVINO) may cache: by default 1,024, one for each shape,
which batches change at every step. With 128 a small encoder trained in 0.9 GB, else past 3 GB."""

BF16 = frozenset({"avx512_bf16", "amx_bf16"})
"""Instruction sets of processors that multiply in bfloat16."""


def sleep_at_barriers() -> None:
    """Let waiting threads sleep soon, so that cores go to threads that compute."""
    # torch's GNU OpenMP reads its settings once, when torch is imported: so this is done when
    # `contrasent` is. `OMP_WAIT_POLICY` or `GOMP_SPINCOUNT`, where set, are left alone.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


def threads() -> int:
    """OMP_NUM_THREADS, or one for each core that this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


@cache  # attention in bf16 asks in every layer
def instructions() -> set[str]:
    """The processor's instruction sets, as far as oneDNN may use them; empty if unknown."""
    found = set[str]()
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8")
        found = set(" ".join(re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.M)).split())
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        most = os.environ.get(name, "ALL").upper()
        kept = ("AVX512", "AVX10", "ALL", "DEFAULT")
        if not any(word in most for word in kept):
            found = {one for one in found if not one.startswith(("avx512", "amx"))}
    return found


def vendor() -> str:
    """The processor's maker, such as "GenuineIntel" or "AuthenticAMD"; empty if unknown."""
    with suppress(OSError):
        found = re.search(r"^vendor_id\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text("utf-8"), re.M)
        return found[1] if found else ""
    return ""


def memory() -> int:
    """Bytes of this machine's memory; 0 if unknown."""
    with suppress(AttributeError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def address_space() -> int:
    """Bytes of address space that this process has; 0 where the system does not report them."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def limit_memory(more: int) -> None:
    """Limit this process to ``more`` bytes of address space beyond those that it has now."""
    if resource is not None and (now := address_space()):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


def allow_files(wanted: int) -> int:
    """Allow this many open files, or as many as possible; return the number."""
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files, possible = (wanted if n == resource.RLIM_INFINITY else n for n in (soft, hard))
    if files < wanted:
        files = min(wanted, possible)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files


def limit_onednn_cache() -> None:
    """Bound oneDNN's cache of kernels; has an effect only before its first use in the process."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(KERNELS))  # torch's own, which holds them too


def release_freed_memory() -> None:
    """Return large blocks to the system as soon as they are freed, from now on."""
    # For a long-lived process whose batches vary in size: by default glibc soon takes large blocks
    # from its own heaps, which fragment and grow. Without glibc this does nothing.
    limit_onednn_cache()
    if platform.libc_ver()[0] == "glibc":
        _mallopt((MMAP_THRESHOLD, MEBIBYTE), (TRIM_THRESHOLD, MEBIBYTE))


@contextmanager
def retain_freed_memory() -> Iterator[None]:
    """Keep freed memory in the process for the block; it is returned to the system afterwards."""
    # By default glibc returns large blocks at once, and every step pays for fresh pages, cleared
    # and mapped one by one. Without glibc only oneDNN's cache is bounded.
    limit_onednn_cache()
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = _mallopt((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, 64 * MEBIBYTE))
    try:
        yield
    finally:
        # The upper limit of glibc's own adjustment, which is off once any of these is set.
        _mallopt((MMAP_MAX, 65536), (MMAP_THRESHOLD, 32 * MEBIBYTE))
        _mallopt((TRIM_THRESHOLD, 64 * MEBIBYTE), (TOP_PAD, 128 * 1024))
        library.malloc_trim(0)


def _mallopt(*settings: tuple[int, int]) -> Any:
    """Configure glibc's allocator; return the C library."""
    import ctypes

    library = ctypes.CDLL(None)
    for name, value in settings:
        library.mallopt(name, value)
    return library


def end_with_parent() -> None:
    """Send this process SIGTERM once the one that started it has ended."""
    # Otherwise a worker outlives a killed command: it waits for work forever, or continues a job of
    # hours that nobody waits for.
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
