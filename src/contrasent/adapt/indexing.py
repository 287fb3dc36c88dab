"""The index that an adaptation starts from: as ``contrasent index`` makes it, within a budget."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from contrasent.documents.folder import Documents
from contrasent.indexing.build import read_input
from contrasent.indexing.sources import count_rows
from contrasent.search.index import document_of
from contrasent.search.records import IndexRow
from contrasent.types import Log, for_task

ENCODING = 0.7  # share of the budget that encoding may take
PROBED = 64  # passages that are encoded to estimate the time of all


def make_index(
    source: Documents, target: Path, base: str | None, budget: float, log: Log
) -> list[str]:
    """Index documents, or as many of them as the budget allows; lines about what was read."""
    given = read_input(source, base, log=log)
    lines, rows = source.report.lines(), given.rows
    assert isinstance(rows, list)
    seconds = _estimate(rows, for_task(given.encode, "document"))
    count = source.report.documents
    log(f"{len(rows):,} passages of {count:,} documents; encoding them takes about "
        f"{spelled(seconds)}")  # fmt: skip
    if seconds > ENCODING * budget:
        rows, line = _sample(rows, count, ENCODING * budget / seconds, seconds, budget)
        count_rows(given.files, rows)
        files = {file: facts for file, facts in given.files.items() if facts["rows"]}
        given = replace(given, rows=rows, files=files)
        log(line)
        lines.append(line)
    given.write(target, overwrite=True).close()
    return lines


def _estimate(rows: Sequence[IndexRow], encode: Callable[[list[str]], object]) -> float:
    """Seconds that encoding all rows takes, by encoding a few from all over them."""
    probe = [text for text, *_ in rows[:: max(1, len(rows) // PROBED)]][:PROBED]
    began = time.monotonic()
    encode(probe)
    return (time.monotonic() - began) * len(rows) / len(probe)


def _sample(
    rows: Sequence[IndexRow], count: int, share: float, seconds: float, budget: float
) -> tuple[list[IndexRow], str]:
    """The rows of some documents, drawn by a hash of their names, and the line that says so."""
    names = {str(document_of(str(name), about)) for _, name, about in rows}
    few = set(sorted(names, key=_mark)[: max(1, int(share * len(names)))])
    kept = [row for row in rows if document_of(str(row[1]), row[2]) in few]
    line = (
        f"encoding {len(rows):,} passages takes about {spelled(seconds)} of the "
        f"{spelled(budget)} given: {len(few):,} of {count:,} documents are searched; "
        f"--budget {minutes(seconds / ENCODING)} takes all, 'contrasent index OUT --sync' adds the "
        "other files"
    )
    return kept, line


def _mark(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()


def minutes(seconds: float) -> str:
    """A number of whole minutes as an option."""
    return f"{max(1, -int(-seconds // 60))}m"


def spelled(seconds: float) -> str:
    """A time for a person."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
