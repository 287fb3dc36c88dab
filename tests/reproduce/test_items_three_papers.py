"""The items of ESimCSE, DiffCSE and SimCSE++: each item is there, with as many values as printed.

The numbers of cells were counted in the documents, not in the items.
"""

import pytest

from contrasent.reproduce.items import Item, TableRow, resolve_row
from contrasent.reproduce.reading import ItemFolder
from contrasent.reproduce.tables import BASE

SEVEN_AND_AVERAGE = 8

PRINTED = {
    "esimcse:table1": 2 + 1,  # two groups and their difference
    "esimcse:table2": 5,
    "esimcse:table3": 18 * SEVEN_AND_AVERAGE,
    "esimcse:table4": 4,
    "esimcse:table5": 5,
    "esimcse:table6": 8,
    "esimcse:table7": 4 * SEVEN_AND_AVERAGE + 2,  # two gaps are printed in section 5.4
    "esimcse:table8": 2 * 3,
    "esimcse:table9": 8,
    "esimcse:table10": 5,
    "esimcse:table11": 2 * SEVEN_AND_AVERAGE,
    # Of DiffCSE's tables the released text has what its prose repeats.
    "diffcse:table1": 4,
    "diffcse:table2": 4,
    **{f"diffcse:table{i}": 0 for i in range(3, 11)},
    "diffcse:table11": 3 * 2,
    **{f"diffcse:table{i}": 0 for i in range(12, 16)},
    "diffcse:figure2": 0,
    "simcse_plus_plus:table1": 5 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table2": 5 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table3": 21 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table4": 12 * SEVEN_AND_AVERAGE,
    "simcse_plus_plus:table5": 3 * 6,
    "simcse_plus_plus:table6": 2,
    "simcse_plus_plus:table7": 0,
    "simcse_plus_plus:figure1": 0,
}
"""Values that each item's own document prints."""

ELSEWHERE = {
    # Eight baselines; three rows without their average, which DiffCSE prints.
    "diffcse:table1": 8 * SEVEN_AND_AVERAGE + 3 * 7,
    "diffcse:table2": 2 * SEVEN_AND_AVERAGE,
}
"""Values of other documents, each with its source."""

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

ITEMS = {r.name: r for r in ItemFolder().find(["esimcse", "diffcse", "simcse_plus_plus"])}


def cells(item: Item) -> tuple[int, int]:
    """Values of the item's own document, and of others; a quotation in it is its own."""
    author = item.source.split(" et al.")[0]
    sources = [
        row.source if row.kind == "quote" else cell.source
        for row in item.rows
        for cell in row.expected.values()
    ]
    own = [s for s in sources if s.startswith(author) or f"quoted by {author}" in s]
    inside = [s for s in sources if f"quoted in {author}" in s]
    return len(own) + len(inside), len(sources) - len(own) - len(inside)


def test_every_item_is_there():
    assert len(PRINTED) == 11 + 16 + 8
    assert set(ITEMS) == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_the_values_are_all_there_and_no_others(name):
    assert cells(ITEMS[name]) == (PRINTED[name], ELSEWHERE.get(name, 0))


@pytest.mark.parametrize(("item", "row", "column", "value"), AVERAGES)
def test_values_that_the_documents_print(item, row, column, value):
    assert ITEMS[item].row(row).expected[column].value == value


def test_a_quotation_says_where_it_is_from():
    quotes = [(r, row) for r in ITEMS.values() for row in r.rows if row.kind == "quote"]
    assert len(quotes) == 10 + 8 + 11 + 1
    for _, row in quotes:
        assert "(20" in row.source
        assert row.expected


@pytest.mark.parametrize("scale", ["lab", "paper"])
def test_plain_simcse_is_one_run_for_all_items(scale):
    found = [(item, row) for item in ITEMS.values() for row in item.rows if plain(row)]
    assert len(found) == 7 + 8 + 9
    runs = [resolve_row(item, row, ItemFolder().scales[scale]) for item, row in found]
    assert all(run == runs[0] for run in runs)
    assert runs[0].given == {}


def plain(row: TableRow) -> bool:
    """Whether a row trains SimCSE as it is, on the scale's own base."""
    own = any(row.settings.get(scale) for scale in ("lab", "paper"))
    return row.objective == "simcse" and row.base == BASE and row.corpus == "wiki" and not own


def test_a_dozen_claims_of_each_paper_name_rows():
    for paper in ("esimcse", "diffcse", "simcse_plus_plus"):
        claims = [c for n, item in ITEMS.items() if n.startswith(f"{paper}:") for c in item.claims]
        assert len(claims) >= 12
        assert all(claim.subject or claim.row for claim in claims)
