"""The transfer tasks of SentEval: sentences, or pairs of them, with a class each."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, check_choice
from contrasent.text.datafiles import ROOTS, check_count, need, read_lines
from contrasent.text.official import TRANSFER_FILES, TREC_CLASSES, TransferFile


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Sentences, or pairs of them, with a class each.

    Attributes:
        second: n sentences for a task on pairs (MRPC), else None.
        labels: (n,) classes from 0.
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def transfer_set(task: str, *, folder: Path | None = None) -> dict[str, Labelled]:
    """A transfer task of SentEval by split: all; train, test; or train, dev, test."""
    check_choice("task", task, tuple(TRANSFER_FILES))
    parts: dict[str, list[Labelled]] = {}
    for file in TRANSFER_FILES[task]:
        places = [f"{root}/{file.path}" for root in ROOTS]
        path = need(task, places, folder, "no copy on the hub is known to be SentEval's")
        parts.setdefault(file.split, []).append(_read_transfer(task, path, file))
    return {
        split: Labelled(
            tuple(text for part in found for text in part.first),
            found[0].second,
            np.concatenate([part.labels for part in found]),
        )
        for split, found in parts.items()
    }


def _read_transfer(task: str, path: Path, file: TransferFile) -> Labelled:
    # SentEval reads these as Latin-1; copies in UTF-8 are about as well.
    lines = read_lines(path, fallback="latin-1")
    if task == "MRPC":
        lines = lines[1:]
    check_count(path, len(lines), file.rows, "rows")
    first, second, labels = [], [], []
    for number, line in enumerate(lines, start=2 if task == "MRPC" else 1):
        try:
            one, two, label = _transfer_row(task, line, file.label)
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}:{number}: not a row of {task}: {line[:60]!r}") from error
        first.append(" ".join(one.split()))
        second.append(" ".join(two.split()))
        labels.append(label)
    pairs = tuple(second) if task == "MRPC" else None
    return Labelled(tuple(first), pairs, np.array(labels, dtype=np.int64))


def _transfer_row(task: str, line: str, label: int | None) -> tuple[str, str, int]:
    if label is not None:
        return line, "", label
    if task == "TREC":
        target, question = line.strip().split(":", 1)
        return question.split(" ", 1)[1], "", TREC_CLASSES.index(target)
    columns = line.strip().split("\t")
    if task == "MRPC":
        return columns[3], columns[4], ("0", "1").index(columns[0])
    return columns[0], "", ("0", "1").index(columns[1])
