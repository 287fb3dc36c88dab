"""How often do the printed 95 % intervals hold the truth?

``python -m benchmarks.coverage [--trials 1000]`` takes the seven STS sets as they are (which pair
stands in which subset of which sets, by ``CONTRASENT_DATA``) and puts made-up numbers in place of
cosines and gold scores: correlated normal ones, with a correlation, a mean and a spread of its own
for each subset, the gold score rounded and cut to 0 ... 5 as people's are. A pair that stands in
two sets has the same two numbers in both. So the true correlations are known, and each trial draws
new numbers, computes the intervals as the product does, and counts those that hold the truth; once
with equal pairs resampled together, once with each set resampled for itself.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.metrics import spearman
from contrasent.stats.bootstrap import RankedPairs, draw_counts, interval, item_keys

MEAN = "mean"
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """Which items stand in which sets.

    Attributes:
        items: of each set, (n,) which distinct item each place holds.
        sizes: of each set, the sizes of its strata in order.
        law: (m,) which law each distinct item's numbers follow.
    """

    items: Mapping[str, Integers]
    sizes: Mapping[str, Sequence[int]]
    law: Integers


def real_design() -> Design:
    """The seven STS sets; an item's law is that of the first subset in which it stands."""
    from contrasent.datasets.official import STS_TASKS
    from contrasent.datasets.sts import sts_pairs

    number: dict[int, int] = {}
    law: list[int] = []
    items, sizes = {}, {}
    laws = 0
    for task in STS_TASKS:
        places: list[int] = []
        parts = sts_pairs(task)
        for part in parts:
            for key in item_keys(part.first, part.second).tolist():
                if key not in number:
                    number[key] = len(law)
                    law.append(laws)
                places.append(number[key])
            laws += 1
        items[task] = np.array(places)
        sizes[task] = [len(part) for part in parts]
    return Design(items, sizes, np.array(law))


class Population:
    """Laws of the items' numbers: what is drawn in a trial, and what is true.

    Args:
        design: which items there are.
        seed: of the laws.
    """

    def __init__(self, design: Design, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        laws = int(design.law.max()) + 1
        self.correlation = random.uniform(0.55, 0.9, laws)[design.law]
        self.middle = random.normal(2.8, 0.7, laws)[design.law]
        self.spread = random.uniform(0.8, 1.5, laws)[design.law]
        self.shift = random.normal(0, 0.4, laws)[design.law]

    def draw(self, random: np.random.Generator) -> tuple[Floats, Floats]:
        """(m,) cosines and (m,) gold scores of the distinct items."""
        shared, own = random.normal(size=(2, len(self.correlation)))
        gold = np.clip(np.round(self.middle + self.spread * shared, 1), 0, 5)
        r = self.correlation
        return self.shift + r * shared + np.sqrt(1 - r**2) * own, gold

    def truth(self, design: Design, copies: int = 60) -> dict[str, float]:
        """Spearman of each set, were each of its places filled ``copies`` times, and their mean."""
        random = np.random.default_rng(1)
        drawn = [self.draw(random) for _ in range(copies)]
        found = {}
        for name, items in design.items.items():
            columns = (np.concatenate([pair[i][items] for pair in drawn]) for i in (0, 1))
            found[name] = spearman(*columns)
        return {**found, MEAN: float(np.mean(list(found.values())))}


def coverage(
    design: Design, *, trials: int, resamples: int, together: bool, seed: int = 0
) -> dict[str, float]:
    """The share of trials whose interval holds the truth, of each set and of their mean."""
    population = Population(design, seed)
    truth = population.truth(design)
    random = np.random.default_rng((seed, 2))
    texts = [str(i) for i in range(len(design.law))]
    keys = item_keys(texts)
    held = dict.fromkeys(truth, 0)
    for trial in range(trials):
        cosines, gold = population.draw(random)
        draws = {}
        for number, (name, items) in enumerate(design.items.items()):
            ranked = RankedPairs(cosines[items], gold[items])
            stream = (trial,) if together else (trial, number)
            own = keys[items] if together else None
            blocks = draw_counts(design.sizes[name], resamples, stream, own)
            draws[name] = np.concatenate([ranked.spearman(counts) for counts in blocks])
        draws[MEAN] = np.mean(list(draws.values()), axis=0)
        for name, values in draws.items():
            low, high = interval(values)
            held[name] += low <= truth[name] <= high
        if (trial + 1) % 100 == 0:
            print(f"{trial + 1} trials: {held}", file=sys.stderr, flush=True)
    return {name: count / trials for name, count in held.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="what the product does alone")
    options = parser.parse_args()
    design = real_design()
    print(f"{options.trials} trials of {options.resamples} resamples, seed {options.seed}")
    for together in (True, False)[: 1 if options.quick else 2]:
        found = coverage(
            design,
            trials=options.trials,
            resamples=options.resamples,
            together=together,
            seed=options.seed,
        )
        how = "equal pairs together" if together else "each set for itself"
        shown = ", ".join(f"{name} {100 * share:.1f}" for name, share in found.items())
        print(f"{how}: {shown} %", flush=True)


if __name__ == "__main__":
    main()
