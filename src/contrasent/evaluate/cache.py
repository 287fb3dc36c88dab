"""Reports kept in the user's cache, so that no command encodes again what another has measured."""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, fields, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import UserError
from contrasent.evaluate.suite import Options
from contrasent.report import Report, read_reports, write_reports

VARIABLE = "CONTRASENT_CACHE"
MOST = 100
"""Reports that are kept, the newest ones; of the STS suite a report has about 1 MB."""


def cache_folder() -> Path | None:
    """Where reports are kept: as CONTRASENT_CACHE says, nowhere if that is empty."""
    stated = os.environ.get(VARIABLE)
    if stated is not None:
        return Path(stated) / "reports" if stated else None
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "contrasent" / "reports"


def kept_or_measured(
    model: str,
    suites: Sequence[str],
    options: Options,
    data: str,
    measure: Callable[[], Report],
) -> tuple[Report, bool]:
    """The report of a model that is kept, or else a new one, kept from now on; and which it is."""
    place = cache_folder()
    if place is None:
        return measure(), False
    chosen = replace(options, tokens=None, folder=None, resamples=0)
    stated = (model, tuple(suites), astuple(chosen), options.tokens is not None, data, _code())
    path = place / f"{digest(stated)}.json"
    if path.is_file():
        with suppress(UserError):  # an incomplete or foreign file is measured and written again
            (found,) = read_reports(path).values()
            return found, True
    report = measure()
    with suppress(OSError, UserError):  # a cache that cannot be written to costs time alone
        place.mkdir(parents=True, exist_ok=True)
        write_reports(path, {"": report})
        _remove_oldest(place)
    return report, False


def digest(value: Any) -> str:
    """A digest of dataclasses, tuples, dictionaries, arrays and what has a repr."""
    found = hashlib.blake2b(digest_size=16)

    def add(one: Any) -> None:
        if is_dataclass(one):
            add([getattr(one, field.name) for field in fields(one)])
        elif isinstance(one, dict):
            add(sorted(one.items()))
        elif isinstance(one, list | tuple):
            found.update(f"[{len(one)}]".encode())
            for part in one:
                add(part)
        elif isinstance(one, np.ndarray):
            found.update(f"{one.dtype}{one.shape}".encode() + one.tobytes())
        else:
            text = repr(one).encode(errors="surrogatepass")
            found.update(f"{len(text)}:".encode() + text)

    add(value)
    return found.hexdigest()


def _code() -> str:
    """A digest of this package's modules and of torch's version: other code, other numbers."""
    paths = sorted(Path(__file__).parents[1].rglob("*.py"))
    return digest([version("torch"), *(path.read_bytes() for path in paths)])


def _remove_oldest(place: Path) -> None:
    """Remove all but the newest reports."""
    known = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in known[MOST:]:
        path.with_name(f"{path.stem}.items.safetensors").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
