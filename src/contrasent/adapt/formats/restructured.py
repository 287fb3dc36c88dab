"""reStructuredText to sections, without docutils.

docutils knows neither Sphinx's directives nor those of other tools, and leaves errors in the text
where they stand. Here titles, paragraphs, literal blocks and tables are recognised by their shape;
directives give what they hold, apart from those that hold no prose.
"""

import re

from contrasent.adapt.formats.prose import without_markup
from contrasent.adapt.sections import Section, SectionBuilder

_RULE = re.compile(r"^([!-/:-@\[-`{-~])\1{2,}\s*$")
_DIRECTIVE = re.compile(r"^\.\.\s+(?:\|[^|]+\|\s+)?([\w:.+-]+?)\s?::(?:\s+(.*))?$")
_EXPLICIT = re.compile(r"^\.\.(\s|$)")
_FOOTNOTE = re.compile(r"^\.\.\s+\[[^\]]+\]\s+")
_OPTION = re.compile(r"^:[\w -]+:(\s|$)")
_TABLE = re.compile(r"^(\+[-=+]{2,}\+|={2,}(\s+={2,})+)\s*$")
_BULLET = re.compile(r"^(?:[-*+•]|\(?(?:\d+|[a-zA-Z#])[.)])\s+")
_BORDER = re.compile(r"^[\s|+=-]*$")
_CODE = re.compile(
    "(code|code-block|sourcecode|parsed-literal|prompt|doctest|testcode|productionlist|math)$"
)
_NO_PROSE = re.compile(
    "(toctree|index|contents|image|figure|raw|include|literalinclude|highlight|currentmodule|module"
    "|auto.*|testsetup|testoutput|testcleanup|default-role|role|meta|sectnum|bibliography|plot"
    "|csv-table|graphviz)$"
)


def read_rst(text: str) -> tuple[str, tuple[Section, ...]]:
    """Title and sections of a file."""
    reader = _Reader()
    reader.body(text.expandtabs(8).splitlines())
    return reader.builder.finish()


class _Reader:
    def __init__(self) -> None:
        self.builder = SectionBuilder()
        self._styles: list[str] = []

    def body(self, lines: list[str]) -> None:
        """Read lines that stand at one indent."""
        i = 0
        while i < len(lines):
            i = self._block(lines, i)

    def _block(self, lines: list[str], i: int) -> int:
        """Read what starts at line i; give the line after it."""
        line = lines[i]
        if not line.strip():
            return i + 1
        following = lines[i + 1] if i + 1 < len(lines) else ""
        if _RULE.match(line):
            below = lines[i + 2] if i + 2 < len(lines) else ""
            if following.strip() and below.rstrip() == line.rstrip():
                self._title(line[0] * 2, following)
                return i + 3
            if not _TABLE.match(line):
                return i + 1
        if _TABLE.match(line):
            return self._table(lines, i)
        if _EXPLICIT.match(line):
            return self._explicit(lines, i)
        rule = _RULE.match(following)
        if rule and not line[0].isspace() and len(following.rstrip()) >= min(len(line.strip()), 4):
            self._title(following[0], line)
            return i + 2
        return self._paragraph(lines, i)

    def _title(self, style: str, text: str) -> None:
        if style not in self._styles:
            self._styles.append(style)
        self.builder.heading(self._styles.index(style) + 1, without_markup(text))

    def _table(self, lines: list[str], i: int) -> int:
        end = i
        grid = lines[i].lstrip().startswith("+")
        rules = 0
        while end < len(lines) and (
            lines[end].strip() if grid else rules < 3 or lines[end].strip()
        ):
            rules += bool(_TABLE.match(lines[end]))
            end += 1
        rows = [line for line in lines[i:end] if not _BORDER.match(line)]
        cells = [re.split(r"\s*\|\s*" if grid else r"\s{2,}", row.strip(" |")) for row in rows]
        self.builder.lines("\n".join(without_markup(" | ".join(c for c in r if c)) for r in cells))
        return end

    def _explicit(self, lines: list[str], i: int) -> int:
        """A directive, a footnote, a target or a comment."""
        end = _indented(lines, i + 1)
        inner = _dedent(lines[i + 1 : end])
        if found := _DIRECTIVE.match(lines[i]):
            name = found[1].split(":")[-1]
            while inner and (not inner[0].strip() or _OPTION.match(inner[0])):
                inner.pop(0)
            if _CODE.match(name):
                self.builder.lines("\n".join(inner))
            elif not _NO_PROSE.match(name):
                argument = (found[2] or "").strip()
                if " " in argument:  # a sentence, not the number of a version
                    self.builder.paragraph(without_markup(argument))
                self.body(inner)
        elif footnote := _FOOTNOTE.match(lines[i]):
            self.body([lines[i][footnote.end() :], *inner])
        return end

    def _paragraph(self, lines: list[str], i: int) -> int:
        """A paragraph, an item of a list, or an indented block, with the literal that follows."""
        if lines[i][0].isspace():
            end = _indented(lines, i)
            if _EXPLICIT.match(lines[i].lstrip()) or any(
                not line.strip() or _BULLET.match(line.strip()) for line in lines[i + 1 : end]
            ):
                self.body(_dedent(lines[i:end]))
                return end
        else:
            end = i + 1
            indent = bool(_BULLET.match(lines[i]) or _OPTION.match(lines[i]))
            while end < len(lines) and lines[end].strip():
                stripped = lines[end].lstrip()
                if _BULLET.match(stripped) or _OPTION.match(stripped) or _EXPLICIT.match(stripped):
                    break
                if indent and not lines[end][0].isspace():
                    break
                end += 1
        text = " ".join(_BULLET.sub("", line.strip()) if n == 0 else line.strip()
                        for n, line in enumerate(lines[i:end]))  # fmt: skip
        literal = text.endswith("::")
        self.builder.paragraph(without_markup(text.removesuffix("::") + ":" if literal else text))
        if literal:
            start, end = end, _indented(lines, end)
            self.builder.lines("\n".join(_dedent(lines[start:end])))
        return end


def _indented(lines: list[str], i: int) -> int:
    """The line after the indented block, blank lines within it included, that begins at i."""
    end = i
    while i < len(lines) and (not lines[i].strip() or lines[i][0].isspace()):
        i += 1
        if lines[i - 1].strip():
            end = i
    return end


def _dedent(lines: list[str]) -> list[str]:
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    least = min(indents, default=0)
    return [line[least:] for line in lines]
