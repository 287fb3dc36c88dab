"""Every named data set: its official size (``official.toml``), and where its files are.

Digests are over gold scores; sentences come in forms that differ a little, so they are counted.
"""

import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from contrasent.errors import DataError, InputError, see
from contrasent.text.sources import Source

VARIABLE = "CONTRASENT_DATA"
ROOTS = ("SentEval/downstream", "SentEval/data/downstream", "downstream")


@dataclass(frozen=True, slots=True)
class Subset:
    """One part of a year's STS set."""

    name: str  # as in the file names, such as "MSRpar"
    lines: int  # lines in the input and in the gold file
    annotated: int  # lines with a score; in 2015 and 2016 most have none
    digest: str


@dataclass(frozen=True, slots=True)
class PairsFile:
    """One file of scored pairs."""

    path: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Pin:
    """A data set on the hub at a fixed revision; the revision is a hash of its content."""

    repository: str
    revision: str
    rows: dict[str, int]  # pairs in each split that is there, by our split names
    config: str = ""  # the folder or prefix of the wanted part, if the repository has several


@dataclass(frozen=True, slots=True)
class TransferFile:
    """One file of a transfer task."""

    split: str  # "all" where folds are drawn from the whole, else "train", "dev" or "test"
    path: str
    rows: int
    label: int | None = None  # the class of every line, if a file holds only one class


_STATED: dict[str, dict[str, Any]] = tomllib.loads(
    (files("contrasent.datasets") / "official.toml").read_text("utf-8")
)
STS_YEARS = {
    year: tuple(Subset(name, *sizes) for name, sizes in subsets.items())
    for year, subsets in _STATED["years"].items()
}
STS_TABLES = {
    task: {split: PairsFile(*stated) for split, stated in splits.items()}
    for task, splits in _STATED["tables"].items()
}
STS_TASKS = (*STS_YEARS, "STSB", "SICKR")  # the seven sets that SimCSE and its successors average
STS_PINS = {task: Pin(**stated) for task, stated in _STATED["pins"].items()}
TRANSFER_FILES = {
    task: tuple(TransferFile(*stated) for stated in stated_files)
    for task, stated_files in _STATED["transfer"].items()
}
STS_NAMES = (*STS_YEARS, *STS_TABLES, "SICKR-all")
FORMS = ("senteval", "raw")
QQP_PLACES = ("qqp/qqp_subset.tsv", "QQP/dev.tsv", "qqp/dev.tsv")
NLI_PLACES = ("nli/nli_triples.csv", "nli/nli_for_simcse.csv", "nli_for_simcse.csv")
CAPTION_PLACES = (
    "flickr30k/flickr30k_captions.token.gz",
    "flickr30k/results_20130124.token",
    "flickr30k/flickr30k_captions.token",
)
CAPTION_COUNTS = (158_915, 155_070)
"""Captions of the published file, and of its copy in Multi30k (31,014 pictures of 31,783)."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A named data set."""

    name: str
    kind: str
    rows: dict[str, int]  # official rows by split; empty where they vary
    # by form ("" where there is one only), the files below the data folder of which one holds it; a
    # set of several files is named by its first
    places: dict[str, tuple[str, ...]]
    hub: str = ""  # "owner/name@revision" of the pinned copy, or ""

    def locate(self, folder: str | Path | None = None) -> dict[str, str]:
        """By form, the local file if it is there, else the hub's copy, else ""."""
        local = {form: find(places, folder) for form, places in self.places.items()}
        # The hub has the raw form alone.
        return {
            form: str(path) if path else self.hub if form == "raw" else ""
            for form, path in local.items()
        }


def data_sets() -> tuple[DataSet, ...]:
    """Every named data set."""
    transfer = []
    for name, stated in TRANSFER_FILES.items():
        rows: dict[str, int] = {}
        for file in stated:
            rows[file.split] = rows.get(file.split, 0) + file.rows
        transfer.append(DataSet(name, "transfer", rows, {"": transfer_places(stated[0])}))
    return (
        *map(_similarity, STS_NAMES),
        *transfer,
        DataSet("QQP", "pairs", {}, {"": QQP_PLACES}),
        DataSet("NLI", "triples", {}, {"": NLI_PLACES}),
        DataSet("flickr30k", "captions", {"all": CAPTION_COUNTS[0]}, {"": CAPTION_PLACES}),
    )


def _similarity(name: str) -> DataSet:
    task = name.removesuffix("-all")
    if name in STS_YEARS:
        rows = {"test": sum(subset.annotated for subset in STS_YEARS[name])}
        path = f"{name}-en-test/STS.input.{STS_YEARS[name][0].name}.txt"
    else:
        rows = {split: part.rows for split, part in STS_TABLES[task].items()}
        path = STS_TABLES[task]["test"].path
    if task != name:  # all splits in one
        rows = {"test": sum(rows.values())}
    forms = ("raw",) if name.startswith("STSB-") else FORMS
    places = {form: sts_places(task, form, path) for form in forms}
    pin = STS_PINS.get(name)
    return DataSet(
        name, "similarity", rows, places, f"{pin.repository}@{pin.revision}" if pin else ""
    )


def transfer_places(file: TransferFile) -> tuple[str, ...]:
    """Possible paths of a transfer task's file below the data folder, the usual one first."""
    return tuple(f"{root}/{file.path}" for root in ROOTS)


def sts_places(task: str, form: str, path: str) -> tuple[str, ...]:
    """Possible paths of a similarity task's file below the data folder, the usual one first."""
    if task.startswith("STSB-"):
        return (f"STSB-multi-mt/{path}",)
    if form == "raw":
        return (f"STS-raw/{path}",)
    return tuple(f"{root}/{path}" if task == "SICKR" else f"{root}/STS/{path}" for root in ROOTS)


def data_folder() -> Path | None:
    """The folder that ``CONTRASENT_DATA`` names, or None."""
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    path = Path(value)
    if not path.is_dir():
        raise DataError(f"{VARIABLE}={value}: no such folder; unset it or give the data folder")
    return path


def find(places: Sequence[str], folder: str | Path | None) -> Path | None:
    """The first of several paths below the data folder that is a file, or None."""
    root = data_folder() if folder is None else Path(folder)
    if root is None:
        return None
    return next((root / place for place in places if (root / place).is_file()), None)


def need(task: str, places: Sequence[str], folder: str | Path | None, why: str) -> Path:
    """The file of a data set that has no copy on the hub."""
    path = find(places, folder)
    if path is None:
        raise DataError(missing(task, places[0], why))
    return path


def missing(task: str, place: str, why: str) -> str:
    """The message for a missing data set: which files to put where."""
    root = data_folder()
    where = f"{root}/{place}" if root else f"{place} in a folder that {VARIABLE} names"
    return f"{task}: not found, and {why}; put the file at {where}{see('no-data-set')}"


def stream_lines(path: Path, encoding: str = "") -> Iterator[str]:
    """The lines of a file, which may be compressed, without their ends; UTF-8 by default."""
    try:
        for _, line in Source(path, ".txt", str(path), encoding=encoding).lines():
            yield line.rstrip("\r\n")
    except InputError as error:
        raise DataError(str(error)) from error


def check_count(path: Path, found: int, expected: int, unit: str) -> None:
    """Reject a file without the official number of rows."""
    if found != expected:
        raise DataError(f"{path}: {found:,} {unit}, expected {expected:,}; download it again")
