"""Progress of long work: a bar on a terminal, plain lines when piped, silence on request.

:class:`Deadline` ends work in threads, which nothing can end from outside. :func:`printable`
escapes every text that goes to a terminal.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

Advance = Callable[..., None]
"""advance(n=1, **fields): n more units are done; fields are shown next to the bar."""

PATIENCE = 2.0
LINE_EVERY = 10.0
SLOW = 0.1  # units a second below which the time of each is shown

# Control characters, those that change the direction of text, and lone surrogates; not
# tabs and ends of lines.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)

_mode = "silent"
_busy = False


def printable(text: str) -> str:
    """A text, or JSON, with terminal control characters as JSON escapes."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show(mode: str) -> None:
    """Show the progress of long work: "auto" (a bar, or lines without a terminal) or "silent"."""
    global _mode
    _mode = mode


def silent() -> bool:
    """Whether nothing is shown."""
    return _mode == "silent"


@contextmanager
def shown(wanted: bool | None) -> Iterator[None]:
    """Show progress in the block, or not; None leaves it as it is."""
    global _mode
    if wanted is None:  # nothing to restore either, while other threads may choose
        yield
        return
    before, _mode = _mode, "auto" if wanted else "silent"
    try:
        yield
    finally:
        _mode = before


@contextmanager
def task(
    title: str, total: int | None = None, unit: str = "it", start: int = 0
) -> Iterator[Advance]:
    """Report the progress of a task of ``total`` units, ``start`` of which are done already."""
    global _busy
    if _mode != "auto" or _busy:
        yield lambda n=1, **fields: None
        return
    _busy = True
    try:
        if sys.stderr.isatty():
            with _bar(title, total, unit, start) as advance:
                yield advance
        else:
            yield _Lines(title, total, unit, start)
    finally:
        _busy = False


class _Lines:
    """Plain lines on standard error, the first after two seconds, then every ten."""

    def __init__(self, title: str, total: int | None, unit: str, start: int) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.first = self.done = start
        self.began = time.monotonic()
        self.next = self.began + PATIENCE

    def __call__(self, n: int = 1, **fields: Any) -> None:
        self.done += n
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + LINE_EVERY
        rate = (self.done - self.first) / max(now - self.began, 1e-9)
        parts = [f"{self.done:,}{f'/{self.total:,}' if self.total else ''} {self.unit}"]
        if self.total and rate:
            parts.append(f"{(self.total - self.done) / rate:.0f} s left")
        if rate:
            parts.append(f"{1 / rate:.0f} s each" if rate < SLOW else f"{rate:,.1f} {self.unit}/s")
        parts += [f"{k} {_text(v)}" for k, v in fields.items()]
        with suppress(OSError):  # a terminal that is gone, or a log on a full disk, ends no work
            sys.stderr.write(printable(f"{self.title}: {', '.join(parts)}") + "\n")
            sys.stderr.flush()


@contextmanager
def _bar(title: str, total: int | None, unit: str, start: int) -> Iterator[Advance]:
    from rich import progress as rich
    from rich.console import Console

    bar = rich.Progress(
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn(unit),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[more]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    began = time.monotonic()
    identity = bar.add_task(printable(title), total=total, completed=start, more="")
    started = False

    def advance(n: int = 1, **fields: Any) -> None:
        nonlocal started
        if not started and time.monotonic() - began > PATIENCE:
            bar.start()
            started = True
        text = printable("  ".join(f"{k} {_text(v)}" for k, v in fields.items()))
        more: dict[str, Any] = {"more": text} if text else {}
        bar.update(identity, advance=n, **more)

    try:
        yield advance
    finally:
        if started:
            bar.stop()


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Deadline:
    """The time at which some work must end, done or not; cancelled work ends at once."""

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
    """Limit the work of the block, and of tasks and threads that get its context."""
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
        raise TimeoutError("the time limit is reached")
