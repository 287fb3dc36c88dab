"""reStructuredText to sections: what is shown, without directives' names, targets and comments."""

import re
from textwrap import dedent

from contrasent.documents.sections import Parsed, SectionBuilder

_RULE = re.compile(r"([=~^\"'`#*+.:_-])\1{2,}")
_GRID = re.compile(r"\s*(?:=+(?: +=+)+|\+[-=+]+\+|-+(?: +-+)+)")
_EXPLICIT = re.compile(
    r" *\.\.(?: +(?:\|[^|]+\| +)?(?P<name>[\w:.-]+)::| +(?P<note>\[[^\]]+\])(?= ))?"
    r"(?:$| +)(?P<text>.*)"
)
_OPTION = re.compile(r"\s+:([\w-]+):(?:\s+(.*))?$")
_BULLET = re.compile(r"^ *[*+-] +", re.MULTILINE)
_UNSEEN = {  # without text of their own
    "toctree", "contents", "include", "raw", "index", "highlight", "default-role", "meta", "role",
    "currentmodule", "automodule", "autoclass", "autofunction", "unicode", "sectnum", "module",
}  # fmt: skip
_LITERAL = {"code-block", "code", "sourcecode", "math", "parsed-literal"}
# What follows names a file, a language or a class.
_NAMING = {*_LITERAL, "image", "figure", "literalinclude", "container", "class", "only"}
_INLINE = re.compile(
    r"``(.+?)``|:[a-zA-Z][\w:+-]{0,30}:`(?:~(?:[\w.]*\.)?|[!.])?([^`<]{1,200}?)\s*(?:<[^`]{0,200})?`"
    r"|(?<![\w`])`([^`<]+?)(?:\s*<[^>`]*>)?`_{0,2}"
    r"|(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])|\[(?:#?\w*|\*)\]_|\\([^\w\s])",
    re.DOTALL,
)


def read_rst(text: str) -> Parsed:
    """Title and sections of a file, by the marks under and over its headings."""
    builder, marks, at = SectionBuilder(), list[str](), 0
    lines = [*map(str.rstrip, text.expandtabs(4).split("\n")), "", ""]
    while at < len(lines) - 2:
        line, below, third = lines[at : at + 3]
        over = _RULE.fullmatch(line) and third == line and below
        under = _RULE.fullmatch(below) and len(below) >= len(line) > 0
        if over or (under and not line[0].isspace()):
            mark = line[0] * 2 if over else below[0]
            marks += [mark] * (mark not in marks)
            builder.heading(marks.index(mark) + 1, plain(below if over else line))
            at += 3 if over else 2
        elif found := _EXPLICIT.fullmatch(line):
            end = _end(lines, at)
            lines[at:end] = _explicit(builder, found, lines[at + 1 : end])
        elif not line or _RULE.fullmatch(line):
            at += 1
        else:
            start, at = at, lines.index("", at)
            if _add(builder, lines[start:at]):
                start, at = at, _end(lines, at - 1)
                builder.lines(dedent("\n".join(lines[start:at])))
    return builder.finish()


def _end(lines: list[str], start: int) -> int:
    """Where the lines end that stand deeper than one."""
    margin, at = len(lines[start]) - len(lines[start].lstrip()), start + 1
    while at < len(lines) and not lines[at][: margin + 1].strip():
        at += 1
    while at > start + 1 and not lines[at - 1]:
        at -= 1
    return at


def _add(builder: SectionBuilder, block: list[str]) -> bool:
    """Add a paragraph, a list or a table; True if what follows is literal."""
    rows = [re.sub(r"^\s*\| ?|\s*\|$", "", one) for one in block if not _GRID.fullmatch(one)]
    text = plain("\n".join(rows))
    shown = text.removesuffix("::").rstrip()
    if len(rows) < len(block):
        builder.lines(shown)
    elif _BULLET.match(text):
        for item in _BULLET.split(shown):
            builder.paragraph(item)
    else:
        builder.block(shown)
    return text.endswith("::")


def _explicit(builder: SectionBuilder, found: re.Match[str], inner: list[str]) -> list[str]:
    """The lines that a directive or a note stands for; none of a comment or a target."""
    name = found["name"]
    if name in _UNSEEN or not (name or found["note"]):
        return []
    options = [option for one in inner if (option := _OPTION.match(one))]
    told = [one[2] or "" for one in options if one[1] in ("alt", "caption", "header")]
    body = dedent("\n".join(one for one in inner if not _OPTION.match(one)))
    if name in _LITERAL:
        builder.lines(body)
        body = ""
    text = "" if name in _NAMING else found["text"]
    return "\n".join([*(f"{one}\n" for one in told), text, body, ""]).split("\n")


def plain(text: str) -> str:
    """Text of reStructuredText without inline mark-up; what is literal stays as it is."""
    return _INLINE.sub(lambda found: found[found.lastindex] if found.lastindex else "", text)
