"""The page holds every number, fetches nothing, and is well-formed for one model and for many."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from contrasent import pictures
from contrasent.datasets.official import STS_TASKS
from contrasent.evaluate.page import page, titles
from contrasent.report import Report, Row

pytest.importorskip("matplotlib")

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "path", "use"}


def report(seed):
    random = np.random.default_rng(seed)
    rows = [
        Row(task, "test", "spearman", "all", v, 1379, v - 0.02, v + 0.02)
        for task, v in zip((*STS_TASKS, "STS7"), random.uniform(0.5, 0.9, 8), strict=True)
    ]
    rows += [
        Row("MR", "test", "accuracy", "", 0.7654, 10662, 0.75, 0.78),
        Row("STSB", "all", "alignment", "", 0.21 + seed / 100, 1491),
        Row("STSB", "all", "uniformity", "", -2.5 - seed / 10, 17256),
        Row("STSB-retrieval", "test", "recall@1", "", 0.8, 194),
        Row("STSB", "test", "error_near", "", 8.395, 1101),
        Row("repetition", "test", "repetition_gain", "", 0.68, 100),
    ]
    bands = {f"{i}-{i + 1}": random.integers(0, 50, 40).tolist() for i in range(5)}
    notes = {
        "sts": {"form": "senteval"},
        "geometry": {"singular_values": [1.0, 0.5, 0.0], "cosine_by_rating": bands},
        "listing": [["a dog <runs>", [(0.9, "a dog & a cat"), (0.8, "dogs")]]],
    }
    return Report(tuple(rows), notes)


class Balance(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_page_is_whole_for_any_number_of_models(count):
    reports = {f"model-{i}": report(i) for i in range(count)}
    text = page(reports)
    assert Balance(text).open == []
    assert text.count("<svg") == 5  # scores twice, plane, spectrum, densities
    assert all(name in text for name in reports)
    texts = ("a dog &lt;runs&gt;", "a dog &amp; a cat")
    for value in ("76.54", "0.210", "-2.500", "0.800", "8.395", "0.680", *texts):
        assert value in text


def test_nothing_is_fetched_and_identifiers_are_unique():
    other = report(1)
    changed = Report(other.rows, {**other.notes, "sts": {"form": "raw"}})
    text = page({"a": report(0), "b": changed})
    assert text.count("<dd>senteval</dd>") == text.count("<dd>raw</dd>") == 1
    assert re.findall(r'(?:src|href)\s*=\s*"([^"#][^"]*)"', text) == []
    assert "@import" not in text and "url(http" not in text
    names = re.findall(r'<clipPath id="([^"]+)"', text)
    assert len(names) == len(set(names)) > 0
    assert pictures.INK not in text
    assert len({(pictures.color(i), pictures.mark(i)) for i in range(64)}) == 64


def test_a_report_without_geometry_has_no_empty_sections():
    rows = [Row("STSB", "test", m, "mean", 0.8, 1379) for m in ("spearman", "pearson")]
    rows.append(Row("protocol declutr", "test", "spearman", "mean", 0.7123, 18850))
    notes = {"protocols": {"protocols": {"declutr": "Giorgi et al. (2021): spearman, mean"}}}
    text = page({"a": Report(tuple(rows), notes)})
    assert "Singular values" not in text and "Transfer" not in text
    assert text.count("<details>") == text.count("</details>") == 1
    assert text.index("<details>") < text.index("80.00")
    assert text.count("71.23") == text.count("Giorgi et al. (2021)") == 1


def test_titles_are_the_last_parts_that_differ():
    assert titles(["/home/me/runs/model", "all-MiniLM-L6-v2"]) == ["model", "all-MiniLM-L6-v2"]
    assert titles(["/home/a/model", "/home/b/model"]) == ["a/model", "b/model"]
    assert titles(["someone/model", "./x/model"]) == ["someone/model", "x/model"]
    text = page({"/home/me/runs/one": report(0), "/home/me/runs/two": report(1)})
    assert "/home/me" not in text


def test_the_way_of_a_training_is_drawn():
    steps = [(10.0 * i, -0.1 * i, 0.2 + 0.01 * i) for i in range(5)]
    path = [dict(zip(("step", "uniformity", "alignment"), at, strict=True)) for at in steps]
    text = page({"a": Report(report(0).rows, {"trajectory": path}), "b": report(1)})
    assert "During training" in text and "step 40" in text
    for other, shown in ((), 1), (path, 1), (path[:3], 2):
        assert pictures.trajectories({"a": path, "b": other}).count("step ") == shown
    assert pictures.trajectories({"a": ()}) is None


def test_few_examples_pairs_triples_and_groups_have_a_table():
    values = {"ap": 0.8306, "f1_best": 0.7123, "accuracy_triplet": 0.6488, "v_measure": 0.1404}
    rows = [Row("here", "test", m, "", v, 50, v - 0.1, v + 0.1) for m, v in values.items()]
    text = page({"a": Report((*rows, Row("FewShot6", "test", "accuracy@8", "", 0.5168, 9)))})
    section = text.split("Few examples, pairs, triples, groups")[1].split("<h2>")[0]
    shown = ("83.06", "73.06 – 93.06", "71.23", "64.88", "14.04", "51.68", "class=total")
    assert [one for one in shown if one not in section] == []
    assert "Transfer</h2>" not in text


def test_curves_of_any_length_and_number_are_drawn():
    """One panel or many, an odd number too, of one point, and of what is no number."""
    line = [(step, 0.1 * step, 0.05 * step, 0.2 * step) for step in range(4)]
    for count in (1, 2, 5):
        lines = {"one": line, "point": line[:1], "gap": [*line, (4, math.nan, math.nan, math.nan)]}
        drawn = pictures.panels({f"panel {n} of {count}": lines for n in range(count)})
        texts = [node.text for node in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
        assert [f"panel {n} of {count}" for n in range(count)] == [
            text for text in texts if text.startswith("panel")
        ]
        assert texts.count("point") == texts.count("step") == count
    assert pictures.panels({}) is None
