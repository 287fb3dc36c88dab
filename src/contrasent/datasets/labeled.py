"""Named labeled text other than STS: transfer tasks, question pairs, triples, captions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.datasets import official
from contrasent.errors import DataError, check_choice
from contrasent.text.sources import Source
from contrasent.text.tables import open_table

NO_COPY = "the hub has no verified copy"
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

LabeledRow = tuple[str, str, int]  # a sentence, the second one of a pair or "", and the class


@dataclass(frozen=True, slots=True, eq=False)
class Labeled:
    """Sentences, or pairs of them, each with a class."""

    first: tuple[str, ...]
    second: tuple[str, ...] | None  # n sentences for a task on pairs (MRPC), else None
    labels: NDArray[np.int64]  # (n,) classes from 0

    def __len__(self) -> int:
        return len(self.labels)


def transfer_set(task: str, *, folder: str | Path | None = None) -> dict[str, Labeled]:
    """A transfer task of SentEval by split: all; train, test; or train, dev, test."""
    check_choice("task", task, tuple(official.TRANSFER_FILES))
    rows: dict[str, list[LabeledRow]] = {}
    for file in official.TRANSFER_FILES[task]:
        places, why = official.transfer_places(file), f"{NO_COPY} of SentEval's version"
        path = official.need(task, places, folder, why)
        rows.setdefault(file.split, []).extend(_read_transfer(task, path, file))
    return {split: _labeled(entries, pairs=task == "MRPC") for split, entries in rows.items()}


def _labeled(rows: Sequence[LabeledRow], *, pairs: bool) -> Labeled:
    """Columns of rows; white space becomes single spaces."""
    first = tuple(" ".join(text.split()) for text, _, _ in rows)
    second = tuple(" ".join(two.split()) for _, two, _ in rows)
    labels = np.array([label for _, _, label in rows], dtype=np.int64)
    return Labeled(first, second if pairs else None, labels)


def _read_transfer(task: str, path: Path, file: official.TransferFile) -> list[LabeledRow]:
    # SentEval reads these as Latin-1; copies in UTF-8 are about as well.
    try:
        lines = list(official.stream_lines(path))
    except DataError:
        lines = list(official.stream_lines(path, "latin-1"))
    if task == "MRPC":
        lines = lines[1:]
    official.check_count(path, len(lines), file.rows, "rows")
    rows = []
    for number, line in enumerate(lines, start=2 if task == "MRPC" else 1):
        try:
            rows.append(_transfer_row(task, line, file.label))
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}:{number}: not a row of {task}: {line[:60]!r}") from error
    return rows


def _transfer_row(task: str, line: str, label: int | None) -> LabeledRow:
    if label is not None:
        return line, "", label
    if task == "TREC":
        target, question = line.strip().split(":", 1)
        return question.split(" ", 1)[1], "", TREC_CLASSES.index(target)
    columns = line.strip().split("\t")
    if task == "MRPC":
        return columns[3], columns[4], ("0", "1").index(columns[0])
    return columns[0], "", ("0", "1").index(columns[1])


@dataclass(frozen=True, slots=True)
class Triples:
    """Sentences, each with one that it entails and one that contradicts it."""

    premises: tuple[str, ...]
    entailed: tuple[str, ...]
    contradicted: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        return len(self.premises)

    def spread(self, count: int) -> "Triples":
        """``count`` of them, evenly spread over the file; all for 0, or where there are fewer."""
        if not 0 < count < len(self):
            return self
        rows = np.linspace(0, len(self) - 1, count).astype(int).tolist()
        columns = (self.premises, self.entailed, self.contradicted)
        first, second, third = (tuple(column[i] for i in rows) for column in columns)
        return Triples(first, second, third, self.source)


def question_pairs(*, folder: str | Path | None = None) -> Labeled:
    """Quora's question pairs, of which 1 are duplicates: GLUE's dev file, or a subset of it."""
    path = official.need("QQP", official.QQP_PLACES, folder, NO_COPY)
    wanted = ("question1", "question2", "is_duplicate")
    rows = []
    for line, row in _rows(path, wanted, "\t"):
        if row.get("split", "test") != "test":
            continue
        if row["is_duplicate"] not in ("0", "1"):
            raise DataError(f"{path}:{line}: is_duplicate is {row['is_duplicate']!r}, not 0 or 1")
        rows.append((row["question1"], row["question2"], int(row["is_duplicate"])))
    return _labeled(rows, pairs=True)


def inference_triples(*, folder: str | Path | None = None) -> Triples:
    """Triples in SimCSE's form: columns ``sent0``, ``sent1`` and ``hard_neg``."""
    path = official.need("NLI triples", official.NLI_PLACES, folder, NO_COPY)
    wanted = ("sent0", "sent1", "hard_neg")
    rows = [tuple(row[name].strip() for name in wanted) for _, row in _rows(path, wanted, ",")]
    premises, entailed, contradicted = zip(*rows, strict=True)
    return Triples(premises, entailed, contradicted, path.name)


def _rows(path: Path, wanted: tuple[str, ...], mark: str) -> list[tuple[int, dict[str, str]]]:
    rows = []
    table = open_table(Source(path, ".csv", str(path)), header=True, delimiter=mark)
    lacking = [name for name in wanted if name not in table.columns]
    if lacking:
        raise DataError(f"{path}:1: column {lacking[0]!r} is missing")
    for line, cells in table.stream():
        if cells is not None:
            row = dict(zip(table.columns, cells, strict=False))
            if not cells or not all(row[name] for name in wanted):
                raise DataError(f"{path}:{line}: expected {', '.join(wanted)}")
            rows.append((line, row))
    if not rows:
        raise DataError(f"{path}: contains no rows")
    return rows


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions in the file's order."""

    texts: tuple[str, ...]
    pictures: tuple[str, ...]

    def last(self, count: int) -> "Captions":
        """The last ``count`` captions; all of them for 0 (Multi30k's test pictures come last)."""
        return Captions(self.texts[-count:], self.pictures[-count:]) if count else self


def flickr30k(*, folder: str | Path | None = None) -> Captions:
    """Read the captions from the data folder: lines of ``picture.jpg#k``, a tab and the caption."""
    why = "its license forbids a copy on the hub"
    path = official.need("flickr30k", official.CAPTION_PLACES, folder, why)
    texts, pictures = [], []
    for number, line in enumerate(official.stream_lines(path), start=1):
        name, tab, caption = line.partition("\t")
        if not line.strip():
            continue
        if not tab or "#" not in name:
            raise DataError(f"{path}:{number}: expected picture.jpg#k, a tab and a caption")
        texts.append(caption.strip())
        pictures.append(name.rpartition("#")[0])
    if len(texts) not in official.CAPTION_COUNTS:
        expected = " or ".join(f"{count:,}" for count in official.CAPTION_COUNTS)
        raise DataError(f"{path}: {len(texts):,} captions, expected {expected}")
    return Captions(tuple(texts), tuple(pictures))
