"""A corpus: rows of text that can be read again and again, and need not fit in memory.

One column is sentences, two are pairs of texts that mean the same, three and more are pairs with
hard negatives; a column of scores says how similar the texts of each pair are. What is read, by
suffix; all but parquet also packed, as ``.csv.gz``:

* ``.txt``: a sentence a line. Blank lines are passed over and counted.
* ``.csv``: quoted as in RFC 4180. The first row names the columns; where all columns are chosen
  by position there is no such row, and the first one is data.
* ``.tsv``: the same without quoting: a quotation mark is a letter.
* ``.jsonl``: a string, an array or an object a line, whichever the first line is.
* ``.parquet``: with the extra ``parquet``.

Text is UTF-8, with or without a byte order mark.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, OptionError
from contrasent.text.sources import find
from contrasent.text.tables import (
    MEMORY,
    Columns,
    Table,
    check_same_columns,
    checked,
    memory_table,
    number_cell,
    open_table,
    text_cell,
)


class Corpus:
    """Rows of text; made by :func:`open_corpus`. Every iteration reads the source anew.

    Attributes:
        width: texts in a row: 1 sentences, 2 pairs, 3 and more pairs with hard negatives.
        names: the columns' names; "0", "1", ... where they have none.
        skipped: blank lines that the last whole iteration passed over.
        documents: whether the rows are in document order, a blank line (or a new file) between
            documents.
        starts: rows at which the documents begin, as of the last whole iteration; row 0 is one.
        scores: (n,) float64, as of the last whole iteration; empty if not ``scored``.
    """

    def __init__(
        self,
        source: str,
        tables: Sequence[Table],
        *,
        at_least: int,
        documents: bool = False,
        scored: bool = False,
    ) -> None:
        """Join tables of the same columns, the last one the scores; see :func:`open_corpus`."""
        self.documents = documents
        self.scored = scored
        self.scores: NDArray[np.float64] = np.empty(0)
        self.starts: list[int] = []
        self.source = source
        self.names = tables[0].names[:-1] if scored else tables[0].names
        self.width = len(self.names)
        self.skipped = 0
        self._tables = tuple(tables)
        self._at_least = at_least

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """The rows in order, each of ``width`` texts without white space at their ends."""
        count = skipped = 0
        starts: list[int] = []
        scores = array("d")
        for table in self._tables:
            begins = self.documents
            names = table.names[: self.width] if table.named or self.width > 1 else ("",)
            for line, cells in table.rows():
                if cells is None:
                    skipped += 1
                    begins = self.documents
                    continue
                if begins:
                    starts.append(count)
                    begins = False
                count += 1
                if self.scored:
                    *cells, score = cells
                    scores.append(number_cell(score, table.names[-1], table.source, line))
                yield tuple(
                    [
                        text_cell(cell, name, table.source, line)
                        for cell, name in zip(cells, names, strict=True)
                    ]
                )
        if count < self._at_least:
            found = "one row only" if count == 1 else f"{count} rows only"
            problem = f"{found}, too few to contrast; {self._at_least} or more are needed"
            raise InputError(self.source, problem)
        self.skipped, self.starts, self.scores = skipped, starts, np.array(scores)

    def digest(self) -> str:
        """Sha256, in hexadecimal, of the bytes of all files and the choice of columns."""
        total = hashlib.sha256()
        for table in self._tables:
            one = hashlib.sha256(table.choice.encode() + b" scored" * self.scored)
            for block in table.content():
                one.update(block)
            total.update(one.digest())
        return total.hexdigest()


def open_corpus(
    source: str | Path | Sequence[str] | Sequence[tuple[Any, ...]],
    *,
    columns: Columns | None = None,
    score: str | int | None = None,
    at_least: int = 2,
    documents: bool = False,
) -> Corpus:
    """Open a file, a folder of files, standard input ("-", a sentence a line) or rows in memory.

    Only the head of each file is read here, rows are checked as they are read. Files of a folder
    are read in the order of their paths; they must have the same columns, and empty ones are
    passed over.

    Args:
        source: what to read.
        columns: which columns, in order. By default all; of jsonl objects and parquet those that
            hold text. See the module for what names and positions mean in a csv or tsv.
        score: the column with a number for each row, by name or position; it is no text.
        at_least: the fewest rows; there is nothing to contrast a single sentence with.
        documents: the sentences are in document order, with a blank line or the end of a file
            after each document; for objectives that look at the next sentence.

    Raises:
        InputError: a file is missing, empty, broken or of unknown format; the first row of a csv
            or tsv is no header; a column holds numbers.
        OptionError: there is no such column.
        MissingExtraError: parquet without pyarrow.
    """
    columns = checked(columns)
    if not isinstance(source, str | Path):
        table = memory_table(source, columns, score)
        return Corpus(MEMORY, [table], at_least=at_least, scored=score is not None)
    files = find(source)
    opened = [open_table(file, columns, text_only=True, score=score) for file in files]
    tables = [table for table in opened if table is not None]
    shown = files[0].shown if len(files) == 1 else str(source)
    if not tables:
        raise InputError(shown, "the file is empty" if len(files) == 1 else "all files are empty")
    for table in tables[1:]:
        check_same_columns(tables[0], table)
    scored = score is not None
    return Corpus(shown, tables, at_least=at_least, documents=documents, scored=scored)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPairs:
    """Pairs of texts with a number each, such as how similar people found them.

    Attributes:
        scores: (n,) float64, all finite, in the file's own units.
    """

    source: str
    first: list[str]
    second: list[str]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.scores)


def read_labelled_pairs(path: str | Path, *, columns: Columns | None = None) -> LabelledPairs:
    """Read two texts and a number from each row of a tsv, csv, jsonl or parquet file.

    ``columns``: first text, second text and number, by name or position; by default the file's
    three columns. The STS Benchmark's own files take ``(5, 6, 4)``.
    """
    columns = checked(columns)
    if columns is not None and len(columns) != 3:
        raise OptionError("columns", list(columns), "two texts and a number are three columns")
    files = find(path)
    if len(files) > 1 or Path(path).is_dir() or files[0].form == ".txt":
        raise InputError(path, "labelled pairs are one file, .tsv, .csv, .jsonl or .parquet")
    table = open_table(files[0], columns, text_only=False)
    if table is None:
        raise InputError(path, "the file is empty")
    if len(table.names) != 3:
        listed = ", ".join(table.names)
        problem = f"two texts and a number are needed; choose three columns of {listed}"
        raise InputError(path, problem)
    pairs = LabelledPairs(table.source, [], [], np.empty(0))
    scores = []
    one, two, label = table.names
    for line, cells in table.rows():
        if cells is not None:
            pairs.first.append(text_cell(cells[0], one, table.source, line))
            pairs.second.append(text_cell(cells[1], two, table.source, line))
            scores.append(number_cell(cells[2], label, table.source, line))
    return replace(pairs, scores=np.array(scores, dtype=np.float64))
