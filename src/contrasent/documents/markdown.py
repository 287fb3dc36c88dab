"""Markdown and notebooks to sections: blocks by markdown-it, mark-up within lines here."""

import json
import re
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any

from contrasent.documents.sections import Section, SectionBuilder

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FRONT = re.compile(r"\A---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*\n", re.DOTALL)
_TITLE = re.compile(r"^title:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# None looks beyond the next mark of its kind, so that hostile text takes linear time.
_INLINE = [
    (re.compile(r"!\[([^\[\]\n]*)\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)"), r"\1"),
    (re.compile(r"\[([^\[\]\n]+)\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)"), r"\1"),
    (re.compile(r"\[([^\[\]\n]+)\]\[[^\]\n]*\]"), r"\1"),
    (re.compile(r"<((?:https?|mailto):[^\s<>]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>\n]*>"), ""),
    (re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*\n]+?)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"(?<![\w_])(_{1,3})(?=\S)([^_\n]+?)(?<=\S)\1(?![\w_])"), r"\2"),
    (re.compile(r"~~(?=\S)([^~\n]+)(?<=\S)~~"), r"\1"),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
    (re.compile(r"\[\^[^\[\]\s]+\]"), ""),
]
_UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.I)
_TAG = re.compile(r"<[^<>]*>")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable(["inline", "text_join"], True)
    return parser


def read_markdown(text: str, title: str = "") -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a file; ``title:`` in its front matter wins."""
    if front := _FRONT.match(text):
        if named := _TITLE.search(front[0]):
            title = named[1].strip("\"'")
        text = text[front.end() :]
    builder = SectionBuilder()
    _add_markdown(builder, text)
    return builder.finish(title)


def _add_markdown(builder: SectionBuilder, text: str) -> None:
    """Add the blocks of a piece of Markdown."""
    level, rows = 0, list[list[str]]()
    for token in _parser().parse(text):
        match token.type:
            case "heading_open":
                level = int(token.tag[1])
            case "tr_open":
                rows.append([])
            case "table_close":
                builder.lines("\n".join(" | ".join(row) for row in rows))
                rows = []
            case "fence" | "code_block":
                builder.lines(token.content)
            case "html_block":
                builder.lines(_without_tags(token.content))
            case "inline" if level:
                builder.heading(level, plain(token.content))
                level = 0
            case "inline" if rows:
                rows[-1].append(plain(token.content))
            case "inline":
                builder.paragraph(plain(token.content))
            case _:
                pass


def _without_tags(text: str) -> str:
    """The text of a block of HTML."""
    return unescape(_TAG.sub(" ", _UNSEEN.sub(" ", text)))


def plain(text: str) -> str:
    """A line of Markdown without its mark-up: links by their text, code and emphasis bare."""
    if text.isalnum():
        return text
    pieces, start = [], 0
    for code in _CODE.finditer(text):
        pieces += [_without(text[start : code.start()]), code[2]]
        start = code.end()
    # Links may hold code: a bracket that is left open is closed by taking the pieces together.
    pieces.append(_without(text[start:]))
    joined = "".join(pieces)
    return _without(joined) if start and "](" in joined else joined


def _without(text: str) -> str:
    if end := text.rfind("-->") + 1:  # each comment before it ends
        text = _COMMENT.sub(" ", text[: end + 2]) + text[end + 2 :]
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text


def read_notebook(text: str) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a Jupyter notebook: its prose and code, not what the code printed."""
    notebook: Any = json.loads(text)
    if not isinstance(notebook, dict):
        raise ValueError("no notebook")
    sheets = notebook.get("worksheets") or [notebook]  # worksheets: format 3
    builder = SectionBuilder()
    for cell in (cell for sheet in sheets for cell in sheet.get("cells", ())):
        source = cell.get("source", cell.get("input", ""))
        source = source if isinstance(source, str) else "".join(source)
        if cell.get("cell_type") == "markdown":
            _add_markdown(builder, source)
        elif cell.get("cell_type") == "heading":
            builder.heading(int(cell.get("level", 1)), source)
        elif cell.get("cell_type") == "code":
            builder.lines(source)
    return builder.finish()
