"""Writing files atomically, and HTML pages from templates."""

import ctypes
import errno
import json
import logging
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from contrasent.errors import InputError, ModelError, OutputError, UserError, see

if TYPE_CHECKING:
    from jinja2 import Environment

log = logging.getLogger(__name__)

LOCK, HOLDER = ".lock", ".writer"
SILENT = 2.0  # seconds to wait for another process before saying so
HERE, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an operating system's complaint about a target into an ``OutputError``."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "space left" in reason
        raise OutputError(f"{target}: cannot write ({reason}); {remedy(full=full)}") from error


def remedy(*, full: bool) -> str:
    """What to do about a target that cannot be written, because the disk is full or otherwise."""
    if full:
        return f"free some space or choose another target{see('disk-full')}"
    return "choose another target, or change its permissions"


def real_path(path: Path) -> Path:
    """Where a path leads, also of a loop of links, where ``resolve`` raises a RuntimeError."""
    return Path(os.path.realpath(path))


def _temporary_name(target: Path) -> Path:
    """An unused name next to a target."""
    return target.with_name(f"{_hidden(target.name)}{secrets.token_hex(4)}")


def _hidden(name: str) -> str:
    """The prefix of the names of a target's temporary files and folders, and of no others."""
    return f".{name}.contrasent-"


@contextmanager
def atomic_file(target: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces ``target`` when the block ends without an error."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_name(target)
        try:
            # Half a surrogate, as of a path that is not UTF-8, is written as JSON escapes it.
            text = (None, None) if "b" in mode else ("utf-8", "backslashreplace")
            with temporary.open(mode.replace("w", "x"), -1, *text) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
            flush(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``target`` when the block ends without an error.

    A link stays one; the folder that it leads to is replaced.
    """
    with writing(target):
        target = real_path(target)
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file has that name")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_name(target)
        temporary.mkdir()
        allowed = stat.S_IMODE(temporary.stat().st_mode)  # by the umask, which no thread can read
        try:
            yield temporary
            for path in temporary.rglob("*"):
                path.chmod(allowed if path.is_dir() else allowed & 0o666)
                flush(path)
            flush(temporary)
            aside = target.with_name(f"{_hidden(target.name)}old")
            shutil.rmtree(aside, ignore_errors=True)
            if target.exists() and _exchange(temporary, target):
                aside = temporary
            else:
                if target.exists():
                    target.rename(aside)
                temporary.rename(target)
            flush(target.parent)
            shutil.rmtree(aside, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            recover_folder(target)
            raise


def flush(path: Path) -> None:
    """Flush a file to the disk, or a folder's names if the system can."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)  # Windows needs both rights
    try:
        os.fsync(handle)
    except OSError as error:
        if not folder or error.errno != errno.EINVAL:  # some file systems cannot flush names
            raise
    finally:
        os.close(handle)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, if the system and the file system can."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0)


def recover_folder(target: Path, patience: float = 0.0) -> None:
    """Undo a replacement that was killed between its renames; wait some seconds for a live one."""
    target, ends = real_path(target), time.monotonic() + patience
    aside = target.with_name(f"{_hidden(target.name)}old")
    while aside.exists() and not target.exists():
        if time.monotonic() >= ends:
            with writing(target), suppress(FileNotFoundError):  # another reader was faster
                aside.rename(target)
            return
        time.sleep(0.01)


def is_temporary(path: Path) -> bool:
    """Whether a file or folder was left by a killed writer, or is being written."""
    return path.match(f"{_hidden('*')}*")


def remove_temporaries(folder: Path, *names: str) -> None:
    """Delete what killed writers of these left in a folder ("*": of all); no other may write."""
    for path in folder.glob(f"{_hidden('*')}*"):
        if {"*", path.name[1:].rpartition(".contrasent-")[0]}.isdisjoint(names):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def encoded(text: str) -> bytes:
    """UTF-8 bytes of a text; half a surrogate pair cannot be stored and is an error."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{text[:60]!r} contains a lone surrogate, which is not a character; remove it"
        ) from error


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_file(target) as stream:
        stream.write(text)


def write_json(target: Path, data: Any) -> None:
    """Write a JSON file atomically, indented, keys in the order given."""
    write_text(target, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that a user wrote."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"at line (\d+)", str(error))
        line = int(position.group(1)) if position else None
        raise InputError(path, f"not valid TOML ({error})", line=line) from error
    except UnicodeDecodeError as error:
        raise InputError(path, "not UTF-8") from error


def read_json(path: Path) -> Any:
    """Read a JSON file of a model's folder."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(
            f"{path}: missing or unreadable; the model folder is incomplete"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error})") from error


def read_object(path: Path, *, needed: bool = False) -> dict[str, Any]:
    """Read a JSON object of a model's folder."""
    data = read_json(path) if needed or path.is_file() else {}
    if not isinstance(data, dict):
        raise ModelError(f"{path}: not a JSON object")
    return data


def write_object(path: Path, data: Any) -> None:
    """Write JSON into a folder that is being made."""
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _holder(folder: Path) -> str:
    """The process that holds a folder's lock."""
    try:
        about = json.loads((folder / HOLDER).read_text("utf-8"))
        return f"process {about['process']} on {about['machine']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


@contextmanager
def only_process(folder: Path, doing: str, wait: float) -> Iterator[None]:
    """Make a folder and lock it, after waiting for the process that holds it, if any.

    ``doing`` is for messages about it, such as "is writing to this index"; ``wait`` in seconds.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        silent = min(SILENT, wait)
        for seconds, last in ((silent, wait <= SILENT), (wait - silent, True)):
            try:
                lock.acquire(timeout=seconds)
                break
            except Timeout as error:  # also an OSError
                holder = _holder(folder)
                if last:
                    problem = f"{holder} {doing}; try again when it has ended{see('index-locked')}"
                    raise OutputError(f"{folder}: {problem}") from error
                log.warning("%s: %s %s; waiting", folder, holder, doing)
        about = {"process": os.getpid(), "machine": socket.gethostname()}
        (folder / HOLDER).write_text(json.dumps(about), "utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def check_file(target: Path) -> None:
    """Check, before any work, that a file can be written."""
    if target.is_dir():
        raise OutputError(f"{target}: is a folder; name a file")
    check_writable(target.absolute().parent)


def check_writable(folder: Path, needed: int = 0) -> None:
    """Check, before any work, that a folder can be written and has room."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise OutputError(
            f"{folder}: {needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free; "
            f"{remedy(full=True)}"
        )


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("contrasent"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(minus=minus, short=short)
    return environment


def minus(text: str) -> str:
    """Negative numbers with a minus sign instead of a hyphen; hyphens of words and names stay."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)


def short(text: str, most: int = 160) -> str:
    """A text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def render(template: str, **facts: Any) -> str:
    """A page's text."""
    return _templates().get_template(template).render(**facts)
