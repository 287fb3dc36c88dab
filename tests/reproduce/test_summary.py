"""The summary of a report: every statement once, under its verdict, with what it hangs on."""

import copy
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks import bases

from contrasent.reproduce import summary
from contrasent.reproduce.results import stored_book
from contrasent.reproduce.table_verdicts import ABSENT, AGREES, DIFFERS, OPEN

STORED = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def found():
    made = stored_book(STORED / "results")
    assert len(made["items"]) == 12
    return made


def test_the_page_of_the_second_base_is_made_from_its_results(found):
    home = STORED / "small-bert"
    made = stored_book(home / "results")
    assert len(made["items"]) == 64
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
    assert sum(said.values()) == 47
    parts = re.split(r"^## (.+?)(?: \(\d+\))?$", written, flags=re.M)[1:]
    under = {k: v.split("\n- ")[1:] for k, v in zip(parts[::2], parts[1::2], strict=True)}
    for word, (heading, _) in summary.HEADINGS.items():
        assert len(under.get(heading, ())) == said[word]
    for item in found["items"]:
        for claim in item["claims"]:
            own = under[summary.HEADINGS[claim["verdict"]["word"]][0]]
            source = f"{claim['text']} ({item['source']}"
            assert sum(line.startswith(source) for line in own) == 1, source
    assert "11 hold, 3 do not, 1 with no difference that matters, 25 cannot be told, 7" in written
    reasons = re.findall(r"^Needs (.+):$", written, re.M)
    assert len(reasons) == len(set(reasons)) == 6
    assert "--checkpoint bert-large-uncased=FOLDER" in reasons


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
    assert seen[AGREES] >= 25
    assert seen[DIFFERS] >= 3


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
    assert len(run) == 40
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


def test_many_statements_have_a_picture_for_each_document(found, tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "MANY", 39)  # one less than were run
    first, *pictures = summary.write(tmp_path / "first.md", found, "")
    names = ("simcse", "esimcse", "simcse_plus_plus")
    assert [p.name for p in pictures] == [f"first-{paper}.svg" for paper in names]
    written = first.read_text("utf-8")
    lines = [line for line in written.splitlines() if line.startswith("|")]
    words, _, *table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    said = Counter((i["paper"], c["verdict"]["word"]) for i in found["items"] for c in i["claims"])
    assert len(table) == 3
    for paper, *counts in table:
        assert list(map(int, counts)) == [said[paper, word] for word in words[1:]]
    assert all(f"({picture.name})" in written for picture in pictures)
    papers = ("simcse:", *names[1:])
    texts = [drawn_texts(picture.read_text("utf-8")) for picture in pictures]
    assert sum(t.startswith(p) for p, own in zip(papers, texts, strict=True) for t in own) == 40
