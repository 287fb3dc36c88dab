"""Tables to documents, a row each, by what they hold; rows that cannot be read are counted."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Document, Section, SectionBuilder, one_line
from contrasent.text.sources import Source
from contrasent.text.tables import Table, open_table

SAMPLE = 200  # rows from which columns are guessed
SHORTEST = 20  # characters that texts have on average in a column taken for text by its length
_IDS = ("_id", "id", "doc_id", "docid", "pid", "uuid")
_TITLES = ("title", "titel", "titre", "heading", "headline", "name", "subject", "question")
_TEXTS = (
    "text", "body", "content", "contents", "abstract", "passage", "document", "article", "answer",
    "description", "message", "review", "summary", "sentence", "paragraph",
)  # fmt: skip


def read_table(source: Source, columns: Sequence[str] | None) -> tuple[str, Iterator[Document]]:
    """Name the chosen columns, "" if none holds text, and read each row, some without sections."""
    table = _opened(source)
    chosen = _choose(table, columns)

    def documents() -> Iterator[Document]:
        places = [at for _, at in chosen]
        for number, (_, cells) in enumerate(table.rows(places), 1):
            name, title, builder = "", "", SectionBuilder()
            for (role, _), cell in zip(chosen, cells or (), strict=False):
                text = _text(cell)
                if role == "id":
                    name = text.strip()
                elif role == "title":
                    title = one_line(text)
                else:
                    for block in text.replace("\r\n", "\n").split("\n\n"):
                        builder.block(block)
            sections = builder.finish()[1]
            if title and not sections:
                title, sections = "", (Section((), (title,)),)
            yield Document(f"{source.shown}#{name or number}", title, sections)

    names = {
        role: " and ".join(table.columns[at] for r, at in chosen if r == role)
        for role in ("text", "title", "id")
    }
    return ", ".join(f"{role} from {name}" for role, name in names.items() if name), documents()


def _opened(source: Source) -> Table:
    """A table with the delimiter and, if there is one, the header of its first line."""
    delimiter = ","
    if source.form == ".csv":
        first = next(source.lines(), (1, ""))[1]
        if "," not in first:
            delimiter = next((other for other in ";\t|" if other in first), ",")
    table = open_table(source, header=True, delimiter=delimiter, lenient=True)
    if source.form in (".csv", ".tsv") and not _is_header(table.names or ()):
        table = open_table(source, header=False, delimiter=delimiter, lenient=True)
    return table


def _is_header(names: Sequence[str]) -> bool:
    """Whether a first row names columns: short, distinct, no numbers and no sentences."""
    return len(set(names)) == len(names) and all(
        name and len(name) <= 40 and not name[0].isdigit() and not name.endswith((".", "!", "?"))
        for name in names
    )


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list | tuple) and all(isinstance(one, str) for one in cell):
        return "\n\n".join(cell)
    return str(cell) if isinstance(cell, int) and not isinstance(cell, bool) else ""


def _choose(table: Table, columns: Sequence[str] | None) -> list[tuple[str, int]]:
    """Roles ("text", "title", "id") and places of columns, by names or by the longest texts."""
    names = table.columns
    known = {name.casefold(): at for at, name in reversed([*enumerate(names)])}

    def first(role: str, wanted: Sequence[str], but: int = -1) -> list[tuple[str, int]]:
        found = (known[name] for name in wanted if known.get(name, but) != but)
        return [(role, at) for at in islice(found, 1)]

    if columns is not None:
        for name in columns:
            if name not in names:
                raise Skip(Reason.NOT_CHOSEN, name, names)
        roles = ["title" if len(columns) > 1 else "text", *["text"] * (len(columns) - 1)]
        places = map(names.index, columns)
        return [*first("id", _IDS), *zip(roles, places, strict=True)]
    rows = [cells for _, cells in islice(table.stream(), SAMPLE) if cells]
    lengths = [
        sum(len(_text(row[at])) for row in rows if not isinstance(row[at], int))
        for at in range(len(names))
    ]
    text = first("text", [name for name in _TEXTS if name in known and lengths[known[name]]])
    if not text:
        at = max(range(len(names)), key=lengths.__getitem__, default=-1)
        if at < 0 or lengths[at] < SHORTEST * len(rows):
            return []
        text = [("text", at)]
    return [*text, *first("title", _TITLES, text[0][1]), *first("id", _IDS, text[0][1])]
