"""How a csv or tsv is written: its delimiter, its quotes, and where its header is."""

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from contrasent.text import roles
from contrasent.text.sources import LONGEST, Source

MARKS = ",;\t|"
STATED = "sep="  # a first line by which Excel knows the delimiter
ALONE = "\x1f"  # the delimiter of a table of one column, which no text holds
SAMPLE = 200  # rows that are looked at
HEADS = 20  # rows that are searched for the header
CHARACTERS = 1 << 20  # of lines that are looked at
MOST_KEYED = 50  # rows of a form: names in its first column, values in its second
MOST_TEXT = 0.8  # share of a form's values that are words
MEASURED = (roles.NUMBER, roles.DATE, roles.LINK)  # kinds of cells that name no column

Cells = Sequence[Any]

csv.field_size_limit(max(csv.field_size_limit(), LONGEST))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The way in which the cells of a row are written."""

    delimiter: str
    quoted: bool = True  # whether a cell may be in quotes; else they are letters
    spaced: bool = False  # whether blanks after a delimiter are none of the cell's
    escaped: bool = False  # whether quotes in a cell follow a backslash, as MySQL and Spark write

    def reader(self, lines: Iterable[str], *, strict: bool = True) -> Any:
        """A ``csv.reader`` of lines."""
        options: dict[str, Any] = {"delimiter": self.delimiter, "skipinitialspace": self.spaced}
        if self.escaped:
            options |= {"escapechar": "\\", "doublequote": False}
        return csv.reader(lines, strict=strict, **options)

    def parses(self, lines: Sequence[str]) -> bool:
        """Whether the lines, of which the last row may be cut, are well formed."""
        rows = self.reader(lines)
        try:
            deque(rows, maxlen=0)
        except csv.Error:
            return bool(rows.line_num >= len(lines) >= SAMPLE)
        return True


def sniffed(file: Source) -> str:
    """The format of a file; standard input and pipes, which have no name, by their first line."""
    if file.spool is None:
        return file.form
    first = next((line for _, line in islice(file.lines(), HEADS) if not line.isspace()), "")
    if first[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            json.loads(first)
            return ".jsonl"
    for mark in MARKS:
        cells = next(csv.reader([first], delimiter=mark, skipinitialspace=True), [])
        if len(cells) > 1 and sum(map(roles.is_known, cells)) > 1:
            return ".csv"
    return file.form


def find(file: Source, form: str, delimiter: str | None = None) -> Dialect:
    """The dialect of a csv or tsv by its first lines."""
    lines, size = list[str](), 0
    for _, line in islice(file.lines(), SAMPLE):
        lines.append(line)
        size += len(line)
        if size > CHARACTERS:
            break
    stated = re.fullmatch(rf'"?{STATED}([{MARKS}])"?\s*', "".join(lines[:1]))
    usual = "\t" if form == ".tsv" else ","
    mark = delimiter or (stated[1] if stated else _delimiter(lines, usual))
    if usual == mark == "\t" and not _quotes_tabs(lines):
        return Dialect(mark, quoted=False)
    text, plain = "".join(lines), Dialect(mark)
    ways = [Dialect(mark, spaced=True)] if re.search(rf'{re.escape(mark)} +"', text) else []
    ways += [plain, Dialect(mark, spaced=True, escaped=True)]
    return next((way for way in ways if way.parses(lines)), plain)


def _delimiter(lines: Sequence[str], usual: str) -> str:
    """The delimiter that cuts most rows, then most of the first, into equally many cells."""
    text, first = "".join(lines), next((line for line in lines if not line.isspace()), "")
    best, chosen = (False, 0.5, 0, 1), usual if usual in first else ALONE
    for mark in (usual, *MARKS.replace(usual, "")):
        inside = len(re.findall(rf"{re.escape(mark)} +(?!\")", text))
        if mark not in first and inside > 0.8 * text.count(mark):
            continue  # as in a sentence
        sizes = list[int]()
        with suppress(csv.Error):
            sizes.extend(len(row) for row in csv.reader(lines, delimiter=mark) if row)
        several = [(n, width) for width, n in Counter(sizes).items() if width > 1]
        if not several:
            continue
        count, width = max(several)
        share, begun = round(count / len(sizes), 1), sizes[:HEADS].count(width)
        parses = Dialect(mark, spaced=True).parses(lines)
        # A decimal comma cuts all rows but the header, which is a small share of a long file.
        if (found := (parses, share, begun, width)) > best:
            best, chosen = found, mark
    return chosen


def _quotes_tabs(lines: Sequence[str]) -> bool:
    """Whether quotes in a tsv enclose cells, as pandas and Excel write them, or are letters."""
    bare = [line.rstrip("\r\n").split("\t") for line in lines]
    opening = [cell for row in bare for cell in row if cell.startswith('"')]
    if not opening or not Dialect("\t").parses(lines):
        return False
    rows = [row for row in csv.reader(lines, delimiter="\t") if row]
    if len({len(row) for row in rows[:-1]}) > 1:
        return False
    columns = zip(*(row for row in bare[1:] if any(row)), strict=False)  # below a header
    if any(all(re.fullmatch('".*"', cell) for cell in column) for column in columns):
        return True
    # A program quotes what holds a quote, a tab or a line break; Excel a comma too.
    needed = any(re.search(r'["\t\n]', cell) for row in rows for cell in row)
    commas = any("," in cell for row in bare for cell in row if not cell.startswith('"'))
    return needed or (not commas and all("," in cell for cell in opening if cell.endswith('"')))


def head(rows: Sequence[Cells]) -> int:
    """The place of the first row of a table, below lines such as a title."""
    widths = Counter(len(row) for row in rows)
    usual = widths.most_common(1)[0][0] if widths else 0
    if usual < 2:
        return 0
    needed, begin = max((usual + 1) // 2, 2 if usual > 2 else 1), -1
    for at, row in enumerate(rows[:HEADS]):
        filled = sum(bool(str(cell or "").strip()) for cell in row)
        if len(row) < usual or filled < needed or str(row[0]).startswith(STATED):
            continue
        whole = filled == len(row)
        if whole and (begin < 0 or _plainly_named(list(map(str, row)), rows[at + 1 :])):
            return at
        begin = at if begin < 0 else begin
    return max(begin, 0)


def names(cells: Sequence[str]) -> tuple[str, ...]:
    """Distinct names of columns; of an empty cell its place, of a repeated one with its number."""
    found: list[str] = []
    for at, cell in enumerate(cells):
        name, number = cell or f"column {at}", 1
        while name in found:
            number += 1
            name = f"{cell} {number}"
        found.append(name)
    return tuple(found)


def is_header(first: Sequence[str], below: Sequence[Cells]) -> bool | None:
    """Whether a first row names columns; None where it may be either, as sentences are."""
    columns = _columns(first, below)
    if not columns:
        return False
    if _plainly_named(first, below):
        return True
    if _is_form(first, below) or any(_names_column(*column) is False for column in columns):
        return False
    if not any(_is_sentence(cell) for cell, _ in columns):
        return True
    return False if all(_fits(*column) for column in columns) else None


def _columns(first: Sequence[str], below: Sequence[Cells]) -> list[tuple[str, list[str]]]:
    """The cells of a first row that hold something, each with the texts below it."""
    columns = []
    for at, cell in enumerate(first):
        values = (row[at] for row in below if at < len(row))
        texts = [str(value).strip() for value in values if value is not None]
        columns.append((cell.strip(), list(filter(None, texts))))
    return [column for column in columns if column[0]]


def _plainly_named(first: Sequence[str], below: Sequence[Cells]) -> bool:
    """Whether a row has a known name, the numbers of pandas, or a word above numbers or dates."""
    columns = _columns(first, below)
    cells = list(first) if first[0] else [cell for cell, _ in columns]
    numbered = len(cells) > 1 and cells == [str(at) for at in range(len(cells))]
    known = any(roles.is_known(cell) and cell not in texts for cell, texts in columns)
    # A name of many words may be a text, but not those of both parts of a pair.
    bare = [cell for cell, _ in columns if cell[-1] not in ".!?"]
    paired = len(bare) > 1 and all(
        any(roles.is_named(cell, part) for cell in bare) for part in (roles.QUERY, roles.POSITIVE)
    )
    return numbered or known or paired or any(_names_column(*column) for column in columns)


def _names_column(cell: str, texts: Sequence[str]) -> bool | None:
    """Whether a cell above texts is plainly the name of their column, or plainly one of them."""
    if not texts:
        return None
    kind, own = roles.kind_of_column(texts), roles.kind_of(cell)
    if kind in MEASURED:
        if own == kind:
            return None if roles.is_year(cell) else False
        return True if own == roles.TEXT else None
    if own in MEASURED and not roles.is_year(cell):
        return False
    questions = sum(text.endswith("?") for text in texts)
    if cell.endswith("?") and _is_sentence(cell) and len(texts) > 2 and 10 * questions < len(texts):
        return True
    return False if cell in texts else None


def _is_sentence(cell: str) -> bool:
    words = len(cell.split())
    return words > 3 or (words > 1 and cell.endswith((".", "!", "?"))) or len(cell) > 60


def _fits(cell: str, texts: Sequence[str]) -> bool:
    """Whether a cell is as long as the texts below it, and ends as they do."""
    if len(texts) < 3:
        return False
    lengths, ends = list(map(len, texts)), sum(text[-1] in ".!?" for text in texts)
    alike = 0.1 * len(texts) <= ends if cell[-1] in ".!?" else ends <= 0.9 * len(texts)
    return alike and min(lengths) / 1.5 <= len(cell) <= max(lengths) * 1.5


def _is_form(first: Cells, below: Sequence[Cells]) -> bool:
    """Whether two columns are a form: different names, and values of several kinds."""
    rows = [row for row in (first, *below) if len(row) == 2]
    if len(first) != 2 or not 2 < len(rows) <= MOST_KEYED:
        return False
    names, values = zip(*rows, strict=True)
    kinds = list(filter(None, map(roles.kind_of, values)))
    mixed = len(set(kinds[1:])) > 1 and kinds.count(roles.TEXT) <= MOST_TEXT * len(kinds)
    return mixed and len(set(names)) == len(names) and "" not in names
