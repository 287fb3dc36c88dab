"""From a name to bytes and lines of text: a file (gzip or xz too), a folder, a pipe."""

import gzip
import io
import json
import lzma
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from contrasent.errors import InputError
from contrasent.files import writing

SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
PACKED = (".txt", ".csv", ".tsv", ".jsonl")  # the formats that are also read packed: ".txt.gz"
PACKINGS = (".gz", ".xz")
JSON, ARROW = ".json", ".arrow"  # of files that are named, or that a data set's folder names
KNOWN = ", ".join((*FORMATS, JSON, *(f"{form}{end}" for form in PACKED for end in PACKINGS)))

LONGEST = 1 << 26  # characters in one line: beyond it a file is not taken for text

FREE, DENSEST = 10_000_000, 200  # bytes that anything may unpack to; times its size beyond

Lines = Iterator[tuple[int, str]]


class ExpansionError(InputError):
    """A packed file that unpacks to far more than its size, as no text does."""


def unpacked_limit(packed: int) -> int:
    """The bytes that this many packed ones may unpack to."""
    return max(FREE, DENSEST * packed)


class _Limited(io.RawIOBase):
    """A packed file that is read as far as its size allows."""

    def __init__(self, path: Path) -> None:
        kind = lzma.LZMAFile if path.suffix.lower() == ".xz" else gzip.GzipFile
        self._stream = kind(path)
        self._path, self._limit = path, unpacked_limit(path.stat().st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True  # readers of parquet do

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto1(memoryview(buffer)[: 1 << 20])
        if self._stream.tell() > self._limit:
            problem = f"unpacks to more than {self._limit:,} bytes, {DENSEST} times its size"
            raise ExpansionError(self._path, f"{problem}; unpack it first if this is expected")
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_packed(path: Path) -> IO[bytes]:
    """Open a gzip or xz file; an ``ExpansionError`` where it unpacks to far too much."""
    return io.BufferedReader(_Limited(path), 1 << 16)


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read."""

    # where its bytes are; of parquet also a function that opens them
    path: Path | Callable[[], AbstractContextManager[IO[bytes]]]
    form: str
    shown: str  # its name in messages
    spool: "Spool | None" = None  # keeps a temporary copy of standard input alive
    encoding: str = ""  # unless it must be UTF-8
    errors: str = "surrogateescape"  # how what cannot be decoded is, so that its line can be named

    def content(self) -> Iterator[bytes]:
        """The bytes of the file, block by block."""
        with reading(self.shown), self._opened() as stream:
            while block := stream.read(1 << 20):
                yield block

    def lines(self) -> Lines:
        r"""Numbered lines; they end in "\n", "\r\n" or "\r", and a byte order mark is cut off."""
        with reading(self.shown), self._opened(unpack=True) as raw:
            encoding = self.encoding or "utf-8-sig"
            stream = io.TextIOWrapper(raw, encoding=encoding, errors=self.errors)
            number = 0
            while line := stream.readline(LONGEST):
                number += 1
                if not self.encoding and not line.isascii():
                    _check_decoded(line, self.shown, number)
                if len(line) == LONGEST:
                    problem = f"a line of {LONGEST:,} characters or more: not a text file"
                    raise InputError(self.shown, problem, line=number)
                yield number, line

    def _opened(self, *, unpack: bool = False) -> AbstractContextManager[IO[bytes]]:
        if not isinstance(self.path, Path):
            return self.path()
        if unpack and self.path.suffix.lower() in PACKINGS:
            return open_packed(self.path)
        return self.path.open("rb")


class Spool:
    """A temporary copy of a stream that can be read once; it is deleted with the object."""

    def __init__(self, stream: IO[bytes]) -> None:
        with writing(Path("a temporary file")):  # TMPDIR may be missing, and /tmp read-only
            handle, name = tempfile.mkstemp(prefix="contrasent-", suffix=".txt")
        self.path = Path(name)
        # The owner's process only: a forked worker that ends must not delete it.
        weakref.finalize(self, _remove, self.path, os.getpid())
        with writing(self.path), os.fdopen(handle, "wb") as target:
            shutil.copyfileobj(stream, target, 1 << 20)


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


def form_of(path: Path) -> str | None:
    """The format that a file's suffix stands for, such as ".csv" for "a.csv.gz", or None."""
    *_, inner, last = ("", "", *map(str.lower, path.suffixes))
    if last in PACKINGS and inner in PACKED:
        return inner
    return last if last in FORMATS else None


def find(source: str | Path) -> list[Source]:
    """The files that a name stands for, in the order of their paths.

    "-" is standard input, and a pipe is read like it, from a temporary copy. A folder stands for
    all files below it whose suffix is known, .json and hidden ones aside, or for the rows that
    ``save_to_disk`` of the package datasets wrote there.
    """
    if str(source) == "-":
        return [_spooled(sys.stdin.buffer, "standard input")]
    path = Path(source)
    if path.is_dir():
        if saved := _saved(path):
            return saved
        files = [
            Source(path, form, str(path))
            for path in sorted(_visible(path))
            if (form := form_of(path)) is not None
        ]
        if not files:
            raise InputError(path, f"the folder contains no text; supported: {KNOWN}")
        return files
    if not path.exists():
        raise InputError(source, missing(path))
    if not path.is_file():
        with reading(str(source)), path.open("rb") as stream:
            return [_spooled(stream, str(source))]
    plain = path.with_suffix("") if path.suffix.lower() in PACKINGS else path
    form = JSON if plain.suffix.lower() == JSON else form_of(path)
    if form is None:
        suffix = path.suffix or "none"
        remedy = "; save its sheet as CSV" if suffix.lower() in SHEETS else ""
        problem = f"unknown format (suffix {suffix}){remedy}; supported: {KNOWN}"
        raise InputError(source, problem)
    return [Source(path, form, str(source))]


def _saved(folder: Path) -> list[Source]:
    """The files of a data set that ``save_to_disk`` wrote; none if it did not."""
    try:
        for name in ("dataset_dict.json", "state.json"):
            if not (folder / name).is_file():
                continue
            stated = json.loads((folder / name).read_text("utf-8"))
            splits = stated.get("splits", ())
            if len(splits) > 1:
                listed = ", ".join(str(folder / split) for split in splits)
                raise InputError(
                    folder, f"contains several splits; give the folder of one: {listed}"
                )
            if splits:
                return _saved(folder / splits[0])
            files = [folder / one["filename"] for one in stated["_data_files"]]
            return [Source(path, ARROW, str(path)) for path in files]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(folder / name, f"not a dataset of save_to_disk ({error})") from error
    return []


def _spooled(stream: IO[bytes], shown: str) -> Source:
    spool = Spool(stream)
    return Source(spool.path, ".txt", shown, spool)


def _visible(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise InputError(error.filename, f"cannot read ({error.strerror or error})") from error

    for parent, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def missing(path: Path) -> str:
    """Say that a path does not exist, and what the nearest one is called."""
    if os.path.islink(path):  # noqa: PTH114 - no error in a folder that may not be entered
        return f"is a link to {path.readlink()}, which does not exist"
    whole = path
    while path != path.parent and not os.path.exists(path.parent):  # noqa: PTH110
        path = path.parent
    what = "no such file or folder" if path == whole else f"folder {path} not found"
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"{what}; did you mean {str(path.parent / near[0])!r}?" if near else what


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn an operating system's complaint about a file into an ``InputError``."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        kind = "xz" if source.lower().endswith(".xz") else "gzip"
        raise InputError(source, f"not a complete {kind} file ({error})") from error
    except OSError as error:
        raise InputError(source, f"cannot read ({error.strerror or error})") from error


def _check_decoded(line: str, source: str, number: int) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        problem = (
            f"byte 0x{ord(line[error.start]) - 0xDC00:02x} at character {error.start + 1} is not "
            "UTF-8; convert the file from its encoding, such as WINDOWS-1252 (Western) or "
            "WINDOWS-1251 (Cyrillic): iconv -f WINDOWS-1252 -t UTF-8 FILE"
        )
        if number == 1 and line.startswith(("\udcff\udcfe", "\udcfe\udcff")):
            problem = "the file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE"
        raise InputError(source, problem, line=number) from None
