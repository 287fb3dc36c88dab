"""Tables to documents, a row each, by what they hold; rows that cannot be read are counted."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import IO, Any

from contrasent.documents.sections import Section, clean, one_line
from contrasent.text.sources import LONGEST, Source
from contrasent.text.tables import open_table

Row = Mapping[str, Any]
Columns = tuple[str, str, Sequence[str]]  # of the id, the title and the texts; "" for none

SAMPLE = 200  # rows from which columns are guessed
SHORTEST = 20  # characters that texts have on average in a column taken for text by its length
_IDS = ("_id", "id", "doc_id", "docid", "pid", "uuid")
_TITLES = ("title", "titel", "titre", "heading", "headline", "name", "subject", "question")
_TEXTS = (
    "text", "body", "content", "contents", "abstract", "passage", "document", "article", "answer",
    "description", "message", "review", "summary", "sentence", "paragraph",
)  # fmt: skip


class NoSuchColumn(Exception):
    """A table lacks a column that was chosen; ``args`` are the column and those there are."""


def read_rows(
    rows: Iterator[Row | None], columns: Sequence[str] | None
) -> tuple[str, Iterator[tuple[str, str, tuple[Section, ...]]]]:
    """Name the chosen columns, "" if none holds text, and read each row's id, title and text."""
    sample = list(islice(rows, SAMPLE))
    identity, heading, texts = _choose([row for row in sample if row], columns)

    def documents() -> Iterator[tuple[str, str, tuple[Section, ...]]]:
        for number, row in enumerate(chain(sample, rows), 1):
            cells = row or {}
            parts = [_text(cells.get(name)) for name in texts]
            paragraphs = tuple(p for part in parts for p in _paragraphs(part))
            title = one_line(_text(cells.get(heading))) if heading else ""
            if title and not paragraphs:
                paragraphs, title = (title,), ""
            name = _text(cells.get(identity)).strip() if identity else ""
            yield name or str(number), title, (Section((), paragraphs),) if paragraphs else ()

    named = ((" and ".join(texts), "text"), (heading, "title"), (identity, "id"))
    shown = ", ".join(f"{what} from {name}" for name, what in named if name)
    return shown if texts else "", documents()


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list | tuple) and all(isinstance(one, str) for one in cell):
        return "\n\n".join(cell)
    return str(cell) if isinstance(cell, int) and not isinstance(cell, bool) else ""


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a cell; one whose lines are indented or many and short keeps them."""
    for block in clean(text).replace("\r\n", "\n").split("\n\n"):
        lines = [line.rstrip() for line in block.expandtabs(4).splitlines() if line.strip()]
        if is_set_out(lines):
            yield "\n".join(lines)
        elif lines:
            yield one_line(block)


def is_set_out(lines: Sequence[str]) -> bool:
    """Whether lines are code, a table or a list rather than prose broken at a width."""
    if len(lines) < 2:
        return False
    indented = sum(line[0].isspace() for line in lines)
    short = sum(len(line) < 45 for line in lines)
    return indented > len(lines) / 4 or short > 0.7 * len(lines)


def _choose(rows: list[Row], columns: Sequence[str] | None) -> Columns:
    """Choose columns by their names, or the one with the longest texts."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    known = {name.casefold(): name for name in reversed(names)}

    def first(wanted: Sequence[str]) -> str:
        return next((known[name] for name in wanted if name in known), "")

    if columns is not None:
        for name in columns:
            if name not in names:
                raise NoSuchColumn(name, names)
        several = len(columns) > 1
        return first(_IDS), columns[0] if several else "", columns[several:]
    lengths = {
        name: sum(len(_text(row.get(name))) for row in rows if not isinstance(row.get(name), int))
        for name in names
    }
    text = first([name for name in _TEXTS if name in known and lengths[known[name]]])
    if not text:
        text = max(names, key=lambda name: lengths[name], default="")
        if not text or lengths[text] < SHORTEST * len(rows):
            return "", "", ()
    title = first([name for name in _TITLES if known.get(name) != text])
    return first([name for name in _IDS if known.get(name) != text]), title, (text,)


def jsonl_rows(lines: Iterator[str]) -> Iterator[Row | None]:
    """Rows of a jsonl file: objects, arrays, or strings."""
    for line in lines:
        try:
            blank = line.isspace() or len(line) >= LONGEST
            yield None if blank else as_row(json.loads(line))
        except (ValueError, RecursionError):
            yield None


def as_row(value: Any) -> Row | None:
    """A JSON value as a row by column names; arrays have numbers for names, a string is text."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return {str(i): cell for i, cell in enumerate(value)}
    return {"text": value} if isinstance(value, str) else None


def csv_rows(lines: Iterator[str], delimiter: str) -> Iterator[Row | None]:
    """Rows of a csv or tsv; columns have numbers for names where the first row is no header."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    first = next(lines, "")
    if delimiter == "," and "," not in first:
        delimiter = next((other for other in ";\t|" if other in first), ",")
    rows = csv.reader(chain([first], lines), delimiter=delimiter)
    names: list[str] | None = None
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield None
            continue
        blank = not any(cell.strip() for cell in cells)
        if names is not None:
            yield None if blank else dict(zip(names, cells, strict=False))
        elif not blank and _is_header(cells):
            names = [cell.strip() for cell in cells]
        elif not blank:
            names = [str(i) for i in range(len(cells))]
            yield dict(zip(names, cells, strict=True))


def _is_header(cells: Sequence[str]) -> bool:
    """Whether a first row names columns: short, distinct, no numbers and no sentences."""
    names = [cell.strip() for cell in cells]
    return len(set(names)) == len(names) and all(
        name and len(name) <= 40 and not name[0].isdigit() and not name.endswith((".", "!", "?"))
        for name in names
    )


def parquet_rows(stream: IO[bytes], source: str) -> Iterator[Row | None]:
    """Rows of a parquet file."""
    table = open_table(Source(lambda: nullcontext(stream), ".parquet", source), header=True)
    for _, cells in table.stream():
        yield None if cells is None else dict(zip(table.columns, cells, strict=True))
