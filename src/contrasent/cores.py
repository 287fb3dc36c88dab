"""How many threads to compute with, and how they wait for each other."""

import os

SPINS = 1000
"""How often a thread of GNU OpenMP looks whether it may go on before it sleeps: some 10 to 50 us.

That is about what sleeping and waking cost. The runtime's own default is 300,000 looks, several
milliseconds and longer than a time slice: beside other busy processes the threads of a product
spent their time waiting for one that was not scheduled.
"""


def sleep_at_barriers() -> None:
    """Let threads that wait sleep soon, so that a busy machine's cores go to those that compute.

    For torch's GNU OpenMP, which reads its settings once, when torch is imported: so this is done
    when ``contrasent`` is. ``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT``, where set, are left alone.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


def threads() -> int:
    """OMP_NUM_THREADS, or one for each core that this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    return usable()


def usable() -> int:
    """Cores that this process may use."""
    given = getattr(os, "sched_getaffinity", None)
    return len(given(0)) if given is not None else (os.cpu_count() or 1)
