"""Correlations of resamples against the same correlations of the resample written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate.vectors import ReportBuilder
from contrasent.stats import bootstrap
from contrasent.stats.bootstrap import (
    MIN_ITEMS,
    RankedPairs,
    bootstrap_p,
    clustered_mean,
    draw_counts,
    interval,
    item_keys,
    paired_spearman_difference,
)


@given(st.integers(4, 40), st.integers(0, 999), st.booleans())
def test_a_resamples_correlations_are_those_of_its_items(n, seed, ties):
    random = np.random.default_rng(seed)
    x = random.integers(0, 4, n).astype(float) if ties else random.normal(size=n)
    y = random.integers(0, 5, n) / 2 + 0.3 * x
    counts = np.concatenate(list(draw_counts([n], 5, seed)))
    found = RankedPairs(x, y).spearman(counts)
    moments = bootstrap.weighted_pearson(x, y, counts)
    for row, rank_value, value in zip(counts, found, moments, strict=True):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        expected = metrics.spearman(x[items], y[items])
        assert rank_value == pytest.approx(expected, abs=1e-4, nan_ok=True)
        expected = metrics.pearson(x[items], y[items])
        # Items that hardly differ next to the others lose their digits in float32.
        if all(part[items].std() > 0.01 * part.std() for part in (x, y)):
            assert value == pytest.approx(expected, abs=1e-3)


def test_counts_are_multinomial_inside_each_stratum():
    blocks = list(draw_counts([30, 5], 40_000, 7))
    counts = np.concatenate(blocks)
    assert len(blocks) > 1
    assert counts.shape == (40_000, 35)
    assert (counts[:, :30].sum(axis=1) == 30).all()
    assert (counts[:, 30:].sum(axis=1) == 5).all()
    # Of a multinomial with p = 1/n: mean 1, variance 1 - 1/n, covariance -1/n.
    error = 5 / np.sqrt(len(counts))
    assert counts.mean(axis=0) == pytest.approx(1, abs=error)
    assert counts[:, 32].var() == pytest.approx(1 - 1 / 5, abs=2 * error)
    assert np.cov(counts[:, 30], counts[:, 31])[0, 1] == pytest.approx(-1 / 5, abs=2 * error)


def test_keyed_counts_are_poisson_inside_each_stratum_and_belong_to_the_item():
    texts = [f"item {i}" for i in range(200)]
    keys = bootstrap.item_keys(texts)
    assert len(set(keys.tolist())) == 200
    counts = np.concatenate(list(draw_counts([150, 50], 20_001, 7, keys)))
    assert counts.shape == (20_001, 200)
    assert counts[:, :150].sum(axis=1) == pytest.approx(150, rel=1e-5)
    assert counts[:, 150:].sum(axis=1) == pytest.approx(50, rel=1e-5)
    # Poisson(1) divided by the mean of m of them: variance 1 - 1/m, covariance -1/m, to order 1/m.
    error = 5 / np.sqrt(len(counts))
    assert counts.mean(axis=0) == pytest.approx(1, abs=error)
    assert counts[:, 3].var() == pytest.approx(1 - 1 / 150, abs=2 * error)
    assert np.corrcoef(counts[:, 160], counts[:, 161])[0, 1] == pytest.approx(-1 / 49, abs=error)
    assert np.corrcoef(counts[:-1, 0], counts[1:, 0])[0, 1] == pytest.approx(0, abs=error)
    # Unscaled, in another order and in blocks of another size: the same counts.
    one = np.concatenate(list(draw_counts([200], 50, 7, keys)))
    other = np.concatenate(list(draw_counts([200], 50, 7, keys[::-1])))[:, ::-1]
    assert one == pytest.approx(other, rel=1e-6)
    assert not np.allclose(one, np.concatenate(list(draw_counts([200], 50, 8, keys))))


def test_bits_are_mixed_as_in_the_published_generator():
    """The first numbers of splitmix64 from 1234567, as its reference implementation prints them."""
    states = [np.uint64((1234567 + n * 0x9E3779B97F4A7C15) % 2**64) for n in range(1, 6)]
    assert bootstrap.mixed(np.array(states)).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
        4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


def test_equal_keys_of_a_pair_in_either_order_and_equal_draws_of_a_seed():
    keys = bootstrap.item_keys(["a b", "c", "a", "c"], ["c", "ab ", "b c", "\ud800"])
    assert (keys[0], len(set(keys.tolist()))) == (keys[1], 3)
    first, same, other = (next(draw_counts([50], 10, seed)) for seed in (3, 3, (3, 1)))
    assert np.array_equal(first, same) and not np.array_equal(first, other)


def test_intervals_of_a_mean_over_sets_that_share_items_cover_the_truth():
    """Small sets, half of whose items are shared; what stands in two has one cosine and score.

    Resampled each for itself, the mean's interval is too narrow: the covariance is not seen.
    """
    places = np.arange(240)
    items = {"a": places[:160], "b": places[80:240], "c": places[np.r_[0:80, 160:240]]}
    sizes = {"a": [80, 80], "b": [160], "c": [160]}
    # Correlated normal numbers, of three laws; gold is rounded and cut as people's are.
    random, law = np.random.default_rng(0), places // 80
    correlation = random.uniform(0.55, 0.9, 3)[law]
    middle, spread = random.normal(2.8, 0.7, 3)[law], random.uniform(0.8, 1.5, 3)[law]
    shift = random.normal(0, 0.4, 3)[law]

    def draw(random):
        shared, own = random.normal(size=(2, 240))
        gold = np.clip(np.round(middle + spread * shared, 1), 0, 5)
        return shift + correlation * shared + np.sqrt(1 - correlation**2) * own, gold

    random = np.random.default_rng(1)
    drawn = [draw(random) for _ in range(60)]
    truth = np.mean([
        metrics.spearman(*(np.concatenate([pair[i][own] for pair in drawn]) for i in (0, 1)))
        for own in items.values()
    ])  # fmt: skip
    keys = item_keys([str(i) for i in places])

    def coverage(together):
        random, held = np.random.default_rng((0, 2)), 0
        for trial in range(200):
            cosines, gold = draw(random)
            draws = []
            for number, (name, own) in enumerate(items.items()):
                stream = (trial,) if together else (trial, number)
                counts = draw_counts(sizes[name], 150, stream, keys[own] if together else None)
                ranked = RankedPairs(cosines[own], gold[own])
                draws.append(np.concatenate([ranked.spearman(block) for block in counts]))
            low, high = interval(np.mean(draws, axis=0))
            held += low <= truth <= high
        return held / 200

    # 0.95 give or take twice its own error over 200 trials (0.0154); the covariances of three such
    # sets double the variance of their mean, and 1.96 / sqrt(2) deviations hold 0.834.
    assert 0.919 <= coverage(True) <= 0.981
    assert coverage(False) < 0.9


def test_intervals_of_few_draws_hold_their_share_and_few_items_have_none():
    """Of 39 draws the first and the last: between them lie 38 of 40 parts of what is drawn from."""
    assert (bootstrap_p([1.0] * 99), bootstrap_p([1.0, -1.0] * 50)) == (2 / 100, 1.0)
    draws = np.random.default_rng(1).permutation(np.arange(39.0))
    assert interval(draws) == (0.0, 38.0)
    assert interval([*draws, np.nan]) == (0.0, 38.0)
    for count, resamples, known in (
        (MIN_ITEMS - 1, 50, False),
        (MIN_ITEMS, 0, False),
        (20, 50, True),
    ):
        builder = ReportBuilder(resamples)
        builder.mean("t", "test", "m", np.arange(count))
        assert (builder.rows[0].low is not None) == known


def test_equal_systems_are_found_different_as_rarely_as_promised_and_others_are():
    """A/A: both systems are the same truth plus noise of the same size."""
    random, found, trials = np.random.default_rng(6), 0, 150
    for trial in range(trials):
        truth = random.normal(size=120)
        a, b = truth + random.normal(size=(2, 120))
        found += paired_spearman_difference(a, b, truth, resamples=400, seed=trial).p < 0.05
    # A test that never finds anything would pass the upper bound as well.
    assert 0 < found / trials <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / trials)
    a = truth + random.normal(0, 3, 120)
    gain = paired_spearman_difference(a, b, truth, resamples=2000)
    assert gain.mean == metrics.spearman(b, truth) - metrics.spearman(a, truth)
    assert 0 < gain.low < gain.mean < gain.high and gain.p < 0.01


@pytest.mark.parametrize(("before", "after", "message"), [
    (np.zeros(30), np.zeros(29), r"shapes \(30,\) and \(29,\) and"),
    (np.zeros(5), np.ones(5), "5 items are too few"), (np.zeros(30), np.full(30, np.nan), "NaN"),
    (np.ones(30), np.arange(30.0), "constant"),
])  # fmt: skip
def test_values_that_cannot_be_paired_are_errors(before, after, message):
    with pytest.raises(DataError, match=message):
        paired_spearman_difference(before, after, np.arange(len(before)), resamples=50)


def test_clusters_of_one_size_have_at_least_students_interval():
    values = np.random.default_rng(1).normal(0.3, 1, 30)
    found = clustered_mean(values[:, None], np.ones((30, 1)))
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval()
    assert found.mean == pytest.approx(values.mean())
    assert (found.error, found.df) == pytest.approx((stats.sem(values), 29))
    assert low - 0.2 < found.low <= low + 1e-12 and high - 1e-12 <= found.high < high + 0.2
    assert found.p >= test.pvalue - 1e-12
    assert (found.p > 0.05) == (found.low <= 0 <= found.high)


def test_a_mean_over_kinds_is_jackknifed_over_clusters():
    """Two kinds, of which some clusters have one alone; against a loop that leaves each out."""
    random = np.random.default_rng(2)
    counts = random.integers(0, 4, (25, 2)).astype(float)
    counts[:, 0] += 1
    sums = counts * random.normal(size=(25, 1)) + counts * random.normal(size=(25, 2))
    found = clustered_mean(sums, counts)
    left = []
    for out in range(25):
        rest = [at for at in range(25) if at != out]
        left.append(np.mean([sums[rest, k].sum() / counts[rest, k].sum() for k in (0, 1)]))
    expected = np.mean([sums[:, k].sum() / counts[:, k].sum() for k in (0, 1)])
    assert found.mean == pytest.approx(expected)
    assert found.error == pytest.approx(np.sqrt(24 / 25 * ((np.array(left) - expected) ** 2).sum()))
    assert found.df < 24
    assert clustered_mean(np.full((25, 1), 0.1), np.ones((25, 1))).low == pytest.approx(0.1)
    one = clustered_mean(np.array([[1.5]]), np.array([[3.0]]))  # says nothing of others
    assert (one.mean, one.low, one.high, one.p) == (0.5, -np.inf, np.inf, 1.0)


def test_each_end_of_a_clustered_interval_is_the_outer_one_of_two():
    """Student's, and the bootstrap's, whose ends skewed values move past those or within them."""
    moved = []
    for seed in range(8):
        values = np.random.default_rng(seed).exponential(size=(25, 1)) ** 2 - 0.5
        values *= (-1) ** seed
        found = clustered_mean(values, np.ones((25, 1)), resamples=1000)
        student = stats.ttest_1samp(values[:, 0], 0.0)
        low, high = student.confidence_interval()
        assert found.p >= student.pvalue - 1e-9
        moved.append((low - found.low, found.high - high))
    for change in np.array(moved).T:
        assert (change > -1e-9).all() and (change > 1e-3).any() and (change < 1e-9).any()
    assert clustered_mean(values + 99, np.ones((25, 1)), resamples=50).p == pytest.approx(2 / 51)


LAWS = {
    "normal": lambda random, n: random.normal(size=n),
    # Mostly zero and else a jump, as nDCG@10 changes where an answer moves by a rank.
    "jumps": lambda random, n: random.choice([0, 0, 0, 0.6, -0.6, 0.2, -0.2, 1.6, -1.6], size=n),
}


@pytest.mark.parametrize("law", LAWS)
def test_gains_that_documents_share_are_found_by_chance_as_rarely_as_promised(law):
    """One side of 95 %: 2.5 % and 2.6 standard errors; the percentile bootstrap has 4.0."""
    random, found, number, documents = np.random.default_rng(5), 0, 300, 25
    for trial in range(number):
        # On average four queries about a document, whose gains correlate by .3.
        counts = np.minimum(random.geometric(0.25, documents), 30)
        place = np.repeat(np.arange(documents), counts)
        own, shared = LAWS[law](random, len(place)), LAWS[law](random, documents)
        sums = np.bincount(place, np.sqrt(0.3) * shared[place] + np.sqrt(0.7) * own)
        columns = sums[:, None], counts[:, None].astype(float)
        found += clustered_mean(*columns, resamples=200, seed=trial).low > 0
    assert 0 < found / number <= 0.025 + 2.6 * np.sqrt(0.025 * 0.975 / number)
