"""Bytes to text, and text of every kind to sections, most without a parser of its own."""

import ast
import codecs
import json
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cache, partial
from html import unescape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from contrasent.documents.archives import Reason, Skip
from contrasent.documents.sections import Parsed, SectionBuilder, spelled

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SAMPLE = 1 << 16  # bytes from which an encoding is guessed
CODE = (
    ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".vue", ".java", ".kt", ".kts", ".scala",
    ".groovy", ".gradle", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".cs", ".m", ".mm",
    ".swift", ".go", ".rs", ".rb", ".php", ".pl", ".pm", ".lua", ".r", ".jl", ".dart", ".hs",
    ".ml", ".fs", ".ex", ".exs", ".erl", ".clj", ".lisp", ".el", ".f90", ".pas", ".vb", ".asm",
    ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".sql", ".proto", ".graphql", ".tf",
    ".cmake", ".css", ".scss", ".less",
)  # fmt: skip
"""Suffixes of source code that is read by its blocks."""

SETTINGS = (
    ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".bib", ".ics", ".vcf",
)  # fmt: skip
"""Suffixes of configuration, and of records in lines, which are read likewise."""

WIDEST = 1000  # characters of a line that a person wrote; wider ones are data
CAPTIONS = 10  # subtitles that make a paragraph
FIELDS = 200  # characters of an element of XML that is a field of its record

_ENCODED = [
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SET_OUT = re.compile(r"^\s*(?:>>>|[-*+|]|\.\.|:\w|\w+\s*:|\d+[.)])|\n\s+|::$", re.MULTILINE)
_DIVIDED = re.compile(r"(?<=[^\W\d_])\u2010\n[ \t]*(?=[^\W\d_])")  # as man divides words
_RULE = re.compile(r"^\s*([-=~*_#+])\1{2,}\s*$")
_FRONT = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?\n)?(?:\1|\.\.\.)[ \t]*\n", re.DOTALL)
_ENTRY = re.compile(r"([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?$")
_UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.I)
_TAG = re.compile(r"<[^<>]*>")
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")  # in code, where kreuzberg leaves them
_SHOWN = {"softbreak": "\n", "hardbreak": "\n", "html_inline": ""}
_MARKUP = [
    (re.compile(r":[\w.:+-]+:`(?:~(?:[\w.]*\.)?|[!.])?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"\[[^\[\]]+\]_{1,2}"), ""),
    (re.compile(r"(?<!\w)\[`?[~!]?([\w.*]+)`?\](?!\()|\[([^\[\]]+)\]\([^)\s\[]*\)"), r"\1\2"),
    (re.compile(r"`([^`<]+?)(?:\s*<[^>`]*>)?`_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])"), r"\1"),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;:)](?:\s|$))"), ""),
]
_DEFINED = re.compile(
    r"(?:function|func|fn|def|class|struct|enum|interface|trait|impl|module|defmodule|object|sub|proc"
    r"|record|protocol|namespace|message|table|view|procedure)\s{1,9}([A-Za-z_][\w.:]{0,99})",
    re.IGNORECASE,
)
_OPENS = re.compile(r"[^\s})\]]")  # a line that begins something at the outermost level
_TIMES = re.compile(r"[\d:.,]{5,15} {0,3}-->")
_MARKS = re.compile(r"<[^<>]{0,99}>|\{\\[^{}]{0,99}\}")
_INLINE = re.compile(r"\\(?:emph|text\w{2}|underline|mbox|url|texttt|textsc)\{([^{}]{0,500})\}")
_PART = re.compile(r"\\(part|chapter|(?:sub){0,2}section|paragraph)\*?\{([^{}]{0,300})\}")
_PARTS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_ABOUT = re.compile(r"\\(title|author|date)\{([^{}]{0,500})\}")
_TEX = [
    (re.compile(r"(?<!\\)%[^\n]*"), ""),
    (re.compile(r"\\(?:label|ref|eqref|cite\w?|includegraphics|usepackage|bibliography\w{0,5}"
                r"|documentclass|title|author|date)(?:\[[^\]\n]{0,200}\])?\{[^{}]{0,500}\}"), ""),
    (re.compile(r"\\(?:begin|end)\{[^{}]{0,50}\}(?:\[[^\]\n]{0,100}\])?|\\item\b|\\par\b"), "\n\n"),
    (re.compile(r"\\([%&_#$])"), r"\1"),
    (re.compile(r"\\[a-zA-Z]+\*?|[{}]|\\\\"), ""),
    (re.compile(r"~"), " "),
    (re.compile(r" (?=[.,;:)])"), ""),
]  # fmt: skip


def encoding_of(sample: bytes, *, whole: bool) -> str:
    """The encoding of a text by its first bytes, Windows' Western European one as a last resort."""
    for mark, name in _ENCODED:
        if sample.startswith(mark):
            return name
    if b"\0" in sample:
        raise Skip(Reason.BINARY)
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=whole)
        return "utf-8"
    with suppress(ImportError):
        from charset_normalizer import from_bytes

        if (best := from_bytes(sample).best()) is not None:
            return best.encoding
    return "cp1252"


def decode(data: bytes) -> tuple[str, str]:
    r"""The text and its encoding; its lines end in "\n"."""
    encoding = encoding_of(data[:SAMPLE], whole=len(data) <= SAMPLE)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:  # the sample was plain, what follows is not
        encoding = encoding_of(data, whole=True)
        text = data.decode(encoding, "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", ""), encoding.replace("_", "-").removesuffix("-sig")


def read_text(text: str) -> Parsed:
    """Paragraphs of a plain text, by blank lines; without any, each line is one."""
    builder = SectionBuilder()
    text = _DIVIDED.sub("", text)
    blocks = re.split(r"\n[ \t\f]*\n", text)
    if len(blocks) == 1:
        blocks = text.split("\n")
    for block in blocks:
        lines = [line for line in block.splitlines() if line.strip() and not _RULE.match(line)]
        builder.block("\n".join(lines))
    return builder.finish()


def read_python(text: str) -> Parsed:
    """Title (a lone definition) and sections; a file that does not parse is one section of code."""
    builder, lines, done = SectionBuilder(), text.splitlines(), 0
    for names, node in definitions(text):
        if not isinstance(node, ast.Module):
            start = min(one.lineno for one in (node, *node.decorator_list)) - 1
            builder.lines("\n".join(lines[done:start]))
            done = max(done, start)
            builder.heading(len(names), node.name)
        if docstring := ast.get_docstring(node):
            for block in re.split(r"\n\s*\n", docstring):
                set_out = _SET_OUT.search(block)
                builder.lines(block) if set_out else builder.paragraph(without_markup(block))
            builder.lines("\n".join(lines[done : node.body[0].lineno - 1]))
            done = node.body[0].end_lineno or done
    builder.lines("\n".join(lines[done:]))
    return builder.finish()


def definitions(source: str | bytes) -> Iterator[tuple[tuple[str, ...], ast.Module | _Definition]]:
    """A module, its classes and functions with their names; nothing if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sources with "\d" in plain strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    pending: list[tuple[tuple[str, ...], ast.Module | _Definition]] = [((), tree)]
    while pending:
        names, node = pending.pop()
        yield names, node
        if isinstance(node, ast.Module | ast.ClassDef):  # not those within functions
            inner = [one for one in node.body if isinstance(one, _Definition)]
            pending += [((*names, one.name), one) for one in reversed(inner)]


def without_markup(text: str) -> str:
    """A line without inline mark-up: roles, literals, links and emphasis by their text."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def read_markdown(text: str, title: str = "", metadata: Mapping[str, Any] | None = None) -> Parsed:
    """Title, sections and metadata of a file; its front matter wins."""
    metadata = dict(metadata or {})
    if front := _FRONT.match(text):
        metadata |= _front_matter(front[2] or "", toml=front[1] == "+++")
        title = str(metadata.pop("title", None) or title)
        text = text[front.end() :]
    builder = SectionBuilder()
    _add_markdown(builder, text)
    return builder.finish(title, metadata)


def _front_matter(text: str, *, toml: bool) -> dict[str, Any]:
    """The outermost values and lists of TOML, or of YAML front matter."""
    fields, name = dict[str, Any](), ""
    if toml:
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            for key, value in tomllib.loads(text).items():
                fields[key] = value.isoformat() if isinstance(value, date) else value
        return fields
    for line in text.splitlines():
        if entry := _ENTRY.match(line):
            name, value = entry[1].casefold(), (entry[2] or "").strip()
            inner = value.startswith("[") and value.endswith("]")
            fields[name] = list(map(_scalar, value[1:-1].split(","))) if inner else _scalar(value)
        elif name and line.lstrip().startswith("- "):
            before = fields[name] if isinstance(fields[name], list) else []
            fields[name] = [*before, _scalar(line.lstrip()[2:])]
    return fields


def _scalar(text: str) -> Any:
    """A value of YAML, as JSON if possible, else as a string without its quotes."""
    plain = text.strip()
    with suppress(ValueError, RecursionError):
        return json.loads(plain)
    return plain.strip("\"'")


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
                builder.lines(without_tags(token.content))
            case "inline" if level:
                builder.heading(level, _plain(token))
                level = 0
            case "inline" if rows:
                rows[-1].append(_plain(token))
            case "inline":
                builder.paragraph(_plain(token))
            case _:
                pass


def without_tags(html: str) -> str:
    """The text of HTML, roughly."""
    return unescape(_TAG.sub(" ", _UNSEEN.sub(" ", html)))


def _plain(token: "Token") -> str:
    """Inline Markdown without its mark-up: links by their text, code and emphasis bare."""
    return "".join(
        _LINK.sub(r"\1", child.content)
        if child.type == "code_inline"
        else _SHOWN.get(child.type, child.content)
        for child in token.children or ()
    )


def read_notebook(text: str) -> Parsed:
    """Title and sections of a Jupyter notebook: its prose and code, not what the code printed."""
    builder = SectionBuilder()
    for cell in json.loads(text)["cells"]:
        source = cell.get("source", "")
        source = source if isinstance(source, str) else "".join(source)
        if cell.get("cell_type") == "markdown":
            _add_markdown(builder, source)
        elif cell.get("cell_type") == "code":
            builder.lines(source)
    return builder.finish()


def read_blocks(text: str) -> Parsed:
    """Lines of the outermost level that follow a blank one begin a block, below what it defines."""
    builder, block, blank = SectionBuilder(), list[str](), True

    def close() -> None:
        if any(map(str.isalnum, "".join(block))):
            first = next((match for line in block if (match := _DEFINED.search(line))), None)
            if first is not None:
                builder.heading(1, first[1])
            builder.lines("\n".join(block))
        block.clear()

    for line in text.splitlines():
        if blank and _OPENS.match(line):
            close()
        blank = not line.strip()
        if len(line) <= WIDEST:
            block.append(line)
    close()
    return "", *builder.finish("-")[1:]  # a lone definition is no title


def read_json(text: str) -> Parsed:
    """An object of JSON as its lines."""
    return read_blocks(json.dumps(json.loads(text), indent=1, ensure_ascii=False))


def read_captions(text: str) -> Parsed:
    """Subtitles as prose, several per paragraph."""
    builder, said, spoken = SectionBuilder(), list[str](), False
    for line in text.splitlines():
        if _TIMES.match(line):
            spoken = True
            if len(said) >= CAPTIONS and said[-1].endswith((".", "!", "?")):
                builder.paragraph(" ".join(said))
                said.clear()
        elif not line.strip():
            spoken = False
        elif spoken:
            said.append(_MARKS.sub("", line).strip())
    builder.paragraph(" ".join(said))
    return builder.finish()


def read_tex(text: str) -> Parsed:
    """Title, author, parts and prose of TeX; formulas stay as they are written."""
    for _ in range(2):  # for nested ones
        text = _INLINE.sub(r"\1", text)
    about = {name: without_tex(value) for name, value in _ABOUT.findall(text)}
    _, begins, body = text.partition("\\begin{document}")
    builder, start, body = SectionBuilder(), 0, body if begins else text
    for part in [*_PART.finditer(body), None]:
        end = len(body) if part is None else part.start()
        for block in re.split(r"\n[ \t]*\n", without_tex(body[start:end])):
            builder.paragraph(block)
        if part is not None:
            builder.heading(_PARTS.index(part[1]) + 1, without_tex(part[2]))
            start = part.end()
    return builder.finish(about.pop("title", ""), about)


def without_tex(text: str) -> str:
    """TeX without comments, references, environments and the names of commands."""
    for pattern, replacement in _TEX:
        text = pattern.sub(replacement, text)
    return text


def read_xml(text: str) -> Parsed:
    """Elements of XML: prose where text and elements mix, "name: ...; city: ..." for a record."""
    builder = SectionBuilder()
    waiting = [ElementTree.fromstring(text)]
    while waiting:
        element = waiting.pop()
        inner = list(element)
        mixed = bool((element.text or "").strip()) or any((one.tail or "").strip() for one in inner)
        if mixed or not inner:
            texts = _fields(element, ()), "".join(element.itertext())
            builder.paragraph("; ".join(filter(None, texts)))
        elif all(not len(one) and len(one.text or "") <= FIELDS for one in inner):
            builder.paragraph(_fields(element, inner))
        else:
            builder.paragraph(_fields(element, ()))
            waiting += reversed(inner)
    return builder.finish()


def _fields(element: ElementTree.Element, inner: Sequence[ElementTree.Element]) -> str:
    """The attributes of an element and the texts of those in it, each with its name."""
    pairs = [*element.attrib.items()]
    for child in inner:
        pairs += [(child.tag, child.text or ""), *child.attrib.items()]
    return spelled((name.rpartition("}")[2], value) for name, value in pairs)


def _marked(mark: re.Pattern[str], text: str) -> Parsed:
    """Text whose headings have another mark than Markdown's."""
    return read_markdown(mark.sub(lambda match: "#" * len(match[1]) + " ", text))


TEXT: dict[str, Callable[[str], Parsed]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".txt", ".text", ".log", ""), read_text),
    ".ipynb": read_notebook,
    **dict.fromkeys((".py", ".pyi"), read_python),
    **dict.fromkeys((*CODE, *SETTINGS), read_blocks),
    ".json": read_json,
    ".tex": read_tex,
    ".xml": read_xml,
    **dict.fromkeys((".srt", ".vtt"), read_captions),
    ".org": partial(_marked, re.compile(r"^(\*{1,6}) ", re.MULTILINE)),
    ".adoc": partial(_marked, re.compile(r"^(={1,6}) ", re.MULTILINE)),
}
