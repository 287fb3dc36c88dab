"""HTML to sections, by the parser of selectolax: what a reader of the page can see."""

import re
from typing import TYPE_CHECKING, Any

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Parsed, SectionBuilder, one_line

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

LINKED = 0.6  # share of its letters in links from which an aside, a header or a footer is a menu
DEEPEST = 8  # tables in one another of which rows are read as such
_UNSEEN = {
    "script", "style", "template", "head", "object", "iframe", "canvas", "rp", "datalist",
    "noframes",
}  # fmt: skip
# "<title/>", which in XHTML ends there and in HTML does not.
_EMPTY = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([\w:-]+)([^<>]*)/>"
)
_ASIDES = {"aside", "footer", "header"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# The text of all other elements continues the line.
INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "ins", "kbd", "mark", "math", "mi", "mn", "mo", "mrow", "nobr", "picture", "q",
    "rt", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
    "var", "wbr",
}  # fmt: skip
_SPACED = {"button", "label", "input", "img", "br", "output", "meter", "progress"}
_TYPED = {"text", "search", "email", "tel", "url", "number", "date", "submit", "button", ""}
_LAID_OUT = "table table, form, main, article, section, h1, h2, h3, h4, h5, h6, pre, textarea"
_ABOUT = {
    "author": "author", "keywords": "tags", "date": "date", "article:published_time": "date",
    "article:modified_time": "date", "dc.date": "date", "dcterms.created": "date",
}  # fmt: skip


class _Lines(SectionBuilder):
    """Collects text for mail, with what is quoted marked as in plain text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = list[str]()

    def heading(self, level: int, text: str) -> None:
        self._add(one_line(text))

    def _add(self, text: str) -> None:
        if text.strip():
            # A ">" of the text itself does not mark a quotation; `clean` removes the space.
            mark = "> " if self.quotes else "\u200b" * text.startswith(">")
            self.texts.append("\n".join(mark + line for line in text.split("\n")))


def read_html(text: str) -> tuple[Parsed, bool]:
    """Title, sections and metadata of a page or a part of one, and whether menus were left out."""
    root, builder = _parsed(text), SectionBuilder()
    page, metadata = _Page(builder), dict[str, Any]()
    page.read(root)
    for node in root.css("meta"):
        about = node.attributes
        name = _ABOUT.get(str(about.get("name") or about.get("property") or "").casefold())
        if name and about.get("content"):
            metadata[name] = max(str(metadata.get(name, "")), str(about["content"]))
    head = root.css_first("head > title")
    return builder.finish("" if head is None else head.text(), metadata), page.menus


def add_html(builder: SectionBuilder, text: str) -> None:
    """Add the headings and the text of a page."""
    _Page(builder).read(_parsed(text))


def html_text(text: str) -> str:
    """The text of a mail in HTML, its paragraphs parted by blank lines."""
    lines = _Lines()
    _Page(lines).read(_parsed(text))
    return "\n\n".join(lines.texts)


def _parsed(text: str) -> "LexborNode":
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None
    if "1999/xhtml" in text[:2000]:
        text = _EMPTY.sub(r"<\1\2></\1>", text)
    root = LexborHTMLParser(text).root
    if root is None:
        raise Skip(Reason.EMPTY)
    return root


class _Page:
    """Reads the elements of a page in their order."""

    def __init__(self, builder: SectionBuilder) -> None:
        self._builder, self._line = builder, list[str]()
        # How deep in elements whose lines are kept, in a heading, in tables.
        self._kept = self._level = self._tables = 0
        self.menus = False

    def read(self, root: "LexborNode") -> None:
        """Add all that can be seen."""
        waiting = [(root, True)]  # nodes that begin, or end
        while waiting:
            node, begins = waiting.pop()
            tag = node.tag or ""
            if not begins and tag in _SPACED:
                self._line.append(" ")
            elif not begins and tag not in INLINE:
                self._enter(tag, -1)
            elif begins and not self._begin(node) and node.is_element_node:
                waiting.append((node, False))
                waiting += ((one, True) for one in reversed([*node.iter(include_text=True)]))
        self._enter("", 0)

    def _begin(self, node: "LexborNode") -> bool:
        """Add the text of a node, or the block that it begins; True if what it holds is done."""
        if node.is_text_node:
            self._line.append(node.text_content or "")
            return False
        tag = node.tag or ""
        if not node.is_element_node or tag in _UNSEEN or self._is_menu(node, tag):
            return True
        if tag == "svg":  # of a drawing its letters
            self._line += (f" {one.text()} " for one in node.css("text"))
            return True
        if tag in _SPACED:
            self._line.append("\n" if tag == "br" else f" {_shown(node, tag)} ")
        elif tag not in INLINE:
            self._enter(tag, 1)
            # Tables also lay out pages; those whose cells hold no more than text do not.
            if tag == "table" and self._tables < DEEPEST:
                laid_out = node.css(_LAID_OUT)[:2]
                if all(one.mem_id == node.mem_id for one in laid_out):
                    rows = node.css("caption, tr")
                    self._builder.table(map(_text, row.css("td, th") or [row]) for row in rows)
                    self._enter(tag, -1)
                    return True
        return False

    def _enter(self, tag: str, by: int) -> None:
        """End the paragraph, and begin (1) or end (-1) a block."""
        text = "".join(self._line)
        self._line.clear()
        if self._level:
            self._builder.heading(self._level, text)
        elif self._kept:
            self._builder.lines(text)
        else:
            self._builder.paragraph(text)
        self._tables += by * (tag == "table")
        self._kept += by * (tag in ("pre", "textarea"))
        self._builder.quotes += by * (tag == "blockquote")
        self._level = max(by, 0) * _HEADINGS[tag] if tag in _HEADINGS else self._level

    def _is_menu(self, node: "LexborNode", tag: str) -> bool:
        """True for what leads elsewhere: navigation, and asides and footers of links."""
        role = (node.attributes.get("role") or "").casefold() if node.attributes else ""
        menu = tag == "nav" or role in ("navigation", "menu", "menubar")
        if not menu and tag in _ASIDES and node.css_first("h1") is None:
            letters = len("".join(node.text().split()))
            linked = sum(len("".join(link.text().split())) for link in node.css("a"))
            menu = letters > 0 and linked > LINKED * letters
        self.menus = self.menus or menu
        return menu


def _shown(node: "LexborNode", tag: str) -> str:
    """What an element shows that holds no text."""
    about = node.attributes
    if tag == "img":
        return about.get("alt") or ""
    if tag == "input" and (about.get("type") or "").casefold() in _TYPED:
        return about.get("value") or about.get("placeholder") or ""
    return ""


def _text(node: "LexborNode") -> str:
    """The text of a cell."""
    builder = _Lines()
    _Page(builder).read(node)
    return " ".join(builder.texts)
