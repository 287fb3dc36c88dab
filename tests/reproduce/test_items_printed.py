"""The items of the papers: every table and figure, every number that is printed.

The counts below were made on the papers, not on the files.
"""

import re

import pytest

from contrasent.reproduce.tables import BASE, Item, ItemFolder, Row, resolve_row

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
SEVEN_AND_AVERAGE = 8
PAPERS = ("simcse", "study", "esimcse", "diffcse", "simcse_plus_plus")

PRINTED = {
    "simcse:table1": 1 + 3 + 3 + 4, "simcse:table2": 4 * 2, "simcse:table3": 8,
    "simcse:table4": 7 + 10 + 1,  # both columns, and the two encoders that the text alone gives
    "simcse:table5": (12 + 11) * 8, "simcse:table6": 4 * 2, "simcse:table7": 5, "simcse:table8": 0,
    "simcse:a1": 6 * 2, "simcse:b1": 0, "simcse:b2": 9 * 8, "simcse:b3": 12 * 8, "simcse:c1": 8 * 8,
    "simcse:d1": 6, "simcse:d2": 4 * 2, "simcse:e1": (11 + 10) * 8, "simcse:figure2": 0,
    "simcse:figure3": 8,  # colors of points, as Table 5 prints them
    "simcse:f1": 0, "simcse:g1": 0, "simcse:spectrum": 0, "simcse:a1_supervised": 0,
    "simcse:together": 1, "simcse:layers": 1,  # a value of another table to compare with
    "simcse:contradictions": 0, "simcse:checkpoint": 0, "diffcse:losses": 0,  # said without numbers
    "simcse_plus_plus:passes": 0, "simcse_plus_plus:significance": 0,
    "simcse:overlap": 3 + 2,  # as published, and what ours should be
    "study:table1": 0, "study:table2": 0, "study:table3": 0, "study:table4": 10 * 2,
    "study:table5": 7 * 2,
    "study:table6": 4 * 8, "study:table7": 3 * 8 + 3 * 8,  # what is subtracted, and the differences
    "study:figure1": 1,  # the models on one front
    "esimcse:table1": 2 + 1,  # two groups and their difference
    "esimcse:table2": 5, "esimcse:table3": 18 * SEVEN_AND_AVERAGE, "esimcse:table4": 4,
    "esimcse:table5": 5, "esimcse:table6": 8,
    "esimcse:table7": 4 * SEVEN_AND_AVERAGE + 2,  # two gaps are printed in section 5.4
    "esimcse:table8": 2 * 3, "esimcse:table9": 8, "esimcse:table10": 5,
    "esimcse:table11": 2 * SEVEN_AND_AVERAGE,
    # Of DiffCSE's tables the released text has what its prose repeats.
    "diffcse:table1": 4, "diffcse:table2": 4, **{f"diffcse:table{i}": 0 for i in range(3, 11)},
    "diffcse:table11": 3 * 2, **{f"diffcse:table{i}": 0 for i in range(12, 16)},
    "diffcse:figure2": 0, "simcse_plus_plus:table1": 5 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table2": 5 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table3": 21 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table4": 12 * SEVEN_AND_AVERAGE, "simcse_plus_plus:table5": 3 * 6,
    "simcse_plus_plus:table6": 2, "simcse_plus_plus:table7": 0, "simcse_plus_plus:figure1": 0,
    "simcse_plus_plus:rank": 1, "simcse_plus_plus:optimum": 2,  # statements in prose
}  # fmt: skip
"""Published values of each item, by its own document."""

ELSEWHERE = {
    # Eight baselines; three rows without their average, which DiffCSE prints; and DiffCSE anew.
    "diffcse:table1": 8 * SEVEN_AND_AVERAGE + 3 * 7 + SEVEN_AND_AVERAGE,
    "diffcse:table2": 2 * SEVEN_AND_AVERAGE + 1 + SEVEN_AND_AVERAGE,
    # What the study repeats, in the other document's numbers.
    "study:table4": 10, "study:table5": 7, "study:table6": 3 * 8, "study:table7": 3 * 8,
}  # fmt: skip
"""Values of other documents, each with its source."""

ITEMS = {item.name: item for item in ItemFolder().find(list(PAPERS))}
STUDIED = {name: item for name, item in ITEMS.items() if name.split(":")[0] in PAPERS[:2]}
OTHERS = {name: item for name, item in ITEMS.items() if name not in STUDIED}


def cells(item: Item) -> tuple[int, int]:
    """Values of the item's own document, and of others; a quotation in it is its own."""
    author = item.source.split(" et al.")[0]
    cells = [(row, cell) for row in item.rows for cell in row.expected.values()]
    sources = [row.source if row.kind == "quote" else cell.source for row, cell in cells]
    own = [s for s in sources if s.startswith(author) or f"quoted by {author}" in s]
    inside = [s for s in sources if f"quoted in {author}" in s]
    return len(own) + len(inside), len(sources) - len(own) - len(inside)


def test_every_item_is_there_and_those_that_compare_have_claims():
    assert (len(PRINTED), set(ITEMS)) == (26 + 5 + 11 + 16 + 8 + 2 + 7, set(PRINTED))
    without = {name for name, item in STUDIED.items() if not item.claims}
    # A listing, a list of protocols, differences that are only printed, counts and facts.
    facts = {"simcse:overlap", *(f"study:table{i}" for i in (1, 2, 3))}
    assert without == {"simcse:table8", "simcse:b1", "study:table7", *facts}


@pytest.mark.parametrize("name", PRINTED)
def test_the_values_are_all_there_and_no_others(name):
    found = sum(len(row.expected) for row in ITEMS[name].rows)
    assert found == PRINTED[name] + ELSEWHERE.get(name, 0)
    if name in OTHERS:
        assert cells(ITEMS[name]) == (PRINTED[name], ELSEWHERE.get(name, 0))


# Table 5: IS-BERT, InferSent, USE; E.1: these and Skip-thought; B.2: three; A.1: six; the study's
# Table 7: three; lexical overlap: one; rows that give another document's values: 23 and three.
@pytest.mark.parametrize(
    ("items", "count"), [(STUDIED, 3 + 4 + 3 + 6 + 3 + 1 + 23), (OTHERS, 10 + 8 + 11 + 1 + 3)]
)
def test_rows_that_are_quoted_say_from_where(items, count):
    quotes = [row for item in items.values() for row in item.rows if row.kind == "quote"]
    assert len(quotes) == count
    for row in quotes:
        assert re.search(r"\(20\d\d|Pandey and Sholokhov", row.source)
        assert row.expected


def test_averages_are_those_of_their_rows():
    """A digit that is wrong in a row of seven shows in its average."""
    checked, departing = 0, []
    for item in ITEMS.values():
        for row in item.rows:
            for tasks, end in ((STS, ""), (STS, "_w"), (TRANSFER, "")):
                values = [row.expected.get(task + end) for task in tasks]
                if None in values:
                    continue
                checked += 1
                mean = sum(v.value for v in values) / len(values)
                if abs(mean - row.expected[f"avg{end}"].value) > 0.0101:
                    departing.append(f"{item.name} {row.name}: {mean:.2f}")
    assert checked == 167
    # So printed: Reimers and Gurevych's averages are not always those of their rows.
    assert departing == [
        "simcse:table5 SBERT base: 74.86", "simcse:b2 SBERT, published: 74.86",
        "simcse:e1 Avg. BERT embeddings: 84.95", "esimcse:table3 Mirror-BERT-base: 75.41",
        "esimcse:table3 Mirror-RoBERTa-base: 76.39", "simcse_plus_plus:table3 SBERT-base: 74.86",
    ]  # fmt: skip


AVERAGES = [
    ("esimcse:table3", "ESimCSE-BERT-base", "avg", 78.27),
    ("esimcse:table3", "ESimCSE-RoBERTa-large", "avg", 79.45),
    ("esimcse:table7", "ESimCSE", "avg_near", 22.38),
    ("esimcse:table9", "dup_rate = 0.32", "stsb", 84.85),
    ("esimcse:table10", "queue of 192", "stsb", 82.66),
    ("esimcse:table11", "ESimCSE", "avg", 86.06),
    ("diffcse:table1", "DiffCSE-BERT-base", "avg", 78.49),
    ("diffcse:table2", "DiffCSE-RoBERTa-base", "avg", 87.04),
    ("diffcse:table11", "DiffCSE-BERT-base", "alignment", 0.097),
    ("simcse_plus_plus:table1", "Positives, - noise", "avg", 65.55),
    ("simcse_plus_plus:table2", "+ 300 artificial rows", "avg", 73.56),
    ("simcse_plus_plus:table3", "SimCSE++-BERT-base", "avg", 78.05),
    ("simcse_plus_plus:table4", "DiffCSE + SimCSE++", "avg", 78.69),
    ("simcse_plus_plus:table5", "m = 0.5", "stsb", 68.55),
    ("simcse_plus_plus:table6", "SimCSE++-BERT-base", "minutes", 119),
]


@pytest.mark.parametrize(("item", "row", "column", "value"), AVERAGES)
def test_values_that_the_documents_print(item, row, column, value):
    assert ITEMS[item].row(row).expected[column].value == value


def test_protocols_are_told_of_ten_papers():
    rows = ITEMS["simcse:b1"].rows
    assert len(rows) == 10
    assert all(set(row.facts) == {"regressor", "metric", "aggregate"} for row in rows)
    regressors = [row.name for row in rows if row.facts["regressor"] == "yes"]
    assert regressors == ["Conneau et al. (2017)", "Conneau and Kiela (2018)"]
    joined = [row.facts["aggregate"] for row in rows]
    assert [joined.count(a) for a in ("all", "mean", "wmean")] == [4, 4, 2]


@pytest.mark.parametrize("scale", ["lab", "paper"])
def test_plain_simcse_is_one_run_for_all_items(scale):
    short = [item for name, item in OTHERS.items() if name != "simcse_plus_plus:optimum"]
    found = [(item, row) for item in short for row in item.rows if plain(row)]
    assert len(found) == 7 + 8 + 12
    runs = [resolve_row(row, ItemFolder().scales[scale]) for _, row in found]
    assert all(run == runs[0] for run in runs)
    assert runs[0].given == {}


def plain(row: Row) -> bool:
    """Whether a row trains SimCSE as it is, on the scale's own base."""
    own = any(row.at(scale).set for scale in ("lab", "paper"))
    return row.objective == "simcse" and row.base == BASE and row.corpus == "wiki" and not own
