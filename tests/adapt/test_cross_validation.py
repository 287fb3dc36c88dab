"""Learning from user queries: every query is scored by what was learned from others."""

from dataclasses import replace

import numpy as np
import pytest

from contrasent.adapt import cross_validation
from contrasent.adapt import learner as learner_
from contrasent.adapt.bench import Bench, difference, queries_of
from contrasent.adapt.cross_validation import (
    AGAIN,
    NEW,
    best_strategy,
    cross_fitted,
    folds_of,
    learn_from_queries,
)
from contrasent.adapt.learner import Learner, candidate_strategies, contrast, descend
from contrasent.metrics import normalize
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.search.writer import Writer

SIZE, PRIOR = 16, Ranker(0.2)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few strategies, and steps that suit few queries."""
    few = {"WEIGHTS": (0.0, 0.2), "FEW_WEIGHTS": (0.2,), "RATE": 0.02, "RANDOM_ROWS": 20}
    few |= {"BONUSES": ((0.0, 0.8), (1.0, 0.6)), "FEW_BONUSES": ((0.0, 0.8),)}
    for name, value in few.items():
        monkeypatch.setattr(learner_, name, value)


def bench_of(seed, *, meaning=True, documents=60, each=2, shared=0.0, about=1.5, rows=1):
    """Queries that share half of their directions with what answers them; the rest is noise.

    Without meaning a query's vector is noise and what queries of one document have in common:
    ``shared`` of its variance.
    """
    random = np.random.default_rng(seed)
    made = random.normal(size=(documents, SIZE)).astype(np.float32)
    of = np.repeat(np.arange(documents), each)
    noise = random.normal(size=(len(of), SIZE)).astype(np.float32)
    common = random.normal(size=(documents, SIZE)).astype(np.float32)[of]
    queries = about * (np.sqrt(1 - shared) * noise + np.sqrt(shared) * common)
    if meaning:
        queries[:, : SIZE // 2] = made[of, : SIZE // 2] + queries[:, : SIZE // 2] / 2
    passages = np.repeat(made, rows, axis=0)
    passages += 0.1 * random.normal(size=passages.shape).astype(np.float32)
    index = Index.build(
        lambda _: passages,
        [f"the note on matter {n // rows}" for n in range(len(passages))],
        ids=[f"{n}" for n in range(len(passages))],
        metadata=[{"document": f"d{n // rows}"} for n in range(len(passages))],
    )
    asked = queries_of([(f"question {n}", {int(at): 1.0}) for n, at in enumerate(of)])
    return Bench(index, asked, normalize(queries))


def taught(bench, *, until=1e9, seed=0, **given):
    return learn_from_queries(bench, PRIOR, seed=seed, until=lambda: until, **given)


# ---------------------------------------------------------------------- the loss


@pytest.fixture
def batch():
    """Queries, a map, rows, and which of these are right and wrong; one is neither."""
    random = np.random.default_rng(0)
    queries, matrix = random.normal(size=(3, 5)), random.normal(size=(5, 5))
    rows = normalize(random.normal(size=(6, 5)))
    right = np.zeros((3, 6), dtype=bool)
    right[[0, 1, 1, 2], [0, 1, 2, 5]] = True
    wrong = ~right
    wrong[0, 4] = False
    return matrix, queries, rows, right, wrong


def test_the_loss_is_that_of_plain_loops(batch):
    matrix, queries, rows, right, wrong = batch
    losses = []
    for query, its, others in zip(queries, right, wrong, strict=True):
        mapped = query @ matrix / np.linalg.norm(query @ matrix)
        powers = np.exp(rows @ mapped / 0.1)
        against = powers[others].sum()
        losses.append(np.mean([-np.log(power / (power + against)) for power in powers[its]]))
    assert contrast(*batch, 0.1)[0] == pytest.approx(np.mean(losses), rel=1e-6)


def test_its_gradient_is_that_of_differences(batch):
    matrix, *rest = batch
    _, slope = contrast(matrix, *rest, 0.1)
    for place in ((0, 0), (2, 3), (4, 1)):
        step = np.zeros_like(matrix)
        step[place] = 1e-5
        up, down = (contrast(matrix + sign * step, *rest, 0.1)[0] for sign in (1, -1))
        assert slope[place] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-6)


def test_it_descends_as_adam_does():
    """Kingma and Ba (2015), algorithm 1; the rate rises over a tenth of the steps, then falls."""
    start, slopes = 1.5, [0.5, -2.0, 0.25, 1.0] * 5
    expected, first, second, count = start, 0.0, 0.0, len(slopes)
    for step, slope in enumerate(slopes, 1):
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        rate = 0.1 * min(1, step / 2) * (count + 1 - step) / count
        mean, square = first / (1 - 0.9**step), second / (1 - 0.999**step)
        expected -= rate * mean / (square**0.5 + 1e-8)
    left = iter(slopes)
    found = descend(
        np.full((1, 1), start), lambda _: np.full((1, 1), next(left)), rate=0.1, steps=count
    )
    assert found.item() == pytest.approx(expected, rel=1e-5) != start


# ---------------------------------------------------------------------- what teaches


def test_what_queries_teach_is_kept_where_it_helps_with_new_documents_too():
    found = taught(bench_of(0, each=3, rows=2))
    assert found.improved, found.reason
    assert found.again.low > 0
    assert found.new.value > 0
    assert found.after == pytest.approx(found.before + found.again.value)
    assert found.ranker == found.best and found.reason.startswith("Improved and saved.")
    # What is kept is what it uses.
    assert (found.learned.matrix is None) == (not found.ranker.map_share)
    assert (found.learned.known is None) == (not found.ranker.known)
    assert not found.learned.lacks(found.ranker)


@pytest.mark.parametrize(
    ("until", "count"), [(1e9, cross_validation.FOLDS), (1e-3, cross_validation.FEW_FOLDS)]
)
def test_little_time_makes_few_folds(monkeypatch, until, count):
    counts = set()

    def folds(bench, numbers, kind, count, seed):
        counts.add(count)
        return folds_of(bench, numbers, kind, count, seed)

    monkeypatch.setattr(cross_validation, "folds_of", folds)
    taught(bench_of(0, documents=30), until=until)
    assert counts == {count}


def test_the_prior_is_kept_where_queries_have_nothing_to_do_with_their_answers():
    bench = bench_of(1, meaning=False)
    found = taught(bench, until=0.0)
    assert not found.improved and "The search stays as it was." in found.reason
    assert found.ranker == PRIOR
    assert found.learned.matrix is found.learned.known is None


@pytest.mark.parametrize("smooth", [False, True])
def test_all_strategies_are_about_the_prior_and_what_is_there(smooth):
    prior = Ranker(0.3, map_share=0.25, smoothing=0.5)
    strategies = candidate_strategies(PRIOR, prior, few=False, smooth=smooth)
    assert [one.ranker for one in strategies[:3]] == [PRIOR, Ranker(0.0), prior]
    assert len(set(strategies)) == len(strategies)
    own = [strategy.ranker for strategy in strategies[2:] if not strategy.maps]
    assert {ranker.map_share for ranker in own} == {0.25}
    assert {ranker.smoothing for ranker in own} == ({0.0, 0.5, 0.6} if smooth else {0.5})
    assert {0.0, 0.3} <= {ranker.bm25_weight for ranker in own}
    assert {(one.known, one.known_from) for one in own[1:]} == {*learner_.BONUSES}
    few = candidate_strategies(PRIOR, prior, few=True, smooth=smooth)
    assert len(few) < len(strategies) / 2
    assert prior.summary == "BM25 0.3, query map 0.25, smoothing 0.5"


def test_the_map_of_the_text_is_where_teaching_starts(monkeypatch):
    bench = bench_of(0)
    monkeypatch.setattr(learner_, "RATE", 0.0)
    bench.learned = Learned(np.eye(SIZE, dtype=np.float32)[::-1].copy())
    start = Learner(bench, replace(PRIOR, map_share=0.25), 0).fit(np.arange(50), set())
    expected = 0.75 * np.eye(SIZE) + 0.25 * np.eye(SIZE)[::-1]
    np.testing.assert_allclose(start, expected, atol=1e-6)
    np.testing.assert_array_equal(Learner(bench, PRIOR, 0).fit(np.arange(50), set()), np.eye(SIZE))


# ---------------------------------------------------------------------- what judges


def test_folds_hold_out_queries_or_whole_documents():
    bench = bench_of(0)
    everything = np.arange(120)
    by_query, by_document = (folds_of(bench, everything, kind, 5, 3) for kind in (AGAIN, NEW))
    assert np.bincount(by_query).tolist() == np.bincount(by_document).tolist() == [24] * 5
    same = [(fold[::2] == fold[1::2]).all() for fold in (by_query, by_document)]
    assert same == [False, True]


class Watched(Bench):
    """A bench that looks at what the queries that it judges were taught."""

    def values(self, rankers, numbers=None, learned=None):
        if numbers is not None and learned is not None and learned.known is not None:
            places = {vector.tobytes(): at for at, vector in enumerate(self.vectors)}
            teaching = {places[vector.tobytes()] for vector in learned.known.vectors}
            assert not teaching & set(numbers.tolist())
            taught = {name for names in learned.known.documents for name in names}
            judged = {self.documents[self.queries[at].document] for at in numbers}
            self.apart = [*vars(self).get("apart", ()), not taught & judged]
        return super().values(rankers, numbers, learned)


def test_no_query_is_judged_by_what_it_taught():
    """Nor, where documents are new, by what was taught about the documents that answer it."""
    made = bench_of(2)
    bench = Watched(made.index, made.queries, made.vectors)
    taught(bench, until=0.0)
    # Twice a fold: by the strategies with a map, and by those without.
    again, new = bench.apart[: len(bench.apart) // 2], bench.apart[len(bench.apart) // 2 :]
    assert len(new) == 2 * cross_validation.FEW_FOLDS and all(new) and not any(again)


class Remembering(Bench):
    """A bench that finds for each query the rows that it is told, if it is told any."""

    def best_rows(self, number, prior):
        told = vars(self).get("told")
        return super().best_rows(number, prior) if told is None else told[number]


def test_held_out_documents_teach_in_no_way(monkeypatch):
    """Neither as answers of other queries nor as what does not answer them."""
    monkeypatch.setattr(learner_, "RANDOM_ROWS", 200)
    made = bench_of(1)
    bench = Remembering(made.index, made.queries, made.vectors)
    bench.queries[-1] = replace(bench.queries[-1], relevant={0: 1.0, 59: 1.0})
    teaching, vectors = np.arange(2, 120), np.array(bench.index.vectors)

    def learned(absent):
        return Learner(bench, PRIOR, 0).fit(teaching, absent)

    absent, present = learned({0}), learned(set())
    moved = vectors.copy()
    moved[0] = -moved[0]
    bench.index.store.vectors = moved
    hard = Learner(bench, PRIOR, 0)._hard
    bench.index.store.vectors = vectors
    bench.told = hard
    same, others = learned({0}), learned(set())
    bench.index.store.vectors = moved
    np.testing.assert_array_equal(learned({0}), same)
    assert not np.array_equal(learned(set()), others)
    assert not np.array_equal(absent, present)


def test_other_passages_of_what_answers_a_query_are_no_negatives(monkeypatch):
    monkeypatch.setattr(learner_, "RANDOM_ROWS", 1000)
    bench, about_the_first = bench_of(0, rows=2), np.arange(2)
    made = Learner(bench, PRIOR, 0)
    for query in about_the_first:
        assert bench.of_rows.rows_of(bench.documents[bench.queries[query].document]).tolist() == [
            0,
            1,
        ]
        made.answers[query] = np.array([1])
    vectors, maps = np.array(bench.index.vectors), []
    for changed in ((), 0, 2):  # nothing, the other passage of the answer, another document's
        bench.index.store.vectors = vectors.copy()
        bench.index.vectors[changed,] *= -1
        maps.append(made.fit(about_the_first, set()))
    np.testing.assert_array_equal(maps[0], maps[1])
    assert not np.array_equal(maps[0], maps[2])


def test_a_fold_is_judged_by_the_way_that_is_best_for_the_others():
    values, folds = np.zeros((8, 10)), np.repeat(np.arange(5), 2)
    values[3, folds != 0] = 0.5
    values[5, folds == 0] = 1.0
    found = cross_fitted({AGAIN: values, NEW: values}, folds)
    assert found[AGAIN].tolist() == found[NEW].tolist() == [0.0] * 2 + [0.5] * 8


def choices(seed, documents, each, strategies=20, shared=0.3):
    """Gains of strategies that help nobody; those of one document have ``shared`` in common."""
    random, count = np.random.default_rng(seed), documents * each
    of = np.sort(np.r_[np.arange(documents), random.integers(0, documents, count - documents)])
    common = random.normal(size=(strategies, documents))[:, of]
    either, values = random.normal(size=(strategies, count)), {}
    for kind in (AGAIN, NEW):
        alone = (either + random.normal(size=(strategies, count))) * np.sqrt((1 - shared) / 2)
        values[kind] = np.sqrt(shared) * common + alone
        values[kind][0] = 0.0
    queries = queries_of([(f"question {n}", {int(at): 1.0}) for n, at in enumerate(of)])
    main = np.unique([query.document for query in queries], return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(
        np.arange(main.max() + 1) % cross_validation.FOLDS
    )
    return queries, values, order[main]


@pytest.mark.parametrize(
    ("documents", "each"), [(25, 4), pytest.param(120, 1, marks=pytest.mark.slow)]
)
def test_a_choice_among_ways_that_help_nobody_is_rarely_kept(documents, each):
    kept = {0.95: 0, cross_validation.LEVEL: 0}
    for seed in range(200):
        queries, values, folds = choices(seed, documents, each)
        found = cross_fitted(values, folds)[AGAIN]
        for level in kept:
            kept[level] += difference(queries, found, seed=seed, level=level).low > 0
    assert kept[cross_validation.LEVEL] <= 18  # of 200, with a chance of 99 % at a rate of 5 %
    assert kept[cross_validation.LEVEL] < kept[0.95]


def test_the_search_to_beat_is_the_default_not_what_the_text_taught():
    """A start that is worse than the default is not kept, and the default stays."""
    bench = bench_of(1, meaning=False)
    bench.learned = Learned(-np.eye(SIZE, dtype=np.float32))
    start = replace(PRIOR, map_share=1.0)
    found = taught(bench, until=0.0, start=start)
    assert not found.improved and found.ranker == PRIOR and found.learned.matrix is None
    assert found.before == pytest.approx(bench.values([PRIOR]).mean())


def test_the_best_way_loses_on_no_new_documents():
    again, new = np.zeros((4, 10)), np.zeros((4, 10))
    again[1], new[1] = 0.3, -0.01  # gains most, and forgets
    again[2], new[2] = 0.2, 0.0
    again[3], new[3] = 0.15, 0.08
    whole = np.full(10, True)
    assert best_strategy({AGAIN: again[:2], NEW: new[:2]}, whole) == 0
    assert best_strategy({AGAIN: again[:3], NEW: new[:3]}, whole) == 2
    assert best_strategy({AGAIN: again, NEW: new}, whole) == 2
    new[3] = 0.12
    assert best_strategy({AGAIN: again, NEW: new}, whole) == 3
    again[1:] = new[1:] = 1e-12  # of equal ones the prior
    assert best_strategy({AGAIN: again, NEW: new}, whole) == 0


ALIKE = ([0.1] * 3,)
FORGETS = ([-0.1, 0.06, 0.06], [0.06, -0.1, 0.06], [0.06, 0.06, -0.1])  # each in one fold


@pytest.mark.parametrize(
    ("again", "new", "improved", "reason"),
    [
        (ALIKE, ([0.0] * 3,), True, "Others: no measurable change"),
        (([0.0] * 3,), ALIKE, False, "no reliable improvement"),
        (([0.1] * 3,) * 3, FORGETS, False, "documents without training queries got worse"),
    ],
)
def test_the_verdict_is_about_what_is_asked_again_and_what_is_new(
    monkeypatch, again, new, improved, reason
):
    """All strategies are alike but some, whose gains are given for each fold of documents."""

    def measured(learner, strategies, folds):
        count = len(learner.bench.queries)
        noise = np.random.default_rng(0).normal(size=count) * 0.02
        values = {kind: np.full((len(strategies), count), 0.5) for kind in folds}
        for kind, by_fold in ((AGAIN, again), (NEW, new)):
            for strategy, of in enumerate(by_fold, start=2):  # after the default and vectors alone
                values[kind][strategy] += np.array(of)[folds[NEW]]
                values[kind][strategy] += (noise - noise.mean()) * (kind == AGAIN)
        return values

    monkeypatch.setattr(cross_validation, "_cross_validated", measured)
    found = taught(bench_of(0), until=0.0)
    assert found.improved == improved and reason in found.reason
    assert found.again.value == pytest.approx(again[0][0], abs=1e-9)
    if new is FORGETS:  # a loss that the interval does not prove
        unproven = replace(found, new=replace(found.new, high=0.005))
        assert "no strategy gained without a lower mean on documents without" in unproven.reason


def test_deleted_rows_are_no_neighbors(tmp_path):
    """Not those that were replaced by the same either, which are the nearest."""
    made = bench_of(0)
    made.index.save(tmp_path / "index")
    rows = made.index.rows(range(20))
    with Writer(tmp_path / "index") as writer:
        about = [row.metadata for row in rows]
        texts, ids = [row.text for row in rows], [row.id for row in rows]
        writer.update(texts, made.index.vectors[:20], ids=ids, metadata=about)
    index = Index.open(tmp_path / "index")
    bench = Bench(index, made.queries, made.vectors)
    near, alive = Learner(bench, PRIOR, 0).neighbors.rows, index.numbers()
    assert len(near) == 80 and near.shape[1] == 5 and np.isin(near[alive], alive).all()
    assert (np.delete(near, alive, axis=0) == -1).all()
