"""Files and folders on this machine or behind a URL that fsspec knows (s3, gs, memory, ...)."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from contrasent.errors import InputError, MissingExtraError, OutputError, import_extra
from contrasent.files import atomic_file, check_writable

PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
"""Of the extra ``cloud``, by the scheme of a URL."""


def is_url(name: str) -> bool:
    """Whether a name is a URL such as s3://bucket/key."""
    return "://" in name


def absolute(name: str) -> str:
    """A name that means the same in another process: a URL as it is, a path from the root."""
    return name if is_url(name) else str(Path(name).absolute())


def locate(name: str) -> tuple[Any, str]:
    """The file system of a name and its path there."""
    fsspec = import_extra("fsspec", "cloud", f"reading {name}")
    try:
        system, path = fsspec.core.url_to_fs(name)
    except ImportError as error:
        scheme = name.partition("://")[0]
        package = PACKAGES.get(scheme, f"fsspec for {scheme}")
        raise MissingExtraError(package, "cloud", name) from error
    except (ValueError, OSError) as error:
        raise InputError(name, f"cannot be reached ({error})") from error
    return system, str(path)


@contextmanager
def open_binary(name: str) -> Iterator[IO[bytes]]:
    """A file or an object to read, in which one can seek."""
    system, path = locate(name)
    try:
        with system.open(path, "rb") as stream:
            yield stream
    except OSError as error:
        raise InputError(name, f"cannot read ({error.strerror or error})") from error


class Folder:
    """A folder of files that are there as a whole or not at all."""

    def __init__(self, name: str) -> None:
        self.name = absolute(name)
        self._system, self._path = locate(self.name)
        self._local = not is_url(self.name)

    def file(self, name: str) -> str:
        """The name of a file in it, to open it by."""
        return f"{self.name.rstrip('/')}/{name}"

    def names(self) -> set[str]:
        """Names of all files in it, by one listing; none if it is not there."""
        self._system.invalidate_cache()
        try:
            listed = self._system.ls(self._path, detail=False)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise InputError(self.name, f"cannot be listed ({error})") from error
        return {str(path).rstrip("/").rpartition("/")[2] for path in listed}

    def check(self) -> None:
        """Make sure, before any work, that it can be written."""
        if self._local:
            check_writable(Path(self.name))

    def read(self, name: str) -> bytes | None:
        """All of a file; None if it is not there."""
        try:
            return bytes(self._system.cat_file(f"{self._path.rstrip('/')}/{name}"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(self.file(name), f"cannot be read ({error})") from error

    @contextmanager
    def put(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write, which is there when the block has ended without an error."""
        # On this machine it is renamed into its place; elsewhere it is written here and put as one
        # object, which other readers see whole or not at all.
        if self._local:
            with atomic_file(Path(self.name, name), "wb") as stream:
                yield stream
            return
        with tempfile.TemporaryDirectory(prefix="contrasent-") as home:
            path = Path(home, name)
            with path.open("wb") as stream:
                yield stream
            try:
                self._system.makedirs(self._path, exist_ok=True)
                self._system.put_file(str(path), f"{self._path.rstrip('/')}/{name}")
            except OSError as error:
                raise OutputError(f"{self.file(name)}: cannot be written ({error})") from error

    def remove(self) -> None:
        """Delete it with all that is in it."""
        if self._system.exists(self._path):
            self._system.rm(self._path, recursive=True)
