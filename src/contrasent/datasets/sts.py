"""Semantic textual similarity: a local folder first, then the hub at a pinned revision.

``CONTRASENT_DATA`` names the folder, in SentEval's layout (``contrasent evaluate --list`` names
each place), at its root or in downstream/ or data/downstream/; counts and gold scores are checked
against the official ones.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from contrasent.datasets import official
from contrasent.errors import DataError, OptionError, check_choice
from contrasent.text.corpus import ScoredPairs
from contrasent.text.sources import Source
from contrasent.text.tables import open_table

SPLITS = ("train", "dev", "test")

ScoredPair = tuple[str, str, float]  # two sentences and their gold score


def sts_pairs(
    task: str, *, split: str = "test", form: str = "senteval", folder: str | Path | None = None
) -> tuple[ScoredPairs, ...]:
    """The scored pairs of a semantic textual similarity task, one entry a subset."""
    check_choice("task", task, official.STS_NAMES)
    check_choice("form", form, official.FORMS)
    check_choice("split", split, SPLITS)
    if task.startswith("STSB-") and form != "raw":
        raise OptionError("form", form, f"{task} was published only in the form 'raw'")
    if task == "SICKR-all":
        if split != "test":
            raise OptionError("split", split, "SICKR-all joins all splits; use 'test'")
        places = official.sts_places("SICKR", form, official.STS_TABLES["SICKR"]["test"].path)
        if official.find(places, folder) is None:
            return _from_hub(task, split, form, places[0])
        parts = [sts_pairs("SICKR", split=s, form=form, folder=folder)[0] for s in SPLITS]
        return (ScoredPairs.join(task, parts),)
    if task in official.STS_YEARS:
        if split != "test":
            raise OptionError("split", split, f"{task} has only a test split")
        return _year(task, form, folder)
    table = official.STS_TABLES[task].get(split)
    if table is None:
        choices = official.STS_TABLES[task]
        raise OptionError("split", split, f"{task} does not have it", choices=choices)
    places = official.sts_places(task, form, table.path)
    path = official.find(places, folder)
    if path is None:
        return _from_hub(task, split, form, places[0])
    rows = _TABLE_READERS[task](path)
    official.check_count(path, len(rows), table.rows, "pairs")
    return (_scored(task, rows, path, table.digest),)


def score_digest(scores: Sequence[float]) -> str:
    """A digest of gold scores to three decimals, 16 hexadecimal digits."""
    return hashlib.sha256(",".join(f"{s:.3f}" for s in scores).encode()).hexdigest()[:16]


def _year(task: str, form: str, folder: str | Path | None) -> tuple[ScoredPairs, ...]:
    subsets: list[ScoredPairs] = []
    for subset in official.STS_YEARS[task]:
        places = official.sts_places(task, form, f"{task}-en-test/STS.input.{subset.name}.txt")
        path = official.find(places, folder)
        if path is None and not subsets:
            return _from_hub(task, "test", form, places[0])
        if path is None:
            why = "the other parts exist"
            raise DataError(official.missing(f"{task}/{subset.name}", places[0], why))
        subsets.append(_read_subset(path, subset))
    return tuple(subsets)


def _read_subset(path: Path, subset: official.Subset) -> ScoredPairs:
    gold = path.with_name(f"STS.gs.{subset.name}.txt")
    if not gold.is_file():
        raise DataError(f"{gold}: missing; put it next to {path.name}")
    pairs, scores = list(official.stream_lines(path)), list(official.stream_lines(gold))
    for file, lines in ((path, pairs), (gold, scores)):
        official.check_count(file, len(lines), subset.lines, "lines")
    rows = []
    for number, (pair, score) in enumerate(zip(pairs, scores, strict=True), start=1):
        if not score.strip():
            continue
        columns = pair.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}:{number}: expected two sentences with a tab between them")
        rows.append((columns[0], columns[1], _score(score.split("\t")[0], gold, number)))
    official.check_count(gold, len(rows), subset.annotated, "scores")
    return _scored(subset.name, rows, gold, subset.digest)


def _columns(
    path: Path, *, first: int, second: int, score: int, header: bool = False
) -> list[ScoredPair]:
    rows = []
    for number, line in enumerate(official.stream_lines(path), start=1):
        columns = line.split("\t")
        if (header and number == 1) or not line.strip():
            continue
        if len(columns) <= max(first, second, score):
            raise DataError(f"{path}:{number}: {len(columns)} columns, expected more")
        rows.append((columns[first], columns[second], _score(columns[score], path, number)))
    return rows


def _comma_rows(path: Path) -> list[ScoredPair]:
    table = open_table(Source(path, ".csv", str(path)), header=False, delimiter=",")
    rows = []
    for line, cells in table.stream():
        if cells is not None:
            if len(cells) != 3:
                raise DataError(f"{path}:{line}: expected 3 columns")
            rows.append((cells[0], cells[1], _score(cells[2], path, line)))
    return rows


_TABLE_READERS: dict[str, Callable[[Path], list[ScoredPair]]] = {
    "STSB": partial(_columns, first=5, second=6, score=4),
    "SICKR": partial(_columns, first=1, second=2, score=3, header=True),
    "STSB-de": _comma_rows,
    "STSB-es": _comma_rows,
}


def _score(text: str, path: Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 5:
        raise DataError(f"{path}:{line}: {text.strip()!r} is not a score from 0 to 5")
    return value


def _scored(name: str, rows: Sequence[ScoredPair], path: Path, digest: str) -> ScoredPairs:
    scores = [row[2] for row in rows]
    if score_digest(scores) != digest:
        problem = f"its {len(scores):,} gold scores differ from the official ones"
        raise DataError(f"{path}: {problem}; download it again")
    return _make_pairs(name, rows)


def _make_pairs(name: str, rows: Sequence[ScoredPair]) -> ScoredPairs:
    """Put (sentence, sentence, score) rows into columns; white space becomes single spaces."""
    first = tuple(" ".join(text.split()) for text, _, _ in rows)
    second = tuple(" ".join(two.split()) for _, two, _ in rows)
    return ScoredPairs(name, first, second, np.array([score for _, _, score in rows], np.float64))


def _from_hub(task: str, split: str, form: str, place: str) -> tuple[ScoredPairs, ...]:
    from contrasent.datasets.hub import fetch_pairs

    pin = official.STS_PINS.get(task)
    if pin is None:
        other = "; the hub has all 9,927 pairs as 'SICKR-all'" if task == "SICKR" else ""
        why = f"the hub has no copy of its test split alone{other}"
        raise DataError(official.missing(task, place, why))
    if form != "raw":
        why = "the hub has only the raw form (evaluate --form raw)"
        raise DataError(official.missing(task, place, why))
    return (_make_pairs(task, fetch_pairs(task, pin, split, place)),)
