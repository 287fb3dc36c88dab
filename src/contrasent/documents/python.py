"""Python sources to sections: a section for each function and class, docstring first, then code."""

import ast
import inspect
import re
import warnings

from contrasent.documents.prose import without_markup
from contrasent.documents.sections import Section, SectionBuilder

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SET_OUT = re.compile(r"^\s*(?:>>>|[-*+|]|\.\.|:\w|\w+\s*:|\d+[.)])|\n\s+|::$", re.MULTILINE)


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
        before = lines[start : shown.lineno - 1]
        builder.lines("\n".join(before))
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
        if _SET_OUT.search(block):
            builder.lines(block)
        else:
            builder.paragraph(without_markup(block))
