"""Tables to documents, one per row, by their content; unreadable rows are counted."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Document, Section, SectionBuilder, one_line, spelled
from contrasent.text import dialect
from contrasent.text.columns import as_text, codes, document_roles
from contrasent.text.roles import ROW_IDS
from contrasent.text.sources import Source
from contrasent.text.tables import Table, open_table

SPOKEN = {
    "text": "text from", "title": "title from", "id": "id from", "field": "fields",
    "fact": "metadata",
}  # fmt: skip


def read_table(source: Source, columns: Sequence[str] | None) -> tuple[str, Iterator[Document]]:
    """Name the chosen columns, "" if none holds words, and read each row, some without sections."""
    name = source.shown.rpartition("/")[2].rpartition("#")[2].partition(".")[0]
    table = open_table(source, lenient=True, join=True)
    chosen, rows = _read(table, name, columns)
    return chosen, chain(_above(table.source, name, table.above), rows)


def _above(shown: str, name: str, lines: Sequence[str]) -> list[Document]:
    """What stands above the names of the columns, as a document of its own."""
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
        chosen, documents = _read(table, name, columns)
    elif columns is not None:
        raise Skip(Reason.NOT_CHOSEN, columns[0], rows[0] if rows else ())
    plain = rows[: 0 if columns else head] if chosen else rows
    return chosen, chain(
        _above(shown, name, [" | ".join(filter(None, r)) for r in plain]),
        documents if chosen else (),
    )


def _read(
    table: Table, above: str, columns: Sequence[str] | None
) -> tuple[str, Iterator[Document]]:
    chosen = document_roles(table) if columns is None else _stated(table, columns)
    names = [name if name != f"column {at}" else "" for at, name in enumerate(table.names or ())]
    names = names or [""] * len(table.columns)
    coded = codes(table, [at for role, at in chosen if role == "fact"])

    def documents() -> Iterator[Document]:
        places = [at for _, at in chosen]
        for number, (_, cells) in enumerate(table.rows(places), 1):
            row = list(zip(chosen, map(as_text, cells or ()), strict=False))
            of = {role: text for (role, _), text in row}
            title, builder = one_line(of.get("title", "")), SectionBuilder()
            for (role, _), text in row:
                if role == "text":
                    for block in text.replace("\r\n", "\n").split("\n\n"):
                        builder.block(block)
            fields = spelled((names[at], text) for (role, at), text in row if role == "field")
            builder.heading(1, above if fields else "")
            builder.paragraph(fields)
            if of.get("text", "").strip():  # words find product numbers
                builder.paragraph(
                    spelled((names[at], text) for (_, at), text in row if at in coded)
                )
            facts = {names[at]: text for (role, at), text in row if role == "fact" and names[at]}
            _, sections, metadata = builder.finish("-", facts)
            if title and not sections:
                title, sections = "", (Section((), (title,)),)
            name = of.get("id", "").strip() or number
            yield Document(f"{table.source}#{name}", title, sections, metadata)

    roles = {
        role: " and ".join(table.columns[at] for r, at in chosen if r == role)
        for role in ("text", "title", "id", "field", "fact")
    }
    shown = [f"{SPOKEN[role]} {columns}" for role, columns in roles.items() if columns]
    left = [name for at, name in enumerate(table.columns) if at not in {at for _, at in chosen}]
    said = ", ".join(shown) + (f"; not used: {', '.join(left)}" if shown and left else "")
    return said, documents()


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
