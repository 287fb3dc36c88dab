"""The passages of a source, read once and stored, and queries that people typed."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contrasent.adapt.pairs import joined, pieces
from contrasent.documents import sentences
from contrasent.documents.folder import Documents, file_of
from contrasent.documents.passages import Passage, passages
from contrasent.errors import DataError, InputError
from contrasent.files import atomic_file
from contrasent.text.labelled import places_of, read_qrels
from contrasent.text.official import read_lines

Say = Callable[[str], None]

UserQueries = list[tuple[str, dict[int, float]]]
"""Queries, each with the gains of the documents that answer it, by their numbers."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The contents of a source."""

    passages: tuple[Passage, ...]
    documents: tuple[str, ...]
    holding: tuple[tuple[int, ...], ...]  # numbers of the passages of each document
    lines: tuple[str, ...]
    facts: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=dict)  # of the documents, see `Documents`
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The indexed texts, one a passage."""
        return [passage.indexed for passage in self.passages]


def read_source(
    source: Documents,
    *,
    count_tokens: Callable[[Sequence[str]], Sequence[int]],
    max_tokens: int,
) -> Reading:
    """Read documents and cut them into passages."""
    found = passages(source, count_tokens=count_tokens, max_tokens=max_tokens)
    facts = {
        **asdict(source.report),
        "passages": len(found.passages),
        "boilerplate": found.boilerplate,
        "copies": found.exact,
        "near_copies": found.near,
        "cut": found.cut,
    }
    lines = (*source.report.lines(), *found.lines())
    files = source.files
    for number, held in enumerate(found.holding if files else ()):
        # A passage that is a copy is missing where the document that has it is deleted.
        others = {found.documents[found.passages[at].document] for at in held}
        shared = {file_of(name, files) for name in others - {found.documents[number]}}
        if shared:
            own = files[file_of(found.documents[number], files)]
            own["shares"] = sorted({*own.get("shares", ()), *shared})
    return Reading(
        found.passages, found.documents, found.holding, lines, facts, source.origin, files
    )


def write_reading(path: Path, reading: Reading) -> None:
    """Keep what was read: a line of facts, then a passage a line."""
    with atomic_file(path) as stream:
        head = {
            "documents": reading.documents,
            "holding": reading.holding,
            "lines": reading.lines,
            "facts": reading.facts,
            "origin": reading.origin,
            "files": reading.files,
        }
        json.dump(head, stream)
        stream.write("\n")
        for passage in reading.passages:
            json.dump(asdict(passage), stream, ensure_ascii=True)
            stream.write("\n")


def load_reading(path: Path) -> Reading:
    """Read what :func:`write_reading` wrote."""
    lines = path.read_text("utf-8").split("\n")
    head = json.loads(lines[0])
    found = tuple(
        Passage(**{**data, "headings": tuple(data["headings"])})
        for data in map(json.loads, filter(None, lines[1:]))
    )
    return Reading(
        found,
        tuple(head["documents"]),
        tuple(map(tuple, head["holding"])),
        tuple(head["lines"]),
        head["facts"],
        head["origin"],
        head["files"],
    )


SPAN = 12  # words of a span where a text has no sentences


def sentences_of(text: str) -> list[str]:
    """The sentences of a passage and its lines; spans of words where there are no marks."""
    cut = (piece for line in text.splitlines() for piece in sentences.split(line))
    found = [piece.strip() for piece in cut if piece.strip()]
    words = pieces(text) if len(found) == 1 else []
    if len(words) < 2 * SPAN:
        return found
    return [joined(words[at : at + SPAN]) for at in range(0, len(words), SPAN)]


# ---------------------------------------------------------------------- queries of people


def read_queries(
    path: Path, documents: Sequence[str], *, weight: str = "gain", say: Say = lambda line: None
) -> UserQueries:
    """Queries with the documents that answer them, or that people opened."""
    rows: dict[str, dict[str, float]] = {}
    for number, row in _rows(path):
        try:
            gain = float(row.get(weight) or 1.0)
            if not math.isfinite(gain):
                raise ValueError(gain)
            query, document = str(row["query"]), str(row["document"])
            if gain > 0 and query.strip():
                found = rows.setdefault(query, {})
                found[document] = gain + (found.get(document, 0.0) if weight == "count" else 0.0)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                path,
                f'needs columns "query" and "document", and "{weight}" as a number if it is there',
                line=number,
            ) from error
    return _by_number(path, rows, documents, say)


def read_judged(
    folder: Path, documents: Sequence[str], *, say: Say = lambda line: None
) -> UserQueries:
    """The queries and judgements of a collection in BEIR's layout; its corpus is not read."""
    path = folder / "queries.jsonl"
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected lines of {{_id, text}}, as BEIR has them")
    texts = {str(row["_id"]): str(row["text"]) for row in map(json.loads, read_lines(path)) if row}
    judged = read_qrels(folder / "qrels" / "test.tsv")
    rows = {texts[query]: gains for query, gains in judged.items() if query in texts}
    positive = {query: {d: g for d, g in gains.items() if g > 0} for query, gains in rows.items()}
    return _by_number(folder, positive, documents, say)


def _rows(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"cannot be read ({error})") from error
    if path.suffix in (".jsonl", ".ndjson"):
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError as error:
                raise InputError(path, "is not JSON", line=number) from error
            if isinstance(row, dict):
                yield number, row
        return
    yield from enumerate(csv.DictReader(lines, delimiter="," if path.suffix == ".csv" else "\t"), 2)


def _by_number(
    path: Path, rows: dict[str, dict[str, float]], documents: Sequence[str], say: Say
) -> UserQueries:
    places = places_of(documents)
    found = []
    for query, gains in rows.items():
        known = {places[name]: gain for name, gain in gains.items() if name in places}
        if known:
            found.append((query, known))
    unknown = (name for gains in rows.values() for name in gains if name not in places)
    example = next(unknown, "")
    if found and len(found) < len(rows):
        say(
            f"{path}: {len(rows) - len(found)} of {len(rows)} queries are left out: "
            f"their documents were not read (for example {example!r})"
        )
    if not found:
        raise InputError(
            path,
            f"names no document that was read (for example {example!r}; ids are such as "
            f"{documents[0]!r})",
        )
    return found
