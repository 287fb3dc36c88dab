"""Several calls of an encoder at once, on a processor with several cores.

Products of small matrices do not gain much from a second core; two calls, a core each, do.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import torch

MOST = 4
"""Calls at once; more of them would wait for each other between torch's operations."""


@contextmanager
def workers(device: torch.device, calls: int) -> Iterator[Executor | None]:
    """Threads that share torch's cores, for the block.

    Args:
        device: of the encoder; only a processor's cores are shared.
        calls: that there are to make.

    Yields:
        An executor; None where calls are better made one after the other.
    """
    threads = torch.get_num_threads()
    count = min(threads, calls, MOST)
    if device.type != "cpu" or count < 2:
        yield None
        return
    begun = threading.Barrier(count + 1)

    def begin() -> None:
        # A thread's first question after the number would set it to the common one, so ask now.
        torch.get_num_threads()
        # Holds for this thread, and for threads to come: the caller sets those back.
        torch.set_num_threads(threads // count)
        begun.wait()

    with ThreadPoolExecutor(count, "contrasent-encode", begin) as pool:
        for _ in range(count):
            pool.submit(int)  # a thread is made for each, as none of them is idle yet
        begun.wait()
        torch.set_num_threads(threads)
        yield pool
