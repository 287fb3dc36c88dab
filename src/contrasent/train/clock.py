"""Where a run's time goes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PARTS = (
    "load",
    "tokenise",
    "wait",
    "forward",
    "backward",
    "optimizer",
    "evaluation",
    "checkpoint",
    "other",
)
"""Loading the model, tokenising the corpus, making batches ("wait"), the parts of a step, scoring,
writing checkpoints and models, and all else."""


class Clock:
    """Divides wall time among named parts; every moment belongs to one of them."""

    # Inside a part another may begin, whose time is then its own alone. Time outside all parts is
    # "other".
    # `settle`: waits for work that goes on elsewhere, on a GPU, so that it is counted where it
    # belongs; called at every change of parts.

    def __init__(self) -> None:
        """Start."""
        self.settle: Callable[[], None] | None = None
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._open = ["other"]
        self._since = time.monotonic()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block's time under a name of ``PARTS``."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def table(self) -> dict[str, float]:
        """Seconds of each part so far, and "wall", which is their sum."""
        self._charge()
        return {**self._seconds, "wall": sum(self._seconds.values())}

    def _charge(self) -> None:
        if self.settle is not None:
            self.settle()
        now = time.monotonic()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now
