"""Pairs and triples that people have labelled: Quora's question pairs, inference by premise."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contrasent.errors import DataError
from contrasent.text.datafiles import need
from contrasent.text.transfer import Labelled

QQP_PLACES = ("qqp/qqp_subset.tsv", "QQP/dev.tsv", "qqp/dev.tsv")
NLI_PLACES = ("nli/nli_triples.csv", "nli/nli_for_simcse.csv", "nli_for_simcse.csv")

NO_COPY = "no pinned copy on the hub is known"


@dataclass(frozen=True, slots=True)
class Triples:
    """Sentences, each with one that follows from it and one that contradicts it."""

    premises: tuple[str, ...]
    entailed: tuple[str, ...]
    contradicted: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        return len(self.premises)

    def spread(self, count: int) -> "Triples":
        """``count`` of them at equal distances over the file; all for 0, or where there are fewer.

        Rows of one origin stand together, so the first ones would be of one origin.
        """
        if not 0 < count < len(self):
            return self
        rows = np.linspace(0, len(self) - 1, count).astype(int).tolist()
        first, second, third = (
            tuple(column[i] for i in rows)
            for column in (self.premises, self.entailed, self.contradicted)
        )
        return Triples(first, second, third, self.source)


def question_pairs(*, folder: Path | None = None) -> Labelled:
    """Quora's question pairs, of which 1 are duplicates: GLUE's dev file, or a subset of it."""
    path = need("QQP", QQP_PLACES, folder, NO_COPY)
    wanted = ("question1", "question2", "is_duplicate")
    first, second, labels = [], [], []
    for line, row in _rows(path, wanted, "\t"):
        if row.get("split", "test") != "test":
            continue
        if row["is_duplicate"] not in ("0", "1"):
            raise DataError(f"{path}:{line}: is_duplicate is {row['is_duplicate']!r}, not 0 or 1")
        first.append(" ".join(row["question1"].split()))
        second.append(" ".join(row["question2"].split()))
        labels.append(int(row["is_duplicate"]))
    return Labelled(tuple(first), tuple(second), np.array(labels, dtype=np.int64))


def inference_triples(*, folder: Path | None = None) -> Triples:
    """Triples in SimCSE's form: columns ``sent0``, ``sent1`` and ``hard_neg``."""
    path = need("NLI triples", NLI_PLACES, folder, NO_COPY)
    wanted = ("sent0", "sent1", "hard_neg")
    rows = [tuple(row[name].strip() for name in wanted) for _, row in _rows(path, wanted, ",")]
    premises, entailed, contradicted = zip(*rows, strict=True)
    return Triples(premises, entailed, contradicted, path.name)


def _rows(path: Path, wanted: tuple[str, ...], mark: str) -> list[tuple[int, dict[str, str]]]:
    found = []
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter=mark)
        lacking = [name for name in wanted if name not in (reader.fieldnames or ())]
        if lacking:
            raise DataError(f"{path}:1: there is no column {lacking[0]!r}")
        for row in reader:
            if not all(row[name] for name in wanted):
                raise DataError(f"{path}:{reader.line_num}: expected {', '.join(wanted)}")
            found.append((reader.line_num, row))
    if not found:
        raise DataError(f"{path}: holds no rows")
    return found
