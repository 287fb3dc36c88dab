"""The files behind a source: of a folder, a zip archive or a gzip file, or the source itself.

Nothing is unpacked to disk and no name in an archive is followed, so that none can lead outside.
What may hold secrets, is hidden, or was left by tools is passed over, with its reason reported.
"""

import errno
import fnmatch
import hashlib
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO

from pathspec import GitIgnoreSpec

from contrasent.errors import OptionError
from contrasent.text.sources import open_packed, unpacked_limit

MEMBERS = 100_000  # files in an archive
LISTING = 16_000_000  # bytes of an archive's list of its files
UNPACKED = 100_000_000  # bytes that any archive may unpack to in all


class Reason(StrEnum):
    """Why a file, or a row of a table, was passed over."""

    HIDDEN = "hidden"
    EXCLUDED = "excluded"
    IGNORED = "ignored by git"
    SECRET = "secret"  # by its name, or because nothing is left without its keys
    TOOLS = "tool's folder"
    LINK_TO_FOLDER = "link to a folder"
    LINK_TO_NOTHING = "link to nothing"
    LINK_OUTSIDE = "link that leaves the source"
    LINK_TO_READ = "link to a file that is read"
    NO_FILE = "no regular file"
    UNREADABLE = "unreadable"
    BROKEN = "broken"
    BROKEN_ARCHIVE = "broken archive"
    NESTED = "archive within an archive"
    MEMBERS = f"archive of more than {MEMBERS:,} files"
    EXPANDS = "unpacks to far more than its size"
    UNSAFE_NAME = "unsafe name in an archive"
    ENCRYPTED = "encrypted"
    EMPTY = "empty"
    SCAN = "no text (a scan?)"
    PICTURE = "page that is a picture (a scan?)"
    LETTERS = "page whose letters have no meaning (print it to a new PDF, or run OCR)"
    MENUS = "menus of a page"
    HIDDEN_SHEET = "hidden sheet"
    NUMBERS = "numbers that a program counts"
    EMBEDDED = "object embedded in a document"
    WIDE = "lines too wide for a person's"
    BINARY = "binary"
    UNKNOWN = "text of an unknown type"
    TOO_LARGE = "too large"
    TOO_MUCH_TEXT = "more text than --max-file-text"
    ALL_TEXT = "beyond the text of one index"
    REPETITION = "nothing but repetition"
    TIMED_OUT = "timed out"
    MEMORY = "needs too much memory"
    ENDED = "ended its reader (too much memory?)"
    NEEDS_DOCUMENTS = "needs pip install 'contrasent[documents]'"
    NEEDS_PARQUET = "needs pip install 'contrasent[parquet]'"
    NO_LIST = "JSON that is no list of rows"
    NO_COLUMN = "table of nothing but numbers"
    NOT_CHOSEN = "table without the chosen columns"
    ROW = "row without text"


class Skip(Exception):
    """A file is skipped; ``args``: the reason and, if a table lacks a column, its columns."""


Report = Callable[[Reason, str], None]  # why, and the name

_SECRETS = (
    ".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx",
    "*.ppk", "*.gpg", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials*", "secret",
    "secrets", "secret.*", "secrets.*", ".netrc", "_netrc", ".pgpass", ".htpasswd", ".npmrc",
    ".pypirc", ".git-credentials", ".ssh", ".aws", ".gnupg", ".kube", ".docker", "*_history",
    "service-account*.json", "service_account*.json", "password", "password.*", "*passwords.*",
    "passwords*", "passwort", "passwort.*", "passwd", "passwd.txt", "passwd-", "*.ovpn", "*.kdb",
    "wallet.dat",
)  # fmt: skip
_TOOLS = frozenset(["node_modules", "__pycache__", "site-packages", "venv", "virtualenv"])
_MADE = ("pyvenv.cfg", "modules.json", "index.db", "index.json")  # left by tools in their folders


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a source."""

    name: str  # its path relative to the source, with "/" between folders
    suffix: str  # that of its format, in lower case, without ".gz"; "" if it has none
    size: int  # its bytes; of a gzip file those on disk
    path: str  # on disk, of the file or of the archive that holds it
    modified: int  # nanoseconds since 1970, of the file on disk
    member: str = ""  # its name in the archive
    crc: int = 0  # checksum of a file in an archive

    def open(self) -> IO[bytes]:
        """Its content; the stream can seek."""
        if self.member:
            return _archive_at(self.path).open(self.member)
        if self.path.lower().endswith(".gz"):
            return open_packed(Path(self.path))
        return Path(self.path).open("rb")

    def digest(self) -> str:
        """Changes with its content; for a file in an archive, the checksum stored there."""
        if self.member:
            return f"crc32:{self.crc:08x}"
        with Path(self.path).open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()

    def changed(self) -> bool:
        """True if the file on disk is not the one that was listed."""
        try:
            about = Path(self.path).stat()
        except OSError:
            return True
        size = self.size if self.member else about.st_size
        return (size, about.st_mtime_ns) != (self.size, self.modified)


@lru_cache(maxsize=1)
def _archive_at(path: str) -> zipfile.ZipFile:
    """An archive that stays open while its files are read one after another."""
    return zipfile.ZipFile(path)


_SECRET = re.compile("|".join(map(fnmatch.translate, _SECRETS)))


def reason_to_skip(name: str) -> Reason | None:
    """Why a file or folder of that name is not read, or None."""
    if _SECRET.match(name.lower()):
        return Reason.SECRET
    if name in _TOOLS:
        return Reason.TOOLS
    return Reason.HIDDEN if name.startswith(".") else None


class Choice:
    """Which files of a source are read: by patterns as .gitignore has them, and by .gitignore."""

    def __init__(
        self, exclude: Sequence[str] = (), include: Sequence[str] = (), gitignore: bool = False
    ) -> None:
        self._exclude = _patterns(exclude, "--exclude")
        self._include = _patterns(include, "--include")
        self._any, self._gitignore = bool(include), gitignore
        # Names of folders, outermost first, their patterns, and the way from one above the source.
        self._ignored = list[tuple[str, GitIgnoreSpec, str]]()

    def begin(self, source: Path) -> None:
        """Read what git ignores above a folder, up to its repository."""
        self._ignored.clear()
        path = source.resolve()
        if not self._gitignore or not source.is_dir():
            return
        above = next((one for one in (path, *path.parents) if (one / ".git").exists()), path)
        inner = path.relative_to(above).parts
        for depth in range(len(inner)):
            folder = above.joinpath(*inner[:depth])
            self._read(folder, "", "/".join(inner[depth:]))

    def enter(self, folder: Path, name: str) -> None:
        """Read what git ignores in a folder of that name within the source."""
        if self._gitignore:
            self._ignored = [one for one in self._ignored if one[2] or name.startswith(one[0])]
            self._read(folder, name)

    def _read(self, folder: Path, name: str, below: str = "") -> None:
        try:
            lines = (folder / ".gitignore").read_text("utf-8", "replace").splitlines()
        except OSError:
            return
        self._ignored.append((name, _patterns(lines), below))

    def reason(self, name: str, *, folder: bool) -> Reason | None:
        """Why a file or a folder of that name within the source is left out, or None."""
        whole = name + "/" * folder
        if self._exclude.match_file(whole):
            return Reason.EXCLUDED
        if self._any and not folder and not self._include.match_file(whole):
            return Reason.EXCLUDED
        for above, patterns, below in reversed(self._ignored):
            inner = f"{below}/{whole}" if below else whole.removeprefix(above)
            if (found := patterns.check_file(inner).include) is not None:
                return Reason.IGNORED if found else None
        return None


def _patterns(lines: Sequence[str], option: str = "") -> GitIgnoreSpec:
    """Patterns of a file, whose faulty lines git passes over, or of an option."""
    good = list[str]()
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
            good.append(line)
        except ValueError:
            if option:
                raise OptionError(option, line, "is no pattern as .gitignore has them") from None
    return GitIgnoreSpec.from_lines(good)


def entries(source: Path, skip: Report, choice: Choice | None = None) -> Iterator[Entry]:
    """All files of a source in the order of their paths, or those that are chosen."""
    choice = choice or Choice()
    choice.begin(source)
    for entry in _entries(source, skip, choice):
        # Of an archive each file is chosen by itself.
        if entry.member and (reason := choice.reason(entry.name, folder=False)):
            skip(reason, entry.name)
        else:
            yield entry


def _entries(source: Path, skip: Report, choice: Choice) -> Iterator[Entry]:
    if source.is_dir():
        yield from _folder(source, source, "", skip, choice)
    elif reason := reason_to_skip(source.name):
        skip(reason, source.name)
    else:
        yield from _file(source, source.name, skip)


def _folder(root: Path, folder: Path, above: str, skip: Report, choice: Choice) -> Iterator[Entry]:
    choice.enter(folder, above)
    try:
        with os.scandir(folder) as listed:
            inside = sorted(listed, key=lambda item: item.name)
    except OSError:
        skip(Reason.UNREADABLE, above or "./")
        return
    for item in inside:
        path, name = Path(item.path), above + _shown(item.name)
        try:
            reason, within = reason_to_skip(item.name), path.is_dir()
            archive = path.suffix.lower() == ".zip"  # whose files are chosen one by one
            reason = reason or (None if archive else choice.reason(name, folder=within))
            if item.is_symlink():
                reason = reason or _reason_of_link(root, path)
            elif any((path / made).is_file() for made in _MADE):
                reason = reason or Reason.TOOLS
            if not (reason or within or path.is_file()):
                reason = Reason.NO_FILE
            if reason:
                skip(reason, name + "/" * within)
            elif within:
                yield from _folder(root, path, f"{name}/", skip, choice)
                choice.enter(folder, above)
            else:
                yield from _file(path, name, skip)
        except OSError:
            skip(Reason.UNREADABLE, name)


def _reason_of_link(root: Path, path: Path) -> Reason | None:
    """Why a link is passed over: a harmless name may lead to a secret."""
    if not path.exists():  # in Python 3.11 resolve() of a link to itself raises RuntimeError
        return Reason.LINK_TO_NOTHING
    target, home = path.resolve(), root.resolve()
    if not target.is_relative_to(home):
        return Reason.LINK_OUTSIDE
    if path.is_dir():  # it may lead back
        return Reason.LINK_TO_FOLDER
    reason = _reason_by_path(target.relative_to(home).parts)
    within = target.parents[: len(target.relative_to(home).parts) - 1]  # folders below the source
    generated = any((folder / name).is_file() for folder in within for name in _MADE)
    same = _suffix(path) == _suffix(target)  # else it may not be read by its own name
    return Reason.LINK_TO_READ if reason is None and same and not generated else reason


def _reason_by_path(parts: Sequence[str]) -> Reason | None:
    return next(filter(None, map(reason_to_skip, parts)), None)


def _shown(name: str) -> str:
    """A name with its undecodable bytes made printable."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def _file(path: Path, name: str, skip: Report) -> Iterator[Entry]:
    if path.suffix.lower() == ".zip":
        yield from _archive(path, name, skip)
    else:
        about = path.stat()
        yield Entry(name, _suffix(path), about.st_size, str(path), about.st_mtime_ns)


class _ArchiveFile(io.FileIO):
    """An archive, of which only the list of files is read."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > LISTING:
            raise Skip(Reason.MEMBERS)
        return super().read(size)


def check_members(archive: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    """The files of an archive of so many bytes, unless they are too many or unpack to too much."""
    infos = archive.infolist()
    if len(infos) > MEMBERS:
        raise Skip(Reason.MEMBERS)
    # A single file that unpacks to far too much is skipped alone.
    unpacked = sum(info.file_size for info in infos if not expands(info))
    if unpacked > max(UNPACKED, unpacked_limit(size)):
        raise Skip(Reason.EXPANDS)
    return infos


def expands(info: zipfile.ZipInfo) -> bool:
    """True if a file in an archive unpacks to far more than its size."""
    return info.file_size > unpacked_limit(info.compress_size)


def _archive(path: Path, name: str, skip: Report) -> Iterator[Entry]:
    try:
        with _ArchiveFile(path) as stream, zipfile.ZipFile(stream) as archive:
            listed = check_members(archive, path.stat().st_size)
            # Of two files with one name, only the last can be read.
            infos = {info.filename: info for info in listed if not info.is_dir()}
    except Skip as skipped:
        skip(skipped.args[0], name)
        return
    except Exception as error:  # zipfile raises many kinds
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # which is a wrong offset
            skip(Reason.UNREADABLE, f"{name}/")  # as of a folder
        else:
            skip(Reason.BROKEN_ARCHIVE, name)
        return
    modified = path.stat().st_mtime_ns
    for _, info in sorted(infos.items()):
        whole = f"{name}/{_shown(info.filename)}"
        suffix = PurePosixPath(info.filename).suffix.lower()
        if reason := _reason_in_archive(info, suffix):
            skip(reason, whole)
        else:
            yield Entry(whole, suffix, info.file_size, str(path), modified, info.filename, info.CRC)


def _reason_in_archive(info: zipfile.ZipInfo, suffix: str) -> Reason | None:
    parts = PurePosixPath(info.filename.replace("\\", "/")).parts
    if info.filename.startswith("/") or ".." in parts:
        return Reason.UNSAFE_NAME
    if reason := _reason_by_path(parts):
        return reason
    if info.flag_bits & 1:
        return Reason.ENCRYPTED
    if suffix in (".gz", ".zip"):
        return Reason.NESTED
    return Reason.EXPANDS if expands(info) else None
