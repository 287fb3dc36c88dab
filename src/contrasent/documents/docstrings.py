"""The documentation of the installed packages, parsed and never imported, as documents."""

import ast
import gc
import importlib.util
import os
import site
import sysconfig
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from contrasent import progress
from contrasent.documents.archives import Reason
from contrasent.documents.duplicates import hash_of
from contrasent.documents.folder import ReadReport, Skipped
from contrasent.documents.prose import summary_and_explanation
from contrasent.documents.sections import Document, Section
from contrasent.errors import InputError

LARGEST = 2_000_000  # bytes of a source file; what is larger was written by a program
REPEATS = 10  # texts that start alike: what was generated would drown what was written
DEPTH = 3  # parts of a path: half of the files, which define most of the names of few parts
OPENING = 6  # words by which texts start alike

# Folders whose documentation is not for the package's users, or is another package's.
PASSED_OVER = frozenset(
    {"test", "tests", "_tests", "idlelib", "lib2to3", "turtledemo", "_vendor", "_vendored"}
    | {"__pycache__", "site-packages", "dist-packages"}
)

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Documented:
    """A function, class or module and what its docstring says."""

    name: str  # the dotted name to import it by, as far as it is known without importing
    summary: str
    explanation: str  # the prose that follows, at most about 80 words; "" if there is none


@dataclass(frozen=True, slots=True)
class Reading:
    """The docstrings that were read."""

    documented: list[Documented]  # in the order of their files and lines
    files: int
    skipped: int


@dataclass(slots=True)
class _Module:
    """One source file: its docstrings by name, and the names it makes public."""

    name: str
    docstrings: list[tuple[str, str]] = field(default_factory=list)
    public: frozenset[str] | None = None
    imports: list[tuple[str, str]] = field(default_factory=list)


def read_documentation(
    folders: Sequence[Path] | None = None,
    *,
    limit_files: int | None = None,
    depth: int | None = None,
) -> Reading:
    """Read docstrings and count the files."""
    for folder in folders or ():
        if not folder.is_dir():
            raise InputError(folder, "no such folder")
    files = list(installed_sources() if folders is None else sources_below(folders))
    if depth is not None:
        files = [(root, path) for root, path in files if len(path.relative_to(root).parts) <= depth]
    if limit_files is not None and limit_files < len(files):
        files = [files[i * len(files) // limit_files] for i in range(limit_files)]
    modules: list[_Module] = []
    collects = gc.isenabled()
    gc.disable()  # syntax trees hold no cycles; to look for some takes a quarter of the time
    try:
        with progress.task("Reading documentation", len(files), "files") as advance:
            for root, path in files:
                modules += filter(None, [_parse(root, path)])
                advance()
    finally:
        if collects:
            gc.enable()
    return Reading(list(_documented(modules)), len(modules), len(files) - len(modules))


def sources_below(folders: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """All sources below some folders, with the folder, in the order of their paths."""
    for folder in folders:
        root = folder.resolve()
        for parent, inside, files in os.walk(root):
            hidden = [name for name in inside if name in PASSED_OVER or name.startswith(".")]
            inside[:] = sorted(set(inside).difference(hidden))
            for path in sorted(Path(parent, name) for name in files if name.endswith(".py")):
                if not path.name.startswith(".") and not path.is_symlink():
                    yield root, path


def installed_sources() -> Iterator[tuple[Path, Path]]:
    """All sources of the installed distributions and of the standard library, with their roots."""
    paths = sysconfig.get_paths()
    places = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    for folder in dict.fromkeys(Path(place).resolve() for place in places):
        if folder.is_dir():
            yield from ((folder, path) for path in sorted(_distributed(folder)))
    library = Path(paths["stdlib"])
    if library.is_dir():
        yield from sources_below([library])


def _distributed(folder: Path) -> set[Path]:
    """The sources in a site folder that its distributions list as their own."""
    listed = {
        folder / file
        for distribution in distributions(path=[str(folder)])
        if not _is_private(distribution)
        for file in distribution.files or ()
        if file.suffix == ".py" and not PASSED_OVER.intersection(file.parts)
    }
    return {path for path in listed if path.is_file() and path.resolve() == path}


def _is_private(distribution: Distribution) -> bool:
    """Whether it came straight from a folder, an archive or a repository, not from an index."""
    # By PEP 610; conda's packages carry that file as well, for the machine that built them.
    installer = (distribution.read_text("INSTALLER") or "").strip()
    return distribution.read_text("direct_url.json") is not None and installer != "conda"


def _parse(root: Path, path: Path) -> _Module | None:
    parts = path.relative_to(root).with_suffix("").parts
    package = parts[-1] == "__init__"
    module = _Module(".".join(parts[:-1] if package else parts))
    try:
        if path.stat().st_size > LARGEST:
            return None
        source = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sources with "\d" in plain strings
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module.docstrings.extend(_docstrings(tree, ""))
    for statement in _statements(tree.body):
        if isinstance(statement, ast.ImportFrom) and package:
            name = "." * statement.level + (statement.module or "")
            with suppress(ImportError, ValueError):  # beyond the topmost package
                origin = importlib.util.resolve_name(name, module.name)
                module.imports.extend((origin, alias.name) for alias in statement.names)
        elif isinstance(statement, ast.Assign) and (
            getattr(statement.targets[0], "id", "") == "__all__"
        ):
            names = getattr(statement.value, "elts", None)  # of a list or a tuple
            module.public = names and frozenset(
                str(name.value) for name in names if isinstance(name, ast.Constant)
            )
    return module


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body and of the branches in it, not of the functions and classes."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for branch in ("body", "handlers", "orelse", "finalbody"):
                for one in getattr(statement, branch, []):
                    handler = isinstance(one, ast.ExceptHandler)
                    yield from _statements(one.body if handler else [one])


def _docstrings(node: ast.Module | _Definition, name: str) -> Iterator[tuple[str, str]]:
    """Names and docstrings of a node and of what is public in it, not of functions in functions."""
    if docstring := ast.get_docstring(node, clean=False):
        yield name, docstring
    if isinstance(node, ast.Module | ast.ClassDef):
        for inner in _statements(node.body):
            if isinstance(inner, _Definition) and not inner.name.startswith("_"):
                yield from _docstrings(inner, f"{name}.{inner.name}" if name else inner.name)


def _documented(modules: list[_Module]) -> Iterator[Documented]:
    """Shorten names to where packages offer them, and texts to summary and explanation."""
    public = {module.name: module.public for module in modules}
    offers = defaultdict[tuple[str, str], list[str]](list)  # of an origin and a name
    for module in modules:
        for origin, name in module.imports:
            if f"{origin}.".startswith(f"{module.name}."):
                offers[origin, name].append(module.name)
    seen: set[str] = set()
    for module in modules:
        for inner, docstring in module.docstrings:
            # numpy.linalg._linalg.svd: numpy.linalg.svd, because numpy.linalg imports it from there
            place, top = module.name, inner.partition(".")[0]
            while top:
                names = public.get(place)
                starred = offers.get((place, "*"), []) if names is None or top in names else []
                above = [p for p in [*offers.get((place, top), []), *starred] if p != place]
                if not above:
                    break
                place = min(above, key=len)
            name = f"{place}.{inner}" if inner else place
            summary, explanation = summary_and_explanation(docstring)
            if summary and name not in seen:
                seen.add(name)
                yield Documented(name, summary, explanation)


class InstalledDocumentation:
    """The documentation of the installed packages, a document a public and explained name."""

    def __init__(self, limit: int) -> None:
        self.limit, self.report = limit, ReadReport()
        self.files: dict[str, dict[str, Any]] = {}

    @property
    def origin(self) -> dict[str, Any]:
        """Nothing: an index of them does not follow what is installed."""
        return {}

    def __str__(self) -> str:
        return f"{self.limit} names of the installed packages"

    def __iter__(self) -> Iterator[Document]:
        """Read all sources, then give the documents."""
        found = read_documentation(depth=DEPTH)
        report = self.report = ReadReport(files=found.files)
        if found.skipped:
            report.skipped[Reason.BROKEN] = Skipped(found.skipped)
        public = [one for one in found.documented if "._" not in f".{one.name}"]
        public.sort(key=lambda one: (one.name.count("."), hash_of(one.name)))
        texts, openings = set[str](), Counter[str]()
        for one in public:
            both = (one.summary.casefold(), one.explanation.casefold())
            starts = [" ".join(text.split()[:OPENING]) for text in both]
            many = any(openings[start] >= REPEATS for start in starts)
            if many or not one.explanation or not texts.isdisjoint(both):
                continue
            texts.update(both)
            openings.update(starts)
            report.documents += 1
            report.characters += len(one.summary) + len(one.explanation)
            text = Section((), (one.summary, one.explanation))
            yield Document(one.name, one.name, (text,), docstring=True)
            if report.documents == self.limit:
                return
