"""From what a user named to the files behind it: a file, a folder of them, or standard input."""

import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO

from contrasent.errors import InputError
from contrasent.files import writing
from contrasent.text.readers import FORMATS, PACKED, form_of, reading

KNOWN = ", ".join((*FORMATS, *(f"{form}.gz" for form in PACKED)))


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read.

    Attributes:
        path: where its bytes are.
        shown: what the user called it, for messages.
        spool: what keeps a temporary copy of standard input alive.
    """

    path: Path
    form: str
    shown: str
    spool: "Spool | None" = None


class Spool:
    """A temporary copy of a stream that can be read once; it is deleted with the object."""

    def __init__(self, stream: IO[bytes]) -> None:
        handle, name = tempfile.mkstemp(prefix="contrasent-", suffix=".txt")
        self.path = Path(name)
        # The owner's process only: a forked worker that ends must not delete it.
        weakref.finalize(self, _remove, self.path, os.getpid())
        with writing(self.path), os.fdopen(handle, "wb") as target:
            shutil.copyfileobj(stream, target, 1 << 20)


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


def find(source: str | Path) -> list[Source]:
    """The files that a name stands for, in the order of their paths.

    "-" is standard input, and a pipe is read like it: a sentence a line, copied once to a
    temporary file because a corpus is read more than once. A folder stands for all files below it
    whose suffix is known; hidden ones are passed over.
    """
    if str(source) == "-":
        spool = Spool(sys.stdin.buffer)
        return [Source(spool.path, ".txt", "standard input", spool)]
    path = Path(source)
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise InputError(source, missing(path))
    if not path.is_file():
        with reading(str(source)), path.open("rb") as stream:
            spool = Spool(stream)
        return [Source(spool.path, ".txt", str(source), spool)]
    form = form_of(path)
    if form is None:
        suffix = path.suffix or "none"
        raise InputError(source, f"unknown format (suffix {suffix}); rename it to one of {KNOWN}")
    return [Source(path, form, str(source))]


def missing(path: Path) -> str:
    """Say that a path does not exist, and what the nearest one is called."""
    whole = path
    while path != path.parent and not path.parent.exists():
        path = path.parent
    what = "no such file or folder" if path == whole else f"there is no folder {path}"
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"{what}; did you mean {str(path.parent / near[0])!r}?" if near else what


def _folder(folder: Path) -> list[Source]:
    found = [
        Source(path, form, str(path))
        for path in sorted(_visible(folder))
        if (form := form_of(path)) is not None
    ]
    if not found:
        raise InputError(folder, f"the folder holds no text; put files there of {KNOWN}")
    return found


def _visible(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(error.filename, f"cannot read ({error.strerror or error})") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
