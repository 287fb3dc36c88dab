"""Reports of stored results: their pages, and what they say of each statement."""

import copy
import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from contrasent.reproduce.console import cells_csv, latex, markdown
from contrasent.reproduce.results import stored_book
from contrasent.reproduce.table_verdicts import ABSENT, AGREES, DIFFERS, OPEN

STORED = Path(__file__).parents[2] / "research" / "reproduction"


@pytest.fixture(scope="module")
def larger():
    """The results of the second base, of more statements."""
    return stored_book(STORED / "small-bert" / "results")


@pytest.fixture(scope="module")
def found():
    made = stored_book(STORED / "results")
    assert made["items"]
    return made


@pytest.mark.slow
def test_the_pages_of_both_bases_are_made_from_their_results(found, larger):
    home = STORED / "small-bert"
    assert len(larger["items"]) > len(found["items"])
    assert markdown(found) == (STORED / "tables.md").read_text("utf-8")
    assert markdown(larger) == (home / "tables.md").read_text("utf-8")


def test_what_is_stored_names_no_folder_of_a_machine():
    stored = sorted(STORED.rglob("*.json"))
    assert len(stored) > 1000
    of_machines = re.compile(rb"/(?<![\w.:/]/)(?:home|work|tmp|root|mnt|Users)/")
    assert [path for path in stored if of_machines.search(path.read_bytes())] == []


def test_no_name_in_a_csv_is_a_formula(found):
    made = copy.deepcopy(found)
    row = next(row for item in made["items"] for row in item["rows"] if row["cells"])
    row["name"] = "=cmd|'/c calc'!A0"
    made["items"][0]["name"] = "+item"
    cells = list(csv.DictReader(cells_csv(made).splitlines()))
    assert "'=cmd|'/c calc'!A0" in {cell["row"] for cell in cells}
    texts = {cell[key] for cell in cells for key in ("item", "row", "column")}
    assert not [text for text in texts if text[0] in "=+-@"]


def test_a_caption_for_latex_says_what_was_computed(found):
    tables = latex(found).split(r"\caption{")[1:]
    assert len(tables) == len(found["items"])
    for item, table in zip(found["items"], tables, strict=True):
        caption = table.partition("\n")[0]
        assert item["source"] in caption and f"Scale lab, base {item['base']}; " in caption
        assert r"Mean $\pm$ standard deviation over seeds (published)." in caption


def test_effects_are_counted_in_favor_of_the_statement(found):
    """An effect to the right of what it must exceed, with its interval, where a statement holds."""
    seen = Counter()
    for item in found["items"]:
        for claim in item["claims"]:
            for part in claim["parts"]:
                if "effect" not in part:
                    assert part["word"] == ABSENT
                    continue
                effect = part["effect"]
                seen[part["word"]] += 1
                # The numbers are those of the text, perhaps turned.
                first = float(re.match(r"[+-]?[\d.]+", part["why"]).group())
                assert abs(first) == pytest.approx(abs(effect["ours"]), abs=0.006)
                if part["word"] == AGREES:
                    assert effect["low"] > effect["beyond"]
                if part["word"] == DIFFERS:
                    assert effect["high"] < effect["beyond"]
                if effect["low"] is not None:
                    assert effect["low"] <= effect["ours"] <= effect["high"]
    assert seen[AGREES] and seen[DIFFERS] and seen[OPEN]


def test_a_statement_of_one_part_is_shown_with_its_adjusted_p(found):
    raised = 0
    for claim in (claim for item in found["items"] for claim in item["claims"]):
        p, parts = claim["verdict"]["p"], claim["parts"]
        if len(parts) == 1 and p is not None:
            below, shown = re.search(r"p (< )?([\d.]+)$", parts[0]["why"]).groups()
            limits = (0.0, 0.001) if below else (float(shown) - 0.0051, float(shown) + 0.0051)
            assert limits[0] <= p <= limits[1]
            raised += p > parts[0]["p"] + 0.0102  # the other p would not pass
    assert raised > 2
