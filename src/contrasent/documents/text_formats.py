"""Text of every kind to sections, most without a parser of its own."""

import ast
import json
import quopri
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from contrasent.documents.encodings import decode
from contrasent.documents.markup import without_rst
from contrasent.documents.sections import Parsed, SectionBuilder, spelled

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
FIELDS = 200  # characters of an element of XML that is a field of its record

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SET_OUT = re.compile(r"^\s*(?:>>>|[-*+|]|\.\.|:\w|\w+\s*:|\d+[.)])|\n\s+|::$", re.MULTILINE)
_DIVIDED = re.compile(r"(?<=[^\W\d_])\u2010\n[ \t]*(?=[^\W\d_])")  # as man divides words
_RULE = re.compile(r"^\s*([-=~*_#+])\1{2,}\s*$")
_FOR_PROGRAMS = re.compile(
    r"(?:BEGIN|VERSION|PRODID|UID|DTSTAMP|SEQUENCE|METHOD|CALSCALE|TRANSP|STATUS|CLASS|CREATED"
    r"|LAST-MODIFIED|PRIORITY|TZ\w*|PHOTO|LOGO|KEY|REV|X-[\w-]+|RRULE|ACTION|TRIGGER)(?:;.*)?$",
    re.IGNORECASE,
)
_QUOTED = re.compile(  # as vCard 2.1 writes names beyond ASCII
    r"^([^:\n]{0,200};(?:ENCODING=)?QUOTED-PRINTABLE[^:\n]{0,200}:)((?:.*=\n)*.*)",
    re.IGNORECASE | re.MULTILINE,
)
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
    builder, lines, done = SectionBuilder(), text.split("\n"), 0  # as ast counts them
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
    text = without_rst(text)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


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
    return "", *builder.finish("-")[1:]  # a lone definition is not a title


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


def _unquoted(found: re.Match[str]) -> str:
    data = quopri.decodestring(found[2].encode()).replace(b"\0", b"")
    return found[1] + decode(data)[0].replace("\n", "\\n")


def read_calendar(text: str) -> Parsed:
    """Appointments or addresses: their lines, which may be folded, without what is for programs."""
    builder, lines = SectionBuilder(), list[str]()
    for line in re.sub(r"\n[ \t]", "", _QUOTED.sub(_unquoted, text)).splitlines():
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
    # A line of blanks ends a caption only where the next begins.
    for block in re.split(rf"\n\n+|\n[ \t]+\n(?=(?:.*\n)?{_TIMES.pattern})", text):
        lines = block.splitlines()
        timed = next((at for at, line in enumerate(lines, 1) if _TIMES.match(line)), len(lines))
        shown = (line for line in lines[timed:] if not _TIMES.match(line))
        said += filter(None, (_MARKS.sub("", line).strip() for line in shown))
        if len(said) >= CAPTIONS and said[-1].endswith((".", "!", "?")):
            builder.paragraph(" ".join(said))
            said.clear()
    builder.paragraph(" ".join(said))
    return builder.finish()


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
