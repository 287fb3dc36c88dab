"""Rich Text Format to sections by striprtf, with the notes and text boxes that it leaves out."""

import re

from contrasent.documents.archives import Reason, Report, Skip
from contrasent.documents.sections import Parsed, SectionBuilder

MARK, HEADING = "\x1e", "\x1d"  # between groups that are read together; before a heading's level
_BRACE = re.compile(r"\\[\\{}]|([{}])")
_APART = re.compile(
    r"(?<!\\)\{(?:\\\*)?\s*\\"
    r"(footnote|annotation|shptxt|(?:header|footer)[lrf]?|title|author|keywords|subject)(?![a-z])"
)
_ABOUT = {"title": "title", "author": "author", "keywords": "tags", "subject": "subject"}
_STYLE = re.compile(
    r"\{[^{}]*\\s(\d+)[^{}]*?(?:heading|überschrift|titre|título) (\d)", re.IGNORECASE
)
_STYLED = re.compile(r"\\s(\d+)(?![\da-z]) ?")
_PICTURE = re.compile(r"(?:[0-9a-fA-F]{32,}\s*){4,}")
_CELL = re.compile(r"\\(?:nest)?cell(?![a-z]) ?")


def read_rtf(data: bytes, skip: Report) -> Parsed:
    """Title, sections and metadata of a file; headers, footers and notes follow its text."""
    if not data.lstrip()[:5].startswith(b"{\\rtf"):
        raise Skip(Reason.BROKEN)
    try:
        from striprtf.striprtf import rtf_to_text
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None
    groups, raw = list[tuple[str, str]](), _PICTURE.sub("", data.decode("cp1252", "replace"))
    raw = _CELL.sub(" | ", raw)
    levels = {style: f"{HEADING}{level}" for style, level in _STYLE.findall(raw)}
    raw = _STYLED.sub(lambda found: found[0] + levels.get(found[1], ""), raw)
    body = _without_groups(raw, groups)
    for at, (name, inner) in enumerate(groups):  # which may hold others
        groups[at] = name, _without_groups(inner, groups)
    parts = [body.rstrip().removesuffix("}"), *(inner for _, inner in groups), "}"]
    text: str = rtf_to_text(MARK.join(parts), errors="replace")  # type: ignore[no-untyped-call]
    shown, *others = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").split(MARK)
    builder, about = SectionBuilder(), dict[str, str]()
    for (name, _), other in zip(groups, others, strict=False):
        if name in _ABOUT:
            about[_ABOUT[name]] = other
        else:
            builder.notes.append(other)
    for row in shown.split("\n"):
        before, mark, after = row.partition(HEADING)
        if mark:
            builder.heading(int(after[0]), before + after[1:])
        else:
            builder.paragraph(row.strip().removesuffix("|"))
    return builder.finish(about.pop("title", ""), about)


def _without_groups(text: str, groups: list[tuple[str, str]]) -> str:
    """The text without those that stand apart, which are added to ``groups`` by name."""
    kept, at = list[str](), 0
    for begin in _APART.finditer(text):
        if begin.start() >= at:
            kept.append(text[at : begin.start()])
            depth, at = 0, len(text)
            for brace in _BRACE.finditer(text, begin.start()):
                depth += {"{": 1, "}": -1}.get(brace[1], 0)
                if not depth:
                    at = brace.end()
                    break
            groups.append((begin[1], "{" + text[begin.end() : at]))
    return "".join([*kept, text[at:]])
