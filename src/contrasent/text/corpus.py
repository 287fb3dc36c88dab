"""A corpus: rows of text that can be read again and again, and need not fit in memory.

One column is sentences, two are pairs, three and more pairs with hard negatives; a column of scores
says how similar the texts of a pair are. Blank lines are passed over and counted.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, OptionError
from contrasent.text.sources import find
from contrasent.text.tables import (
    ABSENT,
    Columns,
    Record,
    Table,
    as_number,
    brief,
    by_name,
    number_cell,
    object_table,
    open_table,
    text_cell,
    uneven,
)

MEMORY = "rows in memory"
HEADER_LENGTH = 80
"""Characters in a column's name: beyond it a first row is taken for data, not for a header."""


Chosen = tuple[Table, tuple[int, ...]]
"""A table and the chosen ones of its columns, that of the scores last."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences with a score each, such as how similar people found them."""

    name: str  # the subset ("MSRpar"), or the task where it has no parts
    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: NDArray[np.float64]  # (n,) finite; gold scores are 0 to 5 (SICK: 1 to 5)

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, rows: Sequence[int] | NDArray[np.int64]) -> "ScoredPairs":
        """The pairs of some rows, in their order."""
        first, second = (tuple(side[i] for i in rows) for side in (self.first, self.second))
        return replace(self, first=first, second=second, scores=self.scores[rows])

    @classmethod
    def join(cls, name: str, parts: Sequence["ScoredPairs"]) -> "ScoredPairs":
        """All pairs of several sets."""
        first = tuple(text for part in parts for text in part.first)
        second = tuple(text for part in parts for text in part.second)
        return cls(name, first, second, np.concatenate([part.scores for part in parts]))


class Corpus:
    """Rows of text; made by :func:`open_corpus`. Every iteration reads the source anew.

    ``width``: texts in a row: 1 sentences, 2 pairs, 3 and more pairs with hard negatives.
    ``names``: the columns' names; "0", "1", ... where they have none. ``skipped``: blank lines that
    the last whole iteration passed over. ``documents``: whether the rows are in document order, a
    blank line (or a new file) between documents. ``starts``: rows at which the documents begin, as
    of the last whole iteration; row 0 is one. ``scores``: (n,) float64, as of the last whole
    iteration; empty if not ``scored``. ``parts``: rows at which joined corpora begin, as of the
    last whole iteration; [0] for one.
    """

    def __init__(
        self,
        source: str,
        tables: Sequence[Chosen],
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
        self.width = len(tables[0][1]) - scored
        self.names = _names(*tables[0])[: self.width]
        self.skipped = 0
        self.parts = [0]
        self._begins: tuple[int, ...] = (0,)  # tables at which joined corpora begin
        self._tables = tuple(tables)
        self._at_least = at_least

    def join(self, *others: "Corpus") -> "Corpus":
        """The rows of several corpora, one after the other; a batch is of one of them.

        How often each gives one is the setting ``weights``.
        """
        kind = self.width, self.scored, self.documents
        for other in others:
            if (other.width, other.scored, other.documents) != kind:
                kinds = [f"{c.width} columns{' and scores' * c.scored}" for c in (other, self)]
                problem = f"the corpus has {kinds[0]}, {self.source} has {kinds[1]}; choose columns"
                raise InputError(other.source, f"{problem} by position that all have")
        every = (self, *others)
        joined = Corpus(
            " + ".join(Path(part.source).name for part in every),
            [table for part in every for table in part._tables],
            at_least=self._at_least,
            documents=self.documents,
            scored=self.scored,
        )
        joined._begins = (0, *accumulate(len(part._tables) for part in every[:-1]))
        return joined

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """The rows in order, each of ``width`` texts without white space at their ends."""
        count = skipped = 0
        starts: list[int] = []
        scores = array("d")
        parts: list[int] = []
        for place, (table, chosen) in enumerate(self._tables):
            parts += [count] * (place in self._begins)
            begins = self.documents
            source, names = table.source, _names(table, chosen)
            text_names = names[: self.width] if table.names or self.width > 1 else ("",)
            for line, cells in table.rows(chosen):
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
                    scores.append(number_cell(score, names[-1], source, line))
                named = zip(cells, text_names, strict=True)
                yield tuple([text_cell(cell, name, source, line) for cell, name in named])
        if count < self._at_least:
            amount = "one row only" if count == 1 else f"{count} rows only"
            problem = f"{amount}, too few to contrast; {self._at_least} or more are needed"
            raise InputError(self.source, problem)
        self.skipped, self.starts, self.scores = skipped, starts, np.array(scores)
        self.parts = parts

    def digest(self) -> str:
        """Sha256, in hexadecimal, of the bytes of all files and the choice of columns."""
        total = hashlib.sha256(str(self._begins).encode() if len(self._begins) > 1 else b"")
        for table, chosen in self._tables:
            choice = f"{table.form} {_names(table, chosen) if table.names else chosen}"
            part = hashlib.sha256(choice.encode() + b" scored" * self.scored)
            for block in table.content():
                part.update(block)
            total.update(part.digest())
        return total.hexdigest()


def open_corpus(
    source: str | Path | Iterable[Any],
    *,
    columns: Columns | None = None,
    score: str | int | None = None,
    at_least: int = 2,
    documents: bool = False,
) -> Corpus:
    """Open a file, a folder of files, standard input ("-", a sentence a line) or rows in memory.

    Only the head of each file is read here (more where the first row of a jsonl has a null), rows
    are checked as they are read. Files of a folder are read in the order of their paths; they must
    have the same columns, and empty ones are passed over.

    Args:
        source: what to read. In memory: texts, tuples of them, or mappings such as a jsonl's
            objects, but no data frame. Paths in a list are files of one corpus.
        columns: which columns, in order. By default all; of jsonl objects and parquet those that
            hold text. See the module for what names and positions mean in a csv or tsv.
        score: the column with a number for each row, by name or position; it is no text.
        at_least: the fewest rows; there is nothing to contrast a single sentence with.
        documents: the sentences are in document order, with a blank line or the end of a file
            after each document; for objectives that look at the next sentence.

    Raises:
        InputError: a file is missing, empty, broken or of unknown format; the first row of a csv
            or tsv is no header; a column holds numbers.
        OptionError: there is no such column; a list mixes paths and texts.
        MissingExtraError: parquet without pyarrow.
    """
    columns = _checked(columns)
    scored = score is not None
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        problem = f"a {type(source).__name__} holds columns, not rows; give a list of rows"
        raise InputError(MEMORY, f"{problem}, such as frame.to_dict('records') of a pandas frame")
    paths = [source] if isinstance(source, str | Path) else list(source)
    others = [row for row in paths if not isinstance(row, Path) and row is not source]
    if len(others) == len(paths):
        table = _select(_memory_table(others), columns, score)
        return Corpus(MEMORY, [table], at_least=at_least, scored=scored)
    if others:
        problem = "stands among paths; make it a pathlib.Path, or give texts alone"
        raise OptionError("source", others[0], problem)
    files = [file for path in paths for file in find(path)]
    header = columns is None or by_name((*columns, score))
    opened = [open_table(file, header=header) for file in files]
    tables = [_select(table, columns, score) for table in opened if _has_rows(table)]
    shown = files[0].shown if len(files) == 1 else str(source)
    if not tables:
        raise InputError(shown, "the file is empty" if len(files) == 1 else "all files are empty")
    (first, _), names = tables[0], _names(*tables[0])
    for two, chosen in tables[1:]:
        its = _names(two, chosen)
        if len(names) != len(its) or (first.names and two.names and names != its):
            raise InputError(
                two.source,
                f"the file gives {', '.join(its)} where {Path(first.source).name} gives "
                f"{', '.join(names)}; files of one folder must have the same columns",
            )
    return Corpus(shown, tables, at_least=at_least, documents=documents, scored=scored)


def read_labelled_pairs(path: str | Path, *, columns: Columns | None = None) -> ScoredPairs:
    """Read two texts and a number from each row of a tsv, csv, jsonl or parquet file.

    ``columns``: first text, second text and number, by name or position; by default the file's
    three columns. The STS Benchmark's own files take ``(5, 6, 4)``.
    """
    columns = _checked(columns)
    if columns is not None and len(columns) != 3:
        raise OptionError("columns", list(columns), "two texts and a number are three columns")
    files = find(path)
    if len(files) > 1 or Path(path).is_dir() or files[0].form == ".txt":
        raise InputError(path, "labelled pairs are one file, .tsv, .csv, .jsonl or .parquet")
    table = open_table(files[0], header=columns is None or by_name(columns))
    if not _has_rows(table):
        raise InputError(path, "the file is empty")
    if columns is None:
        if table.form in (".csv", ".tsv"):
            _check_header(table.columns, table.source)
        columns = table.names or range(len(table.columns))
        if len(columns) != 3:
            listed = ", ".join(table.columns)
            problem = f"two texts and a number are needed; choose three columns of {listed}"
            raise InputError(path, problem)
    for column in columns:
        table.position(column)  # an error names the option as it was given
    corpus = open_corpus(path, columns=columns[:2], score=columns[2], at_least=0)
    first, second = zip(*corpus, strict=True)
    return ScoredPairs(Path(path).stem, first, second, corpus.scores)


def _checked(columns: Columns | None) -> Columns | None:
    """Turn a single name into a list, and reject an empty list."""
    if isinstance(columns, str):
        return (columns,)
    if columns is not None and len(columns) == 0:
        raise OptionError("columns", list(columns), "choose at least one column")
    return columns


def _has_rows(table: Table) -> bool:
    """True if a table has rows; a header without any is an error."""
    if table.first is None and table.names and table.form in (".csv", ".tsv"):
        problem = "one row only, the header; choose columns by position if it has none"
        raise InputError(table.source, problem)
    return table.first is not None


def _select(table: Table, columns: Columns | None, score: str | int | None) -> Chosen:
    """Choose columns; by default all of text."""
    last = () if score is None else (table.position(score, "score"),)
    if columns is not None:
        return table, tuple(table.position(column) for column in columns) + last
    others = [position for position in range(len(table.columns)) if position not in last]
    listed = ", ".join(table.columns)
    if table.form in (".csv", ".tsv"):
        _check_header(table.columns, table.source)
        for position in others:
            cell = (table.first or ())[position]
            if as_number(cell) is not None:
                name = table.columns[position]
                problem = f"column {name!r} holds numbers ({cell!r}); choose columns of {listed}"
                raise InputError(table.source, problem)
    else:
        _check_nulls(table, others)
        others = [position for position in others if table.text[position]]
        if not others:
            raise InputError(table.source, f"no column of {listed} holds text")
    return table, tuple(others) + last


def _check_nulls(table: Table, columns: Iterable[int]) -> None:
    """Reject a column whose text the first row lacks, as it would be left out silently."""
    first = table.first or ()  # empty for parquet, whose types say what is text
    left = [at for at in columns if at < len(first) and not table.text[at]]
    left = [at for at in left if first[at] is None or first[at] is ABSENT]
    for line, cells in table.stream() if left else ():
        for at in left:
            if cells and isinstance(cells[at], str):
                problem = f"column {table.columns[at]!r} holds text here but not in the first row"
                remedy = f"choose columns of {', '.join(table.columns)}"
                raise InputError(table.source, f"{problem}; {remedy}", line=line)


def _check_header(names: Sequence[str], source: str) -> None:
    """Reject a first row that reads like data, which would be lost silently."""
    if len(names) == 1 and (other := next((c for c in "\t;,|" if c in names[0]), None)):
        problem = (
            f"the first row is one column with {other!r} in it, {brief(names[0])}; columns are "
            "separated by a comma in .csv, by a tab in .tsv"
        )
        raise InputError(source, problem)
    for name in names:
        sentence = " " in name and name.endswith((".", "!", "?"))
        if not name:
            doubt = "holds an empty name"
        elif names.count(name) > 1:
            doubt = f"holds {brief(name)} twice"
        elif sentence or len(name) > HEADER_LENGTH or as_number(name) is not None:
            doubt = f"reads like data, {brief(name)}"
        else:
            continue
        problem = f"the first row must name the columns but {doubt}; choose columns by position "
        raise InputError(source, f"{problem}(0, 1, ...) if it is no header, by name if it is one")


def _names(table: Table, chosen: tuple[int, ...]) -> tuple[str, ...]:
    """Names of chosen columns, or their positions."""
    return tuple(table.columns[at] for at in chosen)


def _memory_table(texts: list[Any]) -> Table:
    """Rows that are in memory already, as a table without names unless they are mappings."""
    records = [
        tuple(row) if isinstance(row, Iterable) and not isinstance(row, str | Mapping) else (row,)
        for row in texts
    ]
    if not records:
        raise InputError(MEMORY, "there are none")
    width = len(records[0])

    def rows() -> Iterator[Record]:
        for number, row in enumerate(records, 1):
            if len(row) != width:
                raise uneven(MEMORY, number, len(row), width)
            yield number, row

    def content() -> Iterator[bytes]:
        for row in records:
            for text in row:
                data = str(text).encode(errors="surrogatepass")
                yield len(data).to_bytes(8, "little") + data

    if isinstance(texts[0], Mapping):
        return object_table(texts, MEMORY, content)
    return Table(MEMORY, f"memory {width}", None, records[0], (True,) * width, rows, content)
