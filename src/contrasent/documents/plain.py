"""Bytes to text, whatever their encoding; plain text and Python sources to sections."""

import ast
import codecs
import inspect
import re
import warnings
from typing import IO

from contrasent.documents.prose import without_markup
from contrasent.documents.sections import Section, SectionBuilder
from contrasent.documents.table import is_set_out

SAMPLE = 1 << 16  # bytes from which an encoding is guessed

_MARKS = [
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SET_OUT = re.compile(r"^\s*(?:>>>|[-*+|]|\.\.|:\w|\w+\s*:|\d+[.)])|\n\s+|::$", re.MULTILINE)
_RULE = re.compile(r"^\s*([-=~*_#+])\1{2,}\s*$")


def encoding_of(sample: bytes, *, whole: bool) -> str:
    """The encoding of a text by its first bytes, Windows' Western European letters at last."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if b"\0" in sample:
        raise ValueError("binary")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=whole)
        return "utf-8"
    except UnicodeDecodeError:
        pass
    try:
        from charset_normalizer import from_bytes

        best = from_bytes(sample).best()
    except ImportError:
        best = None
    return best.encoding if best is not None else "cp1252"


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


def sniff(stream: IO[bytes]) -> str:
    """The encoding of a stream by its start."""
    sample = stream.read(SAMPLE)
    return encoding_of(sample, whole=len(sample) < SAMPLE)


def read_text(text: str) -> tuple[str, tuple[Section, ...]]:
    """Paragraphs of a plain text, by blank lines; without any, each line is one."""
    builder = SectionBuilder()
    blocks = re.split(r"\n[ \t\f]*\n", text)
    if len(blocks) == 1:
        blocks = text.split("\n")
    for block in blocks:
        lines = [line for line in block.splitlines() if line.strip() and not _RULE.match(line)]
        builder.lines("\n".join(lines)) if is_set_out(lines) else builder.paragraph(" ".join(lines))
    return builder.finish()


def read_python(text: str) -> tuple[str, tuple[Section, ...]]:
    """Title (a lone definition) and sections; a file that does not parse is one section of code."""
    builder = SectionBuilder()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sources with "\d" in plain strings
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        builder.lines(text)
    else:
        _add(builder, tree, text.splitlines(), 0, len(text.splitlines()), 0)
    return builder.finish()


def _add(
    builder: SectionBuilder,
    node: ast.Module | _Definition,
    lines: list[str],
    start: int,
    end: int,
    level: int,
) -> None:
    """Add what stands in lines ``start`` to ``end``: docstring, code, and inner definitions."""
    if docstring := ast.get_docstring(node):
        _add_docstring(builder, docstring)
        shown = node.body[0]
        builder.lines("\n".join(lines[start : shown.lineno - 1]))
        start = shown.end_lineno or start
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for inner in node.body:
            if isinstance(inner, _Definition) and inner.end_lineno is not None:
                first = min([inner.lineno, *(one.lineno for one in inner.decorator_list)]) - 1
                if first < start:  # two statements on one line
                    continue
                builder.lines("\n".join(lines[start:first]))
                builder.heading(level + 1, inner.name)
                _add(builder, inner, lines, first, inner.end_lineno, level + 1)
                start = inner.end_lineno
    builder.lines("\n".join(lines[start:end]))


def _add_docstring(builder: SectionBuilder, docstring: str) -> None:
    """Add a docstring's paragraphs; lists of parameters and examples keep their lines."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        set_out = _SET_OUT.search(block)
        builder.lines(block) if set_out else builder.paragraph(without_markup(block))
