"""Reading a corpus to index: the text of each row, its id, and any JSON as its metadata."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from contrasent.encoding.inputs import id_cell, text_column
from contrasent.errors import InputError
from contrasent.search.segment_writer import IndexRow
from contrasent.text.readers import ABSENT, Reading, read
from contrasent.text.sources import Source, find
from contrasent.text.tables import position

ALL = "*"


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
        self.source, self.text, self.identity, self.metadata = source, text, identity, metadata
        self.files = find(source)
        self.skipped = 0
        chosen = [column for column in (text, identity, *metadata) if column is not None]
        # A csv starts with a header, unless all columns are chosen by position: as in a corpus.
        self.header = not chosen or any(isinstance(column, str) for column in chosen)
        if all(self._opened(file) is None for file in self.files):
            raise InputError(source, "holds no text")

    def check(self, identity: str, model: str, *, words: bool) -> None:
        """Refuse rows that cannot make the index; these, which are encoded, can."""

    def __iter__(self) -> Iterator[IndexRow]:
        skipped = 0
        for file in self.files:
            opened = self._opened(file)
            if opened is None:
                continue
            reading, text, identity, metadata = opened
            for number, cells in reading.rows:
                if cells is None:
                    skipped += 1
                    continue
                extra = {name: cells[at] for name, at in metadata if cells[at] is not ABSENT}
                # Values that JSON does not know, such as dates in parquet, become strings.
                yield (
                    _text(cells[text], file.shown, number),
                    None if identity is None else id_cell(cells[identity], file.shown, number),
                    json.loads(json.dumps(extra, default=str)) if metadata else None,
                )
        self.skipped = skipped

    def _opened(
        self, file: Source
    ) -> tuple[Reading, int, int | None, list[tuple[str, int]]] | None:
        reading = self._read(file)
        first = next((cells for _, cells in reading.rows if cells is not None), None)
        if first is None:
            return None
        names = reading.names or tuple(map(str, range(len(first))))

        def find(column: str | int, option: str) -> int:
            return position(reading, len(names), column, file.shown, option)

        text = text_column(names, file.shown) if self.text is None else find(self.text, "--column")
        identity = None if self.identity is None else find(self.identity, "--id")
        if list(self.metadata) == [ALL]:
            chosen = [at for at in range(len(names)) if at not in (text, identity)]
        else:
            chosen = [find(name, "--metadata") for name in self.metadata]
        return self._read(file), text, identity, [(names[at], at) for at in chosen]

    def _read(self, file: Source) -> Reading:
        return read(file.path, file.form, header=self.header, source=file.shown)


def column(value: str) -> str | int:
    """A column as it is named on the command line: digits are a position from 0."""
    return int(value) if value.isdecimal() else value


def _text(cell: Any, source: str, line: int) -> str:
    if not isinstance(cell, str) or not cell.strip():
        what = "is missing" if cell is ABSENT else "is blank" if cell == "" else "is no text"
        raise InputError(source, f"the text {what}; every row needs one", line=line)
    return cell.strip()
