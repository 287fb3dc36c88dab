"""Processes that a command starts to work for it."""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """Let this process be told by SIGTERM to end once the one that started it has.

    Without it a worker outlives a command that is killed: it waits for work for ever, or goes on
    with a job of hours that nobody waits for.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
