"""Verdicts: how sure differences are, what Holm's method leaves of them, and what is said then."""

import itertools
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contrasent.reproduce import deciding, verdict
from contrasent.reproduce.reading import ItemFolder
from contrasent.reproduce.spread import (
    Arm,
    Gap,
    Spread,
    difference,
    from_published,
    pooled,
    with_noise,
)
from contrasent.reproduce.verdict import (
    ABSENT,
    AGREES,
    DIFFERS,
    EQUIVALENT,
    OPEN,
    Comparison,
    Verdict,
    adjust,
)

T_2 = 4.302652729911275
"""The 97.5 % point of Student's t with 2 degrees of freedom, from a printed table."""


def arm(*values, seeded=True, low=None, high=None):
    found = Arm(tuple(values), seeded, low, high)
    return with_noise({"": found})[""]


def test_the_interval_of_a_mean_over_seeds():
    values = (80.0, 81.0, 83.5)
    half = T_2 * statistics.stdev(values) / math.sqrt(3)
    low, high = arm(*values).interval()
    assert low == pytest.approx(statistics.mean(values) - half)
    assert high == pytest.approx(statistics.mean(values) + half)
    assert arm(*values).spread() == pytest.approx(statistics.stdev(values))
    assert arm(80.0).interval() is None
    assert arm(80.0, 81.0, seeded=False).interval() is None


ALIKE = {"a": (70.0, 70.4, 70.8), "b": (71.0, 71.6), "c": (69.0,), "d": (70.1, 70.2, 70.3)}


def test_variances_are_pooled_over_rows():
    found = pooled(ALIKE)
    squares = [(v - statistics.mean(own)) ** 2 for own in ALIKE.values() for v in own]
    assert found.freedom == 2 + 1 + 0 + 2
    assert found.deviation == pytest.approx(math.sqrt(sum(squares) / 5))
    assert pooled({"c": (69.0,)}) is None
    # One row that jumps about is left out; without it the rest is as before.
    assert pooled({**ALIKE, "wild": (60.0, 70.0, 90.0)}) == found


def test_a_row_is_not_helped_by_steadier_ones():
    arms = {k: Arm(v, seeded=True) for k, v in ALIKE.items()}
    arms |= {"base": Arm((60.0,), seeded=False), "wild": Arm((60.0, 70.0, 90.0), seeded=True)}
    found, shared = with_noise(arms), pooled(ALIKE)
    assert found["base"].noise is None
    assert found["c"].noise == found["d"].noise == shared
    # Its own variance where that is larger, its own degrees of freedom where it is twice as large.
    assert statistics.variance(ALIKE["b"]) > shared.deviation**2
    assert found["b"].noise.deviation == pytest.approx(statistics.stdev(ALIKE["b"]))
    assert found["b"].noise.freedom == 5
    assert (found["wild"].noise.own, found["wild"].noise.freedom) == (True, 2)


def test_a_difference_by_the_pooled_variance():
    """Student's own t test, where two rows are all there is and vary alike."""
    one, two = (70.0, 70.5, 71.0), (75.0, 75.5, 76.0)
    arms = with_noise({"one": Arm(one, seeded=True), "two": Arm(two, seeded=True)})
    found, want = difference(arms["one"], arms["two"]), stats.ttest_ind(two, one)
    assert found.mean == pytest.approx(5.0)
    assert found.p() == pytest.approx(want.pvalue)
    assert found.interval() == pytest.approx(tuple(want.confidence_interval()))
    back = difference(arms["two"], arms["one"])
    assert (back.mean, back.error, back.freedom) == (-found.mean, found.error, found.freedom)


def of_one_order(rows):
    return with_noise({k: Arm(v, seeded=True, order="same") for k, v in rows.items()})


def test_two_rows_of_one_order_are_compared_seed_by_seed():
    """Student's t test of pairs; nothing is known of what the same sentences do to other rows."""
    one, two = (70.0, 73.5, 71.2, 74.0), (70.9, 74.1, 72.5, 74.6)
    arms, want = of_one_order({"one": one, "two": two}), stats.ttest_rel(two, one)
    found = difference(arms["one"], arms["two"])
    assert (found.p(), found.freedom) == (pytest.approx(want.pvalue), 3)
    assert found.interval() == pytest.approx(tuple(want.confidence_interval()))
    assert difference(arms["two"], arms["one"]).mean == -found.mean
    # Otherwise the seeds drown the difference.
    apart = {k: Arm(v, seeded=True, order=k) for k, v in (("one", one), ("two", two))}
    arms = with_noise(apart)
    assert difference(arms["one"], arms["two"]).p() > 0.5 > 0.05 > found.p()
    # Only seeds that both have count.
    longer = replace(apart["one"], values=(*one, 99.0), order="two")
    arms = with_noise({"one": longer, "two": apart["two"]})
    assert difference(arms["one"], arms["two"]).interval() == pytest.approx(found.interval())


def test_what_a_seed_does_to_all_rows_of_an_order_is_taken_off():
    """The residual of an analysis of variance of rows and seeds (randomised blocks)."""
    random = np.random.default_rng(5)
    moved = random.normal(scale=3.0, size=6)
    table = {f"row {i}": tuple(70 + moved + random.normal(scale=0.2, size=6)) for i in range(5)}
    every = statistics.mean(v for own in table.values() for v in own)
    squares = {}
    for name, own in table.items():
        of_seeds = [statistics.mean(other[seed] for other in table.values()) for seed in range(6)]
        terms = zip(own, of_seeds, strict=True)
        squares[name] = sum((v - statistics.mean(own) - s + every) ** 2 for v, s in terms)
    residual = sum(squares.values()) / (4 * 5)
    arms, helped = of_one_order(table), 0
    for one, two in itertools.combinations(table, 2):
        # Its own variance where that is larger: a row's share of the squares is 4/5 of it.
        own = [squares[name] * 5 / 4 / 5 for name in (one, two)]
        assert max(own) < 2 * residual
        found = difference(arms[one], arms[two])
        assert found.error**2 == pytest.approx(sum(max(v, residual) for v in own) / 6)
        assert found.freedom == pytest.approx(4 * 5)
        helped += max(own) < residual
    assert 0 < helped < 10
    # A row that jumps about rests on its own seeds, and leaves the others as they are.
    wild = of_one_order({**table, "wild": tuple(random.normal(70, 20, 6))})
    assert difference(wild["wild"], wild["row 0"]).freedom == pytest.approx(5, rel=0.01)
    pair = difference(wild["row 1"], wild["row 0"])
    assert pair.error == pytest.approx(difference(arms["row 1"], arms["row 0"]).error)
    # Rows without two seeds in common are compared as if nothing was shared.
    lonely = {k: Arm(v, seeded=True, order="same", seeds=s) for k, v, s in SEEDS_APART}
    found = with_noise(lonely)
    assert difference(found["one"], found["two"]).freedom == 4


SEEDS_APART = (("one", (70.0, 70.5, 71.0), (0, 1, 2)), ("two", (75.0, 75.5, 76.1), (2, 3, 4)))


def test_rows_with_spreads_of_their_own_are_welchs():
    one, two = Spread(0.5, 2, own=True), Spread(2.0, 3, own=True)
    arms = [Arm((70.0,) * 3, seeded=True, noise=one), Arm((72.0,) * 4, seeded=True, noise=two)]
    terms = [0.5**2 / 3, 2.0**2 / 4]
    found = difference(*arms)
    assert found.error == pytest.approx(math.sqrt(sum(terms)))
    assert found.freedom == pytest.approx(sum(terms) ** 2 / (terms[0] ** 2 / 2 + terms[1] ** 2 / 3))


def test_one_seed_alone_decides_nothing():
    assert difference(arm(70.0), arm(90.0)).error is None
    assert compared(difference(arm(70.0), arm(90.0))).word == OPEN
    # Beside rows with several seeds its noise is known.
    arms = with_noise({k: Arm(v, seeded=True) for k, v in ALIKE.items()})
    assert difference(arms["c"], arms["d"]).error == pytest.approx(
        arms["c"].noise.deviation * math.sqrt(1 + 1 / 3)
    )


def test_rows_without_seeds():
    base, sure = arm(60.0, seeded=False), arm(65.0, 65.5, 64.8)
    assert compared(difference(base, sure)).word == AGREES
    assert difference(base, sure).error == pytest.approx(sure.noise.deviation / math.sqrt(3))
    assert compared(difference(base, arm(60.0, 65.0, 55.0))).word == OPEN

    def encoder(value):
        return arm(value, seeded=False, low=value - 2, high=value + 2)

    # Their intervals over test items overlap, touch, or do not.
    assert compared(difference(encoder(60.0), encoder(70.0))).word == AGREES
    assert difference(encoder(60.0), encoder(64.0)).p() == pytest.approx(0.05)
    assert compared(difference(encoder(60.0), encoder(63.0))).word == OPEN
    # Over the items that they share, which move both alike.
    alike = {
        name: Arm((value,), seeded=False, low=value - 2, high=value + 2, draws=draws)
        for name, value, draws in (
            ("a", 60.0, (1.0, -1.0, 2.0, 0.0)),
            ("b", 61.0, (1.1, -1.2, 2.0, 0.1)),
        )
    }
    found = difference(alike["a"], alike["b"])
    assert found.error == pytest.approx(math.sqrt((0.1**2 + 0.2**2 + 0.1**2) / 4))
    assert (found.mean, found.freedom) == (1.0, 4)
    unknown = arm(70.0, seeded=False)
    assert compared(difference(unknown, unknown)).word == OPEN


def compared(gap, kind="better", sign=1.0, margin=None, others=0):
    """The verdict on a comparison, among others that find nothing."""
    one = Comparison("column", "after", "before", gap, kind, sign, margin)
    tests = {one.unit: {test: p for test, (_, p) in one.tests().items()}}
    tests |= {("other", str(i), ""): {0.0: 1.0} for i in range(others)}
    return one.verdict(adjust({unit: own for unit, own in tests.items() if own}))


@pytest.mark.parametrize(
    ("mean", "kind", "sign", "word"),
    [
        (1.0, "better", 1, AGREES),
        (1.0, "better", -1, DIFFERS),
        (0.2, "better", 1, OPEN),
        (0.0, "better", 1, EQUIVALENT),
        (0.0, "no_worse", 1, AGREES),
        (1.0, "no_worse", 1, AGREES),
        (1.0, "no_worse", -1, DIFFERS),
        (-0.35, "no_worse", 1, OPEN),
        (-1.0, "no_worse", 1, DIFFERS),
        (0.0, "no_better", 1, AGREES),
        (1.0, "no_better", 1, DIFFERS),
        (-1.0, "no_better", 1, AGREES),
        (1.0, "no_better", -1, AGREES),
        (0.0, "equal", 1, AGREES),
        (0.2, "equal", 1, OPEN),
        (1.0, "equal", 1, DIFFERS),
        (-1.0, "equal", 1, DIFFERS),
    ],
)
def test_what_is_said_of_a_difference(mean, kind, sign, word):
    """With a standard error of 0.15 and a margin of 0.3, so that its half is not quite sure."""
    assert compared(Gap(mean, 0.15), kind, sign, 0.3).word == word


def test_two_one_sided_tests():
    gap = Gap(0.1, 0.1, 8)
    worse, better = stats.t.sf((0.1 + 0.3) / 0.1, 8), stats.t.cdf((0.1 - 0.3) / 0.1, 8)
    assert gap.p_within(0.3) == pytest.approx(max(worse, better))
    assert gap.p_beyond(0.3) == 1.0
    assert Gap(-0.5, 0.1, 8).p_beyond(0.3) == pytest.approx(2 * stats.t.sf(2.0, 8))


def test_more_comparisons_need_more():
    gap = Gap(2.5, 1.0)
    assert gap.p() == pytest.approx(0.0124, abs=1e-4)
    assert compared(gap).word == compared(gap, others=3).word == AGREES
    last = compared(gap, others=4)
    assert (last.word, last.p) == (OPEN, pytest.approx(5 * gap.p()))
    assert compared(None).word == ABSENT


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_method(ps):
    """Rejected at a level is what the textbook's loop rejects at it."""
    found = adjust({("", "", str(i)): {0.0: p} for i, p in enumerate(ps)})
    for level in (0.01, 0.05, 0.3, 0.8):
        rejected = set()
        for step, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
            if ps[i] * (len(ps) - step) > level:
                break
            rejected.add(i)
        assert rejected == {i for i in range(len(ps)) if found[("", "", str(i)), 0.0] <= level}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4))
def test_shaffers_count(pairs):
    """A step counts how many hypotheses can be true: all choices of those left are tried."""
    units = [("", "", str(i)) for i in range(len(pairs))]
    names = (0.0, ("within", 0.3))
    found = adjust({u: dict(zip(names, p, strict=True)) for u, p in zip(units, pairs, strict=True)})
    left = {(u, n): p[i] for u, p in zip(units, pairs, strict=True) for i, n in enumerate(names)}
    worst = 0.0
    while left:
        possible = [
            sum((u, n) in left for u, n in zip(units, choice, strict=True))
            for choice in itertools.product(names, repeat=len(units))
        ]
        hypothesis = min(left, key=left.get)
        worst = max(worst, min(1.0, left[hypothesis] * max(possible)))
        # Hypotheses that are tied come in any order; their adjusted values are no smaller.
        assert found[hypothesis] >= worst or found[hypothesis] == pytest.approx(worst)
        del left[hypothesis]


def test_a_table_that_asks_twice_tests_once():
    gap, back = Gap(1.0, 0.2), Gap(-1.0, 0.2)
    there = Comparison("c", "one", "two", gap, "better", 1.0, 0.3)
    again = Comparison("c", "two", "one", back, "better", -1.0, 0.3)
    assert there.unit == again.unit
    assert there.tests() == again.tests()
    worse = Comparison("c", "one", "two", gap, "no_worse", 1.0, 0.3)
    turned = Comparison("c", "two", "one", back, "no_better", 1.0, 0.3)
    assert worse.tests() == turned.tests()
    assert not set(worse.tests()) & set(there.tests())


@pytest.mark.parametrize(
    ("values", "published", "word"),
    [
        ((82.4, 82.5, 82.6), 82.5, AGREES),
        # Off by more than the published run's own noise, by less than the tolerance.
        ((82.90, 82.91, 82.92), 82.5, EQUIVALENT),
        ((84.9, 85.0, 85.1), 82.5, DIFFERS),
        ((80.1, 80.0, 79.9), 82.5, DIFFERS),
        # Clearly off, but by how much is not clear.
        ((83.3, 83.4, 83.5), 82.5, OPEN),
        # So wide an interval holds everything.
        ((80.0, 82.5, 85.0), 82.5, OPEN),
        ((82.5,), 82.5, OPEN),
    ],
)
def test_values_at_scale_paper(values, published, word):
    gap = from_published(arm(*values), published, None, 1)
    assert compared(gap, "value", margin=1.0).word == word


def test_the_published_run_has_noise_too():
    ours = arm(82.0, 82.4, 82.8)
    deviation = statistics.stdev(ours.values)
    single = from_published(ours, 82.0, None, 1)
    assert single.error == pytest.approx(deviation * math.sqrt(1 / 3 + 1))
    assert single.freedom == pytest.approx(2)
    printed = from_published(ours, 82.0, 0.1, 5)
    terms = [deviation**2 / 3, 0.1**2 / 5]
    assert printed.error == pytest.approx(math.sqrt(sum(terms)))
    assert printed.freedom == pytest.approx(
        sum(terms) ** 2 / (terms[0] ** 2 / 2 + terms[1] ** 2 / 4)
    )


def test_values_without_seeds_are_compared_as_they_are():
    for value, word in ((61.0, AGREES), (60.0, DIFFERS)):
        gap = from_published(arm(value, seeded=False), 61.32, None, 1)
        assert compared(gap, "value", margin=0.5).word == word


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ((AGREES, AGREES), AGREES),
        ((AGREES, EQUIVALENT), EQUIVALENT),
        ((EQUIVALENT, OPEN), OPEN),
        ((AGREES, ABSENT), OPEN),
        ((AGREES, OPEN), OPEN),
        ((AGREES, OPEN, DIFFERS), DIFFERS),
        ((ABSENT, OPEN), OPEN),
        ((ABSENT, ABSENT), ABSENT),
    ],
)
def test_statements_with_parts(words, word):
    whole = verdict.together([Verdict(w, "", 0.01 * i) for i, w in enumerate(words)])
    assert whole.word == word
    assert f"{words.count(words[0])} {words[0]}" in whole.why


def test_the_p_of_a_statement_is_that_of_its_weakest_part():
    parts = [Verdict(AGREES, "", 0.01), Verdict(AGREES, "", 0.04)]
    assert verdict.together(parts).p == 0.04
    parts += [Verdict(DIFFERS, "", 0.03), Verdict(DIFFERS, "", 0.02)]
    assert verdict.together(parts).p == 0.02


def test_signs():
    for values, sign, word in (
        ((-0.5, -0.4, -0.6), -1, AGREES),
        ((-0.5, -0.4, -0.6), 1, DIFFERS),
        ((-0.5, 0.4), 1, OPEN),
        ((0.5,), 1, OPEN),
    ):
        assert compared(arm(*values).gap(), sign=sign).word == word


FORMS = {"stsb": {"paper": ".1f", "ours": ".2f"}}


def decided(name, means, seeds=3, deviation=0.05, scale="lab"):
    """Verdicts of an item whose trained rows have such means, and seeds that scatter evenly."""
    (recipe,) = ItemFolder().find([name])
    scatter = deviation * stats.zscore(np.arange(seeds), ddof=1)
    arms = {
        row.name: Arm(tuple(float(means(row.name) + s) for s in scatter), seeded=True)
        for row in recipe.rows
    }
    return recipe, deciding.decide(recipe, scale, {"stsb": with_noise(arms)}, FORMS, {})


def words(found):
    return {name: verdict.together([p for _, p in own]).word for name, own in found.claims.items()}


def test_equality_agrees_with_no_better():
    _, found = decided("simcse:table3", lambda name: 70.0)
    assert words(found) == {
        "dropout-is-needed": EQUIVALENT,
        "a-tenth-is-best": AGREES,
        "half-is-too-much": EQUIVALENT,
    }
    # Seven rows from the reference, and six of them once more as "no worse".
    assert found.tests == 7 + 6
    assert len(found.cells) == 7
    assert found.cells["p = 0.5", "stsb"].word == EQUIVALENT
    _, found = decided("simcse:table3", lambda name: 70.0 + (name == "p = 0.2"))
    assert words(found)["a-tenth-is-best"] == DIFFERS


def test_a_printed_difference_within_the_margin_counts_as_none():
    """SimCSE prints 82.5 for 0.1; where 82.3 stood for 0.2, equality would agree."""
    recipe, found = decided("simcse:table3", lambda name: 70.0)
    assert found.cells["p = 0.2", "stsb"].word == EQUIVALENT
    row = recipe.row("p = 0.2")
    near = replace(row, expected={"stsb": replace(row.expected["stsb"], value=82.3)})
    rows = tuple(near if r is row else r for r in recipe.rows)
    arms = {r.name: Arm((70.0, 70.05, 69.95), seeded=True) for r in rows}
    again = replace(recipe, rows=rows)
    found = deciding.decide(again, "lab", {"stsb": with_noise(arms)}, FORMS, {})
    assert found.cells["p = 0.2", "stsb"].word == AGREES


def test_what_seeds_can_show():
    _, found = decided("simcse:table3", lambda name: 70.0, seeds=3, deviation=0.3)
    shown = found.columns["stsb"]
    assert (shown["seeds"], shown["freedom"], shown["deviation"]) == (3, 16, pytest.approx(0.3))
    level = 1 - 0.05 / 13 / 2
    assert shown["least"] == pytest.approx(
        stats.t.ppf(level, 16) * 0.3 * math.sqrt(2 / 3), abs=5e-5
    )
    upper = 0.3 * math.sqrt(16 / stats.chi2.ppf(0.2, 16))

    def half(count):
        return stats.t.ppf(level, 8 * (count - 1)) * upper * math.sqrt(2 / count)

    assert half(shown["needed"]) <= 0.15 < half(shown["needed"] - 1)


def test_statements_that_rest_on_others():
    (recipe,) = ItemFolder().find(["study:claims"])
    places = dict.fromkeys(place for claim in recipe.claims for place in claim.rests_on)
    count = len(places)
    assert count >= 15

    def said(p, word=AGREES):
        rested = {place: ("text", Verdict(word, "", p)) for place in places}
        return words(deciding.decide(recipe, "lab", {}, {}, rested))

    assert set(said(0.05 / count).values()) == {AGREES}
    # Sure in its own table, but not among as many as there are here.
    assert set(said(0.04).values()) == {OPEN}
    assert set(said(0.04, DIFFERS).values()) == {OPEN}
    assert set(said(0.001, DIFFERS).values()) == {DIFFERS}
    assert set(said(None, ABSENT).values()) == {ABSENT}
    # What their own tables left open was tested as well, and counts.
    first = recipe.claims[0].rests_on
    rested = {place: ("text", Verdict(OPEN, "", 0.3)) for place in places}
    for p, word in ((0.05 / count, AGREES), (0.06 / count, OPEN)):
        rested |= {place: ("text", Verdict(AGREES, "", p)) for place in first}
        found = deciding.decide(recipe, "lab", {}, {}, rested)
        assert found.claims[recipe.claims[0].name][0][1].word == word


def test_tables_in_which_nothing_differs():
    """A small part of ``benchmarks/verdicts.py``."""
    (recipe,) = ItemFolder().find(["simcse:table1"])
    random, bad = np.random.default_rng(3), 0
    for _ in range(150):
        arms = {
            row.name: Arm(tuple(random.normal(70, 0.3, 3).tolist()), seeded=True)
            for row in recipe.rows
        }
        found = deciding.decide(recipe, "lab", {"stsb": with_noise(arms)}, FORMS, {})
        assert len(found.cells) == 10
        bad += any(v.word != OPEN for v in found.cells.values())
    assert bad <= 150 * 0.05 + 2 * math.sqrt(150 * 0.05 * 0.95)


def test_the_order_of_rows():
    assert verdict.order([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == {"correlation": 1.0, "rows": 3}
    assert verdict.order([1.0, 2.0, 3.0], [30.0, 20.0, 10.0])["correlation"] == -1.0
    assert verdict.order([1.0, 2.0], [1.0, 2.0]) is None
    assert verdict.order([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
