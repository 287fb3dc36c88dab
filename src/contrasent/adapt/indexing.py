"""The index that an adaptation starts from: of documents as ``contrasent index`` makes it."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from contrasent.documents.folder import Documents
from contrasent.errors import InputError
from contrasent.indexing.models import open_base
from contrasent.search.building import create
from contrasent.search.index import Index, document_of
from contrasent.search.ranking import Ranker
from contrasent.search.records import IndexRow
from contrasent.search.store import Facts
from contrasent.search.sync import count_rows, document_rows, first_paragraphs

Log = Callable[[str], None]

ENCODING = 0.7  # share of the budget that encoding may take
PROBED = 64  # passages that are encoded to estimate the time of all


def make_index(
    source: Documents, target: Path, base: str | None, budget: float, log: Log
) -> tuple[Index, list[str]]:
    """Read, cut and encode documents, or as many of them as the budget allows; lines about that."""
    documents = list(source)
    if not documents:
        raise InputError(str(source), "holds no text")
    opened = open_base(first_paragraphs(documents), base, log=log)
    encode = opened.encode
    model = encode.encoder
    rows = document_rows(documents, source.files, model.count_tokens, model.max_tokens)
    if not rows:
        raise InputError(str(source), "holds no text")
    lines = source.report.lines()
    seconds = _estimate(rows, encode.for_task("document"))
    log(f"{len(rows):,} passages of {len(documents):,} documents; encoding them takes about "
        f"{spelled(seconds)}")  # fmt: skip
    files = source.files
    if seconds > ENCODING * budget:
        rows, line = _sample(rows, len(documents), ENCODING * budget / seconds, seconds, budget)
        count_rows(files, rows)
        files = {file: facts for file, facts in files.items() if facts["rows"]}
        log(line)
        lines.append(line)
    index = create(
        target,
        encode,
        rows,
        Facts(
            model=model.identity,
            source=opened.source,
            ranker=Ranker(opened.word_weight).to_json(),
            origin=source.origin,
        ),
        overwrite=True,
        documents=files,
    )
    return index, lines


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
