"""The rows of documents, and an index that follows its documents: only what changed is encoded."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrasent import progress
from contrasent.documents.archives import Entry, Reason
from contrasent.documents.folder import DocumentSource, facts_of, file_of
from contrasent.documents.passages import CountTokens, cut
from contrasent.documents.sections import Document
from contrasent.errors import InputError
from contrasent.search.building import KeptVectors
from contrasent.search.records import IndexRow
from contrasent.search.store import ROWS_AT_ONCE, Row
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, batched

FileFacts = dict[str, Any]
"""Facts of a file: size, modified and digest; its rows, or why it was skipped."""


def document_rows(
    documents: Iterable[Document], files: dict[str, FileFacts], count: CountTokens, max_tokens: int
) -> list[IndexRow]:
    """A row a passage; their numbers are put into the facts of the files that were read."""
    rows: list[IndexRow] = list(cut(documents, count, max_tokens))
    count_rows(files, rows)
    return rows


def first_paragraphs(documents: Sequence[Document]) -> Iterator[str]:
    """Some text of each document, by which its language is known, first of one in each file."""
    seen = Counter[str]()
    numbered: list[tuple[int, Document]] = []
    for document in documents:
        file = document.id.partition("#")[0]
        numbered.append((seen[file], document))
        seen[file] += 1
    random.Random(0).shuffle(numbered)  # a folder in another language is not all there is
    for _, document in sorted(numbered, key=itemgetter(0)):
        for section in document.sections[:2]:
            yield from section.paragraphs[:2]


def count_rows(files: dict[str, FileFacts], rows: Iterable[IndexRow]) -> None:
    """Put the number of rows of each file into its facts."""
    for facts in files.values():
        facts["rows"] = 0
    for _, _, about in rows:
        name = file_of(about["document"], files)
        if name in files:
            files[name]["rows"] += 1


@dataclass(slots=True)
class Changes:
    """The changes to the documents of an index; files without text count nowhere."""

    added: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unchanged: int = 0
    refreshed: dict[str, FileFacts] = field(default_factory=dict)  # of other time, and same content

    @property
    def none(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.added or self.changed or self.deleted or self.refreshed)


def find_source(origin: dict[str, Any], folder: Path, source: str | None) -> DocumentSource:
    """The documents of an index, where it says or where they are now."""
    if origin.get("kind") != "documents":
        raise InputError(
            folder, "does not say which documents it was made of; build it again from a folder"
        )
    path = origin["path"] if source is None else source
    return DocumentSource(path, columns=origin["columns"], most=origin["max_file_text"])


def compare(known: dict[str, FileFacts], source: DocumentSource) -> Changes:
    """Find what was added, changed or deleted; files of another time are read to compare them."""
    found, seen = Changes(), dict[str, Entry]()
    for entry in source.listed():
        seen[entry.name] = entry
        facts = known.get(entry.name)
        if facts is None:
            found.added.append(entry)
        elif (facts["size"], facts["modified"]) == (entry.size, entry.modified):
            found.unchanged += bool(facts["rows"])
        else:
            fresh: FileFacts = {"digest": ""}
            with suppress(OSError):  # it will be reported when it is read
                fresh = facts_of(entry)
            if fresh["digest"] and fresh["digest"] == facts["digest"]:
                found.refreshed[entry.name] = facts | fresh
                found.unchanged += bool(facts["rows"])
            else:
                found.changed.append(entry)
    hidden = source.report.skipped.get(Reason.UNREADABLE)
    away = tuple(hidden.names) if hidden else ()  # folders that cannot be read now keep their rows
    found.deleted = [one for one in known if one not in seen and not one.startswith(away)]
    if known and len(found.deleted) == len(known) and not found.added:
        problem = "has none of the documents of the index any more; nothing was changed"
        raise InputError(source.source, problem)
    return found


class Outcome(NamedTuple):
    """The outcome of a synchronisation: files with text by what happened to them, and all rows."""

    added: int
    changed: int
    deleted: int
    unchanged: int
    rows: int

    def __str__(self) -> str:
        """One line."""
        shown = f"{self.added:,} added, {self.changed:,} changed, {self.deleted:,} deleted"
        return f"{shown}, {self.unchanged:,} unchanged"


def synchronise(
    folder: Path,
    source: DocumentSource,
    encode: EncodeFn,
    count: CountTokens,
    *,
    max_tokens: int,
    model: str,
) -> Outcome:
    """Read and encode what was added or changed, remove what was deleted, in one transaction."""
    with Writer(folder) as writer:
        writer.check_model(model)
        known = writer.files()
        changes = compare(known, source)
        chosen = [*changes.added, *changes.changed]
        rows = document_rows(source.read(chosen), source.files, count, max_tokens)
        fresh: dict[str, FileFacts | None] = {**changes.refreshed, **source.files}
        fresh |= dict.fromkeys(changes.deleted)
        replaced = [name for name in fresh if name in known and name not in changes.refreshed]
        old = {
            row.id: row
            for name in replaced
            for row in writer.rows_of(name)
            if file_of(row.metadata["document"], known) == name
        }
        _replace(writer, folder, old, rows, encode)
        writer.put_files(fresh)
        writer.set(origin=source.origin)
        before, now = (
            {name for name, facts in files.items() if facts["rows"]}
            for files in (known, source.files)
        )
        gone = before & {*changes.deleted, *source.files} - now
        counts = len(now - before), len(now & before), len(gone)
        return Outcome(*counts, changes.unchanged, len(writer))


def _replace(
    writer: Writer, folder: Path, old: dict[str, Row], rows: list[IndexRow], encode: EncodeFn
) -> None:
    """Put rows in the place of others; texts that were there keep their vectors."""
    same = {
        name
        for text, name, about in rows
        if (row := old.get(str(name))) and (row.text, row.metadata) == (text, about)
    }
    new = [row for row in rows if row[1] not in same]
    gone = np.array([row.row for row in old.values() if row.id not in same], np.int64)
    if not new:
        writer.delete_rows(gone)
        return
    with (
        progress.task("Encoding", len(new), "texts") as advance,
        KeptVectors(folder, encode, writer.facts, advance) as kept,
    ):
        kept.put((one.text for one in old.values()), (writer.vectors[r.row] for r in old.values()))
        writer.delete_rows(gone)
        for part in batched(new, ROWS_AT_ONCE):
            texts, names, metadata = zip(*part, strict=True)
            writer.add(list(texts), kept(texts), ids=list(map(str, names)), metadata=list(metadata))
