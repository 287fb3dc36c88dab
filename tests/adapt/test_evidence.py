"""What candidates are measured by, against plain loops."""

import math

import numpy as np
import pytest

from contrasent.adapt.candidates import selection_error
from contrasent.adapt.evidence import (
    Evidence,
    Query,
    is_prose,
    judged_evidence,
    made_evidence,
    main_answers,
    mean_over_kinds,
    narrowed,
)
from contrasent.adapt.measuring import haystack, measure
from contrasent.adapt.pairs import Pair
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN, parts_of
from contrasent.metrics import normalize
from contrasent.search.ranking import Ranker
from contrasent.search.words import Bm25

TEXTS = [f"note {n} on {topic}" for n, topic in enumerate(["tea", "salt", "rope", "tin"] * 6)]
DOCUMENTS = [n // 2 for n in range(24)]
PAIRS = [
    Pair(f"about {TEXTS[n].split()[-1]} {n}", f"shorter {n}", n, maker)
    for maker in ("first", "second")
    for n in range(24)
]


OWN = [(2 * n, 2 * n + 1) for n in range(12)]


def random_vectors(count, seed):
    return normalize(np.random.default_rng(seed).standard_normal((count, 6)).astype(np.float32))


def made(**options):
    given = {"limit": 5, "terms": str.split, "copied": 0.0, "seed": 0, **options}
    return made_evidence(TEXTS, DOCUMENTS, PAIRS, **given)


def ndcg_by_loops(evidence, query, scores):
    """Every row that counts in the order of its score; a unit counts once; gains over logs."""
    seen = set() if query.apart else set(range(evidence.passages))
    rows = sorted((seen | set(query.shown)) - set(query.hidden), key=lambda row: -scores[row])
    units = list(dict.fromkeys(int(evidence.units[row]) for row in rows))
    gains = [query.relevant.get(unit, 0.0) for unit in units[:10]]
    best = sorted(query.relevant.values(), reverse=True)[:10]

    def dcg(gains):
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))

    return dcg(gains) / dcg(best)


def test_a_query_finds_its_passage_only_without_what_it_was_taken_from():
    evidence = made()
    assert set(evidence.kinds) == {"first", "second"}
    for query in evidence.queries:
        (passage,), (row,) = query.hidden, query.shown
        assert row >= evidence.passages
        assert evidence.texts[row] == f"shorter {passage}"
        assert (query.relevant, evidence.units[row]) == ({passage: 1.0}, passage)
        assert query.document == DOCUMENTS[passage]


def test_a_kind_of_a_few_queries_does_not_count_beside_others():
    few = [Pair("why?", "because", 3, "rare")] * 40  # of one document

    def kinds(pairs):
        return made_evidence(TEXTS, range(24), pairs, limit=5, terms=str.split, seed=0).kinds

    assert (kinds(few + PAIRS), kinds(few)) == (("first", "second"), ("rare",))


def test_texts_without_their_titles_are_looked_for_among_each_other():
    """Among passages that bear theirs they could be known by that; neighbours would answer too."""
    pairs = [Pair(f"title {n}", f"body {n}", n, "title") for n in range(24)]
    evidence = made_evidence(TEXTS, DOCUMENTS, pairs, limit=24, terms=str.split, seed=0)
    assert len(evidence.queries) == 24
    for query in evidence.queries:
        (unit,) = query.relevant
        own, *others = query.shown
        assert query.apart
        assert evidence.texts[own] == f"body {unit}"
        found = {int(evidence.units[row]) for row in others}
        assert found == {n for n in range(24) if DOCUMENTS[n] != DOCUMENTS[unit]}
    some = narrowed(evidence.part(np.arange(5)), np.arange(0, 24, 3))
    about = [query.document for query in some.evidence.queries]
    shown = [1 + sum(other != document for other in about) for document in about]
    assert [len(query.shown) for query in some.evidence.queries] == shown
    assert len(some.rows) == 8 + 5
    # Of vectors in which only the answer differs from all passages nothing is learnt.
    rows = np.vstack([np.tile([1.0, 0.0], (24, 1)), np.tile([0.0, 1.0], (24, 1))])
    values = measure(evidence, queries=np.tile([0.0, 1.0], (24, 1)), rows=rows)
    assert values.mean() < 0.5


def test_queries_that_people_wrote_stay_as_they_are():
    text = "salt and rope"
    pairs = [Pair(text, text, n, kind) for kind in ("x", "docstring") for n in range(24)]
    evidence = made_evidence(TEXTS, range(24), pairs, limit=24, terms=str.split, copied=0.5, seed=0)
    texts = {kind: {q.text for q in evidence.queries if q.kind == kind} for kind in evidence.kinds}
    assert texts["docstring"] == {text}
    assert len(texts["x"]) > 1


def test_vectors_are_measured_as_by_plain_loops():
    evidence = made(limit=24)
    rows, queries = random_vectors(len(evidence.texts), 1), random_vectors(len(evidence.queries), 2)
    (got,) = measure(evidence, queries=queries, rows=rows)
    for number, query in enumerate(evidence.queries):
        scores = [float(np.dot(row, queries[number])) for row in rows]
        assert math.isclose(got[number], ndcg_by_loops(evidence, query, scores), abs_tol=1e-9)


def test_words_and_both_together_are_measured_as_by_plain_loops():
    user_queries = [("salt and rope", {0: 1.0, 5: 2.0}), ("7", {3: 1.0}), ("?", {2: 1.0})]
    evidence = judged_evidence(TEXTS, DOCUMENTS, OWN, user_queries)
    lexical = Bm25.of(TEXTS, "none")
    rows, queries = random_vectors(24, 3), random_vectors(3, 4)
    (by_words,) = measure(evidence, lexical=lexical)
    ways = [Ranker(0.4), Ranker(0.9)]
    several = measure(evidence, queries=queries, rows=rows, lexical=lexical, fusions=ways)
    for way, values in zip(ways, several, strict=True):
        (alone,) = measure(evidence, queries=queries, rows=rows, lexical=lexical, fusions=[way])
        assert values.tolist() == alone.tolist()
    both = several[0]
    for number, query in enumerate(evidence.queries):
        counts = lexical.scores(query.text)
        # Rows that share no word are not found at all.
        shared = [s if s > 0 else -math.inf for s in counts]
        there = {int(evidence.units[r]) for r in range(24) if counts[r] > 0}
        found = {unit: gain for unit, gain in query.relevant.items() if unit in there}
        wanted = ndcg_by_loops(evidence, query, shared) if set(found) == set(query.relevant) else 0
        assert math.isclose(by_words[number], wanted)
        cosines = [float(np.dot(row, queries[number])) for row in rows]

        def scaled(scores):
            mean = sum(scores) / len(scores)
            deviation = math.sqrt(sum((s - mean) ** 2 for s in scores) / len(scores))
            return [(s - mean) / deviation if deviation else 0.0 for s in scores]

        of_each = zip(scaled(cosines), scaled(counts.tolist()), strict=True)
        fused = [0.6 * c + 0.4 * w for c, w in of_each]
        assert math.isclose(both[number], ndcg_by_loops(evidence, query, fused), abs_tol=1e-9)


def test_a_document_that_is_a_copy_is_found_by_what_it_copies():
    holding = [*OWN, (3,), (4, 5)]  # documents 12 and 13 were removed as copies
    user_queries = [("first", {12: 1.0}), ("second", {0: 1.0, 13: 1.0})]
    evidence = judged_evidence(TEXTS, DOCUMENTS, holding, user_queries)
    assert evidence.passages == 24
    assert [evidence.texts[row] for row in range(24, 27)] == [TEXTS[3], TEXTS[4], TEXTS[5]]
    assert evidence.units[24:].tolist() == [12, 13, 13]
    rows = normalize(np.eye(24, 6, dtype=np.float32) + 0.01)
    rows = np.concatenate([rows, rows[[3, 4, 5]]])
    # The first query is row 3, which two documents hold: the original comes first, then the copy.
    (values,) = measure(evidence, queries=rows[[3, 4]], rows=rows)
    assert values[0] == pytest.approx(1 / math.log2(3))
    assert 0 < values[1] < 1


def test_no_kind_outweighs_another_and_documents_have_their_turns():
    queries = tuple(Query("q", kind, n, {0: 1.0}) for n, kind in enumerate("aaab"))
    evidence = Evidence(("t",), 1, np.array([0]), queries)
    assert mean_over_kinds(evidence, np.array([0.0, 0.3, 0.6, 1.0])) == pytest.approx(0.65)
    first = [q for q in made(limit=12).queries if q.kind == "first"]
    assert len({query.document for query in first}) == 12


def test_fewer_passages_leave_queries_what_they_need():
    evidence = made()
    rows = random_vectors(24, 5)
    queries = random_vectors(len(evidence.queries), 6)
    given = {"queries": queries, "rows": rows, "lexical": Bm25.of(TEXTS)}
    kept = haystack(evidence, **given, size=10)
    assert 10 <= len(kept) < 24
    small = narrowed(evidence, kept).evidence
    assert small.passages == len(kept)
    for query, before in zip(small.queries, evidence.queries, strict=True):
        (row,) = query.shown
        assert small.texts[row] == evidence.texts[before.shown[0]]
        assert [small.texts[h] for h in query.hidden] == [evidence.texts[h] for h in before.hidden]
    assert haystack(evidence, **given, size=24).tolist() == list(range(24))


def test_documents_are_divided_by_their_names_alone():
    names = [f"folder/file-{n}.md" for n in range(100)]
    parts = parts_of(names, seed=1)
    assert [int((parts == part).sum()) for part in (TRAIN, SELECT, SEALED)] == [60, 20, 20]
    again = dict(zip(reversed(names), parts_of(list(reversed(names)), seed=1), strict=True))
    assert [again[name] for name in names] == parts.tolist()
    assert parts_of(names, seed=2).tolist() != parts.tolist()


def test_a_part_has_the_rows_of_its_queries_alone():
    evidence = made()
    few = evidence.part(np.arange(3))
    part = narrowed(few, np.arange(24))
    assert part.evidence.texts == tuple(evidence.texts[row] for row in part.rows)
    assert len(part.evidence.texts) == 24 + len(few.queries)
    for query, whole in zip(part.evidence.queries, few.queries, strict=True):
        assert query.text == whole.text
        assert part.rows[list(query.shown)].tolist() == list(whole.shown)
        assert part.rows[list(query.hidden)].tolist() == list(whole.hidden)


def test_queries_of_people_are_evidence_of_the_answer_that_most_of_them_share():
    asked = [("a", {0: 1.0}), ("b", {0: 1.0, 1: 2.0}), ("c", {1: 1.0, 2: 1.0}), ("d", {1: 1.0})]
    assert main_answers(asked) == [0, 1, 1, 1]


@pytest.mark.parametrize(("text", "prose"), [
    ("The lighthouse keeper counts the ships (all of them) before dawn.", True),
    ("Der Kläger trägt die Kosten, § 91 Abs. 1 ZPO.", True), ("灯塔看守人在黎明前数船。", True),
    ("ret = ret.replace('%', '')", False), ("def line_len=80, indent=''):", False),
    ("self.plugin_manager.load_all_plugins()", False), ("12.4 18.9 22.0 7.1 0.3 and so on", False),
])  # fmt: skip
def test_only_prose_is_cut_out(text, prose):
    assert is_prose(text) == prose


def test_code_makes_no_queries():
    code = [Pair(f"x_{n} = f(a[{n}])", TEXTS[n], n, "sentence") for n in range(24)]
    words = [Pair(f"ships and boats number {n}, all", TEXTS[n], n, "sentence") for n in range(24)]
    found = made_evidence(TEXTS, range(24), [*code, *words], limit=50, terms=str.split, seed=0)
    assert len(found.queries) == 24
    assert not any("=" in query.text for query in found.queries)


def test_the_error_of_a_score_is_that_of_resampled_queries():
    random = np.random.default_rng(0)
    queries = tuple(Query("q", kind, n, {0: 1.0}) for n, kind in enumerate("ab" * 300))
    evidence = Evidence(("t",), 1, np.array([0]), queries)
    before = random.uniform(0.2, 0.8, 600)
    after = np.clip(before + random.normal(0.05, 0.2, 600), 0, 1)
    drawn = []
    for _ in range(2000):
        parts = [random.choice(evidence.of_kind(kind), 300) for kind in "ab"]
        ratios = [(after[p].mean() + 0.01) / (before[p].mean() + 0.01) for p in parts]
        drawn.append(np.mean(np.log(ratios)))
    assert selection_error(evidence, before, after) == pytest.approx(np.std(drawn), rel=0.08)
