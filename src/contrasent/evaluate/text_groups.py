"""Groups of queries that change more than the others: by length, by script, by what is given."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from contrasent.stats.seeds import Floats, holm

PERMUTATIONS, AT_ONCE = 2000, 100
SMALLEST = 20
"""Queries of the smallest group that is looked at."""


@dataclass(frozen=True, slots=True)
class Group:
    """Queries of a kind, and whether they changed more than the others.

    Attributes:
        kind: "length", "script", or what the caller calls it.
        change: 1 - overlap at 10, their mean.
        p: one-sided, by permutation, corrected by Holm for all groups.
    """

    kind: str
    name: str
    queries: int
    change: float
    others: float
    p: float


def text_groups(texts: Sequence[str]) -> dict[str, list[str]]:
    """The third of lengths, and the script, that each text belongs to."""
    lengths = np.array([len(text) for text in texts])
    low, high = (int(edge) for edge in np.quantile(lengths, [1 / 3, 2 / 3]))
    names = [f"up to {low} characters", f"{low + 1} to {high}", f"more than {high}"]
    places = np.searchsorted([low, high], lengths, side="left")
    return {"length": [names[at] for at in places], "script": [script(text) for text in texts]}


def script(text: str) -> str:
    """The script of most letters of a text, in Unicode's words ("latin", "cjk"), or "none"."""
    counts: dict[str, int] = {}
    for letter in filter(str.isalpha, text[:500]):
        name = unicodedata.name(letter, "none").split()[0].lower()
        counts[name] = counts.get(name, 0) + 1
    return max(counts, key=lambda name: counts[name]) if counts else "none"


def compare_groups(
    change: Floats, labels: Mapping[str, Sequence[str]], random: np.random.Generator
) -> tuple[Group, ...]:
    """Groups of enough queries, tested against all others by one set of permutations.

    ``change``: (q,) of each query. ``labels``: (q,) of each kind.
    """
    members = []
    for kind, names in labels.items():
        for name in dict.fromkeys(names):
            inside = np.array([one == name for one in names])
            if SMALLEST <= inside.sum() <= len(inside) - SMALLEST:
                members.append((kind, name, inside))
    if not members:
        return ()
    sizes = np.array([inside.sum() for *_, inside in members])
    sums = np.array([change[inside].sum() for *_, inside in members])
    # Of shuffled changes the first m are a group of m drawn at random.
    reached = np.zeros(len(members))
    for _ in range(PERMUTATIONS // AT_ONCE):
        shuffled = random.permuted(np.tile(change, (AT_ONCE, 1)), axis=1)
        reached += (np.cumsum(shuffled, axis=1)[:, sizes - 1] >= sums - 1e-9).sum(axis=0)
    p = holm((reached + 1) / (PERMUTATIONS + 1))
    found = [
        Group(k, n, int(i.sum()), float(change[i].mean()), float(change[~i].mean()), float(one))
        for (k, n, i), one in zip(members, p, strict=True)
    ]
    return tuple(sorted(found, key=lambda group: group.p))
