"""The official sizes of named data sets, and where each file lies: ``official.toml``, read.

A digest is over the gold scores, so that an edited gold file is found whatever its white space; the
sentences come in two forms and in copies whose tokenisation differs a little, so they are counted
and not hashed.
"""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Subset:
    """One part of a year's STS set.

    Attributes:
        name: as in the file names, such as "MSRpar".
        lines: lines in the input and in the gold file.
        annotated: how many have a score; in 2015 and 2016 most lines have none.
    """

    name: str
    lines: int
    annotated: int
    digest: str


@dataclass(frozen=True, slots=True)
class Table:
    """One file of scored pairs."""

    path: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Pin:
    """A data set on the hub at a fixed revision; the revision is a hash of its content.

    Attributes:
        rows: pairs in each split that is there, by our split names.
        config: the folder or prefix of the wanted part, if the repository has several.
    """

    repository: str
    revision: str
    rows: dict[str, int]
    config: str = ""


@dataclass(frozen=True, slots=True)
class TransferFile:
    """One file of a transfer task.

    Attributes:
        split: "all" where folds are drawn from the whole, else "train", "dev" or "test".
        label: the class of every line, where a file holds one class only.
    """

    split: str
    path: str
    rows: int
    label: int | None = None


_STATED: dict[str, dict[str, Any]] = tomllib.loads(
    (files("contrasent.text") / "official.toml").read_text("utf-8")
)
STS_YEARS = {
    year: tuple(Subset(name, *sizes) for name, sizes in subsets.items())
    for year, subsets in _STATED["years"].items()
}
STS_TABLES = {
    task: {split: Table(*stated) for split, stated in splits.items()}
    for task, splits in _STATED["tables"].items()
}
STS_TASKS = (*STS_YEARS, "STSB", "SICKR")
"""The seven sets that SimCSE and its successors average."""
STS_PINS = {task: Pin(**stated) for task, stated in _STATED["pins"].items()}
TRANSFER_FILES = {
    task: tuple(TransferFile(*stated) for stated in stated_files)
    for task, stated_files in _STATED["transfer"].items()
}
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
