"""Results on disk: one small JSON file a unit, written atomically; locks between processes.

```
RESULTS/items/simcse-table1.lab.json   what the rows of an item consist of
RESULTS/units/KEY.json                 one measurement: a report
RESULTS/units/train-KEY.json           the record of one training run
RESULTS/skipped/KEY.json               why a model could not be made
RESULTS/models/KEY/                    a model, until all of its measurements are done
RESULTS/corpora/                       the sampled corpora
RESULTS/locks/KEY                      held while a process works on a model
```

A lock is the operating system's: it is gone with the process that held it, however that ended, so
a lock cannot be stale. The file stays, and says who had it last.
"""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from contrasent.files import write_json, writing
from contrasent.report import Report


class Store:
    """The folder of results.

    Args:
        home: the folder; it is made when something is written.
    """

    def __init__(self, home: Path) -> None:
        self.home = home

    def model(self, key: str) -> Path:
        """The folder of a model."""
        return self.home / "models" / key

    def has(self, key: str) -> bool:
        """Whether a measurement is stored."""
        return self._unit(key).is_file()

    def report(self, key: str) -> Report | None:
        """A stored measurement."""
        data = self._read(self._unit(key))
        return Report.from_json(data["report"]) if data is not None else None

    def unit(self, key: str) -> dict[str, Any] | None:
        """A stored measurement with everything that is told of it."""
        return self._read(self._unit(key))

    def write_unit(self, key: str, report: Report, told: dict[str, Any]) -> None:
        """Store a measurement."""
        write_json(self._unit(key), {**told, "report": report.to_json()})

    def record(self, key: str) -> dict[str, Any] | None:
        """The record of a training run."""
        return self._read(self.home / "units" / f"train-{key}.json")

    def write_record(self, key: str, told: dict[str, Any]) -> None:
        """Store the record of a training run."""
        write_json(self.home / "units" / f"train-{key}.json", told)

    def skipped(self, key: str) -> str | None:
        """Why a model could not be made."""
        data = self._read(self.home / "skipped" / f"{key}.json")
        return str(data["reason"]) if data is not None else None

    def skip(self, key: str, reason: str | None) -> None:
        """Note why a model could not be made; None forgets it, so that it is tried again."""
        path = self.home / "skipped" / f"{key}.json"
        if reason is not None:
            write_json(path, {"reason": reason})
        else:
            path.unlink(missing_ok=True)

    def manifest(self, item: str, scale: str) -> dict[str, Any] | None:
        """What the rows of an item consist of."""
        return self._read(self._manifest(item, scale))

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Store what the rows of an item consist of, if it is not stored already."""
        path = self._manifest(manifest["item"], manifest["scale"])
        if self._read(path) != manifest:
            write_json(path, manifest)

    def scales(self, item: str) -> list[str]:
        """The scales at which an item was run."""
        home = self.home / "items"
        return sorted(p.name.split(".")[-2] for p in home.glob(f"{_plain(item)}.*.json"))

    def drop_model(self, key: str) -> None:
        """Delete a model's folder."""
        with writing(self.model(key)):
            shutil.rmtree(self.model(key), ignore_errors=True)

    @contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Try to be the only process that works on a model; say whether we are."""
        path = self.home / "locks" / key
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            with writing(path):
                path.with_suffix(".owner").write_text(f"{socket.gethostname()} {os.getpid()}\n")
            yield True
        finally:
            lock.release()

    def _unit(self, key: str) -> Path:
        return self.home / "units" / f"{key}.json"

    def _manifest(self, item: str, scale: str) -> Path:
        return self.home / "items" / f"{_plain(item)}.{scale}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None


def _plain(item: str) -> str:
    return item.replace(":", "-")
