"""What an index's own text teaches a search, without queries."""

from collections.abc import Callable
from dataclasses import dataclass

from contrasent.adapt.bench import Difference
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import EncodeFn


@dataclass(frozen=True, slots=True)
class Steps:
    """A search that learned from the text alone."""

    ranker: Ranker
    learned: Learned
    evidence: Difference | None  # its gain on sentences held out
    notes: tuple[str, ...]


def learn_from_text(
    index: Index,
    encode: EncodeFn,
    prior: Ranker,
    *,
    seed: int,
    log: Callable[[str], None],
    until: Callable[[], float],
) -> Steps:
    """Learn from the text alone; ``until`` gives the seconds that are left."""
    return Steps(prior, Learned(), None, ())
