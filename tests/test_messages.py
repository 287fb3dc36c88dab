"""What the program prints: the field's words, positive, in sentences of 25 words at most."""

import ast
import re
from pathlib import Path

import contrasent

HOME = Path(contrasent.__file__).parent
LONGEST = 25  # words of a sentence
DATA = {"model/golden.py", "postprocess.py", "documents/sections.py", "search/filters.py"}
"""Modules whose long texts are data: probes, stop words, patterns, SQL."""
SQL = re.compile(r"\s*(SELECT|INSERT|DELETE|UPDATE|REPLACE|CREATE|DROP|PRAGMA)\b")

BANNED = {
    r"\b(is|are|was|were|there's) no\b": "is not",
    r"\bjudg(e|es|ed|ing)\b": "evaluate, score",
    r"\b(teach|teaches|taught|teaching)\b": "train, learn from",
    r"\bsure\b": "confidence",
    r"\b(by|of|with) words\b|\bwords? (alone|add|adds|count)\b": "BM25",
    r"\b(is|are|was|not) kept\b": "saved",
    r"\basked (for )?again\b": "with training queries",
    r"(^|[.;:] )Of ": "the noun first",
    r"\blest\b": "to avoid",
    r"\bwhatever\b": "for any",
    r"\banew\b": "again",
    r"\bby contrast\b": "by contrastive learning",
    r"\bpassed over\b": "skipped",
    r"\b(goes|go|going) on\b": "continues",
    r"\b(goes|go) with\b": "needs",
    r"\bso many\b": "this many",
    r"\bthere (is|are) none\b": "is missing",
    r"\bheldout \{": "eval_size",
}
"""What is not printed, and what is said instead."""


def _text(node):
    """A string as printed, with X for its values; None for what is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    parts = node.values if isinstance(node, ast.JoinedStr) else ()
    return "".join(p.value if isinstance(p, ast.Constant) else "X" for p in parts) or None


def _strings(path):
    """The texts of a module of three words or more: no docstrings except those of commands."""
    tree = ast.parse(path.read_text("utf-8"))
    inner, docstrings = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(part for part in ast.walk(node) if part is not node)
        if isinstance(node, ast.Expr):
            docstrings.add(node.value)
        if isinstance(node, ast.FunctionDef) and "options.command" in map(
            ast.unparse, node.decorator_list
        ):
            for paragraph in re.split(r"\n\s*\n|\n {4}(?=\w+: )", ast.get_docstring(node)):
                yield node.lineno, " ".join(re.sub(r"^\w+: ", "", paragraph).split())
    for node in ast.walk(tree):
        text = None if node in inner or node in docstrings else _text(node)
        if text and text.count(" ") > 1 and not SQL.match(text) and "\\" not in text:
            yield node.lineno, text


def _messages():
    for path in sorted(HOME.rglob("*.py")):
        name = path.relative_to(HOME).as_posix()
        for line, text in _strings(path) if name not in DATA else ():
            yield f"{name}:{line}", text
    for path in sorted([*HOME.rglob("*.html"), *HOME.rglob("page.js"), *HOME.rglob("*.jinja")]):
        text = re.sub(
            r"<style>.*?</style>|\{[%#].*?[%#]\}", " ", path.read_text("utf-8"), flags=re.S
        )
        for line, part in enumerate(text.splitlines(), 1):
            yield f"{path.name}:{line}", re.sub(r"<[^>]*>", "\n", re.sub(r"\{\{.*?\}\}", "X", part))


def test_messages_have_the_fields_words():
    found = list(_messages())
    assert len(found) > 1200
    wrong = [
        f"{place}: {text!r} has {hit[0]!r}; write: {better}"
        for place, text in found
        for banned, better in BANNED.items()
        if (hit := re.search(banned, text))
    ]
    assert not wrong, "\n".join(wrong)


def test_sentences_are_short():
    long = [
        f"{place}: {len(sentence.split())} words: {sentence}"
        for place, text in _messages()
        for sentence in re.split(r"(?<=[.;:!?])\s+|\n", text)
        if len(sentence.split()) > LONGEST and not place.startswith("page.js")
    ]
    assert not long, "\n".join(long)
