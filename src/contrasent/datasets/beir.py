"""Retrieval collections in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contrasent.datasets.official import stream_lines
from contrasent.errors import DataError

Judged = dict[str, tuple[str, dict[str, float]]]
"""The text of each query by its id, and the gains of judged documents."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Queries, documents, and which of them belong together."""

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    # for each query, {position of a document: gain}; a judged document that is not there has a
    # position after all others
    relevant: tuple[dict[int, float], ...]
    # for each query, the position of the document with its id; -1 if there is none, or if it is
    # judged relevant, so that the ids are equal by chance
    own: tuple[int, ...]
    missing: int  # how many documents are judged relevant and not there


def read_collection(folder: Path, *, split: str = "test") -> Collection:
    """Read a folder in BEIR's layout, without queries that have no relevant document."""
    documents = read_texts(folder / "corpus.jsonl")
    place = {name: i for i, name in enumerate(documents)}
    texts, relevant, own_places = [], [], []
    for query, (text, gains) in read_judged(folder, split=split).items():
        # BEIR's ArguAna has judgments of documents that are not there.
        positive = {place.setdefault(d, len(place)): g for d, g in gains.items() if g > 0}
        if positive:
            texts.append(text)
            relevant.append(positive)
            itself = place[query] if query in documents else -1
            own_places.append(-1 if itself in positive else itself)
    missing = list(place)[len(documents) :]
    if missing and not any(min(gains) < len(documents) for gains in relevant):
        problem = f"names unknown documents alone, such as {missing[0]}"
        raise DataError(f"{folder / 'qrels' / f'{split}.tsv'}: {problem}")
    columns = (tuple(texts), tuple(documents.values()), tuple(relevant), tuple(own_places))
    return Collection(*columns, len(missing))


def read_judged(folder: Path, *, split: str = "test") -> Judged:
    """Read the queries and judgments of a folder in BEIR's layout, but not its corpus."""
    queries = read_texts(folder / "queries.jsonl")
    path = folder / "qrels" / f"{split}.tsv"
    judged = read_qrels(path)
    if unknown := [query for query in judged if query not in queries]:
        raise DataError(f"{path}: names an unknown query, {unknown[0]}")
    return {query: (queries[query], gains) for query, gains in judged.items()}


def places_of(names: Sequence[str]) -> dict[str, int]:
    """Numbers of documents by their names and by unambiguous short names.

    ``notes/faq.jsonl#7`` is also called 7, and ``notes/plan.md`` plan.md and plan.
    """
    numbers_of: dict[str, set[int]] = {}
    for number, name in enumerate(names):
        for form in (name.rpartition("#")[2], Path(name).name, Path(name).stem):
            numbers_of.setdefault(form, set()).add(number)
    short = {form: min(numbers) for form, numbers in numbers_of.items() if len(numbers) == 1}
    return short | {name: number for number, name in enumerate(names)}


def read_qrels(path: Path) -> dict[str, dict[str, float]]:
    """Read judgments as {query: {document: gain}}."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected lines of query, document and gain")
    judged: dict[str, dict[str, float]] = {}
    for number, line in enumerate(stream_lines(path), start=1):
        columns = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
        if not columns or (number == 1 and columns[-1].lower() in ("score", "gain", "relevance")):
            continue
        try:
            query, document = columns[0], columns[-2]
            gain = float(columns[-1])
        except (IndexError, ValueError) as error:
            raise DataError(f"{path}:{number}: expected query, document and gain") from error
        if len(columns) not in (3, 4):
            raise DataError(f"{path}:{number}: {len(columns)} columns, expected 3 or 4")
        judged.setdefault(query, {})[document] = gain
    if not judged:
        raise DataError(f"{path}: contains no relevance judgments")
    return judged


def read_texts(path: Path) -> dict[str, str]:
    """The texts of a corpus or of queries in BEIR's layout, by their ids."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected lines of {{_id, text}}, as in BEIR")
    texts: dict[str, str] = {}
    for number, line in enumerate(stream_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            name, text, title = record["_id"], record["text"], str(record.get("title") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            name = text = None
        if name is None or text is None:
            raise DataError(f"{path}:{number}: expected a JSON object with _id and text")
        if str(name) in texts:
            raise DataError(f"{path}:{number}: the _id {name!r} is already used by an earlier line")
        texts[str(name)] = f"{title} {text}".strip()
    return texts
