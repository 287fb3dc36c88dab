"""The documentation of the installed packages, parsed and never imported, as documents."""

import ast
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from contrasent import progress
from contrasent.documents.folder import Origin, ReadReport
from contrasent.documents.sections import Document, Section, sentences
from contrasent.documents.text_formats import definitions, without_markup

LARGEST = 2_000_000  # bytes of a source file; what is larger was written by a program
DEPTH = 2  # parts of a module's name that is documented
REPEATS, OPENING = 10, 6  # texts that may start with the same words: others were generated
LONGEST, SHORTEST = 80, 8  # words of an explanation

# Folders whose documentation is not for the package's users, or is another package's.
PASSED_OVER = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"}
)
Source = tuple[tuple[str, ...], Path]
"""The parts of a module's name, and its file."""

# A line that ends the prose: code, a list, a table, a rule, a directive, "Args:", "See Also".
_END = re.compile(
    r"\s*(?:>>>|```|\$ |[-*+•|] |\(?\w{1,2}[.)] |\.\.|[:@]\w+\b(?![:`])|[-=~^*#+_.]{3}"
    r"|[A-Z]\w*(?: \w+)?:?$|[A-Z]\w+: )"
)
_CODE = re.compile(r"[{}\\<>|=@^~#$]|%\(|::|https?:|\.\.|__|--|\(\)|TODO")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Documented:
    """A function, class or module and its docstring."""

    name: str  # the dotted name to import it by
    summary: str
    explanation: str  # the prose that follows, at most about 80 words; "" if there is none


def installed_sources() -> list[Source]:
    """The public modules of the standard library and of the packages that came from an index."""
    library, files = Path(sysconfig.get_path("stdlib")), list[tuple[Path, Path]]()
    for dist in distributions():
        if dist.read_text("direct_url.json") is None:  # PEP 610: from a folder or a repository
            files += [(Path(file), Path(str(dist.locate_file(file)))) for file in dist.files or ()]
    for pattern in ("*.py", "*/*.py", "*/*/__init__.py"):
        files += [(path.relative_to(library), path) for path in library.glob(pattern)]
    modules = dict[tuple[str, ...], Path]()
    for name, path in sorted(files):
        *folders, last = name.with_suffix("").parts
        parts = (*folders, *([] if last == "__init__" else [last]))
        if (
            name.suffix == ".py"
            and 0 < len(parts) <= DEPTH
            and PASSED_OVER.isdisjoint(parts)
            and all(part.isidentifier() and not part.startswith("_") for part in parts)
        ):
            modules.setdefault(parts, path)
    return list(modules.items())


def documented(sources: Sequence[Source]) -> Iterator[Documented]:
    """Parse modules; those that cannot be parsed are skipped."""
    with progress.task("Reading documentation", len(sources), "files") as advance:
        for parts, path in sources:
            advance()
            try:
                source = path.read_bytes() if path.stat().st_size <= LARGEST else b""
            except OSError:
                continue
            for names, node in definitions(source):
                if not any(name.startswith("_") for name in names):
                    texts = summary_and_explanation(ast.get_docstring(node) or "")
                    if texts[0]:
                        yield Documented(".".join((*parts, *names)), *texts)


def summary_and_explanation(docstring: str) -> tuple[str, str]:
    """Split a docstring into its first sentence and the prose before its first section."""
    prose = _sentences(docstring)
    if not prose or len(prose[0].split()) < 3 or prose[0].endswith((":", ",")):
        return "", ""
    explanation, count = list[str](), 0
    for sentence in filter(_is_prose, prose[1:]):
        if count < LONGEST:
            explanation.append(sentence)
            count += len(_WORD.findall(sentence))
    return prose[0], " ".join(explanation) if count >= SHORTEST else ""


def _sentences(docstring: str) -> list[str]:
    """The sentences before the first section, one line each, without titles and code."""
    prose: list[str] = []
    for block in re.split(r"\n\s*\n", docstring):
        if not block.strip() or block[0].isspace():
            continue  # an example
        lines = block.splitlines()
        ends = next((at for at, line in enumerate(lines) if _END.match(line)), len(lines))
        if ends == len(lines) or prose:  # else it is a title or a signature
            text = without_markup(" ".join(map(str.strip, lines[:ends])))
            prose += filter(None, map(str.strip, sentences(text)))
            if ends < len(lines):
                break
    return prose if not prose or _is_text(prose[0]) else []


def _is_prose(sentence: str) -> bool:
    """True if it is a whole sentence of words."""
    ended = sentence.endswith((".", "!", "?", '."', ".)")) and sentence[0].isupper()
    return ended and 4 <= len(_WORD.findall(sentence)) <= LONGEST and _is_text(sentence)


def _is_text(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    letters = sum(map(len, words)) + sentence.count(" ")
    return letters >= 0.85 * len(sentence) and not _CODE.search(sentence)


class InstalledDocumentation(list[Document]):
    """The explanations of public names of the installed packages as documents."""

    def __init__(self, sources: Sequence[Source], limit: int) -> None:
        explained = {entry.name: entry for entry in documented(sources) if entry.explanation}
        # Names of few parts first; no duplicate texts, and few that begin alike.
        names = sorted(explained, key=lambda name: (name.count("."), zlib.crc32(name.encode())))
        texts, openings, entries = set[str](), Counter[str](), list[Documented]()
        for entry in map(explained.__getitem__, names):
            both = (entry.summary.casefold(), entry.explanation.casefold())
            starts = [" ".join(text.split()[:OPENING]) for text in both]
            if texts.isdisjoint(both) and all(openings[start] < REPEATS for start in starts):
                texts.update(both)
                openings.update(starts)
                entries.append(entry)
                if len(entries) == limit:
                    break
        for entry in entries:
            self.append(Document(entry.name, entry.name, (Section((), (entry.explanation,)),)))
        self.summaries = [(entry.summary, entry.name) for entry in entries]
        characters = sum(len(entry.explanation) for entry in entries)
        self.report = ReadReport(len(sources), len(self), characters)
        self.files = dict[str, Any]()
        self.origin: Origin | None = None

    def __str__(self) -> str:
        return f"{len(self)} names of the installed packages"
