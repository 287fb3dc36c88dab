"""A report: rows of (task, split, metric, aggregate, value, count, interval).

Every evaluation returns one. Averages are taken of unrounded values and refuse missing tasks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from contrasent.errors import DataError


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number.

    Attributes:
        task: what was measured on, such as "STS12" or "STS12/MSRpar".
        split: "train", "dev", "test" or "heldout".
        metric: "spearman", "pearson", "mrr@10", ...; correlations and rates lie in [-1, 1].
        aggregate: how subsets were joined: "all", "mean" or "wmean"; "" where nothing is joined.
        value: the number, unrounded.
        count: how many pairs, queries or sentences it rests on.
        low: lower end of the 95 % interval, if one was computed.
        high: upper end of it.
    """

    task: str
    split: str
    metric: str
    aggregate: str
    value: float
    count: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Rows, and what is needed to read them.

    Attributes:
        rows: the numbers.
        notes: facts that belong to all rows, such as {"form": "raw", "distinct_sentences": 21234}.
    """

    rows: tuple[Row, ...]
    notes: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, **wanted: str) -> "Report":
        """The rows whose named fields have the given values."""
        kept = [r for r in self.rows if all(getattr(r, k) == v for k, v in wanted.items())]
        return Report(tuple(kept), self.notes)

    def one(self, **wanted: str) -> Row:
        """The single row whose named fields have the given values.

        Raises:
            DataError: there is none, or more than one.
        """
        found = self.select(**wanted).rows
        if len(found) != 1:
            raise DataError(f"the report has {len(found)} rows for {wanted}, wanted exactly one")
        return found[0]

    def average(self, tasks: Sequence[str], **wanted: str) -> float:
        """Plain mean of the named tasks' unrounded values.

        Raises:
            DataError: a task is missing from the report.
        """
        return sum(self.one(task=task, **wanted).value for task in tasks) / len(tasks)

    def to_json(self) -> dict[str, Any]:
        """A dictionary that ``json.dump`` writes: {"rows": [...], "notes": {...}}."""
        return {"rows": [asdict(row) for row in self.rows], "notes": self.notes}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Report":
        """The inverse of ``to_json``."""
        return cls(tuple(Row(**row) for row in data["rows"]), dict(data.get("notes", {})))

    @classmethod
    def join(cls, reports: Iterable["Report"]) -> "Report":
        """All rows of several reports; later notes win."""
        rows: list[Row] = []
        notes: dict[str, Any] = {}
        for report in reports:
            rows.extend(report.rows)
            notes.update(report.notes)
        return cls(tuple(rows), notes)
