"""Source code, configuration, TeX, XML and subtitles to sections, without a parser of each."""

import json
import re
from collections.abc import Sequence
from xml.etree import ElementTree

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
    ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".bib", ".ics", ".vcf",
)  # fmt: skip
"""Suffixes of configuration, and of records in lines, which are read likewise."""

WIDEST = 1000  # characters of a line that a person wrote; wider ones are data
CAPTIONS = 10  # of a film, that make a paragraph
FIELDS = 200  # characters of an element of XML that is a field of its record

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


def read_blocks(text: str) -> Parsed:
    """Lines of the outermost level that follow a blank one begin a block, below what it defines."""
    builder, block, blank = SectionBuilder(), list[str](), True

    def close() -> None:
        if any(map(str.isalnum, "".join(block))):
            first = next((found for line in block if (found := _DEFINED.search(line))), None)
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


def read_json(text: str) -> Parsed:
    """An object of JSON as its lines."""
    return read_blocks(json.dumps(json.loads(text), indent=1, ensure_ascii=False))


def read_captions(text: str) -> Parsed:
    """Subtitles as prose, some together."""
    builder, said, spoken = SectionBuilder(), list[str](), False
    for line in text.splitlines():
        if _TIMES.match(line):
            spoken = True
            if len(said) >= CAPTIONS and said[-1].endswith((".", "!", "?")):
                builder.paragraph(" ".join(said))
                said.clear()
        elif not line.strip():
            spoken = False
        elif spoken:
            said.append(_MARKS.sub("", line).strip())
    builder.paragraph(" ".join(said))
    return builder.finish()


def read_tex(text: str) -> Parsed:
    """Title, author, parts and prose of TeX; formulas stay as they are written."""
    for _ in range(2):  # one within another
        text = _INLINE.sub(r"\1", text)
    about = {name: without_tex(value) for name, value in _ABOUT.findall(text)}
    _, begins, body = text.partition("\\begin{document}")
    builder, at, body = SectionBuilder(), 0, body if begins else text
    for part in [*_PART.finditer(body), None]:
        end = len(body) if part is None else part.start()
        for block in re.split(r"\n[ \t]*\n", without_tex(body[at:end])):
            builder.paragraph(block)
        if part is not None:
            builder.heading(_PARTS.index(part[1]) + 1, without_tex(part[2]))
            at = part.end()
    return builder.finish(about.pop("title", ""), about)


def without_tex(text: str) -> str:
    """TeX without comments, references, environments and the names of commands."""
    for pattern, replacement in _TEX:
        text = pattern.sub(replacement, text)
    return text


def read_xml(text: str) -> Parsed:
    """Elements of XML: prose where text and elements mix, "name: ...; city: ..." of a record."""
    builder = SectionBuilder()
    waiting = [ElementTree.fromstring(text)]
    while waiting:
        element = waiting.pop()
        inner = list(element)
        mixed = bool((element.text or "").strip()) or any((one.tail or "").strip() for one in inner)
        if mixed or not inner:
            builder.paragraph(
                "; ".join(filter(None, (_fields(element, ()), "".join(element.itertext()))))
            )
        elif all(not len(one) and len(one.text or "") <= FIELDS for one in inner):
            builder.paragraph(_fields(element, inner))
        else:
            builder.paragraph(_fields(element, ()))
            waiting += reversed(inner)
    return builder.finish()


def _fields(element: ElementTree.Element, inner: Sequence[ElementTree.Element]) -> str:
    """The attributes of an element and the texts of those in it, each with its name."""
    pairs = [*element.attrib.items()]
    for one in inner:
        pairs += [(one.tag, one.text or ""), *one.attrib.items()]
    return spelled((name.rpartition("}")[2], value) for name, value in pairs)
