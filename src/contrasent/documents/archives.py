"""The files behind a source: of a folder, a zip archive or a gzip file, or the source itself.

Nothing is unpacked to disk and no name in an archive is followed, so that none can lead outside.
What may hold secrets, is hidden, or was left by tools is skipped, with its reason reported.
"""

import errno
import fnmatch
import hashlib
import io
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO

from pathspec import GitIgnoreSpec

from contrasent.errors import OptionError
from contrasent.text.sources import open_packed, unpacked_limit
from contrasent.types import composed

MEMBERS = 100_000  # files in an archive
LISTING = 16_000_000  # bytes of an archive's list of its files
UNPACKED = 100_000_000  # bytes that any archive may unpack to in all


class Reason(StrEnum):
    """Why a file, or a row of a table, was skipped."""

    HIDDEN = "hidden"
    EXCLUDED = "excluded"
    IGNORED = "ignored by git"
    SECRET = "secret"  # by its name, or because nothing is left without its keys
    TOOLS = "tool's folder"
    LINK = "symbolic link"
    NO_FILE = "not a regular file"
    UNREADABLE = "unreadable"
    BROKEN = "broken"
    NESTED = "archive within an archive"
    MEMBERS = f"archive of more than {MEMBERS:,} files"
    EXPANDS = "unpacks to far more than its size"
    UNSAFE_NAME = "unsafe name in an archive"
    ENCRYPTED = "encrypted"
    EMPTY = "empty"
    SCAN = "no text (a scan?)"
    PICTURE = "page that is a picture (a scan?)"
    LETTERS = "page with unreadable letters (print it to a new PDF, or run OCR)"
    MENUS = "menus of a web page"
    HIDDEN_SHEET = "hidden sheet"
    NUMBERS = "automatic numbering"
    EMBEDDED = "object embedded in a document"
    WIDE = "lines too long for prose"
    BINARY = "binary"
    UNKNOWN = "text of an unknown type"
    TOO_LARGE = "too large"
    TOO_MUCH_TEXT = "more text than --max-file-text"
    ALL_TEXT = "more text than one index can contain"
    REPETITION = "repetition only"
    TIMED_OUT = "timed out"
    MEMORY = "needs too much memory"
    ENDED = "crashed its reader (too much memory?)"
    NEEDS_DOCUMENTS = "needs pip install 'contrasent[documents]'"
    NEEDS_PARQUET = "needs pip install 'contrasent[parquet]'"
    NO_LIST = "JSON that is not a list of rows"
    NO_COLUMN = "table of numbers only"
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
# Files that tools leave in their folders, alone or together; the last two are adapt's.
_MADE = (
    ("pyvenv.cfg",), ("modules.json",), ("index.db",),
    ("index/index.db", "report.json"), ("index/index.db", "unfinished.json"),
)  # fmt: skip


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
        self._exclude, self._include = _patterns(exclude, "--exclude"), None
        if include:
            self._include = _patterns(include, "--include")
        self._gitignore = gitignore

    def reason(self, name: str, *, folder: bool = False) -> Reason | None:
        """Why a file or a folder of that name within the source is left out, or None."""
        name = composed(name)
        left = not folder and self._include is not None and not self._include.match_file(name)
        excluded = self._exclude.match_file(name + "/" * folder)
        return Reason.EXCLUDED if excluded or left else None

    def ignored(self, folder: Path) -> "Ignored":
        """What git ignores in a folder by the file in it."""
        with suppress(OSError):
            if self._gitignore:
                lines = (folder / ".gitignore").read_text("utf-8-sig", "replace").splitlines()
                return [(folder, _patterns(lines))]
        return []

    def ignored_above(self, source: Path) -> "Ignored":
        """What git ignores by the files above a folder, up to its repository."""
        above = [source, *source.parents]
        depth = next((at for at, one in enumerate(above) if (one / ".git").exists()), 0)
        return [found for one in reversed(above[1 : depth + 1]) for found in self.ignored(one)]


Ignored = list[tuple[Path, GitIgnoreSpec]]
"""Folders, outermost first, and the patterns of what git ignores below them."""


def _is_ignored(path: Path, ignored: Ignored, *, folder: bool) -> bool:
    """True if git ignores a path; the innermost file that names it decides."""
    for above, patterns in reversed(ignored):
        name = composed(path.relative_to(above).as_posix())
        found = patterns.check_file(name + "/" * folder).include
        if found is not None:
            return found
    return False


def _patterns(lines: Sequence[str], option: str = "") -> GitIgnoreSpec:
    """Patterns of a file, whose faulty lines git passes over, or of an option."""
    good = list[str]()
    for line in map(composed, lines):
        try:
            GitIgnoreSpec.from_lines([line])
            good.append(line)
        except ValueError:
            if option:
                raise OptionError(option, line, "is not a .gitignore pattern") from None
    return GitIgnoreSpec.from_lines(good)


def entries(source: Path, skip: Report, choice: Choice | None = None) -> Iterator[Entry]:
    """All files of a source in the order of their paths, or those that are chosen."""
    choice = choice or Choice()
    if source.is_dir():
        source = source.resolve()
        found = _folder(source, "", choice.ignored_above(source), skip, choice)
    elif reason := reason_to_skip(source.name):
        skip(reason, source.name)
        return
    else:
        found = _file(source, source.name, skip)
    for entry in found:
        # Each file of an archive is chosen by itself.
        if entry.member and (reason := choice.reason(entry.name)):
            skip(reason, entry.name)
        else:
            yield entry


def _folder(
    folder: Path, above: str, ignored: Ignored, skip: Report, choice: Choice
) -> Iterator[Entry]:
    try:
        with os.scandir(folder) as listed:
            inside = sorted(listed, key=lambda item: item.name)
    except OSError:
        skip(Reason.UNREADABLE, above or "./")
        return
    ignored = [*ignored, *choice.ignored(folder)]
    for item in inside:
        path, name = Path(item.path), above + _shown(item.name)
        try:
            within = item.is_dir(follow_symlinks=False)
            if (reason := reason_to_skip(item.name)) is None and item.is_symlink():
                reason = Reason.LINK  # what it leads to is read by its own name, or not at all
            if reason is None and path.suffix.lower() != ".zip":
                reason = choice.reason(name, folder=within)
            if reason is None and _is_ignored(path, ignored, folder=within):
                reason = Reason.IGNORED
            if reason is None and within and _is_made(path):
                reason = Reason.TOOLS
            if reason is None and not (within or item.is_file()):
                reason = Reason.NO_FILE
            if reason:
                skip(reason, name + "/" * within)
            elif within:
                yield from _folder(path, f"{name}/", ignored, skip, choice)
            else:
                yield from _file(path, name, skip)
        except OSError:
            skip(Reason.UNREADABLE, name)


def _is_made(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in names) for names in _MADE)


def _shown(name: str) -> str:
    """A name with its undecodable bytes made printable, so that it differs from all others."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _file(path: Path, name: str, skip: Report) -> Iterator[Entry]:
    suffix = path.suffix.lower()
    if suffix == ".zip":
        yield from _archive(path, name, skip)
    else:
        suffix = Path(path.stem).suffix.lower() if suffix == ".gz" else suffix
        about = path.stat()
        yield Entry(name, suffix, about.st_size, str(path), about.st_mtime_ns)


class _ArchiveFile(io.FileIO):
    """An archive, of which only the list of files is read."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > LISTING:
            raise Skip(Reason.MEMBERS)
        return super().read(size)


def check_members(archive: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    """The files of an archive of this size, unless they are too many or unpack to too much."""
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


def may_pass(error: Exception) -> bool:
    """Whether a file may be readable next time: its disk or network failed, not its content."""
    # Those of a parser have no number, or that of a wrong offset or of a stream that is closed.
    parsers = (None, errno.EINVAL, errno.EBADF)
    cause = error.__cause__ or error  # of what `reading` raises
    return isinstance(cause, OSError) and cause.errno not in parsers


def _archive(path: Path, name: str, skip: Report) -> Iterator[Entry]:
    try:
        with _ArchiveFile(path) as stream, zipfile.ZipFile(stream) as archive:
            listed = check_members(archive, path.stat().st_size)
    except Skip as skipped:
        skip(skipped.args[0], name)
        return
    except Exception as error:  # zipfile raises many kinds
        if may_pass(error):
            skip(Reason.UNREADABLE, f"{name}/")  # as of a folder
        else:
            skip(Reason.BROKEN, name)
        return
    modified = path.stat().st_mtime_ns
    # If two files have one name, only the last can be read.
    members = {info.filename: info for info in listed if not info.is_dir()}
    names = Counter(map(_named, members.values()))
    for member, info in sorted(members.items()):
        whole = f"{name}/{_shown(_named(info) if names[_named(info)] == 1 else member)}"
        suffix = PurePosixPath(info.filename).suffix.lower()
        if reason := _reason_in_archive(info, suffix):
            skip(reason, whole)
        else:
            yield Entry(whole, suffix, info.file_size, str(path), modified, info.filename, info.CRC)


def _named(info: zipfile.ZipInfo) -> str:
    """The name of a file in an archive; macOS writes UTF-8 without the flag that says so."""
    with suppress(UnicodeError):
        return info.filename if info.flag_bits & 0x800 else info.filename.encode("cp437").decode()
    return info.filename


def _reason_in_archive(info: zipfile.ZipInfo, suffix: str) -> Reason | None:
    parts = PurePosixPath(info.filename.replace("\\", "/")).parts
    if info.filename.startswith("/") or ".." in parts:
        return Reason.UNSAFE_NAME
    if reason := next(filter(None, map(reason_to_skip, parts)), None):
        return reason
    if info.flag_bits & 1:
        return Reason.ENCRYPTED
    if suffix in (".gz", ".zip"):
        return Reason.NESTED
    return Reason.EXPANDS if expands(info) else None
