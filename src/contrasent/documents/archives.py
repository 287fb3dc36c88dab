"""The files behind a source: of a folder, a zip archive or a gzip file, or the source itself."""

# Nothing is unpacked to disk and no name in an archive is followed, so that none can lead outside.
# What may hold secrets, is hidden, or was left by tools is passed over, with its reason reported.

import fnmatch
import gzip
import hashlib
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, cast

Skip = Callable[[str, str], None]  # skip(reason, name)

LARGEST_ARCHIVE = 1 << 34  # bytes that all files of an archive may take when they are unpacked
LARGEST_RATIO = 250  # a file that unpacks to so many times its size was made to fill memory

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


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a source."""

    name: str  # its path relative to the source, with "/" between folders
    suffix: str  # that of its format, in lower case, without ".gz"; "" if it has none
    size: int  # its bytes; of a gzip file those on disk
    packed: bool  # whether it is read through gzip
    path: str  # on disk, of the file or of the archive that holds it
    modified: int  # nanoseconds since 1970, of the file on disk
    member: str = ""  # its name in the archive
    crc: int = 0  # of an archive's file

    def open(self) -> IO[bytes]:
        """Its content; the stream can seek."""
        if self.member:
            return _archive_at(self.path).open(self.member)
        if self.packed:
            return cast("IO[bytes]", gzip.GzipFile(self.path))
        return Path(self.path).open("rb")

    def digest(self) -> str:
        """Changes with its content; of an archive's file the checksum that is kept there."""
        if self.member:
            return f"crc32:{self.crc:08x}"
        with Path(self.path).open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()


@lru_cache(maxsize=1)
def _archive_at(path: str) -> zipfile.ZipFile:
    """An archive that stays open while its files are read one after another."""
    return zipfile.ZipFile(path)


_SECRET = re.compile("|".join(map(fnmatch.translate, _SECRETS)))


def reason_to_skip(name: str) -> str | None:
    """Why a file or folder of that name is not read, or None."""
    lower = name.lower()
    if _SECRET.match(lower):
        return "secret"
    return "hidden" if lower.startswith(".") else None


def entries(source: Path, skip: Skip) -> Iterator[Entry]:
    """All files of a source in the order of their paths."""
    if source.is_dir():
        yield from _folder(source, source, "", skip)
    elif reason := reason_to_skip(source.name):
        skip(reason, source.name)
    else:
        yield from _file(source, source.name, skip)


def _folder(root: Path, folder: Path, above: str, skip: Skip) -> Iterator[Entry]:
    try:
        with os.scandir(folder) as found:
            inside = sorted(found, key=lambda one: one.name)
    except OSError:
        skip("unreadable", above or "./")
        return
    for one in inside:
        path, name = Path(one.path), above + _shown(one.name)
        try:
            reason = reason_to_skip(one.name)
            within = path.is_dir() if one.is_symlink() else one.is_dir()
            if one.is_symlink():
                reason = reason or _reason_of_link(root, path)
                if within:  # it may lead back, or anywhere
                    reason = reason or "link to a folder"
            if within:
                if one.name in _TOOLS:
                    reason = reason or "tool's folder"
                # A virtual environment, a model or an index is no folder of documents.
                made = ("pyvenv.cfg", "modules.json", "index.db", "index.json")
                if reason or any((path / name).is_file() for name in made):
                    skip(reason or "tool's folder", name + "/")
                else:
                    yield from _folder(root, path, f"{name}/", skip)
            elif reason or not one.is_file():
                skip(reason or "no regular file", name)
            else:
                yield from _file(path, name, skip)
        except OSError:
            skip("unreadable", name)


def _reason_of_link(root: Path, path: Path) -> str | None:
    """Why a link is passed over: a harmless name may lead to a secret."""
    if not path.exists():  # of a link to itself, resolve() raises RuntimeError in Python 3.11
        return "link to nothing"
    target, home = path.resolve(), root.resolve()
    if not target.is_relative_to(home):
        return "link that leaves the source"
    return next(filter(None, map(reason_to_skip, target.relative_to(home).parts)), None)


def _shown(name: str) -> str:
    """A name whose undecodable bytes can be printed."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _file(path: Path, name: str, skip: Skip) -> Iterator[Entry]:
    suffix = path.suffix.lower()
    if suffix == ".zip":
        yield from _archive(path, name, skip)
    else:
        packed = suffix == ".gz"
        suffix = Path(path.stem).suffix.lower() if packed else suffix
        about = path.stat()
        yield Entry(name, suffix, about.st_size, packed, str(path), about.st_mtime_ns)


def _archive(path: Path, name: str, skip: Skip) -> Iterator[Entry]:
    try:
        archive = zipfile.ZipFile(path)
    except Exception:  # zipfile has many, by what is broken
        skip("broken archive", name)
        return
    with archive:
        modified = path.stat().st_mtime_ns
        infos = sorted(archive.infolist(), key=lambda info: info.filename)
        if sum(info.file_size for info in infos) > LARGEST_ARCHIVE:
            skip("archive that unpacks to too much", name)
            return
        seen = set[str]()
        for info in infos:
            whole = f"{name}/{_shown(info.filename)}"
            suffix = PurePosixPath(info.filename).suffix.lower()
            if info.is_dir():
                continue
            if reason := _reason_in_archive(info, seen):
                skip(reason, whole)
            elif suffix in (".gz", ".zip"):
                skip("archive within an archive", whole)
            else:
                place = (str(path), modified, info.filename, info.CRC)
                yield Entry(whole, suffix, info.file_size, False, *place)
            seen.add(info.filename)


def _reason_in_archive(info: zipfile.ZipInfo, seen: set[str]) -> str | None:
    parts = PurePosixPath(info.filename.replace("\\", "/")).parts
    if info.filename.startswith("/") or ".." in parts:
        return "unsafe name in an archive"
    for part in parts:
        if (reason := reason_to_skip(part)) or part in _TOOLS:
            return reason or "tool's folder"
    if info.flag_bits & 1:
        return "encrypted"
    if info.file_size > LARGEST_RATIO * max(info.compress_size, 1 << 12):
        return "archived file that unpacks to too much"
    return "name twice in an archive" if info.filename in seen else None
