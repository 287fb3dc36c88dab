"""How sure a hit is, in percent: the chance that it answers, as judged collections taught.

It is the product of two logistic regressions. The first tells whether the texts are about the
query at all, from the best cosine, the largest share of the query's words (by their rarity) that a
row holds, and the number of rows. The second tells whether a hit answers if they are, from its
z-score, how far that is above those of the other best hits, and the best cosine above the mean.
Both are fitted for each base by ``benchmarks/sureness.py``; hits of other models have no sureness.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent.search.ranking import BEST, Evidence, Floats

WELL = 12.0  # percent below which nothing matches well


class Calibration(NamedTuple):
    """The regressions of a base: intercepts, and the weights of features.

    Attributes:
        about: of whether the texts are about a query.
        answers: of whether a hit answers if they are.
        about_by_vectors: the first for searches in which words do not count.
        answers_by_vectors: the second for those.
    """

    about: tuple[float, ...]
    answers: tuple[float, ...]
    about_by_vectors: tuple[float, ...]
    answers_by_vectors: tuple[float, ...]

    def sure(self, evidence: Evidence) -> Floats:
        """(n,) percent for the best hits, in order."""
        words = evidence.covered is not None
        about = self.about if words else self.about_by_vectors
        answers = self.answers if words else self.answers_by_vectors
        chances = [
            1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))
            for weights, features in ((about, about_features(evidence)),
                                      (answers, answer_features(evidence)))
        ]  # fmt: skip
        return np.asarray(100 * chances[0] * chances[1], dtype=np.float32)


def about_features(evidence: Evidence) -> NDArray[np.float64]:
    """Best cosine, log of the number of rows, and the share of words covered if words count."""
    known = [evidence.best, math.log(max(2, evidence.rows))]
    return np.array(known if evidence.covered is None else [*known, evidence.covered])


def answer_features(evidence: Evidence) -> NDArray[np.float64]:
    """(n, 3) z-scores by the largest of chance, their lead, and the best cosine above the mean."""
    z = evidence.z.astype(np.float64)
    chance = math.sqrt(2 * math.log(max(2, evidence.rows)))
    # Above the mean of the five best others.
    first = z[:BEST].sum()
    others = np.where(np.arange(len(z)) < BEST, first - z, first - z[BEST - 1 : BEST].sum())
    lead = z - others / max(1, min(BEST, len(z)) - 1)
    over = np.full(len(z), evidence.best - evidence.mean)
    return np.stack([z / chance, lead, over], axis=1)


CALIBRATIONS = {
    # all-MiniLM-L6-v2
    "4025883746da52e94f2bfe25e9164e56396d6bd171f02f67f48ef6eedb40fa38": Calibration(
        about=(-9.6726, 28.442, -0.86622, 10.9097),
        answers=(-3.4298, -0.071613, 1.19341, 5.2328),
        about_by_vectors=(-10.0375, 32.2347, -0.74127),
        answers_by_vectors=(-3.6175, -0.15926, 1.42472, 5.6311),
    ),
    # multilingual-e5-small
    "f7c578fbec8a45e136cd67f21f77a22737789ecd3bc113f14867bdd6c89a4b60": Calibration(
        about=(-112.0275, 130.3196, -0.51843, 18.2202),
        answers=(-3.297, 0.4463, 1.00431, 21.4476),
        about_by_vectors=(-127.1965, 149.9843, -0.21659),
        answers_by_vectors=(-3.5468, 0.66582, 1.23576, 20.9145),
    ),
}
"""By the identity of the model."""
