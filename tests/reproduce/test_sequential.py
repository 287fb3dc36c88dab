"""Seeds that are added as needed: evidence at all times, where the next seed goes, and the end."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from contrasent.errors import DataError
from contrasent.reproduce import allocation, deciding, work
from contrasent.reproduce.allocation import next_seeds, run_until_decided
from contrasent.reproduce.book import book
from contrasent.reproduce.jobs import Place
from contrasent.reproduce.plan import Planner
from contrasent.reproduce.reading import ItemFolder
from contrasent.reproduce.results import verdicts_on
from contrasent.reproduce.sequential import EFFECT, Looks, Sequential, evidence, p_values
from contrasent.reproduce.spread import Arm, difference, with_noise
from contrasent.reproduce.verdict import AGREES, DIFFERS, EQUIVALENT, OPEN

MARGIN = 0.3
SEEDS = 15
ROWS = 10


def by_integral(values, at, side, fixed):
    """The mixture's likelihood of the t statistic over that without a difference, by quadrature."""
    n, deviation = len(values), np.std(values, ddof=1)
    error = np.sqrt(1 / n + fixed)
    t = (np.mean(values) - at) / (deviation * error)

    def weighed(effect):
        likelihood = stats.nct.pdf(t, n - 1, effect / error) / stats.t.pdf(t, n - 1)
        return likelihood * stats.norm.pdf(effect, 0, EFFECT) * (2 if side else 1)

    ends = {0: (-16, 16), 1: (0, 16), -1: (-16, 0)}[side]
    return np.log(integrate.quad(weighed, *ends, limit=400, points=[0.0])[0])


@pytest.mark.parametrize("side", [0, 1, -1])
@pytest.mark.parametrize("fixed", [0.0, 0.5])
def test_the_evidence_is_a_ratio_of_likelihoods(side, fixed):
    values = np.random.default_rng(3).normal(0.9, 1.0, 7)
    found = evidence(Looks.of(values), 0.2, side, fixed)
    assert found.shape == (6,)
    for look, n in enumerate(range(2, 8)):
        want = by_integral(values[:n], 0.2, side, fixed)
        assert found[look] == pytest.approx(want, abs=1e-6)


@given(st.lists(st.floats(-2, 2).map(lambda v: round(v, 3)), min_size=4, max_size=9))
def test_an_interval_holds_what_no_look_spoke_against(values):
    values = [value + 0.01 * i for i, value in enumerate(values)]
    one = Sequential.of(values)
    bounds = one.interval()
    tried = np.linspace(-8, 8, 161)
    possible = [at for at in tried if one.p(at) > 0.05]
    if bounds is None or not possible:
        return
    assert possible == [at for at in tried if bounds[0] < at < bounds[1]]
    # What an interval leaves out, its tests reject.
    assert one.p(bounds[0] - 1e-6) <= 0.05 + 1e-9
    assert one.p_beyond(0.5) <= 1.0


def test_an_error_does_not_come_back():
    """The sign and the p are those of the time when they were surest."""
    sure = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02]
    before = Sequential.of(sure)
    after = Sequential.of([*sure, -9.0, -9.0, -9.0])
    assert after.mean < 0
    assert (before.side(), after.side()) == (1.0, 1.0)
    assert after.p() == before.p() < 0.05
    assert after.p(1.0) > 0.05


def test_rows_that_are_the_same():
    one = Sequential.of([0.0] * 6)
    assert (one.p(), one.error, one.side()) == (1.0, 0.0, 0.0)
    assert one.p_within(MARGIN) < 0.05
    # Two equal differences are no proof: the spread is not known to be nothing.
    assert Sequential.of([1.0, 1.0]).p() > 0.05


def simulated(tables, truth, deviations, seed):
    """(tables, rows, seeds) differences from a reference row that varies, too, seed by seed."""
    random = np.random.default_rng(seed)
    common = random.normal(0, 0.2, (tables, 1, SEEDS))
    draws = common + deviations[:, None] * random.normal(size=(tables, ROWS + 1, SEEDS))
    return truth + draws[:, 1:] - draws[:, :1]


EQUAL = np.full(ROWS + 1, 0.3)
UNEQUAL = np.array([0.6, 0.15, 0.3, 1.2, 0.3, 0.15, 0.3, 0.6, 0.3, 0.3, 0.9])


@pytest.mark.parametrize("deviations", [EQUAL, UNEQUAL], ids=["alike", "unequal"])
def test_false_decisions_however_often_one_looks(deviations):
    """Of 2,000 tables at most 5 % have any, looked at after every seed.

    Holm's first step finds whatever he finds first: a p of 5 % over the number of rows.
    """
    tables, level = 2000, 0.05 / ROWS
    none = Looks.of(simulated(tables, 0.0, deviations, 1))
    p = p_values(evidence(none, 0.0))
    assert p.shape == (tables, ROWS)
    assert 0 < (p <= 0.05).mean() <= 0.05  # each by itself
    assert (p <= level).any(axis=1).mean() <= 0.05
    # Every row differs by exactly the margin: none is equivalent.
    edge = Looks.of(simulated(tables, MARGIN, deviations, 2))
    within = np.maximum(p_values(evidence(edge, MARGIN, -1)), p_values(evidence(edge, -MARGIN, 1)))
    assert (within <= level).any(axis=1).mean() <= 0.05
    assert (within <= 0.2).any()
    # Looking so often with t intervals for one look each would be wrong more often.
    t = none.mean / np.sqrt(none.squares / (none.seeds - 1) / none.seeds)
    naive = 2 * stats.t.sf(np.abs(t), none.seeds - 1)
    assert (naive <= level).any(axis=(1, 2)).mean() > 0.1


@pytest.mark.parametrize("effect", [1.5, 3.0])
def test_the_seeds_that_it_takes(effect):
    """Near to what a test with one look needs, which has to know the difference beforehand."""
    level = 0.05 / ROWS
    found = np.random.default_rng(4).normal(effect, 1.0, (4000, 40))
    sure = evidence(Looks.of(found), 0.0) >= -np.log(level)
    assert sure.any(axis=1).all()
    taken = 2 + sure.argmax(axis=1)

    def power(n):
        edge = stats.t.isf(level / 2, n - 1)
        return stats.nct.sf(edge, n - 1, effect * np.sqrt(n))

    fixed = next(n for n in range(2, 99) if power(n) >= 0.8)
    assert fixed <= taken.mean() <= 1.5 * fixed
    assert np.quantile(taken, 0.8) <= 1.7 * fixed


FORMS = {"stsb": {"paper": ".1f", "ours": ".2f"}}
(TABLE,) = ItemFolder().find(["simcse:table1"])
AWAITED = {("stsb", row.name) for row in TABLE.rows}


def looked(values, count):
    """The verdicts on the first seeds of a table."""
    arms = {
        name: Arm(tuple(own[:count]), seeded=True, sequential=True) for name, own in values.items()
    }
    return deciding.decide(TABLE, "lab", {"stsb": with_noise(arms)}, FORMS, {}, AWAITED)


def test_what_is_decided_stays_so():
    random, decided = np.random.default_rng(8), 0
    for _ in range(6):
        truth = {row.name: random.choice([0.0, 0.0, 1.0, -1.5]) for row in TABLE.rows}
        truth["None (unsup. SimCSE)"] = 0.0
        values = {name: random.normal(70 + mean, 0.2, 12) for name, mean in truth.items()}
        before = {}
        for count in range(1, 13):
            found = looked(values, count)
            assert found.tests == 10 + 4
            words = {place: v.word for place, v in found.cells.items()}
            for place, word in before.items():
                assert word == OPEN or words[place] == word
            before = words
        for (row, _), word in before.items():
            # All published differences are below zero.
            wrong = {0.0: (AGREES, DIFFERS), 1.0: (AGREES, EQUIVALENT), -1.5: (DIFFERS, EQUIVALENT)}
            assert word not in wrong[truth[row]]
            decided += word != OPEN
    assert decided > 20


def test_tests_are_counted_before_their_rows_are_run():
    values = dict.fromkeys([r.name for r in TABLE.rows][:2], (70.0, 70.1, 69.9))
    assert looked(values, 3).tests == looked({}, 3).tests == 14
    arms = {n: Arm(tuple(v), seeded=True, sequential=True) for n, v in values.items()}
    found = deciding.decide(TABLE, "lab", {"stsb": with_noise(arms)}, FORMS, {}, set())
    assert found.tests == 1


def test_differences_are_of_the_same_seeds():
    one = Arm((70.0, 71.0, 72.0), seeded=True, seeds=(0, 1, 3), sequential=True)
    two = Arm((71.0, 72.5, 99.0), seeded=True, seeds=(0, 1, 2), sequential=True)
    found = difference(one, two)
    assert (found.seeds, found.mean) == (2, pytest.approx(1.25))
    base = Arm((60.0,), seeded=False)
    found = difference(base, one)
    assert (found.seeds, found.mean) == (3, pytest.approx(11.0))
    assert difference(one, replace(two, seeds=(5, 6, 7))).error is None


def test_pairing_narrows_what_shares_its_noise():
    common = np.array([0.0, 1.0, -1.0, 0.5])
    own = np.array([0.1, -0.1, 0.05, 0.0])
    rows = {"a": 70 + common, "b": 71 + common + own}
    arms = with_noise({n: Arm(tuple(v), seeded=True) for n, v in rows.items()})
    found = deciding._resolution(arms, 0.3, 1)
    want = np.std(own, ddof=1) / np.sqrt(sum(np.var(v, ddof=1) for v in rows.values()))
    assert found["paired"] == pytest.approx(want, abs=1e-3)
    assert want < 0.2


ITEM = """
title = "Four rows"
source = "our own"
kind = "scores"
about = "An item for tests."
cost = "medium"
reference = "plain"
seeds = 3

[evaluations.made]
kind = "sts"
tasks = ["STSB"]

[columns.made]
evaluation = "made"
metric = "spearman"

[templates.unsup]
objective = "simcse"
corpus = "wiki"

[[rows]]
name = "plain"
use = "unsup"
expected = { made = 50.0 }

[[rows]]
name = "crop {percent}"
use = "unsup"
set = { view = "crop" }
axes = { percent = [10, 20, 30] }
expected = { made = [40.0, 30.0, 50.0] }

[[rows]]
name = "large"
encoder = "bert-large-uncased"
expected = { made = 60.0 }

[[claims]]
name = "clear"
text = "Plain is better than a little cropping."
column = "made"
better = "plain"
than = ["crop 10"]

[[claims]]
name = "close"
text = "Plain is better than more cropping."
column = "made"
better = "plain"
than = ["crop 20"]

[[claims]]
name = "hopeless"
text = "Cropping most is as good."
column = "made"
equal = "crop 30"
than = ["plain"]
margin = 0.01

[[claims]]
name = "large-is-better"
text = "A larger one is better."
column = "made"
better = "large"
than = ["plain"]
"""
MEANS = {"plain": 50.0, "crop 10": 47.0, "crop 20": 49.0, "crop 30": 50.0}


@pytest.fixture
def reproduce(tmp_path, monkeypatch, sentences):
    """Reproduce the item where nothing is trained and values are drawn; the book, and the jobs."""
    recipes = tmp_path / "recipes" / "own"
    recipes.mkdir(parents=True)
    (recipes / "table1.toml").write_text(ITEM)
    (recipes / "table2.toml").write_text(ITEM.replace('tasks = ["STSB"]', 'tasks = ["STS12"]'))
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text("{}")
    wiki = tmp_path / "data" / "wiki" / "wiki1m_for_simcse.txt"
    wiki.parent.mkdir(parents=True)
    wiki.write_text("\n".join(sentences[:90]) + "\n")
    monkeypatch.setattr("contrasent.reproduce.measures.texts_digest", lambda *options: "made")
    folder = ItemFolder(tmp_path / "recipes")
    done, stops, broken = [], [], []

    def do(job, store, data, *, keep):
        row, seed = re.fullmatch(r"own:table\d '(.+)' seed (\d+)", job.label).groups()
        if stops and len(done) == stops[0]:
            stops.pop()
            raise KeyboardInterrupt
        done.append((row, int(seed)))
        if broken and int(seed) >= broken[0]:
            raise DataError("the disk is gone")
        random = np.random.default_rng([int(seed), *row.encode()])
        value = (MEANS[row] + 0.4 * random.normal()) / 100
        for key, unit in job.units.items():
            row = {"task": unit.options["tasks"][0], "split": "test", "metric": "spearman"}
            report = {
                "rows": [{**row, "aggregate": "all", "value": value, "count": 9}],
                "notes": {},
            }
            measurement = {"report": report, "model": job.model.key, "measured_in": 36.0}
            store.write_measurement(key, measurement, job.describe())
        return {}

    monkeypatch.setattr(work, "do", do)

    def reproduce(results="results", *, stop=None, budget=1e9, wanted=("own:table1",)):
        del done[:]
        stops[:] = [] if stop is None else [stop]
        place = Place(tmp_path / results, tmp_path / "data", str(tmp_path / "bert"))
        planner = Planner(place, folder.scales["lab"], folder.corpora)
        items, said = folder.find(list(wanted)), []
        choices = {"jobs": 1, "budget": budget, "keep": False, "say": said.append}
        run_until_decided(planner, items, None, **choices)
        return book(items, place.results, "lab")["items"][0], list(done), said

    reproduce.broken = broken
    reproduce.store = lambda results="results": verdicts_on(
        folder.find(["own:table1"]), tmp_path / results, "lab"
    )
    return reproduce


def words(item):
    return {claim["name"]: claim["verdict"]["word"] for claim in item["claims"]}


def test_seeds_go_where_they_decide_most(reproduce, monkeypatch):
    monkeypatch.setattr(allocation, "MOST", 25)
    item, done, said = reproduce()
    assert words(item) == {
        "clear": AGREES,
        "close": AGREES,
        "hopeless": OPEN,
        "large-is-better": "not run",
    }
    # Three of each, then what decides the clear statement, then the close one; the third would
    # need more seeds than anybody promises.
    first = [(row, seed) for seed in range(3) for row in MEANS]
    assert done[:12] == first
    counts = {row: sum(name == row for name, _ in done) for row in MEANS}
    assert 3 < counts["crop 10"] < counts["crop 20"] == counts["plain"]
    assert counts["crop 30"] == 3
    order = [line.split(" for ")[1] for line in said if " more runs for " in line]
    assert order == sorted(order)
    assert set(order) == {"own:table1 clear", "own:table1 close"}
    assert item["sequential"]
    rows = {row["name"]: row["cells"]["made"] for row in item["rows"] if row["cells"]}
    assert rows["crop 20"]["seeds"] == counts["crop 20"]
    json.dumps(item, allow_nan=False)


def test_a_run_that_was_stopped_gives_the_same_book(reproduce, monkeypatch):
    monkeypatch.setattr(allocation, "MOST", 25)
    whole, done, _ = reproduce()
    for stop in (5, 13, 16):
        name = f"stopped{stop}"
        with pytest.raises(KeyboardInterrupt):
            reproduce(name, stop=stop)
        again, more, _ = reproduce(name)
        assert again == whole
        assert len(more) == len(done) - stop


def test_a_model_is_trained_once_for_all_tables(reproduce, monkeypatch):
    """It is dropped when it has been measured, so all that is wanted of it is measured then."""
    monkeypatch.setattr(allocation, "MOST", 25)
    item, alone, _ = reproduce("one")
    first, done, _ = reproduce("two", wanted=("own:table1", "own:table2"))
    assert words(first) == words(item)
    assert sorted(done) == sorted(alone)
    assert len(set(done)) == len(done)


def test_runs_that_fail_are_not_tried_for_ever(reproduce):
    reproduce.broken.append(3)
    item, done, said = reproduce()
    assert words(item)["clear"] == OPEN
    assert sum(seed >= 3 for _, seed in done) == 2
    assert sum("the disk is gone" in line for line in said) == 2


def test_what_a_statement_still_needs(reproduce, monkeypatch):
    """The seeds that are promised decide, if all goes on as it has."""
    item, done, _ = reproduce(budget=0.0)
    assert done == []
    assert set(words(item).values()) == {"not run"}
    monkeypatch.setattr(allocation, "next_seeds", lambda found, jobs: ([], {}))
    item, done, _ = reproduce()
    assert len(done) == 12
    needed = {claim["name"]: claim["needed"] for claim in item["claims"] if "needed" in claim}
    assert "clear" in needed
    close = needed["close"]["seeds"]
    assert set(close) == {"plain", "crop 20"}
    # 36 seconds a run.
    assert needed["close"]["hours"] == pytest.approx(sum(close.values()) / 100, abs=0.006)
    ((results, decided),) = reproduce.store().values()
    (one,) = decided.compared["close"]
    level = 0.05 / decided.left

    def least(seeds):
        grown = replace(one, gap=one.gap.after(seeds))
        return min(p for _, p in grown.tests().values())

    assert least(3 + close["plain"]) <= level < least(3 + close["plain"] - 1)
    assert results.seconds("plain") == pytest.approx(36.0)


def test_the_next_seeds_are_of_rows_that_have_fewest(reproduce, monkeypatch):
    monkeypatch.setattr(allocation, "next_seeds", lambda found, jobs: ([], {}))
    reproduce()
    names, more = next_seeds(reproduce.store(), 1)
    assert names == ["own:table1 clear"]
    assert more == {("own:table1", "plain"): 4, ("own:table1", "crop 10"): 4}
    names, more = next_seeds(reproduce.store(), 3)
    assert names == ["own:table1 clear", "own:table1 close"]
    assert set(more) == {("own:table1", name) for name in ("plain", "crop 10", "crop 20")}
