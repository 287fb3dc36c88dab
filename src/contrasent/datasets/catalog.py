"""Every named data set: its official size, where its files belong, and where they are."""

from dataclasses import dataclass
from pathlib import Path

from contrasent.datasets import labeled, official
from contrasent.datasets.sts import FORMS, sts_names, sts_places


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

    def locate(self, folder: Path | None = None) -> dict[str, str]:
        """By form, the local file if it is there, else the hub's copy, else ""."""
        local = {form: official.find(places, folder) for form, places in self.places.items()}
        # The hub has the raw form alone.
        return {
            form: str(path) if path else self.hub if form == "raw" else ""
            for form, path in local.items()
        }


def data_sets() -> tuple[DataSet, ...]:
    """Every named data set."""
    transfer, captions = [], {"all": labeled.CAPTION_COUNTS[0]}
    for name, files in official.TRANSFER_FILES.items():
        rows: dict[str, int] = {}
        for file in files:
            rows[file.split] = rows.get(file.split, 0) + file.rows
        places = tuple(f"{root}/{files[0].path}" for root in official.ROOTS)
        transfer.append(DataSet(name, "transfer", rows, {"": places}))
    return (
        *(_similarity(name) for name in sts_names()),
        *transfer,
        DataSet("QQP", "pairs", {}, {"": labeled.QQP_PLACES}),
        DataSet("NLI", "triples", {}, {"": labeled.NLI_PLACES}),
        DataSet("flickr30k", "captions", captions, {"": labeled.CAPTION_PLACES}),
    )


def _similarity(name: str) -> DataSet:
    task = name.removesuffix("-all")
    if name in official.STS_YEARS:
        rows = {"test": sum(subset.annotated for subset in official.STS_YEARS[name])}
        path = f"{name}-en-test/STS.input.{official.STS_YEARS[name][0].name}.txt"
    else:
        rows = {split: part.rows for split, part in official.STS_TABLES[task].items()}
        path = official.STS_TABLES[task]["test"].path
    if task != name:  # all splits in one
        rows = {"test": sum(rows.values())}
    forms = ("raw",) if name.startswith("STSB-") else FORMS
    places = {form: tuple(sts_places(task, form, path)) for form in forms}
    pin = official.STS_PINS.get(name)
    hub = f"{pin.repository}@{pin.revision}" if pin else ""
    return DataSet(name, "similarity", rows, places, hub)
