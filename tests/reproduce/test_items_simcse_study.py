"""The recipes of SimCSE and of the study: every table and figure, every number that is printed.

The counts below were made on the papers, not on the files.
"""

import re

import pytest

from contrasent.reproduce.reading import ItemFolder

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")

PRINTED = {
    "simcse:table1": 1 + 3 + 3 + 4,
    "simcse:table2": 4 * 2,
    "simcse:table3": 8,
    "simcse:table4": 7 + 10 + 1,  # both columns, and the two encoders that the text alone gives
    "simcse:table5": (12 + 11) * 8,
    "simcse:table6": 4 * 2,
    "simcse:table7": 5,
    "simcse:table8": 0,
    "simcse:a1": 6 * 2,
    "simcse:b1": 0,
    "simcse:b2": 9 * 8,
    "simcse:b3": 12 * 8,
    "simcse:c1": 8 * 8,
    "simcse:d1": 6,
    "simcse:d2": 4 * 2,
    "simcse:e1": (11 + 10) * 8,
    "simcse:figure2": 0,
    "simcse:figure3": 8,  # colours of points, as Table 5 prints them
    "simcse:f1": 0,
    "simcse:g1": 0,
    "study:table4": 10 * 2,
    "study:table5": 7 * 2,
    "study:table6": 4 * 8,
    "study:table7": 3 * 8 + 3 * 8,  # what is subtracted, and the differences
    "study:figure1": 0,
    "study:claims": 0,
}
"""Published values of each item."""


@pytest.fixture(scope="module")
def recipes():
    return {item.name: item for item in ItemFolder().find(["simcse", "study"])}


def test_every_table_and_figure_is_there(recipes):
    assert set(recipes) == set(PRINTED)
    assert len(PRINTED) == 26


@pytest.mark.parametrize("name", PRINTED)
def test_every_printed_number_is_there(recipes, name):
    assert sum(len(row.expected) for row in recipes[name].rows) == PRINTED[name]


def test_how_many_numbers_there_are(recipes):
    found = sum(len(row.expected) for recipe in recipes.values() for row in recipe.rows)
    assert found == sum(PRINTED.values()) == 790


def test_averages_are_those_of_their_rows(recipes):
    """A digit that is wrong in a row of seven shows in its average."""
    checked, departing = 0, []
    for recipe in recipes.values():
        for row in recipe.rows:
            for tasks, end in ((STS, ""), (STS, "_w"), (TRANSFER, "")):
                values = [row.expected.get(task + end) for task in tasks]
                if None in values:
                    continue
                checked += 1
                mean = sum(v.value for v in values) / len(values)
                if abs(mean - row.expected[f"avg{end}"].value) > 0.0101:
                    departing.append(f"{recipe.name} {row.name}: {mean:.2f}")
    assert checked == 23 + 9 + 12 + 8 + 21 + 4 + 6
    # So printed: Reimers and Gurevych's averages are not always those of their rows.
    assert departing == [
        "simcse:table5 SBERT base: 74.86",
        "simcse:b2 SBERT, published: 74.86",
        "simcse:e1 Avg. BERT embeddings: 84.95",
    ]


def test_rows_that_are_quoted_say_from_where(recipes):
    quotes = [
        (recipe.name, row)
        for recipe in recipes.values()
        for row in recipe.rows
        if row.kind == "quote"
    ]
    # Table 5: IS-BERT, InferSent, USE; E.1: these and Skip-thought; B.2: three; A.1: six; the
    # study's Table 7: three.
    assert len(quotes) == 3 + 4 + 3 + 6 + 3
    for _, row in quotes:
        assert re.search(r"\(20\d\d\)|Pandey and Sholokhov", row.source)
        assert row.expected


def test_protocols_are_told_of_ten_papers(recipes):
    rows = recipes["simcse:b1"].rows
    assert len(rows) == 10
    assert all(set(row.facts) == {"regressor", "metric", "aggregate"} for row in rows)
    regressors = [row.name for row in rows if row.facts["regressor"] == "yes"]
    assert regressors == ["Conneau et al. (2017)", "Conneau and Kiela (2018)"]
    joined = [row.facts["aggregate"] for row in rows]
    assert [joined.count(a) for a in ("all", "mean", "wmean")] == [4, 4, 2]


def test_the_study_has_five_claims_that_rest_on_measurements(recipes):
    claims = recipes["study:claims"].claims
    assert len(claims) == 5
    measured = {f"{r.name}#{c.name}": c for r in recipes.values() for c in r.claims if c.columns}
    for claim in claims:
        assert claim.rests_on
        assert set(claim.rests_on) <= set(measured)


def test_an_item_that_compares_has_claims(recipes):
    without = {name for name, recipe in recipes.items() if not recipe.claims}
    # A listing, a list of protocols, and differences that are only printed.
    assert without == {"simcse:table8", "simcse:b1", "study:table7"}


def test_what_the_first_paper_printed_stands_beside_the_study(recipes):
    for name, count in (("table4", 10), ("table5", 7), ("table6", 3 * 8), ("table7", 3 * 8)):
        recipe = recipes[f"study:{name}"]
        assert recipe.also_source
        assert sum(len(row.also) for row in recipe.rows) == count


def test_figures_are_drawn(recipes):
    drawn = {name: r.figure for name, r in recipes.items() if r.kind == "figure"}
    assert drawn == {
        "simcse:figure2": "trace",
        "simcse:figure3": "plane",
        "simcse:f1": "spectrum",
        "simcse:g1": "densities",
        "study:figure1": "trace",
    }
