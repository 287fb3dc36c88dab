"""The report of an adaptation, as facts for programs and as one page for people."""

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.bench import MIN_DOCUMENTS, Bench, Difference, difference
from contrasent.adapt.steps import Steps
from contrasent.adapt.teaching import Lesson
from contrasent.files import render, write_json, write_text
from contrasent.search.answers import answers
from contrasent.search.index import Hit, Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import EncodeFn

REPORT, PAGE = "report.json", "report.html"
FORMAT = 2
SHOWN = 5  # queries that gained most, and that lost most


def harm_of_words(bench: Bench, prior: Ranker, *, seed: int) -> Difference | None:
    """The default search minus vectors alone on user queries; None if they are too few to tell."""
    if len({query.document for query in bench.queries}) < MIN_DOCUMENTS or not prior.uses_words:
        return None
    vectors, both = bench.values([prior.without_words, prior])
    return difference(bench.queries, both - vectors, seed=seed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The search before and after an adaptation, and the evidence for it."""

    default: Ranker
    kept: Ranker
    words: Difference | None  # see harm_of_words
    steps: Steps
    lesson: Lesson | None

    def facts(
        self,
        index: Index,
        base: dict[str, Any],
        changes: list[dict[str, Any]],
        counts: dict[str, int],
        documents: int,
        lines: list[str],
    ) -> dict[str, Any]:
        """The facts of report.json."""
        default, steps, lesson = self.default, self.steps, self.lesson
        encoder = lesson is not None and lesson.teach_all is not None
        improved = encoder or self.kept not in (default, default.without_words)
        return {
            "format": FORMAT,
            "base": base["model"],
            "settings": {name: value for name, value in base.items() if name != "model"},
            "encoder": encoder,
            "documents": documents,
            "passages": len(index),
            "improved": improved,
            "reason": self._reason(),
            "default": default.to_json(),
            "kept": self.kept.to_json(),
            "words": _facts(self.words),
            "text": {
                "kept": steps.ranker != default,
                "ranker": steps.ranker.to_json(),
                "evidence": _facts(steps.evidence),
                "notes": list(steps.notes),
            },
            "queries": counts,
            "taught": None if lesson is None else _taught(lesson),
            "tried": [] if lesson is None else [asdict(trial) for trial in lesson.tried],
            "statements": self._statements(),
            "changes": changes,
            "read": lines,
        }

    def _reason(self) -> str:
        """The verdict, in one line."""
        words, steps, lesson, ranker = self.words, self.steps, self.lesson, self.kept
        if lesson is not None and lesson.improved:
            return lesson.reason
        if words is not None and words.high < 0:
            lost = f"words lose on these queries ({words} nDCG@10)"
            return f"{lost}: vectors alone search from now on"
        about = "" if lesson is None else f"; queries taught nothing that is kept: {lesson.reason}"
        if ranker != self.default:
            gain = f", {steps.evidence} nDCG@10 on {steps.judges}" if steps.evidence else ""
            return f"learned from the text alone: {ranker.summary}{gain}{about}"
        return f"the default search is kept: {ranker.summary}{about}"

    def _statements(self) -> list[tuple[str, str]]:
        """Which parts of the search are defaults, and which were or were not shown on this text."""
        words, steps, lesson = self.words, self.steps, self.lesson
        parts = [("default", f"{self.default.summary}, as 'contrasent index' searches")]
        if words is not None:
            parts.append(("shown", f"words with vectors instead of vectors alone: {words}"))
        else:
            parts.append(("not shown", "that words help here: that needs user queries (--queries)"))
        if steps.ranker != self.default:
            shown = f": {steps.evidence} on {steps.judges}" if steps.evidence else ""
            parts.append(("from the text", f"{steps.ranker.summary}{shown}"))
        encoder = ""
        if lesson is not None:
            for trial in lesson.tried:
                gains = f"{trial.again} asked again, {trial.new} on new documents"
                more = f"{trial.seconds:.0f} s; {trial.milliseconds:.1f} ms more a query"
                parts.append((f"tried: {trial.name}", f"{trial.way}: {gains}; {more}"))
            parts.append(("queries asked again", str(lesson.again)))
            parts.append(("queries about new documents", str(lesson.new)))
            encoder = "an encoder that queries taught, " if lesson.teach_all else ""
        return [*parts, ("kept", f"{encoder}{self.kept.summary}")]


def _facts(gap: Difference | None) -> dict[str, float] | None:
    return None if gap is None else asdict(gap)


def _taught(lesson: Lesson) -> dict[str, Any]:
    return {
        "kept": lesson.improved,
        "ranker": lesson.ranker.to_json(),
        "before": lesson.before,
        "after": lesson.after,
        "asked again": _facts(lesson.again),
        "new documents": _facts(lesson.new),
        "reason": lesson.reason,
        "curve": [{"queries": count, **asdict(gain)} for count, gain in lesson.curve],
    }


def largest_changes(
    bench: Bench, lesson: Lesson, default: Ranker, encode: EncodeFn
) -> list[dict[str, Any]]:
    """The queries that gained and lost most, with the first answer before and after."""
    moved = lesson.values_after - lesson.values_before
    order = np.argsort(moved, kind="stable")
    chosen = [n for n in (*order[::-1][:SHOWN], *order[:SHOWN]) if moved[n]]
    numbers = list(dict.fromkeys(map(int, chosen)))
    before = after = _answers(bench, numbers, default, bench.learned, encode)
    if not lesson.teach_all:  # an encoder's follow once it has encoded the rows
        after = _answers(bench, numbers, lesson.ranker, lesson.learned, encode)
    return [
        {
            "number": n,
            "query": bench.queries[n].text,
            "before": float(lesson.values_before[n]),
            "after": float(lesson.values_after[n]),
            "answer_before": before[i],
            "answer_after": after[i],
        }
        for i, n in enumerate(numbers)
    ]


def answer_again(
    bench: Bench, changes: list[dict[str, Any]], ranker: Ranker, learned: Learned, encode: EncodeFn
) -> None:
    """Give changed queries the answers of another search."""
    after = _answers(bench, [change["number"] for change in changes], ranker, learned, encode)
    for change, answer in zip(changes, after, strict=True):
        change["answer_after"] = answer


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
