"""PDF by pdfium: its letters and their places, to headings, paragraphs, columns and tables.

The order is that in which the program wrote, except where it wrote across columns. What is filled
in, and notes, follow the text of their page; pages without text are named.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ctypes import c_ushort
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from contrasent.documents.archives import Reason, Report, Skip
from contrasent.documents.sections import WRAPPED, Parsed, SectionBuilder, proper_title

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

GAP, NARROW = 1.5, 0.5  # heights of a letter that part columns; where other rows have them
LARGER = 1.12  # times the most usual height of letters from which a short paragraph is a heading
LONGEST = 200  # characters of a heading
FEW, HALF = 100, 0.5  # a page of fewer letters, of which a picture takes so much, is a scan
UNREADABLE = 0.3  # share of letters without meaning from which a page is named

_PAGE_NUMBER = re.compile(
    r"\A\W{0,9}(?:(?:page|seite|página|pagina|pág|p|s)\b\W{0,9})?(\d{1,4})"
    r"(?:\W{0,9}(?:of|von|de|sur|di|/)\W{0,9}\d{1,4})?\W{0,9}\Z",
    re.IGNORECASE,
)
NONE = 1 << 20  # no page number
_HYPHENS = "\x02\xad\ufffe"  # at the end of a line, of a word that continues
_MEANINGLESS = re.compile(r"[\ufffd\ue000-\uf8ff\x01\x03-\x08]")


class _Line(NamedTuple):
    """A piece of a line, without wide gaps."""

    text: str
    left: float
    right: float
    top: float
    size: float  # the height of its letters

    @property
    def word(self) -> float:
        """The width of its first word and a space."""
        words = self.text.split(" ", 1)
        return (len(words[0]) + 1) * (self.right - self.left) / max(1, len(self.text))


class _Paragraph(NamedTuple):
    page: int
    size: float
    lines: tuple[str, ...]
    wrapped: bool  # at a width: it is prose
    top: float = 0.0  # of its first line, and of its last; those of a table never meet others
    bottom: float = inf


def read_pdf(
    data: bytes, most: int, skip: Report, alive: Callable[[], None]
) -> tuple[Parsed, dict[str, bytes]]:
    """The document, and attached files; ``alive`` is called after each page."""
    try:
        import pypdfium2
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise Skip(Reason.ENCRYPTED if "password" in str(error) else Reason.BROKEN) from error
    with document:
        document.init_forms()
        read, length = list[tuple[list[list[_Line]], list[str]]](), 0
        for number, page in enumerate(document, 1):
            rows, meaning = _rows(page)
            notes = list(_notes(document, page))
            letters = sum(len(line.text) for row in rows for line in row)
            length += letters
            if length > 4 * most:
                raise Skip(Reason.TOO_MUCH_TEXT)
            if letters < FEW and _pictured(page, letters):
                skip(Reason.PICTURE, f", page {number}")
            elif not meaning:
                skip(Reason.LETTERS, f", page {number}")
            read.append((rows, notes))
            alive()
        about, attached = document.get_metadata_dict(skip_empty=True), dict[str, bytes]()
        for at in range(document.count_attachments()):
            one = document.get_attachment(at)
            with suppress(pypdfium2.PdfiumError):
                attached[one.get_name() or f"{at + 1}"] = bytes(one.get_data())
    metadata = {
        "author": proper_title(about.get("Author", "")),
        "tags": about.get("Keywords"),
        "subject": proper_title(about.get("Subject", "")),
        "date": max(filter(None, map(about.get, ("CreationDate", "ModDate"))), default=None),
    }
    if not attached and not any(rows or notes for rows, notes in read):
        raise Skip(Reason.SCAN)
    return _built(read, about.get("Title", ""), metadata), attached


def _rows(page: "PdfPage") -> tuple[list[list[_Line]], bool]:
    """The lines of a page, each cut at wide gaps; and whether its letters have a meaning."""
    import pypdfium2.raw as c

    text, turns = page.get_textpage(), page.get_rotation() // 90

    def box(at: int, *, loose: bool = False) -> tuple[float, float, float, float]:
        """Left, bottom, right and top of a letter on the page as it is shown."""
        left, bottom, right, top = text.get_charbox(at, loose=loose)
        for _ in range(turns):
            left, bottom, right, top = bottom, -right, top, -left
        return left, bottom, right, top

    codes = [c.FPDFText_GetUnicode(text.raw, at) for at in range(text.count_chars())]

    def line(first: int, last: int) -> _Line:
        letters = "".join(map(chr, codes[first : last + 1]))
        letters = letters.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        shown = next((at for at in range(first, last + 1) if chr(codes[at]).isalnum()), first)
        _, low, _, high = box(shown, loose=True)
        left, right = box(first)[0], box(last)[2]
        return _Line(" ".join(letters.split()), left, right, high, high - low)

    rows, row, start, last, height = list[list[_Line]](), list[_Line](), -1, -1, 0.0
    for at, code in enumerate([*codes, 10]):
        if code in (10, 13):
            if start >= 0:
                rows.append([*row, line(start, last)])
            row, start = [], -1
        elif code not in (32, 160):
            if start < 0:
                start = at
                _, low, _, high = box(at, loose=True)
                height = high - low
            elif last < at - 1:  # spaces before
                gap = box(at)[0] - box(last)[2]
                if gap > NARROW * height > 0:
                    row, start = [*row, line(start, last)], at
            last = at
    pairs = (pair for row in rows for pair in pairwise(row))
    known = Counter(round(after.left) for before, after in pairs if _apart(before, after))
    rows = [_joined_row(row, known) for row in rows]
    shown = "".join(chr(code) for code in codes if code > 32)
    odd = len(_MEANINGLESS.findall(shown)) + codes.count(0)
    return rows, odd <= max(10, UNREADABLE * len(shown))


def _apart(before: _Line, after: _Line) -> bool:
    return after.left - before.right > GAP * before.size


def _joined_row(row: list[_Line], known: Counter[int]) -> list[_Line]:
    """Pieces of a line joined, except where a column begins."""
    joined = row[:1]
    for line in row[1:]:
        if _apart(joined[-1], line) or known[round(line.left)] > 1:
            joined.append(line)
        else:
            before = joined[-1]
            joined[-1] = before._replace(text=f"{before.text} {line.text}", right=line.right)
    return joined


def _pictured(page: "PdfPage", letters: int) -> bool:
    """True if a picture is all, or most, of a page."""
    import pypdfium2.raw as c

    width, height = page.get_size()
    for one in page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = one.get_bounds()
        if not letters or (right - left) * (top - bottom) > HALF * width * height:
            return True
    return False


def _notes(document: "PdfDocument", page: "PdfPage") -> Iterator[str]:
    """What is filled into the fields of a page, and what is noted on it."""
    import pypdfium2.raw as c

    def told(read: Any, *given: Any) -> str:
        size = read(*given, None, 0)
        held = (c_ushort * (size // 2 + 1))()
        read(*given, held, size)
        return bytes(held).decode("utf-16-le", "replace").partition("\0")[0].strip()

    for at in range(c.FPDFPage_GetAnnotCount(page.raw)):
        note = c.FPDFPage_GetAnnot(page.raw, at)
        kind, form = c.FPDFAnnot_GetSubtype(note), document.formenv
        if kind == c.FPDF_ANNOT_WIDGET and form is not None:
            field = c.FPDFAnnot_GetFormFieldType(form.raw, note)
            name = told(c.FPDFAnnot_GetFormFieldName, form.raw, note)
            value = told(c.FPDFAnnot_GetFormFieldValue, form.raw, note)
            if field in (c.FPDF_FORMFIELD_CHECKBOX, c.FPDF_FORMFIELD_RADIOBUTTON):
                chosen = bool(c.FPDFAnnot_IsChecked(form.raw, note))
                value = "yes" if field == c.FPDF_FORMFIELD_CHECKBOX else value
                value = value if chosen else ""
            if value and field != c.FPDF_FORMFIELD_PUSHBUTTON:
                yield f"{name}: {value}" if name else value
        elif kind not in (c.FPDF_ANNOT_WIDGET, c.FPDF_ANNOT_LINK, c.FPDF_ANNOT_POPUP):
            yield told(c.FPDFAnnot_GetStringValue, note, b"Contents")
        c.FPDFPage_CloseAnnot(note)


# ---------------------------------------------------------------------- layout


def _built(read: Sequence[tuple[list[list[_Line]], list[str]]], title: str, about: Any) -> Parsed:
    pages = _without_furniture([rows for rows, _ in read])
    heights, words = Counter[float](), Counter[str]()
    for line in (line for rows in pages for row in rows for line in row):
        heights[round(line.size * 2) / 2] += len(line.text)
        words.update(line.text.split())
    usual = max(heights, key=heights.__getitem__, default=0.0)
    paragraphs = list[_Paragraph]()
    for number, rows in enumerate(pages, 1):
        for one in _paragraphs(number, rows):
            if paragraphs and _goes_on(paragraphs[-1], one):
                before = paragraphs.pop()
                one = before._replace(lines=before.lines + one.lines, bottom=one.bottom)
            paragraphs.append(one)
    large = [one for one in paragraphs if one.size > LARGER * usual]
    headings = {one for one in large if len(one.lines) <= 3 and sum(map(len, one.lines)) <= LONGEST}
    sizes = sorted({round(one.size) for one in headings}, reverse=True)
    builder, left = SectionBuilder(), deque(paragraphs)
    for builder.page, (_, notes) in enumerate(read, 1):
        while left and left[0].page == builder.page:
            one = left.popleft()
            if one in headings:
                level = min(6, sizes.index(round(one.size)) + 1)
                builder.heading(level, _joined(one.lines, words))
            elif one.wrapped:
                builder.paragraph(_joined(one.lines, words))
            else:
                builder.lines("\n".join(one.lines))
        builder.lines("\n".join(filter(None, notes)))
    return builder.finish(title, about)


def _without_furniture(pages: list[list[list[_Line]]]) -> list[list[list[_Line]]]:
    """Pages without their numbers, and with what is in the same place on most of them once."""

    def place(row: list[_Line]) -> tuple[str, int]:
        return " ".join(line.text for line in row), round(row[0].top)

    pages = [_by_place(rows) for rows in pages]
    ends = [dict.fromkeys([*range(min(2, len(rows))), *range(len(rows))[-2:]]) for rows in pages]
    often, offsets = Counter[tuple[str, int]](), Counter[int]()
    for number, (rows, some) in enumerate(zip(pages, ends, strict=True)):
        often.update({place(rows[at]) for at in some})
        offsets.update({_numbered(place(rows[at])[0], number) for at in some})
    kept, seen = list[list[list[_Line]]](), set[tuple[str, int]]()
    for number, (rows, some) in enumerate(zip(pages, ends, strict=True)):
        dropped = set[int]()
        for at in some:
            one = place(rows[at])
            repeated = often[one] > max(2, len(pages) / 2) and one in seen
            offset = _numbered(one[0], number)
            if repeated or (offset != NONE and offsets[offset] > 1):
                dropped.add(at)
            seen.add(one)
        kept.append([row for at, row in enumerate(rows) if at not in dropped])
    return kept


def _by_place(rows: list[list[_Line]]) -> list[list[_Line]]:
    """Rows with a header that was written last at the top, and a footer written first below."""
    tops = [row[0].top for row in rows]
    for _ in range(2):
        if len(rows) > 2 and tops[0] < min(tops[1:]):
            rows, tops = [*rows[1:], rows[0]], [*tops[1:], tops[0]]
        if len(rows) > 2 and tops[-1] > max(tops[:-1]):
            rows, tops = [rows[-1], *rows[:-1]], [tops[-1], *tops[:-1]]
    return rows


def _numbered(text: str, page: int) -> int:
    """How far the number that a line consists of is from its page's place, or `NONE`."""
    found = _PAGE_NUMBER.match(text)
    return int(found[1]) - page if found else NONE


def _paragraphs(page: int, rows: list[list[_Line]]) -> Iterator[_Paragraph]:
    """The paragraphs of a page; rows of a table as lines."""
    steps = [one[0].top - other[0].top for one, other in pairwise(rows)]
    near = sorted(
        step for step, row in zip(steps, rows, strict=False) if 0 < step < 2.5 * row[0].size
    )
    pitch = near[(len(near) - 1) // 2] if near else 0.0
    at, lines = 0, list[_Line]()
    while at < len(rows):
        run = _run(rows, at)
        if len(run) > 1:
            yield from _closed(page, lines)
            lines = []
            yield from _columns(page, run)
            at += len(run)
            continue
        row = rows[at]
        text = " ".join(line.text for line in row)
        line = row[0]._replace(text=text, right=row[-1].right)
        if lines and _parts(lines, line, pitch):
            yield from _closed(page, lines)
            lines = []
        lines.append(line)
        at += 1
    yield from _closed(page, lines)


def _parts(lines: Sequence[_Line], line: _Line, pitch: float) -> bool:
    """True if a line begins a paragraph."""
    last = lines[-1]
    step = last.top - line.top
    if abs(line.size - last.size) > 0.08 * last.size and abs(step) > 0.5 * last.size:
        return True
    aligned = (
        abs(line.left - last.left) < 3 * last.size
        or abs(line.right - last.right) < last.size
        or abs(line.left + line.right - last.left - last.right) < 2 * last.size
    )
    if step > 0 and not aligned:
        return True
    if step < -last.size:  # up, to another column
        return True
    ended = last.text.endswith((".", "!", "?", ":", '"'))
    indented = line.left > last.left + 0.8 * last.size
    return step > 1.3 * max(pitch, last.size) or (ended and indented)


def _closed(page: int, lines: Sequence[_Line]) -> Iterator[_Paragraph]:
    if lines:
        right = max(line.right for line in lines)
        breaks = list(pairwise(lines))
        full = sum(one.right + other.word > right or other.top > one.top for one, other in breaks)
        wrapped = full >= 0.6 * len(breaks)
        first, last, texts = lines[0], lines[-1], tuple(line.text for line in lines)
        yield _Paragraph(page, first.size, texts, wrapped, first.top, last.top)


def _run(rows: list[list[_Line]], start: int) -> list[list[_Line]]:
    """Rows from one on that are in the same columns, close below each other."""
    lefts = [line.left for line in rows[start]]
    run = [rows[start]]
    if len(lefts) < 2:
        return run
    for row in rows[start + 1 :]:
        if not 0 < run[-1][0].top - row[0].top <= 3 * run[-1][0].size:
            break
        columns = [_column(lefts, line) for line in row]
        if None in columns or len(set(columns)) < len(columns):
            break
        run.append(row)
    while len(run) > 1 and len(run[-1]) == 1 and len(run[-2]) == 1:
        run.pop()  # a paragraph below a table
    return run


def _column(lefts: Sequence[float], line: _Line) -> int | None:
    for at, left in enumerate(lefts):
        following = lefts[at + 1] if at + 1 < len(lefts) else float("inf")
        if abs(line.left - left) < line.size / 2 and line.right < following:
            return at
    return None


def _columns(page: int, run: list[list[_Line]]) -> Iterator[_Paragraph]:
    """Columns of prose one after another; rows of a table, cells of several lines put together."""
    lefts = [line.left for line in run[0]]
    grid = [{_column(lefts, line): line for line in row} for row in run]
    right = {
        at: max((row[at].right for row in grid if at in row), default=0.0)
        for at in range(len(lefts))
    }

    def wraps(above: Any, below: Any) -> list[_Line]:
        """The lines that continue lines which were full."""
        return [
            below[at]
            for at in right
            if at in above and at in below
            and above[at].right + below[at].word > right[at]
            and above[at].text.count(" ") > 1
            and above[at].top - below[at].top < 1.6 * above[at].size
        ]  # fmt: skip

    onward = [wraps(*both) for both in pairwise(grid)]
    all_of = [line for some in onward for line in some]
    prose = sum(not line.text[:1].isupper() for line in all_of) >= 0.35 * len(all_of) > 0
    groups, table, size = [[grid[0]]], list[str](), run[0][0].size
    for row, goes_on in zip(grid[1:], onward, strict=True):
        if prose and goes_on:
            groups[-1].append(row)
        else:
            groups.append([row])
    for group in groups:
        columns = [tuple(row[at].text for row in group if at in row) for at in right]
        if len(group) == 1:
            table.append(" | ".join(" ".join(texts) for texts in columns if texts))
            continue
        if table:
            yield _Paragraph(page, size, tuple(table), False)
            table = []
        for texts in filter(None, columns):
            yield _Paragraph(page, size, texts, True)
    if table:
        yield _Paragraph(page, size, tuple(table), False)


def _goes_on(before: _Paragraph, one: _Paragraph) -> bool:
    """True if a paragraph of the next column or page is the end of one."""
    ended = before.lines[-1].endswith((".", "!", "?", ":", '"', ")"))
    alike = before.wrapped and one.wrapped and abs(before.size - one.size) < 0.5
    first, long = one.lines[0][:1], len(before.lines) > 1
    within = first.islower() or (long and (first.isdigit() or len(one.lines) > 1))
    onward = one.page == before.page + 1 or one.top > before.bottom + one.size
    return alike and onward and within and not ended


def _joined(lines: Sequence[str], words: Counter[str]) -> str:
    """Lines as one, and words that were divided at their ends joined."""
    text = ""
    for line in lines:
        last = text.rpartition(" ")[2]
        head = line.partition(" ")[0]
        if last[-1:] in _HYPHENS and last:
            text = text[:-1] + line
        elif last.endswith("-") and last[-2:-1].isalpha() and head[:1].islower():
            # "well-" and "known" are not "wellknown" where "well-known" is written elsewhere.
            text = text + line if words[last + head] else text[:-1] + line
        else:
            space = "" if WRAPPED.match(f"{text[-1:]}\n{line[:1]}", 1) or not text else " "
            text = f"{text}{space}{line}"
    return text
