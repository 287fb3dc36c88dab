"""The report of an adaptation, as facts for programs and as one page for people."""

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.bench import Bench, Difference, difference
from contrasent.adapt.cross_validation import LEVEL, LearningResult
from contrasent.adapt.steps import UNMEASURED, Steps
from contrasent.adapt.user_queries import MIN_DOCUMENTS, needed
from contrasent.files import render, write_json, write_text
from contrasent.search.answers import answers
from contrasent.search.index import Hit
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import EncodeFn

REPORT, PAGE = "report.json", "report.html"
FORMAT = 4
SHOWN = 5  # queries that gained most, and that lost most
LOOKED_AT = 50  # of which this many, as first answers may be the same


def gain_of_bm25(bench: Bench, default: Ranker, *, seed: int) -> Difference | None:
    """The default search minus vectors alone on user queries; None if they are too few to tell."""
    if len({query.document for query in bench.queries}) < MIN_DOCUMENTS or not default.uses_bm25:
        return None
    vectors, both = bench.values([replace(default, bm25_weight=0.0), default])
    return difference(bench.queries, both - vectors, seed=seed, level=LEVEL)


def report_facts(
    default: Ranker,
    kept: Ranker,
    bm25_gain: Difference | None,
    steps: Steps,
    result: LearningResult | None,
    *,
    ignored: str,
    encoder: dict[str, Any] | None,
) -> dict[str, Any]:
    """The search before and after an adaptation, and the evidence for it.

    ``bm25_gain``: see :func:`gain_of_bm25`; ``result``: None where there were too few queries, and
    ``ignored`` why, if some were given; ``encoder``: the verdict about one that queries trained.
    """
    untested = f"queries ignored: {ignored}" if ignored else f"needs {needed()}"
    statements = [("default search", f"{default.summary}, the same as 'contrasent index'")]
    if result is None:
        verdict = UNMEASURED
        reason = f"Not measured here ({untested}). Saved the default: {kept.summary}."
        if steps.ranker != default:
            statements.append(("learned from the text", f"{steps.ranker.summary}: {UNMEASURED}"))
        statements.append(("not tested", f"whether BM25 helps ({untested})"))
    else:
        verdict = "improved" if result.improved else "no reliable improvement"
        reason = result.reason
        if bm25_gain is not None:
            statements.append(("BM25 added to vectors", str(bm25_gain)))
        statements.append(("documents with training queries", str(result.again)))
        statements.append(("documents without training queries", str(result.new)))
    if encoder:
        verdict, more = "improved", f" On top: {reason}" if result else ""
        trained = "Improved and saved: an encoder trained on your queries"
        reason = f"{trained}, {encoder['reason']}.{more}"
    return {
        "format": FORMAT,
        "encoder": encoder,
        "improved": verdict == "improved",
        "verdict": verdict,
        "reason": reason,
        "default": default.to_json(),
        "kept": kept.to_json(),
        "bm25_gain": None if bm25_gain is None else asdict(bm25_gain),
        "from_text": {
            "kept": result is None and steps.ranker != default,
            "ranker": steps.ranker.to_json(),
            "notes": list(steps.notes),
        },
        "from_queries": None
        if result is None
        else {
            "kept": result.improved,
            "ranker": result.ranker.to_json(),
            "best": result.best.summary,
            "before": result.before,
            "after": result.after,
            "with_training_queries": asdict(result.again),
            "without_training_queries": asdict(result.new),
            "reason": result.reason,
        },
        "statements": [[*one] for one in (*statements, ("saved search", kept.summary))],
    }


def largest_changes(
    bench: Bench, result: LearningResult, default: Ranker, encode: EncodeFn
) -> list[dict[str, Any]]:
    """The queries that gained and lost most, of those whose first answer is another now."""
    moved = result.values_after - result.values_before
    order = np.argsort(moved, kind="stable")
    gained, lost = order[::-1][:LOOKED_AT], order[:LOOKED_AT]
    numbers = [int(n) for n in (*gained[moved[gained] > 0], *lost[moved[lost] < 0])]
    before = _answers(bench, numbers, default, bench.learned, encode)
    after = _answers(bench, numbers, result.ranker, result.learned, encode)
    changes: list[dict[str, Any]] = [
        {
            "number": n,
            "query": bench.queries[n].text,
            "before": float(result.values_before[n]),
            "after": float(result.values_after[n]),
            "answer_before": before[i],
            "answer_after": after[i],
        }
        for i, n in enumerate(numbers)
        if before[i] != after[i]
    ]
    better = [change["after"] > change["before"] for change in changes]
    return changes[: sum(better)][:SHOWN] + changes[sum(better) :][:SHOWN]


def _answers(
    bench: Bench, numbers: list[int], ranker: Ranker, learned: Learned, encode: EncodeFn
) -> list[dict[str, Any]]:
    """The sentence of the best row for each query, its document, and whether it is right."""
    rows = [bench.best_rows(n, ranker, learned)[0] for n in numbers]
    passages = bench.index.rows(np.array(rows, dtype=np.int64))
    hits = [[Hit(row.id, row.text, 0.0, row.metadata)] for row in passages]
    queries = [bench.queries[n] for n in numbers]
    analyzer = bench.index.bm25.analyzer
    spans = answers([q.text for q in queries], bench.vectors[numbers], hits, encode, analyzer)
    units: list[int] = [int(bench.units[row.row]) for row in passages]
    return [
        {
            "document": bench.documents[unit],
            "text": row.text[answer.start : answer.end],
            "right": unit in query.relevant,
        }
        for row, (answer,), unit, query in zip(passages, spans, units, queries, strict=True)
    ]


def write_report(target: Path, facts: dict[str, Any]) -> None:
    """Write the page, and then the facts, whose presence marks a run as complete."""
    changes = facts["changes"]
    text = render(
        "adaptation.html",
        **facts,
        window=": Adaptation",
        heading=f"Adaptation of {Path(facts['base']).name}",
        folder=shlex.quote(str(target)),
        gained=[change for change in changes if change["after"] > change["before"]],
        lost=[change for change in changes if change["after"] < change["before"]],
    )
    write_text(target / PAGE, text)
    write_json(target / REPORT, facts)
