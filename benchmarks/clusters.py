"""How often a verdict over documents finds a gain where there is none, and what it misses.

    python -m benchmarks.clusters [--worlds 1500]

A world has 25 to 120 documents, on average one to four queries of people about each, and a gain of
each query whose expectation over documents is zero. Gains of one document share the intraclass
correlation of .3. A gain is normal; or like a change of nDCG@10, mostly zero and else a jump; or
skewed, losses being rarer and larger than gains. A finding is an interval above zero, of which the
95 % interval should have 2.5 %. Next to the verdict stands the percentile bootstrap over documents,
and over queries as if they were independent. The last columns are the shares of true gains that
verdict and percentile bootstrap find, of a size that Student's t finds four times in five.
"""

import argparse
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from contrasent.stats.bootstrap import clustered_mean, interval

Floats = NDArray[np.float64]
Law = Callable[[np.random.Generator, int], Floats]

ICC = 0.3
JUMPS = np.array([0, 0, 0, 0.37, -0.37, 0.13, -0.13, 1, -1]) * 1.6
"""Of the reciprocal discount when an answer moves by a rank or leaves the first ten."""

LAWS: dict[str, Law] = {
    "normal": lambda random, n: random.normal(size=n),
    "jumps": lambda random, n: random.choice(JUMPS, size=n),
    "skewed": lambda random, n: 1 - random.exponential(size=n),
}
SIZES: dict[str, Law] = {
    "one each": lambda random, n: np.ones(n),
    "about three": lambda random, n: 1 + random.poisson(2, n).astype(float),
    "unequal": lambda random, n: np.minimum(random.geometric(0.25, n), 30).astype(float),
}


def world(
    random: np.random.Generator, documents: int, law: str, sizes: str, gain: float = 0.0
) -> tuple[NDArray[np.int64], Floats]:
    """The document of each query, and its gain."""
    counts = SIZES[sizes](random, documents).astype(int)
    place = np.repeat(np.arange(documents), counts)
    own, shared = LAWS[law](random, len(place)), LAWS[law](random, documents)
    return place, np.sqrt(ICC) * shared[place] + np.sqrt(1 - ICC) * own + gain


def columns(place: NDArray[np.int64], values: Floats) -> tuple[Floats, Floats]:
    """(c, 1) sums and (c, 1) counts of the documents."""
    sums = np.bincount(place, values)[:, None].astype(float)
    return sums, np.bincount(place)[:, None].astype(float)


def percentile(random: np.random.Generator, sums: Floats, counts: Floats) -> float:
    """The lower end of the percentile bootstrap's interval."""
    weights = random.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), 400).astype(float)
    return interval((weights @ sums / (weights @ counts))[:, 0])[0]


def shares(documents: int, law: str, sizes: str, worlds: int, seed: int = 0) -> dict[str, float]:
    """False findings of the verdict, of both percentile bootstraps, and the power of two."""
    random = np.random.default_rng(seed)
    names = ("verdict", "percentile", "queries alone", "power", "power, percentile")
    found = dict.fromkeys(names, 0)
    for trial in range(worlds):
        place, values = world(random, documents, law, sizes)
        sums, counts = columns(place, values)
        found["verdict"] += clustered_mean(sums, counts, resamples=400, seed=trial).low > 0
        found["percentile"] += percentile(random, sums, counts) > 0
        found["queries alone"] += percentile(random, values[:, None], np.ones((len(values), 1))) > 0
        gain = 2.85 * np.sqrt(ICC * (counts**2).sum() + (1 - ICC) * counts.sum()) / counts.sum()
        sums += gain * counts
        found["power"] += clustered_mean(sums, counts, resamples=400, seed=trial).low > 0
        found["power, percentile"] += percentile(random, sums, counts) > 0
    return {name: count / worlds for name, count in found.items()}


def main() -> int:
    """Print a line for each kind of world; 1 if a rate of the symmetric ones is above 2.5 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=1500)
    options = parser.parse_args()
    slack = 2 * np.sqrt(0.025 * 0.975 / options.worlds)
    faults = 0
    print(" " * 26, "verdict  percentile  queries alone  power  power, percentile")
    for law in LAWS:
        for sizes in SIZES:
            for documents in (25, 60, 120):
                found = shares(documents, law, sizes, options.worlds)
                faults += law != "skewed" and found["verdict"] > 0.025 + slack
                cells = "  ".join(f"{100 * share:8.2f}" for share in found.values())
                print(f"{law:8} {sizes:12} {documents:4} {cells}", flush=True)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
