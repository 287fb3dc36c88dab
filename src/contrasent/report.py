"""A report: rows of (task, split, metric, aggregate, value, count, interval), and its files.

NAME.items.safetensors holds per-item scores for paired comparisons; "items" in NAME.json names it.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.errors import DataError, InputError
from contrasent.files import atomic_file, write_json

FORMAT = "contrasent items 1"
ARRAYS = ("keys", "columns")  # fields of `Items` that are arrays

RowKey = tuple[str, str, str, str]  # task, split, metric and aggregate: what names a row


def key_text(key: RowKey) -> str:
    """A row's key in one line."""
    return " ".join(filter(None, key))


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number.

    Attributes:
        task: data set, such as "STS12", or a subset, such as "STS12/MSRpar".
        metric: "spearman", "pearson", "mrr@10", ...; correlations are from -1 to 1, rates from 0 to
            1.
        aggregate: how subsets were combined: "all", "mean" or "wmean"; "" for a single set.
        count: number of pairs, queries or sentences.
        low: lower end of the 95 % interval; None without one.
    """

    task: str
    split: str
    metric: str
    aggregate: str
    value: float
    count: int
    low: float | None = None
    high: float | None = None

    @property
    def key(self) -> RowKey:
        """The name of the row in its report."""
        return self.task, self.split, self.metric, self.aggregate


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The items behind a row's value: reports can then be compared in pairs."""

    # how the columns make the value: "mean" of one column; "uniformity" of one of
    # `metrics.nearness`; "spearman" or "pearson" of (prediction, gold); "f1" of (guess, label),
    # both 0 or 1; "ap" and "f1_best" of (score, label); "v_measure" of (group, class), whole
    # numbers from 0
    statistic: str
    # (n,) uint64 of `stats.bootstrap.item_keys`: equal keys are the same item, in whichever task
    keys: NDArray[np.uint64]
    columns: NDArray[np.float64]  # (c, n) numbers
    sizes: tuple[int, ...] = ()  # of the subsets, in order, if there are several
    # of subsets: "all" for one statistic over them, "mean" or "wmean" for the mean of theirs, plain
    # or by size
    aggregate: str = "all"
    # what the items were measured against, such as a digest of the documents searched; it must be
    # equal where reports are compared
    context: str = ""


ItemsByRow = dict[RowKey, Items | tuple[RowKey, ...]]
"""By the key of a row: the items behind its number, or the rows whose plain mean it is."""


HEADER = ("task", "split", "metric", "", "value", "95 % CI", "count")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of an evaluation: rows of numbers with intervals, and notes.

    Attributes:
        notes: facts about all rows, such as {"form": "raw", "resamples": 1000}.
        items: by the key of a row, the scores of the single items, for paired comparisons, or the
            keys of the rows that it averages. They are not in the JSON; see :func:`write_reports`.

    Examples:
        >>> from contrasent import Encoder
        >>> from contrasent.evaluate.retrieval import retrieval
        >>> encode = Encoder.load("all-MiniLM-L6-v2").encode
        >>> report = retrieval(encode, ["ferry", "tax"], ["a ship", "a map", "taxes"], [0, 2])
        >>> report.one(metric="recall@1").value
        1.0
        >>> print(report.select(metric="mrr@10").table())
        task     split    metric  value  count
        heldout  heldout  mrr@10  1.000      2
        documents: 3
        ties: against the model
    """

    rows: tuple[Row, ...]
    notes: dict[str, Any] = field(default_factory=dict)
    items: ItemsByRow = field(default_factory=dict, repr=False, compare=False)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, **wanted: str) -> "Report":
        """The rows with these values, such as ``metric="spearman"``, as a report."""
        rows = [r for r in self.rows if all(getattr(r, k) == v for k, v in wanted.items())]
        return Report(tuple(rows), self.notes, self.items)

    def one(self, **wanted: str) -> Row:
        """The only row with these values; a ``DataError`` if there is not exactly one."""
        rows = self.select(**wanted).rows
        if len(rows) != 1:
            raise DataError(f"the report has {len(rows)} rows for {wanted}, expected exactly one")
        return rows[0]

    def table(self) -> str:
        """Plain text for a terminal, one line for each row."""
        lines = [HEADER, *(_cells(row) for row in self.rows)]
        notes = [f"{key}: {_note(value)}" for key, value in self.notes.items() if _short(value)]
        # The first four columns are words, the others numbers.
        return "\n".join([*laid_out(lines, left=range(4)), *notes])

    def _repr_html_(self) -> str:
        """The same rows as a table of HTML, for a notebook."""
        return html_table([HEADER, *(_cells(row) for row in self.rows)])

    def to_json(self) -> dict[str, Any]:
        """A dictionary that ``json.dump`` writes: {"rows": [...], "notes": {...}}."""
        return {"rows": [asdict(row) for row in self.rows], "notes": self.notes}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Report":
        """The inverse of ``to_json``."""
        return cls(tuple(Row(**row) for row in data["rows"]), dict(data.get("notes", {})))

    @classmethod
    def join(cls, reports: Iterable["Report"]) -> "Report":
        """Join the rows of several reports; for equal notes and items the last one counts."""
        joined = cls(())
        for one in reports:
            joined = cls(joined.rows + one.rows, joined.notes | one.notes, joined.items | one.items)
        return joined


def html_table(lines: Iterable[Sequence[str]]) -> str:
    """A table for a notebook, its first line the heads of the columns."""
    rows = [
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)
        for tag, line in zip(chain(["th"], repeat("td")), lines, strict=False)
    ]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def shown(metric: str, value: float, sign: Literal["", "+"] = "") -> str:
    """A value as printed: correlations and rates times 100, metrics of ranking as they are."""
    entry = metrics.metric(metric)
    if entry.hundredths and entry.table != "retrieval":
        return f"{100 * value:{sign}.2f}"
    return f"{value:{sign}.3f}" if abs(value) < 1000 else f"{value:{sign},.0f}"


def _cells(row: Row) -> tuple[str, ...]:
    bounds = ""
    if row.low is not None and row.high is not None:
        bounds = f"{shown(row.metric, row.low)} to {shown(row.metric, row.high)}"
    value = shown(row.metric, row.value)
    return (row.task, row.split, row.metric, row.aggregate, value, bounds, f"{row.count:,}")


def laid_out(table: Sequence[tuple[str, ...]], *, left: Container[int]) -> list[str]:
    """Lines of a table under its header, without empty columns."""
    columns = []
    for i, column in enumerate(zip(*table, strict=True)):
        if not i or any(column[1:]):
            width = max(map(len, column))
            columns.append([c.ljust(width) if i in left else c.rjust(width) for c in column])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _short(value: Any) -> bool:
    """Whether a note is short enough to read; long lists are for pictures and programs."""
    return not isinstance(value, list) and not (
        isinstance(value, dict) and all(isinstance(v, list) for v in value.values())
    )


def _note(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            _note(v) if isinstance(v, dict) else f"{key} {_note(v)}"
            for key, v in value.items()
            if _short(v)
        )
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def write_reports(path: Path, reports: Mapping[str, Report]) -> None:
    """Write the reports of models by name, with their items in a second file."""
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
        reports = {str(r.get("model", "")): Report.from_json(r) for r in records}
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(path, "not a report; create one with evaluate --json-file") from error
    if "items" not in record:
        return reports
    second = path.with_name(Path(str(record["items"])).name)
    if not second.is_file():
        raise InputError(path, f"its items, {second.name}, are missing; keep both files together")
    try:
        items = _unpack(second, len(reports))
    except Exception as error:  # safetensors raises its own type, without a common base
        raise InputError(second, f"not the items of a report ({error})") from error
    return {
        name: Report(report.rows, report.notes, report_items)
        for (name, report), report_items in zip(reports.items(), items, strict=True)
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
                for part in fields(items):
                    value = getattr(items, part.name)
                    entry[part.name] = name_of(value) if part.name in ARRAYS else value
            else:
                entry["mean_of"] = items
            index.append(entry)
    return bytes(save(arrays, {"format": FORMAT, "index": json.dumps(index)}))


def _unpack(path: Path, reports: int) -> list[ItemsByRow]:
    from safetensors import safe_open

    unpacked: list[ItemsByRow] = [{} for _ in range(reports)]
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise ValueError(f"format {metadata.get('format', 'unknown')!r}, wanted {FORMAT!r}")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for entry in json.loads(metadata["index"]):
        key: RowKey = tuple(entry["row"])
        if "mean_of" in entry:
            unpacked[entry["report"]][key] = tuple(map(tuple, entry["mean_of"]))
            continue
        values = {part.name: entry[part.name] for part in fields(Items)}
        values |= {name: arrays[values[name]] for name in ARRAYS}
        unpacked[entry["report"]][key] = Items(**{**values, "sizes": tuple(values["sizes"])})
    return unpacked
