"""A corpus: rows of text that can be read again and again, and need not fit in memory.

One column is sentences, two are pairs, three and more pairs with hard negatives; a column of scores
says how similar the texts of a pair are. :mod:`contrasent.text.columns` chooses the columns. Blank
lines and rows with an empty cell are skipped and counted.
"""

import hashlib
import logging
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, OptionError
from contrasent.text.columns import Roles, Scored, spoken, training_roles
from contrasent.text.roles import NEGATIVE, POSITIVE, QUERY, SCORE, is_named
from contrasent.text.sources import find, form_of
from contrasent.text.tables import (
    LONG,
    MEMORY,
    Columns,
    Table,
    brief,
    is_empty,
    is_missing,
    memory_table,
    number_cell,
    open_tables,
    text_cell,
)

SHOWN = "rows in memory"

log = logging.getLogger(__name__)


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
    """Rows of text, made by :func:`open_corpus`. Every iteration reads the source again.

    Attributes:
        width: texts in a row: 1 for sentences, 2 for pairs, more for pairs with hard negatives.
        names: names of the columns; "0", "1", ... without names.
        documents: whether the rows are in document order.
        starts: rows at which documents begin.
        scores: (n,) float64, the scores; empty without.
        parts: rows at which joined corpora begin.
        skipped: number of blank lines.
        left_out: why rows were left out, with their number and the first place; like ``starts``,
            ``scores``, ``parts`` and ``skipped`` of the last complete iteration.
    """

    def __init__(
        self,
        source: str,
        tables: Sequence[Roles],
        *,
        at_least: int,
        documents: bool = False,
        scored: bool = False,
    ) -> None:
        """Join tables with the same columns; use :func:`open_corpus` instead."""
        self.documents = documents
        self.scored = scored
        self.scores: NDArray[np.float64] = np.empty(0)
        self.starts: list[int] = []
        self.source = source.encode("utf-8", "replace").decode()  # records hold it
        self.width = len(tables[0].places) - scored
        self.names = tables[0].names[: self.width]
        self.skipped = 0
        self.left_out: dict[str, tuple[int, str]] = {}
        self.parts = [0]
        self._uneven = Counter[str]()
        self._begins: tuple[int, ...] = (0,)  # tables at which joined corpora begin
        self._tables = tuple(_aligned(tables[0], table) for table in tables)
        self._at_least = at_least

    @property
    def roles(self) -> list[str]:
        """The role of every column: one line for each kind of table."""
        lines = list[str]()
        for roles in self._tables:
            table = roles.table
            if len(table.columns) < 2 and not table.above:
                continue
            lines.append(spoken(table.columns, roles.places))
            if table.form in (".csv", ".tsv") and table.names is None and not roles.stated:
                lines.append(
                    "no header found (the first row looks like data): columns are numbered from 0"
                )
            if table.above:
                skipped = f"skipped {len(table.above)} lines above the header"
                lines.append(f"{skipped} (first: {brief(table.above[0])})")
            if roles.note:
                lines.append(f"warning: {roles.note}")
        return list(dict.fromkeys(lines))

    @property
    def files(self) -> list[Path]:
        """The files behind the rows."""
        sources = [one.table.file for one in self._tables]
        return [one.path for one in sources if one is not None and isinstance(one.path, Path)]

    def notes(self) -> list[str]:
        """Lines about the rows that the last complete iteration left out, or changed."""
        return [
            f"{count:,} rows skipped: {why} (first: {place})"
            for why, (count, place) in self.left_out.items()
        ] + [f"{count:,} rows {what}" for what, count in self._uneven.items()]

    def join(self, *others: "Corpus") -> "Corpus":
        """Join several corpora, one after the other; each batch uses one of them.

        The setting ``weights`` says how often each is used.
        """
        kind = self.width, self.scored, self.documents
        for other in others:
            if (other.width, other.scored, other.documents) != kind:
                kinds = [f"{c.width} columns{' and scores' * c.scored}" for c in (other, self)]
                problem = f"the corpus has {kinds[0]}, {self.source} has {kinds[1]}; choose columns"
                raise InputError(other.source, f"{problem} that all files have (--columns)")
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
        left_out: dict[str, tuple[int, str]] = {}

        def leave(why: str, place: str) -> None:
            number, first = left_out.get(why, (0, place))
            left_out[why] = number + 1, first

        for place, roles in enumerate(self._tables):
            parts += [count] * (place in self._begins)
            begins = self.documents
            table, names = roles.table, roles.names
            text_names = names[: self.width] if table.names or self.width > 1 else ("",)
            given = table.form == MEMORY  # of a program, whose gaps are faults
            empty = is_missing if table.form in (".csv", ".tsv") else is_empty
            for line, cells in table.rows(roles.chosen):
                if cells is None:
                    skipped += 1
                    begins = self.documents
                    continue
                if cells is LONG or (not given and any(map(empty, cells))):
                    why = LONGER if cells is LONG else _lacking(map(empty, cells), names)
                    leave(why, f"{table.source}:{line}")
                    continue
                if begins:
                    starts.append(count)
                    begins = False
                count += 1
                if self.scored:
                    *cells, score = cells
                    scores.append(number_cell(score, names[-1], table.source, line))
                try:
                    texts = tuple([cell.strip() for cell in cells])
                except AttributeError:
                    texts = ("",)
                # What is plain needs no further look, which would name the place of a fault.
                if not all(map(_is_plain, texts)):
                    named = zip(cells, text_names, strict=True)
                    texts = tuple([text_cell(c, name, table.source, line) for c, name in named])
                yield texts
        longer, first = left_out.get(LONGER, (0, ""))
        if longer > count:
            problem = f"{longer:,} rows have {LONGER} (first: {first}); cells that contain the"
            raise InputError(self.source, f"{problem} delimiter need quotes")
        if count < self._at_least:
            amount = "only one row" if count == 1 else f"only {count} rows"
            problem = f"{amount}; at least {self._at_least} are needed"
            out = "; ".join(f"{n:,} rows skipped: {w} ({p})" for w, (n, p) in left_out.items())
            raise InputError(self.source, "; ".join(filter(None, (problem, out))))
        self.skipped, self.starts, self.scores = skipped, starts, np.array(scores)
        self.parts, self.left_out = parts, left_out
        self._uneven = sum((roles.table.uneven for roles in self._tables), Counter())

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all files' bytes and the choice of columns."""
        total = hashlib.sha256(str(self._begins).encode() if len(self._begins) > 1 else b"")
        for roles in self._tables:
            table = roles.table
            choice = f"{table.form} {roles.names if table.names else roles.chosen}"
            part = hashlib.sha256(choice.encode() + b" scored" * self.scored)
            for block in table.content():
                part.update(block)
            total.update(part.digest())
        return total.hexdigest()


def open_corpus(
    source: str | Path | Iterable[Any],
    *,
    columns: Columns | None = None,
    score: Scored = None,
    at_least: int = 2,
    documents: bool = False,
    single: bool = False,
) -> Corpus:
    """Open text to train on or encode: a file, a folder of files, standard input or rows in memory.

    Only the head of each file is read here; rows are checked when they are read. The files of a
    folder come in the order of their paths, and their columns are joined by name.

    Args:
        source: a path or several, "-" for standard input (a sentence a line), or rows in memory:
            texts, tuples of texts, or mappings from column to text. A data frame is an error.
        columns: names or positions of the columns, in order: anchor, positive, hard negatives. By
            default they are found by name and content (:mod:`contrasent.text.columns`). With
            positions alone, the first row of a csv or tsv is data unless it is clearly a header.
        score: name or position of the column with a score for each row. True requires a column with
            a known name, None uses it if there is one, False does not look for it.
        at_least: least number of rows.
        documents: the sentences are in document order, with a blank line or the end of a file after
            each document; for methods that use the next sentence.
        single: read a single column of texts, as for encoding.

    Raises:
        InputError: a file is missing, empty, damaged or of unknown format; or the columns to train
            on cannot be found, or are ambiguous.
        OptionError: a column does not exist, or a list mixes paths and texts.
        MissingExtraError: a parquet file without pyarrow.

    Examples:
        >>> from contrasent import open_corpus
        >>> corpus = open_corpus("examples/asked.csv", columns=["query", "answer"])
        >>> corpus.width, corpus.names
        (2, ('query', 'answer'))
        >>> next(iter(corpus))[0]
        'which hoover do I take for sawdust?'
    """
    columns = _checked(columns)
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        problem = f"a {type(source).__name__} contains columns, not rows; pass a list of rows"
        raise InputError(SHOWN, f"{problem}, such as frame.to_dict('records') of a pandas frame")
    if not isinstance(source, Path | Iterable):
        raise OptionError("corpus", source, "is neither a path nor rows of text")
    paths: list[Any] = [source] if isinstance(source, str | Path) else list(source)
    others = [row for row in paths if not isinstance(row, Path) and row is not source]
    if len(others) == len(paths):
        _check_no_names_of_files(others)
        if not others:
            raise InputError(SHOWN, "no texts")
        table = training_roles(memory_table(others, SHOWN), columns, score, single=single)
        return Corpus(SHOWN, [table], at_least=at_least, scored=table.scored)
    if others:
        problem = "is a text among paths; make it a pathlib.Path, or pass only texts"
        raise OptionError("source", others[0], problem)
    files = [file for path in paths for file in find(path)]
    wanted = [*(columns or ()), *([score] if isinstance(score, str) else [])]
    opened = open_tables(files, wanted)
    chosen = [
        training_roles(table, columns, score, single=single) for table in opened if _has_rows(table)
    ]
    several = " + ".join(path.name for path in map(Path, paths))
    shown = files[0].shown if len(files) == 1 else several if len(paths) > 1 else str(source)
    if not chosen:
        raise InputError(shown, "the file is empty" if len(files) == 1 else "all files are empty")
    scored = chosen[0].scored
    if documents and len(chosen[0].places) > 1:
        problem = f"needs a column of sentences; {shown} has {', '.join(chosen[0].names)}"
        raise OptionError("documents", True, problem)
    return Corpus(shown, chosen, at_least=at_least, documents=documents, scored=scored)


def _check_no_names_of_files(texts: Sequence[Any]) -> None:
    """Reject texts that are names of files, as ``glob`` gives them."""
    for text in texts:
        if not isinstance(text, str) or "\n" in text:
            return
        known = form_of(Path(text)) is not None or text.endswith((".json", ".md", ".pdf", ".docx"))
        if not known or (len(text.split()) != 1 and not Path(text).exists()):
            return
    for name in texts[:1]:
        problem = "is a file name, as all texts are; to read the files pass pathlib.Path"
        raise OptionError("corpus", name, f"{problem} objects: [Path(name) for name in names]")


def _aligned(first: Roles, other: Roles) -> Roles:
    """The columns of another table in the order of the first one's: by their roles, or by name."""
    wanted, found = first.names, other.names
    ours, its = first.table.names, other.table.names
    if len(found) != len(wanted) or first.scored != other.scored:
        apart = True
    elif not (ours and its) or len(wanted) == 1 or wanted == found:
        return other
    elif sorted(wanted) == sorted(found):
        order = [other.places[found.index(name)][1] for name in wanted]
        parts = [role for role, _ in other.places]
        return replace(other, places=tuple(zip(parts, order, strict=True)))
    else:
        known = all(
            is_named(name, role)
            for one in (first, other)
            for name, (role, _) in zip(one.names, one.places, strict=True)
            if role in (QUERY, POSITIVE, NEGATIVE)
        )
        apart = not (known or other.stated)
    if apart:
        problem = f"the file has {', '.join(found)} where {Path(first.table.source).name} has"
        remedy = "choose columns that all files have (--columns)"
        raise InputError(other.table.source, f"{problem} {', '.join(wanted)}; {remedy}")
    return other


LONGER = "more cells than there are columns"


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and text != ""


def _lacking(empty: Iterable[bool], names: Sequence[str]) -> str:
    return f"{' and '.join(compress(names, empty))} empty"


def read_labeled_pairs(path: str | Path, *, columns: Columns | None = None) -> ScoredPairs:
    """Read two texts and a number from each row of a tsv, csv, jsonl or parquet file.

    ``columns``: first text, second text and number, by name or position; by default the file's
    three columns. The STS Benchmark's own files take ``(5, 6, 4)``.
    """
    columns = _checked(columns)
    if columns is not None and len(columns) != 3:
        raise OptionError("columns", list(columns), "give three columns: two texts and a number")
    files = find(path)
    if len(files) > 1 or Path(path).is_dir() or files[0].form == ".txt":
        raise InputError(path, "labeled pairs must be one file: .tsv, .csv, .jsonl or .parquet")
    (table,) = open_tables(files, columns or ())
    if not _has_rows(table):
        raise InputError(path, "the file is empty")
    roles = None
    if columns is not None:
        for column in columns:
            table.position(column)  # an error names the option as it was given
        roles = training_roles(table, columns[:2], columns[2])
    elif len(table.columns) == 3:
        roles = training_roles(table, [0, 1], 2)
    elif len(table.columns) > 3 and any(is_named(name, SCORE) for name in table.columns):
        roles = training_roles(table, score=True)
    if roles is None or len(roles.places) != 3:
        problem = "needs two texts and a number; choose three columns of"
        raise InputError(path, f"{problem} {', '.join(table.columns)}")
    corpus = Corpus(table.source, [roles], at_least=0, scored=True)
    rows = list(corpus)
    for line in corpus.notes():
        log.warning("%s", line)
    if not rows:
        raise InputError(path, "; ".join(["contains no labeled pairs", *corpus.notes()]))
    first, second = zip(*rows, strict=True)
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
        problem = "only a header row; choose columns by position if it is data"
        raise InputError(table.source, problem)
    return table.first is not None
