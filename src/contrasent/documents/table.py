"""Tables to documents, one per row, by their content; unreadable rows are counted."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from itertools import chain, islice
from typing import Any

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Document, Section, SectionBuilder, one_line, spelled
from contrasent.text.sources import Source
from contrasent.text.tables import Table, open_table

SAMPLE = 200  # rows from which columns are guessed
HEADS = 20  # first rows among which the names of a sheet's columns, and the delimiter, are sought
MARKS = ",;\t|"
FACTS = 20  # columns besides text, title and id that become metadata
_YEAR = re.compile(r"(?:19|20)\d\d")
SHORTEST = 40  # mean characters from which a column is taken for text by its length
_IDS = ("_id", "id", "doc_id", "docid", "pid", "uuid")
_TITLES = ("title", "titel", "titre", "heading", "headline", "name", "subject", "question")
_TEXTS = (
    "text", "body", "content", "contents", "abstract", "passage", "document", "article", "answer",
    "description", "message", "review", "summary", "sentence", "paragraph",
)  # fmt: skip


def read_table(source: Source, columns: Sequence[str] | None) -> tuple[str, Iterator[Document]]:
    """Name the chosen columns, "" if none holds words, and read each row, some without sections."""
    name, delimiter = source.shown.rpartition("/")[2].rpartition("#")[2], delimiter_of(source)
    table = open_table(source, header=True, delimiter=delimiter, lenient=True)
    if source.form in (".csv", ".tsv") and not is_header(table.names or ()):
        table = open_table(source, header=False, delimiter=delimiter, lenient=True)
    return _read(table, name.partition(".")[0], columns)


def read_rows(
    cells: Sequence[Sequence[str]], shown: str, name: str, columns: Sequence[str] | None
) -> tuple[str, Iterator[Document]]:
    """The same for a sheet's rows; a sheet without column names is one document."""
    wide = [at for at, column in enumerate(zip(*cells, strict=True)) if any(column)]
    rows = [[row[at].removesuffix(" 00:00:00") for at in wide] for row in cells if any(row)]
    several = (at for at, row in enumerate(rows[:HEADS]) if sum(map(bool, row)) > 1)
    head = next((at for at in several if is_header(rows[at])), len(rows))
    chosen, documents = "", iter(list[Document]())
    if head + 1 < len(rows):
        names, below = tuple(rows[head]), rows[head + 1 :]
        stream, text = partial(enumerate, below, 1), (True,) * len(names)
        table = Table(shown, "", names, below[0], text, stream, lambda: iter(()))
        chosen, documents = _read(table, name, columns)
    elif columns is not None:
        raise Skip(Reason.NOT_CHOSEN, columns[0], rows[0] if rows else ())
    builder = SectionBuilder()
    for row in rows[: 0 if columns else head] if chosen else rows:
        builder.lines(" | ".join(filter(None, row)))
    alone = Document(shown, name, builder.finish()[1])
    return chosen, chain([alone] * bool(alone.sections), documents if chosen else ())


def _read(
    table: Table, above: str, columns: Sequence[str] | None
) -> tuple[str, Iterator[Document]]:
    chosen = choose(table, columns)
    names = table.names or ("",) * len(table.columns)

    def documents() -> Iterator[Document]:
        places = [at for _, at in chosen]
        for number, (_, cells) in enumerate(table.rows(places), 1):
            row = list(zip(chosen, map(_text, cells or ()), strict=False))
            of = {role: text for (role, _), text in row}
            title, builder = one_line(of.get("title", "")), SectionBuilder()
            for (role, _), text in row:
                if role == "text":
                    for block in text.replace("\r\n", "\n").split("\n\n"):
                        builder.block(block)
            fields = spelled((names[at], text) for (role, at), text in row if role == "field")
            builder.heading(1, above if fields else "")
            builder.paragraph(fields)
            facts = {names[at]: text for (role, at), text in row if role == "fact"}
            _, sections, metadata = builder.finish("-", facts)
            if title and not sections:
                title, sections = "", (Section((), (title,)),)
            name = of.get("id", "").strip() or number
            yield Document(f"{table.source}#{name}", title, sections, metadata)

    roles = {
        role: " and ".join(table.columns[at] for r, at in chosen if r == role)
        for role in ("text", "title", "id", "field")
    }
    shown = [f"{role} from {columns}" for role, columns in roles.items() if columns]
    return ", ".join(shown).replace("field from", "fields"), documents()


def delimiter_of(source: Source) -> str:
    """The delimiter of a csv: the one that cuts its first rows alike, into most cells."""
    if source.form != ".csv":
        return ","
    lines = [line for _, line in islice(source.lines(), HEADS)]
    widths = dict[str, int]()
    for mark in MARKS:
        with suppress(csv.Error):
            counts = [len(row) for row in csv.reader(lines, delimiter=mark) if row]
            alike = len({*counts[:-1]}) < 2  # the last may be cut
            widths[mark] = counts[0] if counts and alike else 0
    return max(MARKS, key=lambda mark: (widths.get(mark, 0), "".join(lines[:1]).count(mark)))


def is_header(names: Sequence[str]) -> bool:
    """True if a first row names columns: short, distinct, no sentences, no numbers but years."""
    if len(set(names)) != len(names) or not any(names[1:] or names):
        return False
    worded = [name for name in names if not _YEAR.fullmatch(name)]
    return any(worded) and all(
        (name and len(name) <= 40 and not name[0].isdigit() and not name.endswith((".", "!", "?")))
        or name is worded[0] is names[0] == ""  # above the names of rows
        for name in worded
    )


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list | tuple) and all(isinstance(one, str) for one in cell):
        return "\n\n".join(cell)
    known = isinstance(cell, int | float | date) and not isinstance(cell, bool)
    return str(cell) if known else ""


def choose(table: Table, columns: Sequence[str] | None = None) -> list[tuple[str, int]]:
    """Roles and places of columns, by names or by the longest texts.

    Roles: "text", "title", "id"; "fact" of short columns next to a text; "field" of all where no
    column holds texts; nothing where none holds words.
    """
    names = table.columns
    known = {name.casefold(): col for col, name in reversed([*enumerate(names)])}

    def first(role: str, wanted: Sequence[str], but: int = -1) -> list[tuple[str, int]]:
        matches = (known[name] for name in wanted if known.get(name, but) != but)
        return [(role, col) for col in islice(matches, 1)]

    if columns is not None:
        for name in columns:
            if name not in names:
                raise Skip(Reason.NOT_CHOSEN, name, names)
        roles = ["title" if len(columns) > 1 else "text", *["text"] * (len(columns) - 1)]
        places = map(names.index, columns)
        return [*first("id", _IDS), *zip(roles, places, strict=True)]
    rows = [cells for _, cells in islice(table.stream(), SAMPLE) if cells]
    lengths = [
        sum(len(_text(row[col])) for row in rows if not isinstance(row[col], int | float))
        for col in range(len(names))
    ]
    text = first("text", [name for name in _TEXTS if name in known and lengths[known[name]]])
    if not text:
        col = max(range(len(names)), key=lengths.__getitem__, default=-1)
        if col < 0 or lengths[col] < SHORTEST * len(rows):
            worded = any(map(str.isalpha, "".join(_text(cell) for row in rows for cell in row)))
            return [("field", col) for col in range(len(names))] if worded else []
        text = [("text", col)]
    text += [*first("title", _TITLES, text[0][1]), *first("id", _IDS, text[0][1])]
    taken = {col for _, col in text}
    short = [col for col, length in enumerate(lengths) if length <= SHORTEST * len(rows)]
    return [*text, *(("fact", col) for col in short[:FACTS] if col not in taken and table.names)]
