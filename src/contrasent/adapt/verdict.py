"""Is what was chosen better than the base? Decided once, on documents sealed until then."""

from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.evidence import OLD, Evidence, Floats, mean_over_kinds
from contrasent.errors import DataError
from contrasent.evaluate.sts import sts
from contrasent.metrics import normalize
from contrasent.stats.bootstrap import clustered_mean
from contrasent.text.datasets import sts_pairs
from contrasent.text.official import data_folder
from contrasent.types import EncodeFn

FEWEST = 20  # documents below which no verdict is given
PROOF = f"{3 * FEWEST} documents are needed, or {2 * FEWEST} user queries about {FEWEST}"
MARGIN = 0.02  # how much a score of general quality may fall: two hundredths of a correlation
PROBE = files("contrasent.adapt") / "probe.txt"
"""Our own: a sentence, one that says the same, one that shares its words and says another thing."""
FORGOTTEN = 0.03
"""How much nDCG@10 of queries about old text may fall by an update, by the lower end of the 95 %
interval."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, after minus before, with its 95 % interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class General:
    """Quality on text that has nothing to do with the adaptation."""

    task: str
    before: float
    after: float
    margin: float = MARGIN

    @property
    def fell(self) -> bool:
        """Whether it fell by more than the margin."""
        return self.after < self.before - self.margin - 1e-9  # the rounding of a difference


@dataclass(frozen=True, slots=True)
class KindChange:
    """The change of one kind of queries."""

    before: float
    after: float
    queries: int
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the sealed part."""

    improved: bool
    difference: Difference | None  # None if too few to tell, or the base was chosen
    before: float  # the base's nDCG@10, mean over kinds
    after: float
    kinds: dict[str, KindChange]
    general: General | None  # quality elsewhere; None where the model is the base's
    reason: str
    old: KindChange | None = None  # of an update, queries about old text; the rest is about new


def check_general(base: EncodeFn, chosen: EncodeFn) -> General:
    """Measure two models on STS-B dev where ``CONTRASENT_DATA`` has it, else on the probe."""
    if data_folder() is not None:
        with suppress(DataError):  # the folder need not have STS-B
            sts_pairs("STSB", split="dev")
            before, after = (
                sts(encode, tasks=("STSB",), split="dev", resamples=0).rows[0].value
                for encode in (base, chosen)
            )
            return General("STS-B (dev, Spearman)", before, after)
    return General("the probe of 50 sentences", probe(base), probe(chosen))


def probe(encode: EncodeFn) -> float:
    """Share of the probe's sentences that are nearer to what says the same than to the other."""
    rows = [line.split("|") for line in PROBE.read_text("utf-8").splitlines()]
    vectors = normalize(encode([text for row in rows for text in row])).reshape(len(rows), 3, -1)
    same = np.einsum("nd,nd->n", vectors[:, 0], vectors[:, 1])
    other = np.einsum("nd,nd->n", vectors[:, 0], vectors[:, 2])
    return float(np.mean(same > other))


def clustered_difference(evidence: Evidence, values: Floats, *, seed: int = 0) -> Difference:
    """Mean over kinds of (q,) differences; its 95 % interval is over documents, what varies."""
    documents, where = np.unique([q.document for q in evidence.queries], return_inverse=True)
    kinds = {kind: column for column, kind in enumerate(evidence.kinds)}
    column = np.array([kinds[query.kind] for query in evidence.queries])
    sums, counts = np.zeros((2, len(documents), len(kinds)))
    np.add.at(sums, (where, column), values)
    np.add.at(counts, (where, column), 1.0)
    found = clustered_mean(sums, counts, seed=seed)
    return Difference(found.mean, found.low, found.high, found.p)


def decide(
    evidence: Evidence,
    before: Floats,
    after: Floats,
    *,
    name: str,
    general: General | None = None,
    seed: int = 0,
) -> Verdict:
    """Whether the chosen candidate may take the base's place."""
    # The interval must lie above zero and general quality hold; of an update that counts for new
    # text, and old text must be certain to lose little.
    kinds = {
        kind: _change(evidence, evidence.of_kind(kind), before, after, name, seed)
        for kind in evidence.kinds
    }
    is_old = np.array([query.kind.endswith(OLD) for query in evidence.queries])
    old = None
    if is_old.any():
        old = _change(evidence, np.flatnonzero(is_old), before, after, name, seed)
        evidence = evidence.part(np.flatnonzero(~is_old))
        before, after = before[~is_old], after[~is_old]
    documents = len({query.document for query in evidence.queries})
    difference = None
    improved = False
    if name == "base":
        reason = "nothing that was tried beat the base on the selection part"
    elif documents < FEWEST:
        reason = (
            f"the sealed part has queries about {documents} documents, and {FEWEST} are needed to "
            "tell a gain from chance"
        )
    else:
        difference = clustered_difference(evidence, after - before, seed=seed)
        gain = f"{name} changes nDCG@10 by {shown(difference)} on the sealed part"
        if old is not None and old.difference is not None:
            gain += f" of the new text, by {shown(old.difference)} on that of the old"
        if not difference.low > 0:
            reason = f"{gain}, which may be nothing"
        elif old is not None and old.difference is None:
            reason = (
                f"{gain}; too little old text is sealed to say what it loses ({FEWEST} documents)"
            )
        elif old is not None and old.difference and old.difference.low < -FORGOTTEN:
            reason = f"{gain}, which may be a loss of more than {FORGOTTEN}"
        elif general is not None and general.fell:
            reason = (
                f"{gain}, but {general.task} falls from {general.before:.3f} to "
                f"{general.after:.3f}, more than {MARGIN}"
            )
        else:
            improved, reason = True, gain
    means = mean_over_kinds(evidence, before), mean_over_kinds(evidence, after)
    return Verdict(improved, difference, *means, kinds, general, reason, old)


def shown(gap: Difference) -> str:
    """A difference with its interval."""
    return f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"


def _change(
    evidence: Evidence,
    chosen: NDArray[np.int64],
    before: Floats,
    after: Floats,
    name: str,
    seed: int,
) -> KindChange:
    """The change of some of the queries."""
    part = evidence.part(chosen)
    old, new = before[chosen], after[chosen]
    enough = len({query.document for query in part.queries}) >= FEWEST
    difference = None
    if name != "base" and enough:
        difference = clustered_difference(part, new - old, seed=seed)
    means = mean_over_kinds(part, old), mean_over_kinds(part, new)
    return KindChange(*means, len(chosen), difference)
