"""Tables to documents, a row each, by what they hold; rows that cannot be read are counted."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Document, Section, clean, one_line
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
            texts: dict[str, list[str]] = {"id": [], "title": [], "text": []}
            for (role, _), cell in zip(chosen, cells or (), strict=False):
                texts[role].append(_text(cell))
            title = one_line(" ".join(texts["title"]))
            paragraphs = tuple(p for text in texts["text"] for p in _paragraphs(text))
            if title and not paragraphs:
                paragraphs, title = (title,), ""
            name = "".join(texts["id"]).strip() or str(number)
            sections = (Section((), paragraphs),) if paragraphs else ()
            yield Document(f"{source.shown}#{name}", title, sections)

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
