"""PDF to sections, by pypdf: pages to paragraphs, its outline to headings.

pypdf is pure Python, BSD-licensed, 0.4 MB and released monthly. A pdf knows lines, not paragraphs:
a paragraph ends at a blank line, or at a line that is short and ends a sentence. Words broken at
a line's end are joined. Lines at the top or bottom of many pages (titles, numbers) are left out.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from contrasent.adapt.sections import Section, SectionBuilder, one_line
from contrasent.errors import MissingExtraError

EDGE = 2
"""Lines at the top and at the bottom of a page that may be a running title or a page number."""

_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
_NO_TITLE = re.compile(
    r"^(untitled|microsoft \w+ -|slide \d|document\d*$|.*\.(docx?|pdf|tex|dvi|indd)$)", re.I
)
_SENTENCE_END = re.compile(r"[.!?:;…。！？।؟][\"'”’»)\]]*$")


def read_pdf(stream: IO[bytes]) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a pdf; no sections if its pages hold no text (scans)."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise MissingExtraError("pypdf", "documents", "reading pdf") from error
    with _silence():
        try:
            reader = PdfReader(stream)
            if reader.is_encrypted and not reader.decrypt(""):
                raise ValueError("encrypted")
            # Ligatures and full-width letters become letters.
            texts = (unicodedata.normalize("NFKC", p.extract_text() or "") for p in reader.pages)
            pages = [[line.rstrip() for line in text.splitlines()] for text in texts]
            headings = _outline(reader)
            title = one_line(str(reader.metadata.title or "")) if reader.metadata else ""
        except (PyPdfError, KeyError, TypeError, AttributeError, IndexError, OSError) as error:
            raise ValueError(str(error) or type(error).__name__) from error
    builder = SectionBuilder()
    _add_pages(builder, _without_running_lines(pages), headings)
    if _NO_TITLE.match(title):
        title = ""
    return builder.finish(title)


@contextmanager
def _silence() -> Iterator[None]:
    """Silence pypdf, which warns on each oddity of a file."""
    logger = logging.getLogger("pypdf")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _outline(reader: Any) -> dict[int, list[tuple[int, str]]]:
    """Headings with their levels, by the number of the page they stand on."""
    found: dict[int, list[tuple[int, str]]] = {}

    def walk(items: list[Any], level: int) -> None:
        for item in items:
            if isinstance(item, list):
                walk(item, level + 1)
            elif (page := reader.get_destination_page_number(item)) is not None:
                found.setdefault(page, []).append((level, one_line(str(item.title))))

    walk(reader.outline, 1)
    return found


def _without_running_lines(pages: list[list[str]]) -> list[list[str]]:
    """Take off lines that stand, numbers aside, at the edge of at least half of the pages."""

    def key(line: str) -> str:
        return _DIGITS.sub("0", one_line(line).casefold())

    def edges(lines: list[str]) -> list[int]:
        filled = [i for i, line in enumerate(lines) if line.strip()]
        return list(dict.fromkeys(filled[:EDGE] + filled[-EDGE:]))

    counts = Counter(one for lines in pages for one in {key(lines[i]) for i in edges(lines)})
    most = max(3, (len(pages) + 1) // 2)
    kept = []
    for lines in pages:
        running = {i for i in edges(lines) if counts[key(lines[i])] >= most}
        kept.append([line for i, line in enumerate(lines) if i not in running])
    return kept


def _add_pages(
    builder: SectionBuilder, pages: list[list[str]], headings: dict[int, list[tuple[int, str]]]
) -> None:
    """Add all pages; paragraphs go on over their ends."""
    lengths = sorted(len(line) for lines in pages for line in lines if line)
    usual = lengths[len(lengths) * 3 // 4] if lengths else 0
    text = ""

    def flush() -> None:
        nonlocal text
        builder.paragraph(text)
        text = ""

    for number, lines in enumerate(pages):
        waiting = headings.get(number, [])[:]
        shown = {one_line(line).casefold() for line in lines}
        for line in [*lines, None]:
            # A heading whose words are no line of the page stands at the page's start.
            while waiting and (
                line is None
                or _is_heading(line, waiting[0][1])
                or not any(_is_heading(one, waiting[0][1]) for one in shown)
            ):
                flush()
                builder.heading(*waiting[0])
                same = line is not None and _is_heading(line, waiting[0][1])
                waiting.pop(0)
                if same:
                    line = ""
            if line is None:
                continue
            if not line.strip():
                flush()
                continue
            text = _joined(text, line.strip())
            if len(line) < 0.7 * usual and _SENTENCE_END.search(line):
                flush()
    flush()


def _is_heading(line: str, heading: str) -> bool:
    line, heading = one_line(line).casefold(), heading.casefold()
    return line == heading or (line.endswith(heading) and len(line) < len(heading) + 12)


def _joined(text: str, line: str) -> str:
    """Two lines of a paragraph; a word broken by a hyphen becomes one."""
    if text.endswith("-") and text[-2:-1].isalpha() and line[:1].islower():
        return text[:-1] + line
    if text and _no_spaces(text[-1]) and _no_spaces(line[0]):
        return text + line
    return f"{text} {line}"


def _no_spaces(letter: str) -> bool:
    """Whether a letter is of a script that sets no spaces: Chinese, Japanese."""
    return "\u3000" <= letter <= "\u9fff" or "\uff00" <= letter <= "\uff60"
