"""The sealed part, opened once: the verdict, and the queries that changed most."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from contrasent.adapt.candidates import Candidate, Encoded, encode_evidence, measure_candidate
from contrasent.adapt.evidence import Evidence, Floats
from contrasent.adapt.measuring import WordScores, rankings
from contrasent.adapt.selection import Selection
from contrasent.adapt.verdict import Verdict, check_general, decide
from contrasent.metrics import normalize
from contrasent.model.base import TaskEncoder
from contrasent.search.ranking import Ranker
from contrasent.search.words import Bm25

SHOWN = 10  # queries that gained most, and that lost most, in the report


@dataclass(frozen=True, slots=True)
class Sealed:
    """The measurements of the sealed part."""

    verdict: Verdict
    queries: int
    changes: list[dict[str, Any]]  # those that changed most


def judge_sealed(selection: Selection, chosen: Candidate, evidence: Evidence) -> Sealed:
    """Compare the chosen candidate with the base on queries that nothing was chosen by."""
    context = selection.context
    lexical = Bm25.of(evidence.texts, context.lexical.analyzer.language)
    raw = encode_evidence(TaskEncoder(context.base), evidence, np.asarray(context.raw))
    base = raw.by(normalize)
    own = () if context.fusion is None else (lexical, context.fusion)
    before = measure_candidate(evidence, base, *own)[0]
    after, encoded, checked = before, base, None
    ways = () if chosen.fusion is None else (lexical, chosen.fusion)
    if chosen.model != "base":
        encoded = raw.by(selection.layer(chosen.model, chosen.share))
        checked = check_general(context.base.encode, selection.encoder(chosen).encode)
    if chosen.name != "base":
        after = measure_candidate(evidence, encoded, *ways)[0]
    verdict = decide(evidence, before, after, name=chosen.name, general=checked, seed=context.seed)
    changes = largest_changes(
        evidence,
        before,
        after,
        lambda number: found_by(evidence, number, base, *own),
        lambda number: found_by(evidence, number, encoded, *ways),
    )
    return Sealed(verdict, len(evidence.queries), changes)


Found = list[dict[str, Any]]


def largest_changes(
    evidence: Evidence,
    before: Floats,
    after: Floats,
    base: Callable[[int], Found],
    chosen: Callable[[int], Found],
) -> Found:
    """The queries that gained and lost most, with what either search finds for them."""
    order = np.argsort(after - before, kind="stable")
    most = [n for n in (*order[::-1][:SHOWN], *order[:SHOWN]) if after[n] != before[n]]
    return [
        {
            "query": evidence.queries[n].text,
            "kind": evidence.queries[n].kind,
            "before": float(before[n]),
            "after": float(after[n]),
            "answer": _answer(evidence, n),
            "base": base(n),
            "chosen": chosen(n),
        }
        for n in dict.fromkeys(map(int, most))
    ]


def found_by(
    evidence: Evidence,
    number: int,
    by: Encoded,
    words: WordScores | None = None,
    fusion: Ranker | None = None,
) -> Found:
    """The three best results for a query, and whether each answers it."""
    query = evidence.queries[number]
    fusions = [fusion or Ranker()]
    (best,) = rankings(evidence, query, by.queries[number], by.rows, words, fusions)
    return [
        {"text": evidence.texts[row], "right": int(evidence.units[row]) in query.relevant}
        for row in best[:3]
    ]


def _answer(evidence: Evidence, number: int) -> str:
    """The text that answers a query."""
    query = evidence.queries[number]
    rows = np.flatnonzero(np.isin(evidence.units, list(query.relevant)))
    return evidence.texts[next((row for row in rows if row in query.shown), rows[0])]
