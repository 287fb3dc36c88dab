"""How a csv or tsv is written: its delimiter, its quotes, and where its header is."""

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
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
HEADS = 20  # rows among which the header is sought
CHARACTERS = 1 << 20  # of lines that are looked at
MOST_KEYED = 50  # rows of a form: names in its first column, values in its second

Cells = Sequence[Any]

csv.field_size_limit(max(csv.field_size_limit(), LONGEST))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The way in which the cells of a row are written."""

    delimiter: str
    quoted: bool = True  # whether a cell may stand in quotes; else they are letters
    spaced: bool = False  # whether blanks after a delimiter are none of the cell's
    escaped: bool = False  # whether quotes in a cell follow a backslash rather than be doubled

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``csv.reader``."""
        escape = {"escapechar": "\\", "doublequote": False} if self.escaped else {}
        return {"delimiter": self.delimiter, "skipinitialspace": self.spaced, **escape}

    def parses(self, lines: Sequence[str]) -> bool:
        """Whether the lines, of which the last row may be cut, are well formed."""
        rows = csv.reader(lines, strict=True, **self.options)
        try:
            for _ in rows:
                pass
        except csv.Error:
            return rows.line_num >= len(lines) >= SAMPLE
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
    tabbed = form == ".tsv"
    stated = lines[0].strip().strip('"')[len(STATED) :] if _states(lines) else ""
    mark = delimiter or stated or _delimiter(lines, "\t" if tabbed else ",")
    if tabbed and mark == "\t" and not _quotes_tabs(lines):
        return Dialect(mark, quoted=False)
    ways = [Dialect(mark, spaced=True), Dialect(mark), Dialect(mark, escaped=True, spaced=True)]
    if not re.search(rf'{re.escape(mark)} +"', "".join(lines)):
        ways.pop(0)
    return next((way for way in ways if way.parses(lines)), Dialect(mark))


def _states(lines: Sequence[str]) -> bool:
    """Whether the first line states the delimiter."""
    return bool(lines) and re.fullmatch(rf'"?{STATED}[{MARKS}]"?\s*', lines[0]) is not None


def _delimiter(lines: Sequence[str], usual: str) -> str:
    """The delimiter that cuts most rows into equally many cells, and then into most cells."""
    text, first = "".join(lines), next((line for line in lines if not line.isspace()), "")
    best, chosen = (False, 0.5, 1), usual if usual in first else ALONE
    for mark in (usual, *MARKS.replace(usual, "")):
        inside = len(re.findall(rf"{re.escape(mark)} +(?!\")", text))
        if mark not in first and inside > 0.8 * text.count(mark):
            continue  # as in a sentence
        widths = Counter[int]()
        with suppress(csv.Error):
            widths.update(len(row) for row in csv.reader(lines, delimiter=mark) if row)
        several = [(n, width) for width, n in widths.items() if width > 1]
        if not several:
            continue
        count, width = max(several)
        share = round(count / widths.total(), 1)
        if (found := (Dialect(mark, spaced=True).parses(lines), share, width)) > best:
            best, chosen = found, mark
    return chosen


def _quotes_tabs(lines: Sequence[str]) -> bool:
    """Whether quotes in a tsv enclose cells, as pandas and Excel write them; else they are letters.

    As in the STS files, whose stray quotes would swallow lines.
    """
    bare = [line.rstrip("\r\n").split("\t") for line in lines]
    opening = [cell for row in bare for cell in row if cell.startswith('"')]
    if not opening or not Dialect("\t").parses(lines):
        return False
    rows = [row for row in csv.reader(lines, delimiter="\t") if row]
    if len({len(row) for row in rows[:-1]}) > 1:
        return False
    whole = [cell for cell in opening if len(cell) > 1 and cell.endswith('"')]
    columns = zip(*(row for row in bare[1:] if any(row)), strict=False)  # below a header
    if any(all(cell[:1] == '"' == cell[-1:] and len(cell) > 1 for cell in col) for col in columns):
        return True
    # A program quotes what holds a quote, a tab or a line break; Excel a comma too.
    commas = any("," in cell for row in bare for cell in row if not cell.startswith('"'))
    needed = [cell for row in rows for cell in row if re.search(r'["\t\n]', cell)]
    return bool(needed) or (not commas and all("," in cell for cell in whole))


def head(rows: Sequence[Cells]) -> int:
    """The place of the first row of a table, below lines such as a title."""
    widths = Counter(len(row) for row in rows)
    usual = widths.most_common(1)[0][0] if widths else 0
    if usual < 2:
        return 0
    needed = 2 if usual > 2 else 1
    found = -1
    for at, row in enumerate(rows[:HEADS]):
        filled = sum(bool(str(cell or "").strip()) for cell in row)
        if (
            str(row[0]).startswith(STATED)
            or len(row) < usual
            or filled < max(needed, (usual + 1) // 2)
        ):
            continue
        if filled == len(row) and (
            found < 0 or _plainly_named([str(c) for c in row], rows[at + 1 :])
        ):
            return at
        found = at if found < 0 else found
    return max(found, 0)


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
    """Whether a first row names columns: yes, unless it plainly is like those below.

    None where it may be either, as sentences above sentences.
    """
    filled = [(at, cell.strip()) for at, cell in enumerate(first) if cell.strip()]
    if not filled:
        return False
    columns = [(cell, [row[at] for row in below if at < len(row)]) for at, cell in filled]
    if _plainly_named(first, below):
        return True
    answers = [_names_column(cell, column) for cell, column in columns]
    if False in answers or _is_form(first, below):
        return False
    sentences = [_is_sentence(cell) for _, cell in filled]
    if not any(sentences):
        return True
    if all(_fits(cell, column) for cell, column in columns):
        return False
    return None


def _plainly_named(first: Sequence[str], below: Sequence[Cells]) -> bool:
    """Whether a row has a known name, or a word above numbers, dates or links."""
    columns = [
        (cell.strip(), [row[at] for row in below if at < len(row)])
        for at, cell in enumerate(first)
        if cell.strip()
    ]
    known = any(roles.is_known(cell) and cell not in column for cell, column in columns)
    return known or _numbered(first) or any(_names_column(*column) for column in columns)


def _numbered(first: Sequence[str]) -> bool:
    """Whether the cells are the numbers that pandas gives to columns without names."""
    cells = [cell for cell in first if cell] if first[0] == "" else list(first)
    return len(cells) > 1 and cells == [str(at) for at in range(len(cells))]


def _names_column(cell: str, column: Sequence[Any]) -> bool | None:
    """Whether a cell above a column is plainly its name, or plainly one of its values."""
    texts = [str(value).strip() for value in column if value is not None and str(value).strip()]
    if not texts:
        return None
    kind, own = roles.kind_of_column(texts), roles.kind_of(cell)
    if kind in (roles.NUMBER, roles.DATE, roles.LINK):
        if own == kind:
            return None if roles.is_year(cell) else False
        return True if own == roles.TEXT else None
    if own in (roles.NUMBER, roles.DATE, roles.LINK) and not roles.is_year(cell):
        return False
    questions = sum(text.endswith("?") for text in texts)
    if cell.endswith("?") and _is_sentence(cell) and len(texts) > 2 and 10 * questions < len(texts):
        return True
    return False if cell in texts else None


def _is_sentence(cell: str) -> bool:
    words = len(cell.split())
    return words > 3 or (words > 1 and cell.endswith((".", "!", "?"))) or len(cell) > 60


def _fits(cell: str, column: Sequence[Any]) -> bool:
    """Whether a cell is as long as those below it, and ends as they do."""
    texts = [str(value).strip() for value in column if value is not None and str(value).strip()]
    lengths = [len(text) for text in texts]
    if len(texts) < 3:
        return False
    ends = sum(text[-1] in ".!?" for text in texts)
    alike = 0.1 * len(texts) <= ends if cell[-1] in ".!?" else ends <= 0.9 * len(texts)
    return alike and min(lengths) / 1.5 <= len(cell) <= max(lengths) * 1.5


def _is_form(first: Cells, below: Sequence[Cells]) -> bool:
    """Whether two columns are a form: names in the first, values of several kinds in the second."""
    if len(first) != 2 or not 1 < len(below) < MOST_KEYED:
        return False
    left, right = zip(first, *(row for row in below if len(row) == 2), strict=True)
    kinds = Counter(filter(None, map(roles.kind_of, right)))
    words = all(roles.kind_of(cell) == roles.TEXT for cell in left) and len(set(left)) == len(left)
    others = kinds.total() - kinds[roles.TEXT]
    if len({*filter(None, map(roles.kind_of, right[1:]))}) == 1:
        return False  # a name above values of one kind
    return words and roles.kind_of(first[1]) == roles.TEXT and 0 < others < 0.9 * kinds.total()
