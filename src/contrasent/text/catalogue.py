"""The named data sets: their official rows, and where each would be read from."""

from dataclasses import dataclass
from pathlib import Path

from contrasent.text.datasets import FORMS, sts_names, sts_places
from contrasent.text.labelled import CAPTION_COUNTS, CAPTION_PLACES, NLI_PLACES, QQP_PLACES
from contrasent.text.official import (
    ROOTS,
    STS_PINS,
    STS_TABLES,
    STS_YEARS,
    TRANSFER_FILES,
    find,
)


@dataclass(frozen=True, slots=True)
class DataSet:
    """A named data set.

    Attributes:
        rows: official rows by split; empty where they vary.
        hub: "owner/name@revision" of the pinned copy, or "".
        places: by form ("" where there is one only), the files below the data folder of which one
            holds it; a set of several files is named by its first.
    """

    name: str
    kind: str
    rows: dict[str, int]
    places: dict[str, tuple[str, ...]]
    hub: str = ""

    def locate(self, folder: Path | None = None) -> dict[str, str]:
        """By form, the local file if it is there, else the hub's copy, else ""."""
        found = {form: find(places, folder) for form, places in self.places.items()}
        # The hub has the raw form alone.
        return {
            form: str(path) if path else self.hub if form == "raw" else ""
            for form, path in found.items()
        }


def data_sets() -> tuple[DataSet, ...]:
    """Every named data set."""
    transfer = []
    for name, files in TRANSFER_FILES.items():
        rows: dict[str, int] = {}
        for file in files:
            rows[file.split] = rows.get(file.split, 0) + file.rows
        places = tuple(f"{root}/{files[0].path}" for root in ROOTS)
        transfer.append(DataSet(name, "transfer", rows, {"": places}))
    return (
        *(_similarity(name) for name in sts_names()),
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
    pin = STS_PINS.get(name)
    forms = ("raw",) if name.startswith("STSB-") else FORMS
    places = {form: tuple(sts_places(task, form, path)) for form in forms}
    return DataSet(
        name, "similarity", rows, places, f"{pin.repository}@{pin.revision}" if pin else ""
    )
