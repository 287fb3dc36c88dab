"""False findings of ``compare`` where there is nothing to find.

Two arms of runs of equally good methods are compared, over and over. The generative model:

- 1,379 items (STS-B's test set). Item i has a gold score, and a difficulty that all runs share.
- A method has its own reading of each item (standard deviation ``METHOD``), a run its own on top
  (``RUN``): both are noise around the gold score, independent between methods and runs, and of the
  same size in both arms, so that the expected scores are equal.
- A run's noise is scaled by a factor that its seed draws, such that the score's standard deviation
  over seeds is that of a recipe; each comparison draws one recipe for both arms, of the four whose
  50 seeds are published (points of the mean of seven STS sets): 0.21, 0.50, 0.84, 1.74.
- The score is Spearman's correlation with the gold scores, or the mean of a right-or-wrong answer
  per item (accuracy) made of the same noise.

A finding is an interval that does not hold zero. With one run an arm the claim about the methods
is counted, and, with seeds that change nothing, the claim about two models.

Usage: ``python -m benchmarks.null_comparisons [--number 5000] [--items 1379] [--out FILE]``
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

from contrasent.evaluate.compare import compare_reports
from contrasent.report import Items, Report, Row
from contrasent.stats.influence import measure

RECIPES = (0.213, 0.497, 0.844, 1.737)
DESIGNS = ((1, 1), (3, 3), (2, 5), (1, 3), (2, 2), (5, 5))
ITEMS = 1379
SHARED, METHOD, RUN = 1.2, 0.6, 0.3
"""Of the noise in gold's unit: two runs of a method then correlate as two seeds of a model do."""

KEY = ("t", "test", "score", "")


class World:
    """Draws reports of runs, and knows how a seed's noise moves the score.

    Args:
        statistic: "spearman" or "mean".
        items: how many.
        seed: of everything.
    """

    def __init__(self, statistic: str, items: int = ITEMS, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.statistic, self.items = statistic, items
        self.keys = np.arange(items, dtype=np.uint64)
        self.slope = self._slope()

    def _slope(self) -> float:
        """Points of the score by which a larger noise lowers it, per unit of its logarithm."""
        random, self.random = self.random, np.random.default_rng(1)
        low, high = (
            np.mean([self.score(self.runs([factor])[0]) for _ in range(100)])
            for factor in (0.1, -0.1)
        )
        self.random = random
        return float(100 * (high - low) / 0.2)

    def runs(self, factors: list[float], method: float = METHOD) -> list[Items]:
        """One method's runs on the items, of one draw of items each call but for :meth:`both`."""
        return self._runs(*self._items(), factors, method)

    def both(self, sizes: tuple[int, int], deviation: float) -> tuple[list[Items], list[Items]]:
        """Runs of two equally good methods on the same items; the deviation is in points."""
        gold, hard = self._items()
        spread = deviation / self.slope
        first, second = (
            self._runs(gold, hard, list(spread * self.random.normal(size=n)), METHOD) for n in sizes
        )
        return first, second

    def _items(self) -> tuple[np.ndarray, np.ndarray]:
        gold = self.random.integers(0, 11, self.items) / 2
        return gold, SHARED * self.random.normal(size=self.items)

    def _runs(
        self, gold: np.ndarray, hard: np.ndarray, factors: list[float], method: float
    ) -> list[Items]:
        own = hard + method * self.random.normal(size=self.items)
        found = []
        for factor in factors:
            noise = math.exp(factor) * (own + RUN * self.random.normal(size=self.items))
            if self.statistic == "spearman":
                columns = np.stack([gold + noise, gold])
            else:
                columns = (noise < 1.3)[None].astype(np.float64)
            found.append(Items(self.statistic, self.keys, columns))
        return found

    @staticmethod
    def score(items: Items) -> float:
        """The run's score."""
        return measure(items)[0]


def reports(runs: list[Items]) -> list[Report]:
    """A report for each run."""
    key = (*KEY[:2], "spearman" if runs[0].statistic == "spearman" else "accuracy", KEY[3])
    return [Report((Row(*key, World.score(i), len(i.keys)),), {}, {key: i}) for i in runs]


def false_findings(
    statistic: str, design: tuple[int, int], number: int, *, seed: int = 0, items: int = ITEMS
) -> dict[str, float]:
    """The share of null comparisons in which something was found.

    Args:
        statistic: "spearman" or "mean".
        design: runs of A and of B.
        number: comparisons.
        seed: of all draws.
        items: test items.
    """
    world = World(statistic, items, seed)
    methods = models = 0
    for trial in range(number):
        deviation = RECIPES[trial % len(RECIPES)]
        before, after = map(reports, world.both(design, deviation))
        (found,) = compare_reports(before, after)
        methods += not found.low <= 0 <= found.high
        if design == (1, 1):
            before, after = map(reports, world.both(design, 0.0))
            (found,) = compare_reports(before, after, seed_sd=0.0)
            models += not found.low <= 0 <= found.high
    shares = {"methods": methods / number}
    return shares | ({"these models": models / number} if design == (1, 1) else {})


def main() -> None:
    """Print a line a design, and write them all if a file is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=5000)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--statistic", choices=("spearman", "mean"), action="append")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    results = []
    for statistic in chosen.statistic or ("spearman", "mean"):
        for design in DESIGNS:
            began = time.perf_counter()
            shares = false_findings(statistic, design, chosen.number, items=chosen.items)
            for claim, share in shares.items():
                error = math.sqrt(share * (1 - share) / chosen.number)
                results.append({"statistic": statistic, "runs": design, "claim": claim})
                results[-1] |= {"false": share, "number": chosen.number}
                print(
                    f"{statistic:<9} {design[0]} v {design[1]}  {claim:<12} "
                    f"{100 * share:5.2f} % ± {196 * error:.2f}  "
                    f"({time.perf_counter() - began:.0f} s)",
                    flush=True,
                )
    if chosen.out:
        chosen.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
