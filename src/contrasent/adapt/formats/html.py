"""HTML to sections: headings, paragraphs, code and tables; navigation and the like left out.

What a page says in ``main`` or ``article`` is its text. A page without them is read whole, without
its ``nav``, ``header``, ``footer`` and ``aside``, and what marks itself as such by role or class,
and without lists that are links and nothing else.
"""

import re
from collections import Counter
from dataclasses import dataclass
from html.parser import HTMLParser

from contrasent.adapt.sections import Section, SectionBuilder, one_line


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


_SILENT = _words(
    "script style noscript template svg canvas iframe object select button textarea math"
)
_BOILERPLATE = _words("nav header footer aside dialog")
_ROLES = _words("navigation banner contentinfo search complementary menu dialog")
_CLASSES = _words(
    "nav navbar navigation sidebar sphinxsidebar breadcrumb breadcrumbs menu toc footer cookie "
    "cookies related headerlink pagination share social"
)
_BLOCKS = _words(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr legend li main nav ol p pre section "
    "summary table tbody td tfoot th thead title tr ul"
)
_VOID = _words(
    "area base br col embed hr img input link meta param source track wbr basefont frame"
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_PARAGRAPH = re.compile(r"\n[ \n]*\n")

ENOUGH = 0.3
"""Share of a page's text within ``main`` and ``article`` from which the rest is left out."""


@dataclass(slots=True)
class _Block:
    text: str
    level: int  # of a heading; 0 is text, -1 is set out in lines
    region: str  # "main", "page" or "frame"
    links: int  # characters inside links


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[_Block] = []
        self.title = ""
        self._stack: list[tuple[str, str]] = []  # open elements: name, and what it opened
        self._open: Counter[str] = Counter()  # of names, and of what was opened
        self._text: list[str] = []
        self._links = 0
        self._level = 0
        self._rows: list[list[str]] | None = None  # of the table that is being read

    def updatepos(self, i: int, j: int) -> int:
        """Count no lines: nobody needs them."""
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self._text.append("\n")
        if tag in _BLOCKS:
            self._block(tag)
        if tag in _VOID:
            return
        opened = _opens(tag, attrs)
        self._stack.append((tag, opened))
        self._open.update((tag, f"/{opened}"))
        if tag in _HEADINGS:
            self._level = _HEADINGS[tag]
        elif tag == "table":
            self._rows = [] if self._open["table"] == 1 else None
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # "<div/>" opens a div in HTML
        if tag in ("script", "style", "svg"):
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open[tag]:
            return
        if tag in _BLOCKS:
            self._block(tag, ends=True)
        while self._stack:
            name, opened = self._stack.pop()
            self._open.subtract((name, f"/{opened}"))
            if name == tag:
                break
        if tag in _HEADINGS:
            self._level = 0

    def handle_data(self, data: str) -> None:
        if self._open["/silent"]:
            return
        if self._open["title"]:
            self.title += data
            return
        if not self._open["pre"]:
            data = _SPACE.sub(" ", data)
        self._text.append(data)
        if self._open["a"]:
            self._links += len(data.strip())

    def _block(self, tag: str, *, ends: bool = False) -> None:
        """A block element begins or ends: what was read until here is a block, or a cell."""
        if self._rows is not None:
            if tag in _HEADINGS or (tag in ("table", "pre", "ul", "ol") and not ends):
                self._table()  # the table is there for the layout
            elif tag == "table":
                self._cell()
                self._table()
                return
            else:
                if tag in ("td", "th", "tr", "caption"):
                    self._cell()
                else:
                    self._text.append(" ")
                return
        self._flush()

    def _cell(self) -> None:
        text = one_line("".join(self._text))
        self._text.clear()
        if text and self._rows is not None:
            if not self._rows:
                self._rows.append([])
            self._rows[-1].append(text)

    def _table(self) -> None:
        rows, self._rows = self._rows or [], None
        text = "\n".join(" | ".join(row) for row in rows if row)
        if text:
            self.blocks.append(_Block(text, -1, self._region(), self._links))
        self._links = 0

    def _flush(self) -> None:
        text, links, level = "".join(self._text), self._links, self._level
        self._text.clear()
        self._links = 0
        if not text.strip():
            return
        region = self._region()
        if self._open["pre"]:
            self.blocks.append(_Block(text, -1, region, 0))
            return
        for part in _PARAGRAPH.split(text) if "\n" in text else [text]:
            if part := one_line(part):
                self.blocks.append(_Block(part, level, region, links))

    def _region(self) -> str:
        if self._open["/frame"]:
            return "frame"
        return "main" if self._open["/main"] else "page"

    def close(self) -> None:
        super().close()
        if self._rows is not None:
            self._cell()
            self._table()
        self._flush()


def _opens(tag: str, attrs: list[tuple[str, str | None]]) -> str:
    """What an element is besides its name: silent, frame (boilerplate), main, or nothing."""
    if tag in _SILENT:
        return "silent"
    if tag in _BOILERPLATE:
        return "frame"
    opened = "main" if tag in ("main", "article") else ""
    for name, value in attrs:
        value = (value or "").lower()
        if name == "hidden" or (name == "aria-hidden" and value == "true"):
            return "silent"
        if tag in ("html", "body"):
            continue
        if name == "role" and value in _ROLES:
            return "frame"
        if name == "role" and value in ("main", "article"):
            opened = "main"
        if name in ("class", "id") and not _CLASSES.isdisjoint(value.split()):
            return "silent" if "headerlink" in value else "frame"
    return opened


def read_html(text: str) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a page or a piece of one.

    The title is the first ``h1`` if there is only one, else the ``title`` element.
    """
    reader = _Reader()
    reader.feed(text)
    reader.close()
    sizes: Counter[str] = Counter()
    for block in reader.blocks:
        sizes[block.region] += len(block.text)
    if sizes["main"] > ENOUGH * (sizes["main"] + sizes["page"]):
        blocks = [block for block in reader.blocks if block.region == "main"]
    else:
        blocks = [block for block in reader.blocks if block.region != "frame" and not _links(block)]
    tops = [block.text for block in reader.blocks if block.level == 1]
    title = tops[0] if len(tops) == 1 else reader.title
    builder = SectionBuilder()
    for block in blocks or reader.blocks:
        if block.level > 0:
            if not (block.level == 1 and len(tops) == 1):
                builder.heading(block.level, block.text)
        elif block.level < 0:
            builder.lines(block.text)
        else:
            builder.paragraph(block.text)
    return builder.finish(title)


def _links(block: _Block) -> bool:
    """Whether a block is links and little else: a menu."""
    return block.level == 0 and block.links > 0.8 * len(block.text)
