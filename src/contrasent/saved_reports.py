"""Reports on disk: JSON for people and programs, and the items behind the numbers beside it.

``NAME.json`` holds one model's report, or several under "models". ``NAME.items.safetensors`` holds
per-item scores, so that two reports can be compared in pairs without encoding again; "items" in the
JSON names it. JSON without it (of earlier versions) is read as well.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError
from contrasent.files import atomic_file, write_json
from contrasent.report import Items, ItemsByRow, Report, RowKey

FORMAT = "contrasent items 1"
ARRAYS = ("keys", "columns")
"""Fields of ``Items`` that are arrays."""


def write_reports(path: Path, reports: Mapping[str, Report]) -> None:
    """Write the reports of models by name, and their items beside them."""
    records = [{"model": name, **report.to_json()} for name, report in reports.items()]
    record: dict[str, Any] = records[0] if len(records) == 1 else {"models": records}
    if any(report.items for report in reports.values()):
        target = path.with_name(f"{path.stem}.items.safetensors")
        with atomic_file(target, "wb") as stream:
            stream.write(_pack(list(reports.values())))
        record["items"] = target.name
    write_json(path, record)


def read_reports(path: Path) -> dict[str, Report]:
    """The reports of a file by their models' names, items included where there are any."""
    try:
        record = json.loads(path.read_text("utf-8"))
        records = record.get("models", [record])
        found = {str(r.get("model", "")): Report.from_json(r) for r in records}
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(path, "no report; write one with evaluate --json") from error
    if "items" not in record:
        return found
    beside = path.with_name(Path(str(record["items"])).name)
    if not beside.is_file():
        raise InputError(path, f"its items, {beside.name}, are missing; keep both files together")
    try:
        items = _unpack(beside, len(found))
    except Exception as error:  # safetensors raises its own, which has no common base
        raise InputError(beside, f"no items of a report ({error})") from error
    return {
        name: Report(report.rows, report.notes, own)
        for (name, report), own in zip(found.items(), items, strict=True)
    }


def _pack(reports: list[Report]) -> bytes:
    """Items as safetensors: each array once, and an index that says which row has which."""
    from safetensors.numpy import save

    names: dict[int, str] = {}
    arrays: dict[str, NDArray[Any]] = {}

    def name_of(array: NDArray[Any]) -> str:
        if id(array) not in names:
            names[id(array)] = str(len(names))
            arrays[names[id(array)]] = np.ascontiguousarray(array)
        return names[id(array)]

    index: list[dict[str, Any]] = []
    for number, report in enumerate(reports):
        for key, items in report.items.items():
            entry: dict[str, Any] = {"report": number, "row": key}
            if isinstance(items, Items):
                for field in fields(items):
                    value = getattr(items, field.name)
                    entry[field.name] = name_of(value) if field.name in ARRAYS else value
            else:
                entry["mean_of"] = items
            index.append(entry)
    return bytes(save(arrays, {"format": FORMAT, "index": json.dumps(index)}))


def _unpack(path: Path, reports: int) -> list[ItemsByRow]:
    from safetensors import safe_open

    found: list[ItemsByRow] = [{} for _ in range(reports)]
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise ValueError(f"format {metadata.get('format', 'unknown')!r}, wanted {FORMAT!r}")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for entry in json.loads(metadata["index"]):
        key = _key(entry["row"])
        if "mean_of" in entry:
            found[entry["report"]][key] = tuple(_key(k) for k in entry["mean_of"])
            continue
        own = {field.name: entry[field.name] for field in fields(Items)}
        own |= {name: arrays[own[name]] for name in ARRAYS} | {"sizes": tuple(own["sizes"])}
        found[entry["report"]][key] = Items(**own)
    return found


def _key(parts: list[str]) -> RowKey:
    task, split, metric, aggregate = parts
    return task, split, metric, aggregate
