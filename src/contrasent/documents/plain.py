"""Bytes to text, whatever their encoding; plain text and Python sources to sections."""

import ast
import codecs
import re
import warnings
from collections.abc import Iterator

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
_Leveled = tuple[int, ast.Module | _Definition]
_SET_OUT = re.compile(r"^\s*(?:>>>|[-*+|]|\.\.|:\w|\w+\s*:|\d+[.)])|\n\s+|::$", re.MULTILINE)
_DIVIDED = re.compile(r"(?<=[^\W\d_])\u2010\n[ \t]*(?=[^\W\d_])")  # as man divides words
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


def read_text(text: str) -> tuple[str, tuple[Section, ...]]:
    """Paragraphs of a plain text, by blank lines; without any, each line is one."""
    builder = SectionBuilder()
    text = _DIVIDED.sub("", text)
    blocks = re.split(r"\n[ \t\f]*\n", text)
    if len(blocks) == 1:
        blocks = text.split("\n")
    for block in blocks:
        lines = [line for line in block.splitlines() if line.strip() and not _RULE.match(line)]
        builder.lines("\n".join(lines)) if is_set_out(lines) else builder.paragraph(" ".join(lines))
    return builder.finish()


def read_python(text: str) -> tuple[str, tuple[Section, ...]]:
    """Title (a lone definition) and sections; a file that does not parse is one section of code."""
    builder, lines, done = SectionBuilder(), text.splitlines(), 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sources with "\d" in plain strings
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])
    for level, node in _definitions(tree, 0):
        if not isinstance(node, ast.Module):
            start = min(one.lineno for one in (node, *node.decorator_list)) - 1
            builder.lines("\n".join(lines[done:start]))
            done = max(done, start)
            builder.heading(level, node.name)
        if docstring := ast.get_docstring(node):
            for block in re.split(r"\n\s*\n", docstring):
                set_out = _SET_OUT.search(block)
                builder.lines(block) if set_out else builder.paragraph(without_markup(block))
            builder.lines("\n".join(lines[done : node.body[0].lineno - 1]))
            done = node.body[0].end_lineno or done
    builder.lines("\n".join(lines[done:]))
    return builder.finish()


def _definitions(node: ast.Module | _Definition, level: int) -> Iterator[_Leveled]:
    """A module, its classes and functions, not those within functions, in order."""
    yield level, node
    if isinstance(node, ast.Module | ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, _Definition):
                yield from _definitions(inner, level + 1)
