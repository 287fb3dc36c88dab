"""Verdicts: what is decided by how many seeds, and what is left open."""

import math
import statistics

import numpy as np
import pytest

from contrasent.reproduce import verdict
from contrasent.reproduce.verdict import ABSENT, AGREES, DIFFERS, OPEN, Arm, Gap, Verdict

T_2 = 4.302652729911275
"""The 97.5 % point of Student's t with 2 degrees of freedom, from a printed table."""


def arm(*values, seeded=True, low=None, high=None):
    return Arm(tuple(values), seeded, low, high)


def test_the_interval_of_a_mean_over_seeds():
    values = (80.0, 81.0, 83.5)
    half = T_2 * statistics.stdev(values) / math.sqrt(3)
    low, high = arm(*values).interval()
    assert low == pytest.approx(statistics.mean(values) - half)
    assert high == pytest.approx(statistics.mean(values) + half)
    assert arm(80.0).interval() is None
    assert arm(80.0, 81.0, seeded=False).interval() is None


@pytest.mark.parametrize(
    ("values", "published", "word"),
    [
        ((82.4, 82.5, 82.6), 82.5, AGREES),
        ((84.9, 85.0, 85.1), 82.5, DIFFERS),
        ((80.1, 80.0, 79.9), 82.5, DIFFERS),
        # The mean is right, three seeds are too few to know it.
        ((80.0, 82.5, 85.0), 82.5, OPEN),
        # The interval reaches over the edge of the tolerance.
        ((83.3, 83.4, 83.5), 82.5, OPEN),
        ((82.5,), 82.5, OPEN),
    ],
)
def test_values_at_scale_paper(values, published, word):
    assert verdict.value(arm(*values), published, 1.0).word == word


def test_values_without_seeds_are_compared_as_they_are():
    assert verdict.value(arm(61.0, seeded=False), 61.32, 0.5).word == AGREES
    assert verdict.value(arm(60.0, seeded=False), 61.32, 0.5).word == DIFFERS
    assert verdict.value(None, 61.32, 0.5).word == ABSENT


def test_a_gap_is_welchs():
    one, two = (70.0, 70.5, 71.5), (75.0, 75.2, 74.9)
    found = verdict.gap(arm(*one), arm(*two))
    assert found.mean == pytest.approx(statistics.mean(two) - statistics.mean(one))
    terms = [statistics.variance(v) / 3 for v in (one, two)]
    error = math.sqrt(sum(terms))
    freedom = sum(terms) ** 2 / sum(t**2 / 2 for t in terms)
    # Between the 97.5 % points of 2 and of 3 degrees of freedom.
    assert 2 < freedom < 3
    assert 3.18 * error < found.high - found.mean < 4.31 * error
    assert found.side() == 1
    back = verdict.gap(arm(*two), arm(*one))
    assert back.side() == -1
    assert back.mean == pytest.approx(-found.mean)


def test_one_seed_decides_nothing():
    found = verdict.gap(arm(70.0), arm(90.0))
    assert found.side() == 0
    assert verdict.direction(found, 5.0).word == OPEN


def test_a_row_without_seeds_against_one_with():
    base = arm(60.0, seeded=False)
    assert verdict.gap(base, arm(65.0, 65.5, 64.8)).side() == 1
    assert verdict.gap(arm(65.0, 65.5, 64.8), base).side() == -1
    assert verdict.gap(base, arm(60.0, 65.0, 55.0)).side() == 0


def test_two_rows_without_seeds_by_their_intervals_over_pairs():
    def encoder(value):
        return arm(value, seeded=False, low=value - 2, high=value + 2)

    assert verdict.gap(encoder(60.0), encoder(70.0)).side() == 1
    assert verdict.gap(encoder(70.0), encoder(60.0)).side() == -1
    assert verdict.gap(encoder(60.0), encoder(63.0)).side() == 0
    assert verdict.gap(arm(60.0, seeded=False), arm(70.0, seeded=False)).side() == 0


def test_equal_rows_have_no_direction():
    found = verdict.gap(arm(70.0, 70.0), arm(70.0, 70.0))
    assert (found.mean, found.side()) == (0.0, 0)


def test_directions():
    up, flat = Gap(3.0, 1.0, 5.0), Gap(3.0, -1.0, 7.0, 6)
    assert verdict.direction(up, 2.0).word == AGREES
    assert verdict.direction(up, -2.0).word == DIFFERS
    assert verdict.direction(flat, 2.0).word == OPEN
    assert "6 seeds would decide" in verdict.direction(flat, 2.0).why
    # The document prints two equal numbers: there is no direction to agree with.
    assert verdict.direction(up, 0.0).word == OPEN


def test_rarely_wrong_about_equal_methods():
    random = np.random.default_rng(3)
    found = [
        verdict.gap(arm(*random.normal(70, 1, 3)), arm(*random.normal(70, 1, 3))).side()
        for _ in range(400)
    ]
    wrong = sum(side != 0 for side in found)
    assert wrong <= 400 * 0.05 + 2 * math.sqrt(400 * 0.05 * 0.95)
    assert (
        sum(
            verdict.gap(arm(*random.normal(70, 1, 3)), arm(*random.normal(76, 1, 3))).side() == 1
            for _ in range(100)
        )
        > 80
    )


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ((AGREES, AGREES), AGREES),
        ((AGREES, ABSENT), OPEN),
        ((AGREES, OPEN), OPEN),
        ((AGREES, OPEN, DIFFERS), DIFFERS),
        ((ABSENT, OPEN), OPEN),
        ((ABSENT, ABSENT), ABSENT),
    ],
)
def test_statements_with_parts(words, word):
    whole = verdict.together([Verdict(w, "") for w in words])
    assert whole.word == word
    assert f"{words.count(words[0])} {words[0]}" in whole.why


def test_signs():
    assert verdict.signed(arm(-0.5, -0.4, -0.6), "negative").word == AGREES
    assert verdict.signed(arm(-0.5, -0.4, -0.6), "positive").word == DIFFERS
    assert verdict.signed(arm(-0.5, 0.4), "positive").word == OPEN
    assert verdict.signed(arm(0.5), "positive").word == OPEN
    assert verdict.signed(None, "positive").word == ABSENT


def test_the_order_of_rows():
    assert verdict.order([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == {"correlation": 1.0, "rows": 3}
    assert verdict.order([1.0, 2.0, 3.0], [30.0, 20.0, 10.0])["correlation"] == -1.0
    assert verdict.order([1.0, 2.0], [1.0, 2.0]) is None
    assert verdict.order([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
