"""Validation of a run: scores by plain loops, and a choice that does not flatter."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from contrasent.errors import DataError
from contrasent.evaluate import validation
from contrasent.evaluate.validation import LabeledValidation, RetrievalValidation


def made(texts, seed, width=6):
    """A model that gives each text a random vector of its own."""
    random = np.random.default_rng(seed)
    vectors = {text: random.normal(size=width).astype(np.float32) for text in texts}
    return lambda requested: np.array([vectors[text] for text in requested])


def unit(vector):
    return vector.astype(float) / np.linalg.norm(vector)


def pair_cosines(encode, one, two):
    return [float(unit(a) @ unit(b)) for a, b in zip(encode(one), encode(two), strict=True)]


def reciprocal_rank(encode, queries, documents, i):
    query = unit(encode([queries[i]])[0])
    scores = [float(query @ unit(v)) for v in encode(documents)]
    rank = sum(score >= scores[i] - 1e-6 for score in scores)
    return 1 / rank if rank <= 10 else 0.0


def test_every_second_item_chooses_and_the_others_measure_the_gain():
    n = 47
    texts = {kind: [f"{kind} {i}" for i in range(n)] for kind in ("ask", "tell", "first", "then")}
    pools = {"one": (texts["ask"], texts["tell"]), "two": (texts["first"], texts["then"])}
    every = [text for group in texts.values() for text in group]
    base, later = made(every, 0), made(every, 1)
    judge = RetrievalValidation("made", pools)
    before = judge(base)
    report = judge.against(later, before)

    def mean_rank(encode, i):
        return np.mean([reciprocal_rank(encode, *pool, i) for pool in pools.values()])

    items = [[mean_rank(encode, i) for i in range(n)] for encode in (base, later)]
    chosen = [items[1][i] for i in range(n) if i % 2 == 0]
    others = [items[1][i] - items[0][i] for i in range(n) if i % 2]
    assert report.rows[0] == report.one(task="made", split="dev", metric="mrr@10")
    assert report.rows[0].value == pytest.approx(np.mean(chosen))
    assert report.rows[0].count == len(chosen) == 24
    gain = report.one(metric="gain_mrr@10")
    assert (gain.split, gain.count) == ("test", 23)
    assert gain.value == pytest.approx(np.mean(others))
    assert gain.low < gain.value < gain.high
    half = 2.07 * np.std(others, ddof=1) / np.sqrt(23)  # Student's t of 22 degrees
    assert gain.high - gain.low == pytest.approx(2 * half, rel=0.2)
    own = np.mean([reciprocal_rank(later, *pools["two"], i) for i in range(0, n, 2)])
    assert report.one(task="made/two").value == pytest.approx(own)
    assert [row.split for row in before] == ["dev"] * 4  # of the base there is no gain
    few = RetrievalValidation("made", {"one": (texts["ask"][:39], texts["tell"][:39])})
    report = few.against(later, few(base))
    assert report.rows[0].count == 39  # all of them choose
    assert not report.select(split="test").rows


def test_the_best_of_many_does_not_pass_for_better():
    """Twelve steps that are as good as the base: the best of them seldom looks better for sure."""
    n, steps, runs = 80, 12, 40
    pool = ([f"ask {i}" for i in range(n)], [f"tell {i}" for i in range(n)])
    judge = RetrievalValidation("made", {"one": pool})
    random = np.random.default_rng(3)

    def model():
        """Every item is found at once or not at all, by chance."""
        hit = random.random(n) < 0.6
        axes = np.eye(2 * n)
        rows = {pool[0][i]: axes[i] for i in range(n)}
        rows |= {pool[1][i]: axes[i if hit[i] else n + i] for i in range(n)}
        return lambda texts: np.array([rows[text] for text in texts], dtype=np.float32)

    claimed = flattered = 0
    for _ in range(runs):
        before = judge(model())
        models = [model() for _ in range(steps)]
        best = judge.against(max(models, key=lambda m: judge(m).rows[0].value), before)
        claimed += best.one(metric="gain_mrr@10").low > 0
        gaps = np.array(best.notes["items"][::2]) - np.array(before.notes["items"][::2])
        flattered += gaps.mean() - 1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps)) > 0
    assert claimed / runs <= 0.1  # 2.5 % and the chance of so few repetitions
    assert flattered / runs > 0.1  # what the items that chose would have said


@pytest.mark.parametrize("n", [50, 30])
def test_labeled_pairs(n):
    one, two = ([f"{kind} {i}" for i in range(n)] for kind in ("this", "that"))
    random = np.random.default_rng(5)
    gold = random.normal(size=n)
    judge = LabeledValidation(one, two, gold)
    base, later = made([*one, *two], 0), made([*one, *two], 1)
    report = judge.against(later, judge(base))
    cosines = [pair_cosines(m, one, two) for m in (base, later)]
    order = sorted(range(n), key=lambda i: -gold[i])
    part = order[::2] if n == 50 else range(n)
    wanted = spearmanr([cosines[1][i] for i in part], [gold[i] for i in part]).statistic
    assert report.rows[0].metric == "spearman"
    assert report.rows[0].value == pytest.approx(wanted)
    if n == 30:
        assert not report.select(split="test").rows
        return
    others = order[1::2]
    rho = [spearmanr([c[i] for i in others], [gold[i] for i in others]).statistic for c in cosines]
    gain = report.one(metric="gain_spearman")
    assert gain.value == pytest.approx(rho[1] - rho[0])
    assert (gain.count, gain.low < gain.value < gain.high) == (25, True)


def test_labels_that_alternate_are_halved_in_their_own_order():
    one, two = ([f"{kind} {i}" for i in range(100)] for kind in ("this", "that"))
    base, later = made([*one, *two], 0), made([*one, *two], 1)
    judge = LabeledValidation(one, two, np.arange(100) % 2.0)
    report = judge.against(later, judge(base))
    assert report.rows[0].count == report.one(metric="gain_spearman").count == 50
    cosines = pair_cosines(later, one, two)
    part = [*range(1, 100, 4), *range(0, 100, 4)]  # every second of either label
    wanted = spearmanr([cosines[i] for i in part], [i % 2 for i in part]).statistic
    assert report.rows[0].value == pytest.approx(wanted)
    # One pair that differs, in the other half: all of them choose.
    judge = LabeledValidation(one, two, np.array([1.0] * 99 + [0.0]))
    report = judge.against(later, judge(base))
    assert (report.rows[0].count, report.select(split="test").rows) == (100, ())


def test_neighborhoods_by_loops():
    texts = [f"text {i}" for i in range(40)]
    base, later = made(texts, 0), made(texts, 1)
    judge = validation.NeighborValidation(texts)
    before = judge(base)
    assert before.rows[0].value == 1.0
    report = judge.against(later, before)

    def nearest(encode, i):
        vectors = [unit(v) for v in encode(texts)]
        others = sorted((j for j in range(40) if j != i), key=lambda j: -vectors[i] @ vectors[j])
        return set(others[:10])

    old = [nearest(base, i) for i in range(40)]
    shares = [len(old[i] & nearest(later, i)) / 10 for i in range(40)]
    overlap = report.one(metric="overlap@10")
    assert report.rows[0] == overlap
    assert overlap.value == pytest.approx(np.mean(shares))
    assert overlap.low < overlap.value < overlap.high
    vectors = [unit(v) for v in later(texts)]
    gaps = [np.sum((vectors[i] - vectors[j]) ** 2) for i in range(40) for j in old[i]]
    assert report.one(metric="alignment").value == pytest.approx(np.mean(gaps), rel=1e-5)
    apart = [np.sum((vectors[i] - vectors[j]) ** 2) for i in range(40) for j in range(i)]
    wanted = np.log(np.mean(np.exp(-2 * np.array(apart))))
    assert report.one(metric="uniformity").value == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(DataError, match="10 held-out sentences have no 10 neighbors"):
        validation.NeighborValidation(texts[:10])(base)
