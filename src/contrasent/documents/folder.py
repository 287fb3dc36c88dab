"""The documents of a folder, an archive or a file: text with its title, headings and order."""

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from contrasent import progress
from contrasent.documents.archives import Choice, Entry, Reason, Skip, entries
from contrasent.documents.encodings import known
from contrasent.documents.parsers import FORMATS, LARGEST, TEXT_LIMIT
from contrasent.documents.sections import Document as Document
from contrasent.documents.sections import Section as Section
from contrasent.documents.worker import FileReader
from contrasent.errors import InputError, OptionError
from contrasent.text.sources import missing
from contrasent.types import several

SHOWN = 5  # names of files that were skipped for one reason
DOCUMENTS = 5_000_000  # of one index, rows of tables included
PASSING = {  # reasons that may pass
    Reason.NEEDS_DOCUMENTS, Reason.NEEDS_PARQUET, Reason.UNREADABLE, Reason.TIMED_OUT,
    Reason.ENDED, Reason.MEMORY, Reason.ALL_TEXT,
}  # fmt: skip
_REMEDIES = {
    Reason.SCAN: "run scans through OCR first",
    Reason.TOO_LARGE: f"split files larger than {LARGEST // 10**6} MB, or write one row per "
    "document",
    Reason.BROKEN: "check whether its own program opens the file, and save it again",
    Reason.EXPANDS: "unpack it first if this is expected",
    Reason.MEMBERS: "unpack the archive into a folder",
    Reason.SECRET: "rename the file if it contains no secret",
    Reason.UNKNOWN: "read other text files with --as-text '*.xyz'",
    Reason.ENCRYPTED: "remove the password",
    Reason.EXCLUDED: "change the --exclude or --include patterns",
    Reason.IGNORED: "--no-ignore reads what .gitignore names",
}


@dataclass(slots=True)
class Skipped:
    """How many files, or rows of tables, were skipped for one reason, and which files."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count a file, or a row."""
        self.count += 1
        if self.names[-1:] != [name]:
            self.names.append(name)

    def __str__(self) -> str:
        return ", ".join(self.names[:SHOWN]) + ", ..." * (len(self.names) > SHOWN)


@dataclass(slots=True)
class ReadReport:
    """Counts of what was read and what was not."""

    files: int = 0  # that gave at least one document
    documents: int = 0
    characters: int = 0  # of their text, titles and headings aside
    skipped: dict[Reason, Skipped] = field(default_factory=dict)
    guessed: dict[str, Skipped] = field(default_factory=dict)  # files of each guessed encoding
    columns: dict[str, str] = field(default_factory=dict)  # for each table, what was read as what
    keys: int = 0

    def skip(self, reason: Reason, name: str) -> None:
        """Count a file, or a row of a table, that was skipped."""
        self.skipped.setdefault(reason, Skipped()).add(name)

    def note(self, name: str, kind: str, *values: Any) -> None:
        """Take over what the reader reports about a file."""
        match kind, *values:
            case "skip", reason, part:
                self.skip(Reason(reason), part)
            case "encoding", encoding:
                self.guessed.setdefault(encoding, Skipped()).add(name)
            case "columns", columns:
                before = self.columns.get(name)
                self.columns[name] = f"{before}; {columns}" if before else columns
            case "keys", count:
                self.keys += count

    def lines(self) -> list[str]:
        """The report for a person, line by line."""
        size = f"{self.files:,} files, {self.characters:,} characters"
        first = f"{self.documents:,} documents of {size}"
        return [first, *self.column_lines(), *self.skipped_lines()]

    def column_lines(self) -> list[str]:
        """The role of every column, a line for each of the first tables."""
        more = len(self.columns) - SHOWN
        shown = [f"{name}: {columns}" for name, columns in list(self.columns.items())[:SHOWN]]
        return shown + [f"{more:,} more tables are read in the same way"] * (more > 0)

    def skipped_lines(self) -> list[str]:
        """Skipped files, one line per reason with the first names."""
        shown = list[str]()
        if self.keys:
            lines = "line with" if self.keys == 1 else "lines with"
            shown.append(f"skipped {self.keys:,} {lines} a key or a password")
        for reason, skipped in self.skipped.items():
            shown.append(f"skipped {skipped.count:,}, {reason}: {skipped}")
        for encoding, files in self.guessed.items():
            guess = f"guessed that {files.count:,} are in {encoding} (--encoding sets it)"
            shown.append(f"{guess}: {files}")
        return shown


@dataclass(frozen=True, slots=True)
class Origin:
    """The documents that an index was made of, as stored there to find them again."""

    path: str
    root: str  # the folder that names of documents are relative to
    columns: list[str] | None
    max_file_text: int
    listed: int = field(default=0, compare=False)  # when they were last listed, ns since 1970
    as_text: list[str] = field(default_factory=list)  # patterns of files that are plain text
    exclude: list[str] = field(default_factory=list)  # patterns of files that are left out
    include: list[str] = field(default_factory=list)  # patterns of the only ones that are read
    gitignore: bool = False  # whether files that .gitignore names are left out
    encoding: str = ""  # of text that is not UTF-8 and declares none

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "Origin | None":
        """The record in an index; None if its rows were not made of documents."""
        if stored.get("kind") != "documents":
            return None
        return cls(**{one.name: stored[one.name] for one in fields(cls) if one.name in stored})

    def to_json(self) -> dict[str, Any]:
        """The record to keep in an index."""
        facts = {name: value for name, value in asdict(self).items() if value not in ([], "")}
        return {"kind": "documents", **facts}

    def choice(self) -> Choice:
        """Which files are read."""
        return Choice(self.exclude, self.include, self.gitignore)

    def open(self, source: str | Path | None = None) -> "DocumentSource":
        """The documents, where they were or where they are now."""
        found = ("path", "root", "listed")
        given = {name: value for name, value in asdict(self).items() if name not in found}
        return DocumentSource(self.path if source is None else source, **given)


class Documents(Protocol):
    """Documents that can be read again, in the same order; ``str`` of them says where they are."""

    report: ReadReport  # of the last iteration that ended, or of the one that is under way
    files: dict[str, dict[str, Any]]  # facts of the files that were read, see `facts_of`

    @property
    def origin(self) -> Origin | None:
        """How to find them again; None if that cannot be."""

    def __iter__(self) -> Iterator[Document]: ...


class DocumentSource:
    """The documents of a folder, an archive or a file; they are read when it is iterated."""

    characters = 1_000_000_000  # of all documents together; they are held in memory later
    reader = FileReader

    def __init__(
        self,
        source: str | Path,
        *,
        columns: Sequence[str] | None = None,
        as_text: Sequence[str] = (),
        exclude: Sequence[str] = (),
        include: Sequence[str] = (),
        gitignore: bool = True,
        encoding: str = "",
        max_file_text: int = TEXT_LIMIT,
    ) -> None:
        self.source, self.columns, self.report = Path(source), columns, ReadReport()
        if not self.source.exists():
            raise InputError(source, missing(self.source))
        if columns is not None and not columns:
            raise OptionError("--columns", list(columns), "choose at least one column")
        self.files: dict[str, dict[str, Any]] = {}
        self._lacking = list[tuple[str, Any, Any]]()  # tables, the column, and those they have
        self._encoding = known(encoding)
        path = self.source.absolute()
        self.origin = Origin(
            str(path),
            str(path if path.is_dir() else path.parent),
            None if columns is None else list(columns),
            max_file_text,
            as_text=several(as_text),
            exclude=several(exclude),
            include=several(include),
            gitignore=gitignore,
            encoding=encoding,
        )
        self._choice = self.origin.choice()

    def __str__(self) -> str:
        return str(self.source)

    def listed(self) -> list[Entry]:
        """All files, none of them opened, in a new report."""
        self.report = ReadReport()
        self.origin = replace(self.origin, listed=time.time_ns())
        return list(entries(self.source, self.report.skip, self._choice))

    def __iter__(self) -> Iterator[Document]:
        """Read all documents."""
        yield from self.read(self.listed())
        if self._lacking and not self.report.columns:
            name, column, choices = self._lacking[0]
            raise OptionError("--columns", column, f"unknown column of {name}", choices=choices)
        if self.report.documents == 0:
            raise InputError(self.source, _nothing(self.report))

    def read(self, chosen: Sequence[Entry]) -> Iterator[Document]:
        """Read the documents of some files; :attr:`files` then has the facts of those files."""
        report, seen = self.report, set[str]()
        self._lacking.clear()
        self.files.clear()
        with (
            progress.task("Reading documents", len(chosen), "files") as advance,
            closing(self.reader(self.columns, self.origin.max_file_text, self._encoding)) as reader,
        ):
            for entry in chosen:
                before, reason = report.documents, None
                try:
                    for document in self._read(entry, reader):
                        if document.id in seen:  # two undecodable names read alike
                            document = replace(document, id=f"{document.id}~{report.documents + 1}")
                        seen.add(document.id)
                        report.documents += 1
                        report.characters += document.size
                        yield document
                except OSError:
                    reason = Reason.UNREADABLE
                except Skip as skip:
                    reason, *columns = skip.args
                    self._lacking += [(entry.name, *columns)] if columns else []
                if reason:
                    suffix = " (remainder)" * (report.documents > before)
                    report.skip(reason, entry.name + suffix)
                    if report.documents == before and reason in PASSING:
                        self.files.pop(entry.name, None)  # it may be readable next time
                    else:
                        self.files[entry.name]["skipped"] = reason
                if entry.name in self.files and entry.changed():
                    self.files[entry.name]["digest"] = ""  # it may be a mixture; read again
                report.files += report.documents > before
                advance(documents=report.documents)

    def _read(self, entry: Entry, reader: FileReader) -> Iterator[Document]:
        """The documents of a file, as long as there is room."""
        self._check_room()
        self.files[entry.name] = facts_of(entry)
        last = entry.name.rpartition("/")[2].casefold()
        if any(fnmatchcase(last, pattern.casefold()) for pattern in self.origin.as_text):
            entry = replace(entry, suffix=".txt")
        for kind, *values in reader.read(entry):
            if kind == "document":
                self._check_room()
                yield values[0]
            else:
                self.report.note(entry.name, kind, *values)
        if entry.size > LARGEST:  # of a dump only once it was read: many are passed over
            self.files[entry.name]["digest"] = entry.digest()

    def _check_room(self) -> None:
        if self.report.characters > self.characters or self.report.documents >= DOCUMENTS:
            raise Skip(Reason.ALL_TEXT)


def facts_of(entry: Entry, *, whole: bool = False) -> dict[str, Any]:
    """The facts of a file that say whether it has changed; ``whole``: even of a dump a digest."""
    digest = entry.digest() if whole or entry.size <= LARGEST else ""
    return {"size": entry.size, "modified": entry.modified, "digest": digest}


def file_of(document: str, files: Container[str]) -> str:
    """The file of a document: that of the same name, or the table whose row it is."""
    name = document
    while name and name not in files:
        name = name.rpartition("#")[0]
    return name or document


def _nothing(report: ReadReport) -> str:
    if not report.skipped:
        return f"the folder is empty; add documents, such as {', '.join(FORMATS[:6])}"
    reasons = ", ".join(f"{files.count:,} {reason}" for reason, files in report.skipped.items())
    remedies = [remedy for reason, remedy in _REMEDIES.items() if reason in report.skipped]
    if not remedies or not {Reason.UNKNOWN, Reason.BINARY}.isdisjoint(report.skipped):
        remedies.append(f"supported formats: {', '.join(FORMATS)}")
    return f"found no text; skipped: {reasons}; {'; '.join(remedies)}"
