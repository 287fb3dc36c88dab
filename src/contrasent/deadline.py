"""A limit of time for work in threads, which nothing can end from outside."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Deadline:
    """The moment at which some work ends, done or not; cancelled work ends at once."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the work must end."""
        return time.monotonic() >= self._end

    def cancel(self) -> None:
        """End the work at its next check."""
        self._end = 0.0


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def limited(deadline: Deadline) -> Iterator[None]:
    """Limit the work of the block, and that of the tasks and threads that get its context."""
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def deadline_passed() -> bool:
    """Whether the time for the work at hand is over."""
    deadline = _current.get()
    return deadline is not None and deadline.passed


def check_deadline() -> None:
    """Raise a ``TimeoutError`` if the time for the work at hand is over."""
    if deadline_passed():
        raise TimeoutError("the time for this work is over")
