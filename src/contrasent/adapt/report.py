"""The report of an adaptation, as facts for programs and as one page for people."""

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.bench import Bench, Difference, difference
from contrasent.adapt.steps import UNMEASURED, Steps
from contrasent.adapt.teaching import LEVEL, TeachingResult
from contrasent.adapt.user_queries import MIN_DOCUMENTS, needed
from contrasent.files import render, write_json, write_text
from contrasent.search.answers import answers
from contrasent.search.index import Hit, Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import EncodeFn

REPORT, PAGE = "report.json", "report.html"
FORMAT = 3
SHOWN = 5  # queries that gained most, and that lost most
LOOKED_AT = 50  # of which so many, as first answers may be the same


def gain_of_words(bench: Bench, default: Ranker, *, seed: int) -> Difference | None:
    """The default search minus vectors alone on user queries; None if they are too few to tell."""
    if len({query.document for query in bench.queries}) < MIN_DOCUMENTS or not default.uses_bm25:
        return None
    vectors, both = bench.values([default.without_words, default])
    return difference(bench.queries, both - vectors, seed=seed, level=LEVEL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The search before and after an adaptation, and the evidence for it."""

    default: Ranker
    kept: Ranker
    words: Difference | None  # see gain_of_words
    steps: Steps
    result: TeachingResult | None  # None where there were too few queries
    ignored: str  # why queries were ignored, if some were given
    encoder: dict[str, Any] | None = None  # the verdict about one that queries trained

    def facts(
        self,
        index: Index,
        changes: list[dict[str, Any]],
        counts: dict[str, int],
        documents: int,
        lines: list[str],
    ) -> dict[str, Any]:
        """The facts of report.json."""
        default, steps, result = self.default, self.steps, self.result
        return {
            "format": FORMAT,
            "base": index.facts.source,
            "documents": documents,
            "passages": len(index),
            "encoder": self.encoder,
            "improved": self._verdict() == "improved",
            "verdict": self._verdict(),
            "reason": self._reason(),
            "default": default.to_json(),
            "kept": self.kept.to_json(),
            "words": None if self.words is None else asdict(self.words),
            "text": {
                "kept": result is None and steps.ranker != default,
                "ranker": steps.ranker.to_json(),
                "notes": list(steps.notes),
            },
            "queries": counts,
            "taught": None if result is None else _taught(result),
            "statements": self._statements(),
            "changes": changes,
            "read": lines,
        }

    def _verdict(self) -> str:
        if self.encoder or (self.result is not None and self.result.improved):
            return "improved"
        return UNMEASURED if self.result is None else "no reliable improvement"

    def _reason(self) -> str:
        """The verdict, in one line."""
        if self.encoder:
            trained = (
                f"Improved and saved: an encoder trained on your queries, {self.encoder['reason']}."
            )
            return f"{trained} On top: {self.result.reason}" if self.result else trained
        if self.result is not None:
            return self.result.reason
        return f"Not measured here ({self._why_not()}). Saved the default: {self.kept.summary}."

    def _why_not(self) -> str:
        return f"queries ignored: {self.ignored}" if self.ignored else f"needs {needed()}"

    def _statements(self) -> list[tuple[str, str]]:
        """The parts of the search, and which of them were measured on this text."""
        default, steps, result = self.default, self.steps, self.result
        parts = [("default search", f"{default.summary}, the same as 'contrasent index'")]
        if result is None:
            if steps.ranker != default:
                parts.append(("learned from the text", f"{steps.ranker.summary}: {UNMEASURED}"))
            parts.append(("not tested", f"whether BM25 helps ({self._why_not()})"))
        else:
            if self.words is not None:
                parts.append(("BM25 added to vectors", str(self.words)))
            parts.append(("documents with training queries", str(result.again)))
            parts.append(("documents without training queries", str(result.new)))
        return [*parts, ("saved search", self.kept.summary)]


def _taught(result: TeachingResult) -> dict[str, Any]:
    return {
        "kept": result.improved,
        "ranker": result.ranker.to_json(),
        "best": result.best.summary,
        "before": result.before,
        "after": result.after,
        "asked again": asdict(result.again),
        "new documents": asdict(result.new),
        "reason": result.reason,
    }


def largest_changes(
    bench: Bench, result: TeachingResult, default: Ranker, encode: EncodeFn
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
