"""reStructuredText to sections: what is shown, without directives' names, targets and comments."""

import re

from contrasent.documents.sections import Parsed, SectionBuilder

_ADORNED = re.compile(r"([=~^\"'`#*+.:_-])\1{2,}\s*")
_TABLE_RULE = re.compile(r"\A\s*(?:=+(?: +=+)+|\+[-=+]+\+|-+(?: +-+)+)\s*")
_EXPLICIT = re.compile(r" *\.\.(?:$| )")
_DIRECTIVE = re.compile(r" *\.\. +(?:\|[^|]+\| +)?([\w:.-]+):: *(.*)")
_FOOTNOTE = re.compile(r" *\.\. +\[[^\]]+\] +(.*)")
_OPTION = re.compile(r"\A\s+:([\w-]+):(?:\s+(.*))?$")
_BULLET = re.compile(r"^ *[*+-] +", re.MULTILINE)
_UNSEEN = {  # without text of their own
    "toctree", "contents", "include", "raw", "index", "highlight", "default-role", "meta", "role",
    "currentmodule", "automodule", "autoclass", "autofunction", "unicode", "sectnum", "module",
}  # fmt: skip
_NAMING = {  # what follows names a file, a language or a class
    "image", "figure", "code-block", "code", "sourcecode", "literalinclude", "math", "container",
    "class", "only",
}  # fmt: skip
_LITERAL = {"code-block", "code", "sourcecode", "math", "parsed-literal"}
_INLINE = [
    (re.compile(r":[a-zA-Z][\w:+-]{0,30}:`[~!]?([^`<]{1,200}?)\s*(?:<[^`]{0,200})?`"), r"\1"),
    (re.compile(r"``(.+?)``", re.DOTALL), "\0\\1\0"),
    (re.compile(r"(?<![\w`])`([^`<]+?)(?:\s*<[^>`]*>)?`_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])"), r"\1"),
    (re.compile(r"\[(?:#?\w*|\*)\]_"), ""),
    (re.compile(r"\\([^\w\s])"), r"\1"),
]


def read_rst(text: str) -> Parsed:
    """Title and sections of a file, by the marks under and over its headings."""
    builder, lines, marks = SectionBuilder(), text.expandtabs(4).split("\n"), list[str]()
    at, literal = 0, False
    while at < len(lines):
        line, *after = [one.rstrip() for one in [*lines[at : at + 3], "", ""][:3]]
        over = _ADORNED.fullmatch(line) and after[1] == line and after[0]
        under = _ADORNED.fullmatch(after[0]) and len(after[0]) >= len(line) > 0
        if over or (under and not line[0].isspace() and not literal):
            mark = line[0] * 2 if over else after[0][0]
            marks += [mark] * (mark not in marks)
            builder.heading(marks.index(mark) + 1, _plain(after[0] if over else line))
            at += 3 if over else 2
        elif _EXPLICIT.match(line) and not literal:
            at = _explicit(builder, lines, at)
        elif not line or _ADORNED.fullmatch(line):
            at += 1
        else:
            end = _end(lines, at, literal)
            literal = _add(builder, lines[at:end], literal)
            at = end
    return builder.finish()


def _end(lines: list[str], start: int, literal: bool) -> int:
    """Where a block ends: at a blank line, or what is literal where the margin is reached."""
    at = start + 1
    while at < len(lines):
        line = lines[at]
        if (line.strip() and not line[0].isspace()) if literal else not line.strip():
            break
        at += 1
    return at


def _add(builder: SectionBuilder, block: list[str], literal: bool) -> bool:
    """Add a block; True if the next one is literal."""
    if literal and block[0][:1].isspace():
        builder.lines("\n".join(_dedented(block)))
        return False
    rows = [
        re.sub(r"^\s*\| ?|\s*\|\s*$", "", one) for one in block if not _TABLE_RULE.fullmatch(one)
    ]
    text = _plain("\n".join(rows))
    goes_on = text.endswith("::")
    if goes_on:
        text = text.removesuffix("::").rstrip()
    if len(rows) < len(block):
        builder.lines(text)
    elif _BULLET.match(text):
        for item in filter(str.strip, _BULLET.split(text)):
            builder.paragraph(item)
    else:
        builder.block(text)
    return goes_on


def _explicit(builder: SectionBuilder, lines: list[str], at: int) -> int:
    """Add the text of a directive or a note, or pass a comment or a target; the next line."""
    line, end = lines[at], at + 1
    margin = len(line) - len(line.lstrip())
    while end < len(lines) and (not lines[end].strip() or lines[end][: margin + 1].isspace()):
        end += 1
    inner = lines[at + 1 : end]
    if note := _FOOTNOTE.match(line):
        lines[at:end] = [note[1], *_dedented(inner)]
        return at
    directive = _DIRECTIVE.match(line)
    if directive is None or directive[1] in _UNSEEN:
        return end
    name, given = directive[1], directive[2]
    options = [found for one in inner if (found := _OPTION.match(one))]
    told = [found[2] or "" for found in options if found[1] in ("alt", "caption", "header")]
    body = [one for one in inner if not _OPTION.match(one)]
    if name in _LITERAL:
        builder.lines("\n".join(_dedented(body)))
        body = []
    for text in told:
        builder.paragraph(_plain(text))
    lines[at:end] = [*([given] * (name not in _NAMING)), *_dedented(body), ""]
    return at


def _dedented(lines: list[str]) -> list[str]:
    margin = min((len(one) - len(one.lstrip()) for one in lines if one.strip()), default=0)
    return [one[margin:] for one in lines]


def _plain(text: str) -> str:
    """Text without inline mark-up; what is literal stays as it is."""
    for pattern, replacement in _INLINE[:2]:
        text = pattern.sub(replacement, text)
    parts = text.split("\0")
    for pattern, replacement in _INLINE[2:]:
        parts[::2] = [pattern.sub(replacement, part) for part in parts[::2]]
    return "".join(parts)
