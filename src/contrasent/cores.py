"""How many threads to compute with."""

import os


def threads() -> int:
    """OMP_NUM_THREADS, or one for each core that this process may use."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else (os.cpu_count() or 1)
