"""Reading a corpus to index: the text of each row, its id, and any JSON as its metadata."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from contrasent.errors import InputError
from contrasent.text.sources import find
from contrasent.text.tables import ABSENT, Table, by_name, id_cell, open_table, text_cell

ALL = "*"
IndexRow = tuple[str, str | None, Any]
"""A text, its id (None: the number of the row), its metadata (None: none)."""


class Records:
    """Rows of files, each read anew with every iteration.

    Attributes:
        skipped: blank lines that the last whole iteration passed over.
    """

    def __init__(
        self,
        source: str,
        *,
        text: str | int | None = None,
        identity: str | int | None = None,
        metadata: Sequence[str | int] = (),
    ) -> None:
        self.skipped = 0
        header = by_name((text, identity, *metadata))
        tables = [open_table(file, header=header) for file in find(source)]
        self.tables = [
            _columns(table, text, identity, metadata) for table in tables if table.first is not None
        ]
        if not self.tables:
            raise InputError(source, "holds no text")

    def check(self, identity: str, model: str) -> None:
        """Reject rows that cannot make the index; these, which are encoded, can."""

    def __iter__(self) -> Iterator[IndexRow]:
        skipped = 0
        for columns in self.tables:
            for row in _rows(*columns):
                if row is None:
                    skipped += 1
                else:
                    yield row
        self.skipped = skipped


def _rows(
    table: Table, text: int, identity: int | None, metadata: list[int]
) -> Iterator[IndexRow | None]:
    """The rows of a table by the positions of their columns; None for one without text."""
    chosen = (text, *(() if identity is None else (identity,)), *metadata)
    names = [table.columns[at] for at in metadata]
    text_name = table.columns[text] if table.names else ""
    for number, cells in table.rows(chosen):
        if cells is None or (isinstance(cells[0], str) and not cells[0].strip()):
            yield None
            continue
        own = text_cell(cells[0], text_name, table.source, number)
        name = None if identity is None else id_cell(cells[1], table.source, number)
        values = zip(names, cells[len(cells) - len(names) :], strict=True)
        # Values that JSON does not know, such as dates in parquet, become strings.
        extra = {name: value for name, value in values if value is not ABSENT}
        yield own, name, json.loads(json.dumps(extra, default=str)) if names else None


def _columns(
    table: Table, text: str | int | None, identity: str | int | None, metadata: Sequence[str | int]
) -> tuple[Table, int, int | None, list[int]]:
    place = table.text_column() if text is None else table.position(text, "--column")
    name = None if identity is None else table.position(identity, "--id")
    if list(metadata) == [ALL]:
        others = [at for at in range(len(table.columns)) if at not in (place, name)]
    else:
        others = [table.position(one, "--metadata") for one in metadata]
    return table, place, name, others
