"""Tables and workbooks to documents, one per row, by their contents; unreadable rows are counted.

Workbooks are read by calamine: the cells of the sheets that are shown, as a program shows them.
Added is what calamine does not tell: which numbers are shares, which cells of an ods are merged,
and what is noted in comments and text boxes.
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import partial
from io import BytesIO
from itertools import chain
from string import ascii_letters
from typing import Any
from xml.etree import ElementTree

from contrasent.documents.archives import Reason, Report, Skip
from contrasent.documents.office import (
    attribute,
    check_unlocked,
    link_of,
    local,
    opened,
    parsed,
    properties,
    related,
    report_embedded,
)
from contrasent.documents.sections import (
    PLACES,
    Document,
    Section,
    SectionBuilder,
    clean,
    flat,
    one_line,
    spelled,
)
from contrasent.text import dialect
from contrasent.text.columns import as_text, codes, document_roles, spoken
from contrasent.text.roles import ROW_IDS
from contrasent.text.sources import Source
from contrasent.text.tables import UNREAD, Table, open_table

PLAIN = (int, float, list, tuple)  # kinds of cells that are metadata as they are
SPOKEN = {"field": "fields", "fact": "metadata"}


def read_table(
    source: Source, columns: Sequence[str] | None, report: Report, rows: Sequence[Any] | None = None
) -> tuple[str, Iterator[Document]]:
    """Name the chosen columns, "" if none holds words, and read each row, some without sections.

    ``rows``: those of JSON, if they have been read.
    """
    name = source.shown.rpartition("/")[2].rpartition("#")[2].partition(".")[0]
    table = open_table(source, lenient=True, join=True, rows=rows, each=flat)
    chosen, documents = _read(table, name, columns, report)
    return chosen, chain(_above(table.source, name, table.above), documents)


def _above(shown: str, name: str, lines: Sequence[str]) -> list[Document]:
    """The lines above the names of the columns, as a separate document."""
    builder = SectionBuilder()
    for line in lines:
        builder.lines(line)
    sections = builder.finish()[1]
    return [Document(shown, name, sections)] if sections else []


def read_rows(
    cells: Sequence[Sequence[str]], shown: str, name: str, columns: Sequence[str] | None
) -> tuple[str, Iterator[Document]]:
    """The same for a sheet's rows; a sheet without column names is one document."""
    wide = [at for at, column in enumerate(zip(*cells, strict=True)) if any(column)]
    rows = [[row[at].removesuffix(" 00:00:00") for at in wide] for row in cells if any(row)]
    head = dialect.head(rows) if len(rows) > 1 else len(rows)
    first = [cell.strip() for cell in rows[head]] if rows[head:] else []
    answer = dialect.is_header(first, rows[head + 1 :]) if len(first) > 1 else False
    named = sum(map(bool, first)) > 1 if answer is None else answer
    chosen, documents = "", iter(list[Document]())
    if named and rows[head + 1 :]:
        names, below = dialect.names(first), rows[head + 1 :]
        table = Table(shown, "", names, below[0], partial(enumerate, below, 1), lambda: iter(()))
        chosen, documents = _read(table, name, columns, lambda *_: None)
    elif columns is not None:
        raise Skip(Reason.NOT_CHOSEN, columns[0], rows[0] if rows else ())
    plain = rows[: 0 if columns else head] if chosen else rows
    return chosen, chain(
        _above(shown, name, [" | ".join(filter(None, r)) for r in plain]),
        documents if chosen else (),
    )


def _read(
    table: Table, above: str, columns: Sequence[str] | None, report: Report
) -> tuple[str, Iterator[Document]]:
    """The role of every column, and the rows as documents below the name of the table."""
    chosen = document_roles(table) if columns is None else _stated(table, columns)
    names = [name if name != f"column {at}" else "" for at, name in enumerate(table.names or ())]
    names = names or [""] * len(table.columns)
    coded = codes(table, [at for role, at in chosen if role == "fact"])

    def documents() -> Iterator[Document]:
        places = [at for _, at in chosen]
        for number, (line, cells) in enumerate(table.rows(places), 1):
            if cells is UNREAD:
                report(Reason.BROKEN, f", line {line}")
                continue
            given = dict(zip(places, cells or (), strict=False))
            row = list(zip(chosen, map(as_text, cells or ()), strict=False))
            of = {role: text for (role, _), text in row if text.strip()}
            title, builder = one_line(of.get("title", "")), SectionBuilder()
            for (role, _), text in row:
                if role == "text":
                    for block in text.replace("\r\n", "\n").split("\n\n"):
                        builder.block(block)
            fields = spelled((names[at], text) for (role, at), text in row if role == "field")
            builder.heading(1, above if fields else "")
            builder.paragraph(fields)
            if "text" in of:  # words find product numbers
                builder.paragraph(
                    spelled((names[at], text) for (_, at), text in row if at in coded)
                )
            facts = {
                table.columns[at]: given[at] if text and isinstance(given[at], PLAIN) else text
                for (role, at), text in row
                if role == "fact"
            }
            _, sections, metadata = builder.finish("-", facts)
            if title and not sections:
                title, sections = "", (Section((), (title,)),)
            name = clean(of.get("id", "")).strip() or number
            yield Document(f"{table.source}#{name}", title, sections, metadata)

    places = [
        (SPOKEN.get(role, role), at)
        for role, at in chosen
        if role != "fact" or clean(table.columns[at]).casefold() not in PLACES
    ]
    return spoken(table.columns, places) if places else "", documents()


def _stated(table: Table, columns: Sequence[str]) -> list[tuple[str, int]]:
    """Roles and places of chosen columns: the title's first, if there are several."""
    names = table.columns
    for name in columns:
        if name not in names:
            raise Skip(Reason.NOT_CHOSEN, name, names)
    parts = ["title" if len(columns) > 1 else "text", *["text"] * (len(columns) - 1)]
    identity = [
        at for known in ROW_IDS for at, name in enumerate(names) if name.casefold() == known
    ]
    places = map(names.index, columns)
    return [*(("id", at) for at in identity[:1]), *zip(parts, places, strict=True)]


# ---------------------------------------------------------------------- workbooks

FEW = 12  # rows of a form
MOST = 100  # cells that one of an ods stands for: more is a way to fill a sheet

Place = tuple[int, int]  # row and column, from 0


@dataclass(slots=True)
class Sheet:
    """A sheet: its cells as texts, what is noted on it, and what its values do not tell."""

    name: str
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shares: set[Place] = field(default_factory=set)
    merged: list[tuple[Place, Place]] = field(default_factory=list)


def read_book(data: bytes, skip: Report) -> tuple[list[Sheet], dict[str, Any]]:
    """The sheets of a workbook, and its properties."""
    try:
        import python_calamine
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None
    check_unlocked(data)
    facts, told = dict[str, Sheet](), dict[str, Any]()
    if zipfile.is_zipfile(BytesIO(data)):
        with opened(data) as archive:
            told = properties(archive)
            facts = (
                _of_office(archive) if "xl/workbook.xml" in archive.namelist() else _of_ods(archive)
            )
            report_embedded(archive, skip, charts="/charts/")
    told.pop("title", None)
    try:
        book = python_calamine.CalamineWorkbook.from_filelike(BytesIO(data))
    except python_calamine.PasswordError:
        raise Skip(Reason.ENCRYPTED) from None
    sheets = list[Sheet]()
    for about in book.sheets_metadata:
        if about.visible != python_calamine.SheetVisibleEnum.Visible:
            skip(Reason.HIDDEN_SHEET, f"#{about.name}")
        elif about.typ == python_calamine.SheetTypeEnum.WorkSheet:
            cells = book.get_sheet_by_name(about.name)
            sheets.append(sheet := facts.get(about.name) or Sheet(about.name))
            sheet.merged += cells.merged_cell_ranges or []
            sheet.rows = _rows(cells, sheet)
    return sheets, told


def form_of(rows: list[list[str]]) -> str:
    """The lines of a form, a label and what is filled in; "" of a table.

    Two columns, of which the second holds numbers and texts under each other, or a few rows of
    texts alone: whether the first row names columns then cannot be told.
    """
    filled = [cells for row in rows if (cells := [cell for cell in row if cell.strip()])]
    if len(filled) < 2 or any(len(cells) > 2 for cells in filled):
        return ""
    below = [cells[1] for cells in filled[1:] if len(cells) == 2]
    numbers = sum(any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell)) for cell in below)
    labels = [cells[0] for cells in filled]
    mixed = 0 < numbers < len(below)
    if (
        len(below) + 1 < len(filled)
        or len(set(labels)) < len(labels)
        or not (mixed or (numbers == 0 and len(filled) <= FEW))
    ):
        return ""
    return "\n".join(
        ": ".join(one.rstrip(":") for one in map(str.strip, cells)) for cells in filled
    )


def _rows(cells: Any, sheet: Sheet) -> list[list[str]]:
    top, left = cells.start or (0, 0)
    rows = [
        [_shown(value, (row, at) in sheet.shares) for at, value in enumerate(values, left)]
        for row, values in enumerate(cells.to_python(), top)
    ]
    for (first, at), (last, _) in sheet.merged:  # a name is in each of its rows
        for row in range(max(first - top, 0) + 1, min(last - top + 1, len(rows))):
            if 0 <= at - left < len(rows[row]):
                rows[row][at - left] = rows[row][at - left] or rows[max(first - top, 0)][at - left]
    return rows


def _shown(value: Any, share: bool) -> str:
    """A cell as text: dates as YYYY-MM-DD, shares in percent."""
    match value:
        case str():
            return value
        case bool():
            return str(value).upper()
        case float() | int() if share:
            return f"{round(100 * value, 10):.12g}%"
        case float() | int() if value % 1 == 0 and abs(value) < 1 << 53:
            return f"{value:.0f}"
        case float() | int():
            return f"{value:.15g}"
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case datetime():
            return value.isoformat(" ", "minutes")
        case date() | time() | timedelta():
            return str(value)
        case _:
            return ""


def _of_office(archive: zipfile.ZipFile) -> dict[str, Sheet]:
    """The facts of the sheets of an xlsx, by their names."""
    # The numbers of the styles that show a number in percent.
    styles, percent = parsed(archive, "xl/styles.xml"), {"9", "10"}
    for one in styles.iterfind("{*}numFmts/{*}numFmt"):
        if "%" in one.get("formatCode", ""):
            percent.add(one.get("numFmtId", ""))
    formats = enumerate(styles.iterfind("{*}cellXfs/{*}xf"))
    shares = {str(at) for at, one in formats if one.get("numFmtId") in percent}
    facts = dict[str, Sheet]()
    parts = related(archive, "xl/workbook.xml")
    for one in parsed(archive, "xl/workbook.xml").iterfind("{*}sheets/{*}sheet"):
        part, name = parts.get(link_of(one), ("", ""))[1], one.get("name", "")
        facts[name] = about = Sheet(name)
        if shares and part in archive.namelist():
            with archive.open(part) as stream:
                for _, cell in ElementTree.iterparse(stream):
                    if local(cell) == "c" and cell.get("s") in shares:
                        about.shares.add(_place(cell.get("r", "A1")))
                    elif local(cell) == "row":
                        cell.clear()
        for kind, target in related(archive, part).values():
            if kind in ("comments", "drawing"):
                notes = parsed(archive, target).iter()
                texts = (x.iterfind(".//{*}t") for x in notes if local(x) in ("comment", "p"))
                joined = ("".join(t.text or "" for t in some).strip() for some in texts)
                about.notes += filter(None, joined)
    return facts


def _place(reference: str) -> Place:
    column, row = 0, reference.lstrip(ascii_letters)
    for letter in reference.removesuffix(row).upper():
        column = 26 * column + ord(letter) - 64
    return int(row or 1) - 1, column - 1


def _of_ods(archive: zipfile.ZipFile) -> dict[str, Sheet]:
    """The facts of the sheets of an ods, by their names."""
    facts = dict[str, Sheet]()
    for table in parsed(archive, "content.xml").iterfind(".//{*}table"):
        name, row = attribute(table, "name"), 0
        about = facts.setdefault(name, Sheet(name))
        for line in table.iterfind(".//{*}table-row"):
            column, many = 0, int(attribute(line, "number-rows-repeated") or 1)
            for cell in line:
                wide = int(attribute(cell, "number-columns-repeated") or 1)
                deep = int(attribute(cell, "number-rows-spanned") or 1)
                if deep > 1:
                    about.merged.append(((row, column), (row + deep - 1, column)))
                if attribute(cell, "value-type") == "percentage":
                    rows, columns = range(row, row + min(many, MOST)), range(min(wide, MOST))
                    about.shares |= {(at, column + step) for at in rows for step in columns}
                for note in cell.iterfind("{*}annotation"):
                    texts = ("".join(one.itertext()) for one in note.iterfind("{*}p"))
                    about.notes.append("\n".join(texts))
                column += wide
            row += many
    return facts
