"""Verdicts: how sure differences are, what Holm's method leaves of them, and what is said then."""

import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from contrasent.reproduce import table_verdicts
from contrasent.reproduce.results import ItemResults
from contrasent.reproduce.results import book as results_book
from contrasent.reproduce.store import ResultStore, manifest_key
from contrasent.reproduce.table_verdicts import (
    ABSENT,
    AGREES,
    CHOSEN,
    DIFFERS,
    EQUIVALENT,
    INERT,
    OPEN,
    Verdict,
)
from contrasent.reproduce.tables import MARGIN, Claim, Expected, ItemFolder, TableColumn
from contrasent.stats.seeds import EffectEstimate

STORED = Path(__file__).parents[2] / "research" / "reproduction" / "small-bert" / "results"
T_2 = 4.302652729911275
"""The 97.5 % point of Student's t with 2 degrees of freedom, from a printed table."""


def scores(*values, **more):
    return table_verdicts.SeedScores(tuple(values), **more)


def encoder(value, draws=()):
    return scores(value, seeded=False, over_items=(value - 2, value + 2), draws=draws)


def test_the_interval_of_a_mean_over_seeds():
    values = (80.0, 81.0, 83.5)
    half = T_2 * statistics.stdev(values) / math.sqrt(3)
    mean = statistics.mean(values)
    assert scores(*values).interval() == pytest.approx((mean - half, mean + half))
    assert scores(*values).deviation() == pytest.approx(statistics.stdev(values))
    assert scores(80.0).interval() is None
    assert scores(80.0, seeded=False).interval() is None
    assert encoder(80.0).interval() == (78.0, 82.0)


def test_rows_of_one_order_are_paired_seed_by_seed():
    one, two = (70.0, 73.5, 71.2, 74.0), (70.9, 74.1, 72.5, 74.6)
    paired = [scores(*values, order="same") for values in (one, two)]
    want = stats.ttest_rel(two, one)
    found = table_verdicts.difference(*paired)
    assert (found.p, found.df) == (pytest.approx(want.pvalue), 3)
    assert table_verdicts.bounds(found) == pytest.approx(tuple(want.confidence_interval()))
    assert table_verdicts.difference(*paired[::-1]).mean == -found.mean
    # Only seeds that both have count.
    longer = scores(*one, 99.0, order="same")
    assert table_verdicts.difference(longer, paired[1]).p == pytest.approx(found.p)
    # Rows of another order, and of none that is known, are not paired: seeds drown the difference.
    for order in ("other", None):
        apart = table_verdicts.difference(scores(*one, order=order), scores(*two, order="same"))
        assert apart.p == pytest.approx(stats.ttest_ind(two, one, equal_var=False).pvalue)
        assert apart.p > 0.5 > 0.05 > found.p
    # Without two seeds in common there are no pairs.
    lonely = scores(*one, order="same", seeds=(7, 8, 9, 10))
    assert table_verdicts.difference(lonely, paired[1]).p == pytest.approx(apart.p)


def test_rows_without_seeds():
    base, sure = encoder(60.0), scores(65.0, 65.5, 64.8)
    found = table_verdicts.difference(base, sure)
    assert found.error == pytest.approx(statistics.stdev(sure.values) / math.sqrt(3))
    assert found.p == pytest.approx(stats.ttest_1samp(sure.values, 60.0).pvalue)
    # Their intervals over test items overlap, touch, or do not.
    for value, p in ((70.0, 0.0), (64.0, 0.05), (63.0, 0.14)):
        assert table_verdicts.difference(base, encoder(value)).p == pytest.approx(p, abs=0.002)
    # Over the items that they share, which move both alike.
    pair = encoder(60.0, (1.0, -1.0, 2.0, 0.0)), encoder(61.0, (1.1, -1.2, 2.0, 0.1))
    found = table_verdicts.difference(*pair)
    assert found.error == pytest.approx(math.sqrt((0.1**2 + 0.2**2 + 0.1**2) / 4))
    assert (found.mean, found.df) == (1.0, math.inf)


def test_seeds_decide_and_the_interval_over_items_stands_beside():
    rows = {
        "one": scores(60.0, 60.4, draws=(1.0, -1.0, 2.0)),
        "two": scores(62.0, 63.5, draws=(1.5, -3.0, 2.0)),
        "base": encoder(50.0, (0.5, 0.5, -1.0)),
        "whitened": encoder(55.0, (0.0, 0.0, 0.0)),
    }
    (seeds,) = {table_verdicts.difference(scores(60.0, 60.4), scores(62.0, 63.5)).error}
    found = {}
    for before, after in (("one", "two"), ("base", "two"), ("base", "whitened")):
        claim = Claim(name="own", text="", column=("column",), better=after, than=(before,))
        item = compact_item((claim,), {"column": TableColumn(margin=0.3)})
        (part,) = table_verdicts.decide(item, "lab", {"column": rows}).claims["own"].parts
        found[before, after] = part.effect.error, part.over_items
    error, over_items = found["one", "two"]
    assert error == seeds and over_items.mean == pytest.approx(62.75 - 60.2)
    assert over_items.error == pytest.approx(math.sqrt((0.5**2 + 2.0**2 + 0.0) / 3))
    error, over_items = found["base", "two"]
    assert over_items.error == pytest.approx(math.sqrt((1.0**2 + 3.5**2 + 3.0**2) / 3)) != error
    assert found["base", "whitened"] == (pytest.approx(math.sqrt(1.5 / 3)), None)


def test_one_seed_alone_decides_nothing():
    for one, two in ((scores(70.0), scores(90.0)), (scores(70.0, seeded=False),) * 2):
        assert table_verdicts.bounds(table_verdicts.difference(one, two)) is None
        claim = Claim(name="own", text="", column=("column",), better="two", than=("one",))
        item = compact_item((claim,), {"column": TableColumn(margin=0.3)})
        own = {"column": {"one": one, "two": two}}
        assert table_verdicts.decide(item, "lab", own).claims["own"].word == OPEN


STEPS = {
    "acts late": ((0.001, 0.02), AGREES),
    "never acts": ((0.0018, 0.0099), INERT),
    "not measured": ((), AGREES),
}
"""Shares of the difference in the gradient at two steps, and what is said then."""


@pytest.mark.parametrize("case", STEPS)
def test_a_statement_on_a_term_that_does_not_act_is_inert(tmp_path, case):
    shares, word = STEPS[case]
    steps = [{"step": step, "difference": own} for step, own in zip((1, 9), shares, strict=False)]
    store, rows = ResultStore(tmp_path), []
    for row, values in (("lambda = 0.005", (0.7, 0.71)), ("lambda = 0.0", (0.5, 0.51))):
        units = {}
        for seed, value in enumerate(values):
            key = units[str(seed)] = f"{row[-3:]}-{seed}"
            report = {"task": "STSB", "split": "dev", "metric": "spearman", "aggregate": "all"}
            report |= {"value": value, "count": 9}
            unit = {"model": f"m{key}", "told": {}, "report": {"rows": [report]}}
            store.write("units", key, unit)
            ours = [{"step": 1, "contrast": 1.0}] if row.endswith("0.0") else steps
            store.write("units", f"train-m{key}", {"shares": ours} if ours else {})
        rows.append({"name": row, "models": {}, "measured": {"dev": {"units": units}}})
    store.write("items", "diffcse-table8.lab", {"rows": rows, "seeds": 2})
    (item,) = ItemFolder().find(["diffcse:table8"])
    decided = ItemResults(item, store, "lab").verdicts()
    verdict = decided.claims["difference-helps"]
    assert verdict.word == word
    assert verdict.share == max(shares, default=None)
    (entry,) = results_book([item], tmp_path, "lab")["items"]
    why = next(c for c in entry["claims"] if c["name"] == "difference-helps")["verdict"]["why"]
    said = {INERT: "difference has at most 0.99%", AGREES: "at most 2.00%"}[word]
    assert (said if shares else "difference in the gradient was not measured") in why


SURE = (1.0, 1.1, 0.9, 1.05)  # p of 0.0005; of the looser one 0.012
LOOSE = (1.0, 1.5, 0.6, 1.3)


@pytest.mark.parametrize(("stated", "gain", "word"), [
    ({"better": "two", "than": ("one",)}, LOOSE, AGREES),
    ({"better": "two", "than": ("one",), "level": 0.005}, LOOSE, OPEN),
    ({"better": "two", "than": ("one",), "level": 0.005}, SURE, AGREES),
    ({"better": "two", "than": ("one",), "chosen": "by it"}, SURE, CHOSEN),
    ({"row": "two", "sign": "positive", "beyond": 70.5}, SURE, AGREES),
    ({"row": "two", "sign": "positive", "beyond": 71.5}, SURE, DIFFERS),
    ({"row": "two", "sign": "negative", "beyond": 71.5}, SURE, AGREES),
])  # fmt: skip
def test_a_statement_has_a_level_a_number_or_chose_its_rows(stated, gain, word):
    claim = Claim(name="own", text="", column=("column",), **stated)
    other = Claim(name="other", text="", column=("column",), better="two", than=("one",))
    rows = {
        "one": scores(*[70.0] * 4, order="same"),
        "two": scores(*[70.0 + g for g in gain], order="same"),
    }
    item = compact_item((claim, other), {"column": TableColumn(margin=0.3)})
    found = table_verdicts.decide(item, "lab", {"column": rows}).claims
    assert found["own"].word == word
    # What chose the rows is in no family: the other statement is not charged for it.
    alone = stats.ttest_1samp(gain, 0).pvalue
    if word == CHOSEN:
        assert found["own"].p is None
        assert found["other"].p == pytest.approx(alone)


def test_a_tuned_row_is_chosen_by_one_seed_and_shown_by_the_others():
    one, two = scores(70.0, 75.0, 76.0, order="a"), scores(71.0, 72.0, 73.0, order="b")
    found = table_verdicts.tuned([one, two], higher=True)
    assert (found.values, found.seeds, found.order) == ((72.0, 73.0), (1, 2), "b")
    assert table_verdicts.tuned([one, two], higher=False).values == (75.0, 76.0)
    assert table_verdicts.tuned([one, scores(71.0)], higher=True) is None
    assert table_verdicts.tuned([one, scores(71.0, 72.0, seeds=(1, 2))], higher=True) is None


@pytest.mark.parametrize("name", ["simcse:table2", "diffcse:table3"])
def test_rows_that_read_the_next_sentence_are_paired_with_their_like_alone(name, tmp_path):
    """They leave out each sentence that none follows, and so have another order."""
    stored, store, (item,) = ResultStore(STORED), ResultStore(tmp_path), ItemFolder().find([name])
    manifest = stored.manifest(name, "lab")
    store.write("items", manifest_key(name, "lab"), manifest)
    corpus = {"digest": "documents", "documents": True}  # the same for all rows
    for key in {k for row in manifest["rows"] for k in row["measured"]["dev"]["units"].values()}:
        store.write("units", key, stored.read("units", key) | {"corpus": corpus})
    found = ItemResults(item, store, "lab").scores["stsb"]
    reading = {row for row in found if re.search(r"next (3 )?sentence", row, re.IGNORECASE)}
    assert 0 < len(reading) < len(found)
    alike, others = (
        {found[row].order for row in rows} for rows in (reading, found.keys() - reading)
    )
    assert (len(alike), len(others), len(alike | others)) == (1, 1, 2)


def test_rows_on_one_pareto_front_are_counted_by_seed():
    points = {
        0: [(0.1, -3.0), (0.2, -4.0), (0.2, -3.5), (0.05, -1.0)],  # the third is beaten
        1: [(0.1, -3.0), (0.1, -3.0), (0.3, -2.0), (0.2, -2.5)],  # equal rows beat no other
    }
    rows = [[{s: points[s][i][c] for s in points} for c in (0, 1)] for i in range(4)]
    found = table_verdicts.on_one_front(rows, (-1, -1))
    assert (found.values, found.seeds) == ((3.0, 2.0), (0, 1))
    assert table_verdicts.on_one_front(rows, (1, 1)).values != found.values
    rows[0][0] = {7: 0.1}
    assert table_verdicts.on_one_front(rows, (-1, -1)) is None


def effect(mean, error=0.15, df=math.inf):
    return EffectEstimate.from_error(mean, error, df)


def compared(found, kind="better", sign=1.0, margin=None):
    return table_verdicts.RowComparison("column", "after", "before", found, kind, sign, margin)


def compact_item(claims, columns, rows=(), reference=""):
    """An item of such statements and rows."""
    (item,) = ItemFolder().find(["simcse:table3"])
    changes = {"claims": claims, "columns": columns, "rows": rows, "reference": reference}
    return item.model_copy(update=changes)


def word(mean, error=0.15, kind="better", sign=1, margin=None, others=0):
    """The word on two rows whose difference has a known error, among statements of equal rows."""
    columns = {"column": TableColumn(better="higher" if sign > 0 else "lower", margin=margin)}
    given = {"column": ("column",), "than": ("before",), "text": ""}
    claims = [Claim(name="own", **given, **{kind: "after"})]
    claims += [Claim(name=f"{n}", **given, better="alike") for n in range(others)]
    own = {"before": (60.0, 0.0), "after": (60.0 + (mean or 0.0), error), "alike": (60.0, error)}
    own = {
        name: scores(value, seeded=False, draws=(spread, -spread))
        for name, (value, spread) in own.items()
        if name != "after" or mean is not None
    }
    item = compact_item(tuple(claims), columns)
    return table_verdicts.decide(item, "lab", {"column": own}).claims["own"].word


def word_on_value(ours, published, tolerance):
    """The word on a published value at the documents' own scale."""
    (item,) = ItemFolder().find(["simcse:table3"])
    expected = {"column": Expected(value=published, tolerance=tolerance)}
    row = next(row for row in item.rows if row.kind == "train")
    row = row.model_copy(update={"expected": expected})
    item = compact_item((), {"column": TableColumn(name="column")}, (row,))
    found = table_verdicts.decide(item, "paper", {"column": {row.name: ours}})
    return found.cells[row.name, "column"].word


@pytest.mark.parametrize(("mean", "kind", "sign", "expected"), [
    (1.0, "better", 1, AGREES), (1.0, "better", -1, DIFFERS), (0.2, "better", 1, OPEN),
    (0.0, "better", 1, EQUIVALENT), (0.0, "no_worse", 1, AGREES), (1.0, "no_worse", 1, AGREES),
    (1.0, "no_worse", -1, DIFFERS), (-0.35, "no_worse", 1, OPEN), (-1.0, "no_worse", 1, DIFFERS),
    (0.0, "no_better", 1, AGREES), (1.0, "no_better", 1, DIFFERS), (-1.0, "no_better", 1, AGREES),
    (1.0, "no_better", -1, AGREES), (0.0, "equal", 1, AGREES), (0.2, "equal", 1, OPEN),
    (1.0, "equal", 1, DIFFERS), (-1.0, "equal", 1, DIFFERS),
])  # fmt: skip
def test_what_is_said_of_a_difference(mean, kind, sign, expected):
    """With a standard error of 0.15 and a margin of 0.3, so that its half is not quite sure."""
    assert word(mean, 0.15, kind, sign, 0.3) == expected


def test_margins_are_two_one_sided_tests():
    found = effect(0.1, 0.1, 8)
    above, below = stats.t.sf((0.1 + 0.3) / 0.1, 8), stats.t.cdf((0.1 - 0.3) / 0.1, 8)
    tests = compared(found, "equal", margin=0.3).tests()
    assert tests["equivalence"] == (AGREES, pytest.approx(max(above, below)))
    assert tests["difference"] == (DIFFERS, 1.0)
    beyond = compared(effect(-0.5, 0.1, 8), "equal", margin=0.3).tests()["difference"]
    assert beyond == (DIFFERS, pytest.approx(2 * stats.t.sf(2.0, 8)))


def test_more_statements_need_more():
    """2.5 standard errors have a p of 0.0124: significant among four, and not among five."""
    assert word(2.5, 1.0) == word(2.5, 1.0, others=3) == AGREES
    assert (word(2.5, 1.0, others=4), word(None)) == (OPEN, ABSENT)


def statement(*parts):
    return table_verdicts.joined(parts)


def test_the_tests_of_a_statement_are_made_of_those_of_its_parts():
    sure, unsure, wrong = (compared(effect(mean), margin=0.3) for mean in (1.0, 0.2, -1.0))
    p = {one: one.tests()["difference"][1] for one in (sure, unsure, wrong)}
    # It agrees where all parts do, by the largest p; no allowance for their number.
    assert statement(sure, unsure)["difference"] == (AGREES, p[unsure])
    # It differs where one does, by the smallest p times their number.
    assert statement(sure, unsure, wrong)["difference"] == (DIFFERS, 3 * p[wrong])
    # Better, or no difference that matters.
    alike = compared(effect(0.0), margin=0.3)
    want = max(p[sure], stats.norm.sf(2.0))
    assert statement(sure, alike)["equivalence"] == (EQUIVALENT, pytest.approx(want))
    # What was not run leaves only a difference to be found.
    assert statement(wrong, compared(None)) == {"difference": (DIFFERS, p[wrong])}
    assert statement(compared(None)) == {}


@pytest.mark.parametrize(("values", "published", "expected"), [
    ((82.4, 82.5, 82.6), 82.5, AGREES),
    # Off by more than the published run's own noise, by less than the tolerance.
    ((82.90, 82.91, 82.92), 82.5, EQUIVALENT), ((84.9, 85.0, 85.1), 82.5, DIFFERS),
    ((80.1, 80.0, 79.9), 82.5, DIFFERS),
    # Clearly off, but by how much is not clear.
    ((83.3, 83.4, 83.5), 82.5, OPEN),
    # So wide an interval holds everything.
    ((80.0, 82.5, 85.0), 82.5, OPEN), ((82.5,), 82.5, OPEN),
])  # fmt: skip
def test_values_at_scale_paper(values, published, expected):
    assert word_on_value(scores(*values), published, 1.0) == expected


def test_the_published_run_has_noise_too():
    ours = scores(82.0, 82.4, 82.8)
    deviation = statistics.stdev(ours.values)
    single = table_verdicts.from_published(ours, 82.0)
    assert single.error == pytest.approx(deviation * math.sqrt(1 / 3 + 1))
    assert single.df == pytest.approx(2)
    # A value that no seed changes is compared as it is.
    for value, expected in ((61.0, AGREES), (60.0, DIFFERS)):
        assert word_on_value(scores(value, seeded=False), 61.32, 0.5) == expected


def decided(name, means, seeds=3, deviation=0.05, scale="lab"):
    """Verdicts of an item whose trained rows have such means, and seeds that scatter evenly."""
    (item,) = ItemFolder().find([name])
    scatter = deviation * stats.zscore(np.arange(seeds), ddof=1)
    own = {row.name: scores(*(float(means(row.name) + s) for s in scatter)) for row in item.rows}
    return table_verdicts.decide(item, scale, {"stsb": own})


def words(found):
    return {name: own.word for name, own in found.claims.items()}


def test_equality_agrees_with_no_better():
    found = decided("simcse:table3", lambda name: 70.0)
    alike = dict.fromkeys(("dropout-is-needed", "half-is-too-much"), EQUIVALENT)
    assert words(found) == alike | {"a-tenth-is-best": AGREES}
    assert len(found.cells) == 7
    assert found.cells["p = 0.5", "stsb"].word == EQUIVALENT
    found = decided("simcse:table3", lambda name: 70.0 + (name == "p = 0.2"))
    assert words(found)["a-tenth-is-best"] == DIFFERS


def test_a_printed_difference_within_the_margin_counts_as_none():
    """SimCSE prints 82.5 for 0.1; where 82.3 stood for 0.2, equality would agree."""
    (item,) = ItemFolder().find(["simcse:table3"])
    own = {row.name: scores(70.0, 70.05, 69.95) for row in item.rows}
    row = item.row("p = 0.2")
    printed = row.expected["stsb"].model_copy(update={"value": 82.3})
    near = row.model_copy(update={"expected": {"stsb": printed}})
    for one, expected in ((row, EQUIVALENT), (near, AGREES)):
        rows = tuple(one if r is row else r for r in item.rows)
        again = item.model_copy(update={"rows": rows})
        found = table_verdicts.decide(again, "lab", {"stsb": own})
        assert found.cells["p = 0.2", "stsb"].word == expected


def simulated(item, random, means, deviation, seeds, together=0.0):
    """What rows that are trained gave, in columns that are half alike.

    Args:
        means: what each row differs by from 70 points.
        deviation: how far a seed moves each row by itself.
        together: how far a seed moves all rows alike, as one order of sentences does.
    """
    found = {column: {} for column in item.columns}
    common = random.normal(size=(len(found), seeds))
    for row, apart in means.items():
        shared = random.normal(size=seeds)
        for column, own in enumerate(found.values()):
            noise = np.sqrt(0.5) * (shared + random.normal(size=seeds))
            values = 70 + apart + deviation * (noise if len(found) > 1 else shared)
            values += together * common[column]
            own[row] = scores(*map(float, values), order=0 if together else None)
    return found


def truth(one, apart):
    """The words that a true difference allows; on the edge of the margin none but its own."""
    margin, way, hair = one.margin or 0.0, apart * one.favor, 1e-9
    if one.kind == "equal":
        inside, outside = abs(apart) < margin - hair, abs(apart) > margin + hair
        return {word for word, holds in ((AGREES, inside), (DIFFERS, outside)) if holds}
    edge = 0.0 if one.kind == "better" else -margin
    allowed = {AGREES} if way > edge + hair else {DIFFERS} if way < edge - hair else set()
    if one.kind == "better" and abs(apart) < margin - hair:
        allowed.add(EQUIVALENT)
    return allowed


def is_wrong(verdict, means):
    """Whether a verdict contradicts the true differences of its parts."""
    if verdict.word in (OPEN, ABSENT):
        return False
    parts = [one for one in verdict.parts if one.effect is not None]
    known = [truth(one, means[one.after] - means[one.before]) for one in parts]
    if verdict.word == DIFFERS:
        return not any(DIFFERS in words for words in known)
    allowed = {AGREES, EQUIVALENT} if verdict.word == EQUIVALENT else {AGREES}
    return not all(words & allowed for words in known)


@pytest.mark.parametrize(
    ("apart", "deviation", "seeds", "together"), [(0.0, 0.1, 8, 0.6), (MARGIN, 0.05, 3, 0.0)]
)
def test_wrong_verdicts_in_simulated_tables(apart, deviation, seeds, together):
    """All rows but the first differ from it by so much; 5 % and twice its own error."""
    (item,) = ItemFolder().find(["simcse:table3"])
    trained = [row.name for row in item.rows if row.kind == "train"]
    means = {name: apart * (place > 0) for place, name in enumerate(trained)}
    random, wrong, decided, asked = np.random.default_rng(3), np.zeros(2), 0, 0
    for _ in range(100):
        found = table_verdicts.decide(
            item, "lab", simulated(item, random, means, deviation, seeds, together)
        )
        claims = [
            verdict
            for verdict in found.claims.values()
            if verdict.p is not None
            and all({part.before, part.after} <= means.keys() for part in verdict.parts)
        ]
        wrong += [
            any(is_wrong(verdict, means) for verdict in some)
            for some in (claims, found.cells.values())
        ]
        decided += sum(verdict.word != OPEN for verdict in claims)
        asked += len(claims)
    assert wrong.max() / 100 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 100)
    assert decided > 0.3 * asked


def test_a_wrong_verdict_is_counted():
    means = {"after": 0.0, "before": 0.0}
    for kind, said, bad in (
        ("better", AGREES, True), ("better", DIFFERS, True), ("better", EQUIVALENT, False),
        ("no_worse", AGREES, False), ("no_worse", DIFFERS, True), ("equal", AGREES, False),
        ("equal", DIFFERS, True), ("better", OPEN, False),
    ):  # fmt: skip
        one = compared(effect(1.0), kind, margin=0.3)
        assert is_wrong(Verdict(said, parts=(one,)), means) is bad
