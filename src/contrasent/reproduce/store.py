"""Results on disk: one small JSON file a measurement, written atomically; locks between processes.

```
RESULTS/items/simcse-table1.lab.json   what the rows of an item consist of
RESULTS/units/KEY.json                 one measurement: a report
RESULTS/units/train-KEY.json           the record of one training run
RESULTS/skipped/KEY.json               why a model could not be made
RESULTS/models/KEY/                    a model, until all of its measurements are done
RESULTS/corpora/                       the sampled corpora
RESULTS/tokens/                        and tokenised, for all runs
RESULTS/locks/KEY                      held while a process works on a model
```

A lock is the operating system's: it is gone with the process that held it, however that ended, so
a lock cannot be stale. The file stays, and says who had it last.
"""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from filelock import FileLock, Timeout

from contrasent.engine import registry
from contrasent.files import write_json, writing
from contrasent.reproduce.schema import Times

HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")

FIRST = Path(__file__).parent / "first_defaults.json"


def folder_digest(folder: Path) -> str:
    """Sha256 of what a model folder consists of; other files of it do not matter."""
    total = hashlib.sha256()
    for path in sorted({p for pattern in HASHED for p in folder.rglob(pattern)}):
        if "run" in path.relative_to(folder).parts:
            continue
        with path.open("rb") as stream:
            total.update(f"{path.relative_to(folder)}\n".encode())
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def departing(values: Mapping[str, Any], kind: str, name: str = "") -> dict[str, Any]:
    """The values that are not those of ``first_defaults.json``, which never change.

    A key of them stands for all of the resolved values: when the code's own default of an option
    changes, so does the key, and when the code learns an option that is written down there too, no
    key does.
    """
    first = _first_defaults()
    if kind == "settings":
        known = first[kind]
    else:
        known = {}
        for part in registry.parts(name):
            for key, value in first[kind].get(part, {}).items():
                # As ``objectives`` joins methods: a plain value gives way to another's.
                if key not in known or known[key] == first["plain"].get(key, ...):
                    known[key] = value
    former = first["renamed"]
    plain = {former.get(k, k): list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    return {k: v for k, v in plain.items() if k not in known or v != known[k]}


@cache
def _first_defaults() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIRST.read_text("utf-8"))
    return found


def digest_of(value: Any) -> str:
    """24 hexadecimal digits that stand for plain data, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class PlannedMeasure(TypedDict):
    """Measurements of a row by seed, or why there are none."""

    units: dict[str, str]
    skipped: NotRequired[str]


class PlannedRow(TypedDict):
    """What a row consists of: measurements and models (by evaluation and seed)."""

    name: str
    kind: str
    measured: dict[str, PlannedMeasure]
    models: dict[str, dict[str, str]]
    skipped: NotRequired[str]


class Manifest(TypedDict):
    """What the rows of an item consist of."""

    item: str
    recipe: str
    scale: str
    base: str
    changes: dict[str, Any]
    seeds: int
    rows: list[PlannedRow]


class Record(TypedDict, total=False):
    """A training run, or why it failed; with it stands what ``jobs.describe`` gives."""

    steps: int
    batch: int
    precision: str
    seconds: float
    sentences_per_second: float
    best_step: int | None
    history: list[Any]
    trace: list[tuple[int, dict[str, Any]]]
    machine: str
    versions: dict[str, str]
    code: str
    failed: str


class Measurement(TypedDict):
    """A report and the model that it is of; with it stands what ``jobs.describe`` gives.

    Of a model that no seed changes, "draws" are how far each row moves in resamples of the test
    items that all reports share, in a line of numbers, by the row's key in one line.

    Those that say "seconds" instead of "measured_in" were stored with the training before them.
    """

    report: dict[str, Any]
    model: str
    draws: NotRequired[dict[str, str]]
    measured_in: NotRequired[float]
    seconds: NotRequired[float]


class Store:
    """The folder of results."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def model(self, key: str) -> Path:
        """The folder of a model."""
        return self.home / "models" / key

    def drop_model(self, key: str) -> None:
        """Delete a model's folder."""
        with writing(self.model(key)):
            shutil.rmtree(self.model(key), ignore_errors=True)

    def has(self, key: str) -> bool:
        """Whether a measurement is stored."""
        return self._path("units", key).is_file()

    def measurement(self, key: str) -> Measurement | None:
        """A stored measurement."""
        found: Measurement | None = self._read("units", key)
        return found

    def write_measurement(self, key: str, found: Measurement, about: Mapping[str, Any]) -> None:
        """Store a measurement with everything that is known of its model."""
        write_json(self._path("units", key), {**about, **found})

    def record(self, key: str) -> Record | None:
        """The record of a training run."""
        found: Record | None = self._read("units", f"train-{key}")
        return found

    def write_record(self, key: str, record: Record, about: Mapping[str, Any]) -> None:
        """Store the record of a training run."""
        write_json(self._path("units", f"train-{key}"), {**about, **record})

    def skipped(self, key: str) -> str | None:
        """Why a model could not be made."""
        data = self._read("skipped", key)
        return str(data["reason"]) if data is not None else None

    def skip(self, key: str, reason: str | None) -> None:
        """Note why a model could not be made; None forgets it, so that it is tried again."""
        path = self._path("skipped", key)
        if reason is not None:
            write_json(path, {"reason": reason})
        else:
            path.unlink(missing_ok=True)

    def manifest(self, item: str, scale: str) -> Manifest | None:
        """What the rows of an item consist of."""
        found: Manifest | None = self._read("items", f"{_plain(item)}.{scale}")
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Store what the rows of an item consist of, if it is not stored already."""
        item, scale = manifest["item"], manifest["scale"]
        if self.manifest(item, scale) != manifest:
            write_json(self._path("items", f"{_plain(item)}.{scale}"), manifest)

    def scales(self, item: str) -> list[str]:
        """The scales at which an item was run."""
        home = self.home / "items"
        return sorted(p.name.split(".")[-2] for p in home.glob(f"{_plain(item)}.*.json"))

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

    def _path(self, folder: str, name: str) -> Path:
        return self.home / folder / f"{name}.json"

    def _read(self, folder: str, name: str) -> Any:
        try:
            found = json.loads(self._path(folder, name).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None


def _plain(item: str) -> str:
    return item.replace(":", "-")


def times(records: Mapping[str, Mapping[str, Any]]) -> Times:
    """Seconds, machines and versions of stored measurements and training runs."""

    def distinct(key: str) -> list[Any]:
        return [r[key] for r in records.values() if key in r]

    versions = [", ".join(f"{k} {v}" for k, v in own.items()) for own in distinct("versions")]
    return {
        "seconds": round(_seconds(records), 1),
        "trained": len(distinct("steps")),
        "machines": sorted({m.replace(", 1 threads", ", 1 thread") for m in distinct("machine")}),
        "precisions": sorted(set(distinct("precision"))),
        "codes": sorted(set(distinct("code"))),
        "versions": sorted(set(versions)),
    }


def _seconds(records: Mapping[str, Mapping[str, Any]]) -> float:
    """Time of training runs and measurements, each counted once.

    Measurements that say "seconds" were stored with the training that came before them included.
    """
    total = 0.0
    whole: dict[str, float] = {}
    for record in records.values():
        if "model" in record:
            total += float(record.get("measured_in", 0.0))
            whole.setdefault(record["model"], 0.0)
            whole[record["model"]] += float(record.get("seconds", 0.0))
    for model, seconds in whole.items():
        total += max(seconds, float(records.get(model, {}).get("seconds", 0.0)))
    return total
