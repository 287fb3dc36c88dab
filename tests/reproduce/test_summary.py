"""The summary of a report: every statement once, under its verdict, with what it hangs on."""

import copy
import csv
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks import bases

from contrasent.reproduce import summary
from contrasent.reproduce.console import cells_csv
from contrasent.reproduce.results import stored_book
from contrasent.reproduce.table_verdicts import ABSENT, AGREES, DIFFERS, OPEN

STORED = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def larger():
    """The results of the second base, of more statements."""
    return stored_book(STORED / "small-bert" / "results")


@pytest.fixture(scope="module")
def found():
    made = stored_book(STORED / "results")
    assert made["items"]
    return made


def test_the_page_of_the_second_base_is_made_from_its_results(found, larger):
    home, made = STORED / "small-bert", larger
    assert len(made["items"]) > len(found["items"])
    files = {item["paper"]: f"holds-{item['name'].split(':')[0]}.svg" for item in made["items"]}
    assert summary.summary(made, files) == (home / "holds.md").read_text("utf-8")
    assert bases.page(found, made) == (home / "bases.md").read_text("utf-8")
    assert sorted(p.name for p in home.glob("holds-*.svg")) == sorted(set(files.values()))


def test_what_is_stored_names_no_folder_of_a_machine():
    stored = sorted(STORED.rglob("*.json"))
    assert len(stored) > 1000
    of_machines = re.compile(r"(?<![\w.:/])/(?:home|work|tmp|root|mnt|Users)/")
    assert [path for path in stored if of_machines.search(path.read_text("utf-8"))] == []


def drawn_texts(picture):
    """The texts of a picture, words a space apart."""
    nodes = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return [" ".join("".join(node.itertext()).split()) for node in nodes]


def test_every_statement_stands_once_under_its_verdict(found):
    written = summary.summary(found, {"": "holds.svg"})
    assert written == (STORED / "holds.md").read_text("utf-8")
    said = Counter(c["verdict"]["word"] for item in found["items"] for c in item["claims"])
    parts = re.split(r"^## (.+?)(?: \(\d+\))?$", written, flags=re.M)[1:]
    under = {k: v.split("\n- ")[1:] for k, v in zip(parts[::2], parts[1::2], strict=True)}
    for word, (heading, _) in summary.HEADINGS.items():
        assert len(under.get(heading, ())) == said[word]
    for item in found["items"]:
        for claim in item["claims"]:
            own = under[summary.HEADINGS[claim["verdict"]["word"]][0]]
            source = f"{claim['text']} ({item['source']}"
            assert sum(line.startswith(source) for line in own) == 1, source
    for word, (_, short) in summary.HEADINGS.items():
        assert not said[word] or re.search(rf"\b{said[word]}\s+{short}", written), word
    reasons = re.findall(r"^Needs (.+):$", written, re.M)
    assert len(reasons) == len(set(reasons)) > 1
    assert "--checkpoint bert-large-uncased=FOLDER" in reasons


def test_no_name_in_a_csv_is_a_formula(found):
    made = copy.deepcopy(found)
    row = next(row for item in made["items"] for row in item["rows"] if row["cells"])
    row["name"] = "=cmd|'/c calc'!A0"
    made["items"][0]["name"] = "+item"
    cells = list(csv.DictReader(cells_csv(made).splitlines()))
    assert "'=cmd|'/c calc'!A0" in {cell["row"] for cell in cells}
    texts = {cell[key] for cell in cells for key in ("item", "row", "column")}
    assert not [text for text in texts if text[0] in "=+-@"]


def test_effects_are_counted_in_favour_of_the_statement(found):
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


def test_what_a_verdict_hangs_on(found):
    one = next(s for s in summary.statements(found) if s.claim["name"] == "dropout-beats-rewriting")
    assert one.word == one.part["word"] == DIFFERS
    assert one.claim["verdict"]["why"].endswith("cannot tell")
    one = next(s for s in summary.statements(found) if s.claim["name"] == "more-crop-is-worse")
    assert (one.part["word"], len(one.effects)) == (OPEN, 2)


def test_the_picture_has_a_line_for_each_statement_that_was_run(found):
    (drawn,) = summary.forests(found).values()
    texts = drawn_texts(drawn)
    run = [one for one in summary.statements(found) if one.effects]
    assert run
    for one in run:
        start = f"{one.item['name']} {one.claim['text']}"[:59].rstrip(" .")
        assert any(text.startswith(start) for text in texts), start
    assert {"": drawn} == summary.forests(found)
    assert {"agrees", "differs", "cannot tell"} <= set(texts)
    nothing = copy.deepcopy(found)
    for item in nothing["items"]:
        for claim in item["claims"]:
            for part in claim["parts"]:
                part.pop("effect", None)
    assert summary.forests(nothing) == {}


def test_many_statements_have_a_picture_for_each_document(larger, tmp_path):
    first, *pictures = summary.write(tmp_path / "first.md", larger, "")
    run = [one for one in summary.statements(larger) if one.effects]
    papers = {one.item["paper"]: one.item["name"].partition(":")[0] for one in run}
    assert sorted(p.name for p in pictures) == sorted(f"first-{own}.svg" for own in papers.values())
    written = first.read_text("utf-8")
    lines = [line for line in written.splitlines() if line.startswith("|")]
    words, _, *table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    said = Counter((i["paper"], c["verdict"]["word"]) for i in larger["items"] for c in i["claims"])
    titles = {paper[:1].upper() + paper[1:]: paper for paper, _ in said}
    assert {paper for paper, *_ in table} == titles.keys()
    for title, *counts in table:
        assert list(map(int, counts)) == [said[titles[title], word] for word in words[1:]]
    for picture in pictures:
        assert f"({picture.name})" in written
        texts, own = drawn_texts(picture.read_text("utf-8")), picture.stem.removeprefix("first-")
        starts = [t for t in texts if t.startswith(f"{own}:")]
        assert len(starts) == sum(papers[one.item["paper"]] == own for one in run)
