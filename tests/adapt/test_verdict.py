"""The gate: it lets a real gain through and chance not, and minds quality elsewhere."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from pydantic import TypeAdapter

from contrasent.adapt.evidence import Evidence, Query
from contrasent.adapt.measuring import measure
from contrasent.adapt.verdict import PROBE, General, Verdict, clustered_difference, decide, probe
from contrasent.metrics import normalize


def evidence_of(documents, kinds=("a", "b"), rows=30):
    queries = tuple(
        Query(f"{kind} {document}", kind, document, {document % rows: 1.0})
        for kind in kinds
        for document in documents
    )
    texts = tuple(f"text {row}" for row in range(rows))
    return Evidence(texts, rows, np.arange(rows), queries)


def vectors(count, random):
    return normalize(random.standard_normal((count, 8)).astype(np.float32))


@pytest.mark.slow
def test_models_that_know_nothing_take_the_bases_place_in_no_more_than_one_of_twenty_runs():
    """Labels without meaning: the best of four random models on one part, judged on another."""
    shipped = 0
    runs = 200
    choosing, judging = (
        evidence_of(range(40 * part, 40 * part + 40), kinds=("a",), rows=80) for part in (0, 1)
    )

    def score(part, rows, queries):
        return measure(part, queries=queries, rows=rows)[0]

    for seed in range(runs):
        random = np.random.default_rng(seed)
        models = [[vectors(80, random), vectors(40, random), vectors(40, random)] for _ in range(5)]
        base, *others = models
        rows, _, queries = max(others, key=lambda model: score(choosing, *model[:2]).mean())
        before, after = score(judging, base[0], base[2]), score(judging, rows, queries)
        shipped += decide(judging, before, after, name="random", seed=seed).improved
    assert shipped <= 0.05 * runs


def test_a_real_gain_goes_through_and_is_told_by_kind():
    evidence = evidence_of(range(40))
    random = np.random.default_rng(0)
    before = random.uniform(0, 0.5, 80)
    verdict = decide(evidence, before, before + random.uniform(0, 0.2, 80), name="better")
    assert verdict.improved
    assert verdict.difference.low > 0
    assert verdict.kinds["a"].before == pytest.approx(before[:40].mean())
    assert verdict.kinds["b"].queries == 40
    gain = verdict.kinds["b"].difference
    assert gain.value == pytest.approx(verdict.kinds["b"].after - before[40:].mean())
    assert 0 < gain.low < gain.value < gain.high
    few = decide(evidence_of(range(5)), np.zeros(10), np.ones(10), name="better")
    assert few.kinds["a"].difference is None
    assert TypeAdapter(Verdict).validate_json(json.dumps(asdict(verdict))) == verdict


def test_the_interval_is_over_documents_and_not_over_queries():
    """Twenty queries of each of four documents are four pieces of evidence."""
    documents = [n // 20 for n in range(80)]
    queries = tuple(Query("q", "a", document, {0: 1.0}) for document in documents)
    evidence = Evidence(("t",), 1, np.array([0]), queries)
    gains = np.array([0.3, -0.1, 0.2, 0.0])[documents]
    found = clustered_difference(evidence, gains)
    assert found.value == pytest.approx(0.1)
    # Of four documents a resample draws the best one alone with probability 4 ** -4, so the ends
    # of the interval lie well apart; over 80 queries they would lie within 0.07 of each other.
    assert found.low < 0.0 < 0.2 < found.high


def test_reasons_for_a_no():
    evidence = evidence_of(range(40))
    before = np.zeros(80)
    few, forgot, fine = evidence_of(range(5)), *(General("task", 0.8, x) for x in (0.77, 0.79))
    for given, general, reason in (
        ((evidence, before, before), None, "may be nothing"),
        ((few, np.zeros(10), np.ones(10)), None, "5 documents"),
        ((evidence, before, before + 0.1), forgot, "task falls from 0.800 to 0.770"),
    ):
        found = decide(*given, name="x", general=general)
        assert not found.improved and reason in found.reason
    assert not decide(evidence, before, before, name="base").improved
    assert decide(evidence, before, before + 0.1, name="x", general=fine).improved


def test_the_probe_counts_sentences_that_are_nearer_to_their_like():
    rows = [line.split("|") for line in PROBE.read_text("utf-8").splitlines()]
    assert len(rows) == 50
    assert all(len(row) == 3 and len(set(row)) == 3 for row in rows)
    place = {text: (n, kind) for n, row in enumerate(rows) for kind, text in enumerate(row)}

    def encode(texts):
        out = np.zeros((len(texts), 101), np.float32)
        for at, text in enumerate(texts):
            number, kind = place[text]
            # The like shares the first one's direction for even numbers, the other for odd ones.
            own = kind in (0, 1) if number % 2 == 0 else kind in (0, 2)
            out[at, number if own else 100] = 1.0
        return out

    assert math.isclose(probe(encode), 0.5)
