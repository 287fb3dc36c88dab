"""Does a model serve new text as it serves the old? Queries made of both, over both."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.candidates import Encoded, encode_all, kind_means, measure_candidate
from contrasent.adapt.evidence import OLD, Evidence, Floats, made_evidence
from contrasent.adapt.passages import Passage
from contrasent.adapt.queries import QUERY_MAKERS, made_pairs
from contrasent.adapt.verdict import FEWEST, RESAMPLES_OF_KIND, clustered_draws
from contrasent.evaluate.bootstrap import interval
from contrasent.search.exact import unit
from contrasent.search.hybrid import Fusion
from contrasent.search.lexical import Lexical
from contrasent.types import EncodeFn, Vectors, for_task

Integers = NDArray[np.int64]

A_KIND = 100
"""Made queries of a kind and a side at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A sample of texts, old or new.

    Attributes:
        vectors: (n, d) unit vectors.
    """

    passages: list[Passage]
    documents: list[str]
    vectors: Vectors

    @property
    def texts(self) -> list[str]:
        """As they are indexed."""
        return [passage.indexed for passage in self.passages]


@dataclass(frozen=True, slots=True)
class Served:
    """nDCG@10 of queries made of the text, mean over their kinds.

    Attributes:
        new: of queries about new text, of the same kinds.
        low: lower end of the 95 % interval of new - old, over documents.
    """

    old: float
    new: float
    low: float
    high: float


def search_both(
    old: Side,
    new: Side,
    encode: EncodeFn,
    fusion: Fusion,
    *,
    seed: int,
    say: Callable[[str], None],
) -> dict[str, Served] | None:
    """How well queries made of each side find what they should, among the texts of both."""
    evidence, old_count, lexical = _evidence(old, new, seed)
    sides = np.arange(old_count), np.arange(old_count, len(evidence.queries))
    if any(len({evidence.queries[n].document for n in side}) < FEWEST for side in sides):
        return None
    say(f"searching with {len(evidence.queries):,} queries made of old and new text")
    vectors = [old.vectors, new.vectors]
    if more := evidence.texts[evidence.passages :]:
        vectors.append(unit(encode_all(for_task(encode, "document"), more)))
    texts = [query.text for query in evidence.queries]
    queries = unit(encode_all(for_task(encode, "query"), texts))
    encoded = Encoded(queries, np.concatenate(vectors))
    ways = {"model": (encoded, None), "BM25": (None, lexical), "both": (encoded, lexical)}
    return {
        name: _served(evidence, sides, measure_candidate(evidence, vectors, words, fusion)[0], seed)
        for name, (vectors, words) in ways.items()
    }


def _evidence(old: Side, new: Side, seed: int) -> tuple[Evidence, int, Lexical]:
    """Queries of the kinds that both sides have, those about old text first; how many these are."""
    numbers: dict[str, int] = {}
    passages = [
        replace(passage, document=numbers.setdefault(name, len(numbers)))
        for side in (old, new)
        for passage, name in zip(side.passages, side.documents, strict=True)
    ]
    texts = [passage.indexed for passage in passages]
    first_new = passages[len(old.passages)].document
    pairs = made_pairs(QUERY_MAKERS, passages, range(len(passages)), seed, old=first_new)
    terms = Lexical.build(texts).analyzer
    made = made_evidence(
        texts, [p.document for p in passages], pairs, limit=A_KIND, terms=terms, seed=seed
    )
    common = [kind for kind in made.kinds if kind + OLD in made.kinds]
    about_old, about_new = (
        [n for n, query in enumerate(made.queries) if query.kind in kinds]
        for kinds in ({kind + OLD for kind in common}, set(common))
    )
    chosen = made.part(np.array([*about_old, *about_new], dtype=np.int64))
    return chosen, len(about_old), Lexical.build(made.texts, language=terms.language)


def _served(
    evidence: Evidence, sides: tuple[Integers, Integers], values: Floats, seed: int
) -> Served:
    means, drawn = [], []
    for number, side in enumerate(sides):
        part, of_side = evidence.part(side), values[side]
        means.append(kind_means(part, of_side)["all"])
        draws = clustered_draws(part, of_side, resamples=RESAMPLES_OF_KIND, seed=seed + number)
        drawn.append(draws)
    return Served(means[0], means[1], *interval(drawn[1] - drawn[0]))
