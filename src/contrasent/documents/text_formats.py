"""Text of every kind to sections, most without a parser of its own."""

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from html import unescape
from itertools import islice
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import yaml

from contrasent.documents.rst import plain
from contrasent.documents.sections import Parsed, SectionBuilder, flat, spelled

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

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
    ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".bib",
)  # fmt: skip
"""Suffixes of configuration, and of records in lines, which are read likewise."""

WIDEST = 1000  # characters of a line that a person wrote; wider ones are data
CAPTIONS = 10  # subtitles that make a paragraph
PROSE = 5  # words from which a value of front matter is text
FIELDS = 200  # characters of an element of XML that is a field of its record

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SET_OUT = re.compile(r"^\s*(?:>>>|[-*+|]|\.\.|:\w|\w+\s*:|\d+[.)])|\n\s+|::$", re.MULTILINE)
_DIVIDED = re.compile(r"(?<=[^\W\d_])\u2010\n[ \t]*(?=[^\W\d_])")  # as man divides words
_RULE = re.compile(r"^\s*([-=~*_#+])\1{2,}\s*$")
_FRONT = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?\n)?(?:\1|\.\.\.)[ \t]*\n", re.DOTALL)
_ENTRY = re.compile(r"([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?$")
_FOR_PROGRAMS = re.compile(
    r"(?:BEGIN|VERSION|PRODID|UID|DTSTAMP|SEQUENCE|METHOD|CALSCALE|TRANSP|STATUS|CLASS|CREATED"
    r"|LAST-MODIFIED|PRIORITY|TZ\w*|PHOTO|LOGO|KEY|REV|X-[\w-]+|RRULE|ACTION|TRIGGER)(?:;.*)?$",
    re.IGNORECASE,
)
_UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.I)
_TAG = re.compile(r"<[^<>]*>")
_SHOWN = {"softbreak": "\n", "hardbreak": "\n", "html_inline": ""}
_MARKUP = [
    (re.compile(r"(?<!\w)\[`?[~!]?([\w.*]+)`?\](?!\()|\[([^\[\]]+)\]\([^)\s\[]*\)"), r"\1\2"),
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
    text = plain(text)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def read_markdown(text: str) -> Parsed:
    """Title, sections and metadata of a file; the prose of its front matter is text too."""
    builder, title, metadata = SectionBuilder(), "", dict[str, Any]()
    if front := _FRONT.match(text):
        fields = _front_matter(front[2] or "", toml=front[1] == "+++")
        if fields is not None:
            title, text = str(fields.pop("title", None) or ""), text[front.end() :]
            for key, value in islice(flat(fields).items(), FIELDS):
                if value == fields.get(key):
                    metadata[key] = value
                    if isinstance(value, str) and len(value.split()) >= PROSE:
                        builder.paragraph(value)
                else:  # it is from within another
                    told = ", ".join(map(str, value)) if isinstance(value, list) else value
                    builder.paragraph(spelled([(key, str(told))]))
    _add_markdown(builder, text)
    return builder.finish(title, metadata)


def _front_matter(text: str, *, toml: bool) -> dict[str, Any] | None:
    """The values of TOML or YAML by their names; None if it is neither."""
    try:
        fields = tomllib.loads(text) if toml else yaml.load(text, _YAML)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError, ValueError):
        # "title: Part 2: the end" is no YAML, but is written often.
        fields, name = dict[str, Any](), ""
        for line in text.splitlines():
            if found := _ENTRY.fullmatch(line):
                name = found[1].casefold()
                fields[name] = (found[2] or "").strip("\"' ")
            elif name:
                fields[name] = f"{fields[name]} {line.strip()}".strip()
        return fields or None
    if not isinstance(fields, dict):
        return None if fields else {}  # text between two rules
    return {str(key).casefold(): value for key, value in fields.items()}


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
                builder.table(rows)
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
    return "".join(_SHOWN.get(child.type, child.content) for child in token.children or ())


def read_notebook(text: str) -> Parsed:
    """Title and sections of a Jupyter notebook: its prose and code, not what the code printed."""
    builder = SectionBuilder()
    for cell in json.loads(text)["cells"]:
        source = cell.get("source", "")
        source = source if isinstance(source, str) else "".join(source)
        if cell.get("cell_type") == "markdown":
            _add_markdown(builder, source)
        else:
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


def read_object(value: Any) -> Parsed:
    """An object of JSON as lines "name: value"."""
    builder, lines = SectionBuilder(), list[str]()
    waiting: list[tuple[int, str, Any]] = [(0, "", value)]
    while waiting:
        depth, name, value = waiting.pop()
        inner, shown, deeper = list[tuple[str, Any]](), "", depth + bool(name)
        if isinstance(value, dict):
            inner = [(f"{key}: ", one) for key, one in value.items()]
        elif isinstance(value, list):
            inner = [("- ", one) for one in value]
        else:
            shown = value if isinstance(value, str) else json.dumps(value)
        if name or shown:
            lines.append(" " * depth + name + shown.replace("\n", "\n "))
        waiting += ((deeper, *one) for one in reversed(inner))
    builder.lines("\n".join(lines))
    return builder.finish()


def read_calendar(text: str) -> Parsed:
    """Appointments or addresses: their lines, which may be folded, without what is for programs."""
    builder, lines = SectionBuilder(), list[str]()
    for line in re.sub(r"\n[ \t]", "", text).splitlines():
        name, _, value = line.partition(":")
        if _FOR_PROGRAMS.match(name):
            continue
        value = re.sub(r"\\([,;\\nN])", lambda found: "\n" if found[1] in "nN" else found[1], value)
        day = re.fullmatch(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\dZ?)?", value)
        if day:
            value = "-".join(day.groups()[:3]) + (f" {day[4]}:{day[5]}" if day[4] else "")
        if name == "END":
            builder.lines("\n".join(lines))
            lines.clear()
        elif value:
            value = value.removeprefix("mailto:").replace(";", " ").strip()
            lines.append(f"{name.partition(';')[0].capitalize()}: {value}")
    builder.lines("\n".join(lines))
    return builder.finish()


def read_captions(text: str) -> Parsed:
    """Subtitles as prose, several per paragraph."""
    builder, said = SectionBuilder(), list[str]()
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.splitlines()
        timed = next((at for at, line in enumerate(lines, 1) if _TIMES.match(line)), len(lines))
        shown = (line for line in lines[timed:] if not _TIMES.match(line))
        said += (_MARKS.sub("", line).strip() for line in shown)
        if len(said) >= CAPTIONS and said[-1].endswith((".", "!", "?")):
            builder.paragraph(" ".join(said))
            said.clear()
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


def read_marked(mark: str, text: str) -> Parsed:
    """Markdown, but for the mark of its headings: "*" in Org mode, "=" in AsciiDoc."""
    marks = re.compile(rf"^({re.escape(mark)}{{1,6}}) ", re.MULTILINE)
    return read_markdown(marks.sub(lambda found: "#" * len(found[1]) + " ", text))
