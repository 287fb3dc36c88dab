"""What named data sets there are, where each would be read from, and their rows as tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contrasent.errors import OptionError, check_choice
from contrasent.text.captions import PLACES, flickr30k
from contrasent.text.datafiles import ROOTS, find
from contrasent.text.datasets import FORMS, sts_names, sts_pairs, sts_places
from contrasent.text.official import STS_PINS, STS_TABLES, STS_YEARS, TRANSFER_FILES, Table
from contrasent.text.transfer import transfer_set

CAPTIONS = "flickr30k"


@dataclass(frozen=True, slots=True)
class Entry:
    """A named data set.

    Attributes:
        forms: "senteval" and "raw" for similarity; empty for the rest.
        places: files below the data folder that hold it; a set of several files is named by its
            first. For similarity these are the places of the first form that is there.
        hub: "owner/name@revision" of the pinned copy, or "".
    """

    name: str
    kind: str
    forms: tuple[str, ...]
    rows: dict[str, int]
    places: tuple[str, ...]
    hub: str = ""


def entries() -> tuple[Entry, ...]:
    """Every named data set."""
    similarity = [_similarity(name) for name in sts_names()]
    transfer = []
    for name, files in TRANSFER_FILES.items():
        rows: dict[str, int] = {}
        for file in files:
            rows[file.split] = rows.get(file.split, 0) + file.rows
        places = tuple(f"{root}/{files[0].path}" for root in ROOTS)
        transfer.append(Entry(name, "transfer", (), rows, places))
    captions = Entry(CAPTIONS, "captions", (), {"all": 158_915}, PLACES)
    return (*similarity, *transfer, captions)


def entry(name: str) -> Entry:
    """The data set of a name."""
    known = {found.name: found for found in entries()}
    check_choice("NAME", name, tuple(known))
    return known[name]


def locate(found: Entry, folder: Path | None = None) -> dict[str, str]:
    """By form ("" where there is one only): the local file that is there, the hub's copy, or ""."""
    if found.kind != "similarity":
        path = find(found.places, folder)
        return {"": str(path) if path else ""}
    locations = {}
    for form in found.forms:
        path = find(_similarity_places(found.name, form), folder)
        locations[form] = str(path) if path else (found.hub if form == "raw" else "")
    return locations


def table(
    name: str, *, split: str | None = None, form: str | None = None, folder: Path | None = None
) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    """The columns and rows of one split of a named data set, as text."""
    found = entry(name)
    chosen = split or ("test" if "test" in found.rows else next(iter(found.rows)))
    check_choice("--split", chosen, tuple(found.rows))
    if form is not None and not found.forms:
        raise OptionError("--form", form, f"{name} has one form only; leave the option out")
    if found.kind == "captions":
        captions = flickr30k(folder=folder)
        return ("picture", "text"), zip(captions.pictures, captions.texts, strict=True)
    if found.kind == "transfer":
        part = transfer_set(name, folder=folder)[chosen]
        labels = map(str, part.labels.tolist())
        if part.second is None:
            return ("text", "label"), zip(part.first, labels, strict=True)
        return ("first", "second", "label"), zip(part.first, part.second, labels, strict=True)
    wanted = form or found.forms[0]
    check_choice("--form", wanted, found.forms)
    parts = sts_pairs(name, split=chosen, form=wanted, folder=folder)
    rows = (
        (one, two, f"{score:g}")
        for pairs in parts
        for one, two, score in zip(pairs.first, pairs.second, pairs.scores.tolist(), strict=True)
    )
    return ("first", "second", "score"), rows


def _similarity(name: str) -> Entry:
    if name in STS_YEARS:
        rows = {"test": sum(subset.annotated for subset in STS_YEARS[name])}
    elif name in STS_TABLES:
        rows = {split: part.rows for split, part in STS_TABLES[name].items()}
    else:  # SICKR-all
        rows = {"test": sum(part.rows for part in STS_TABLES["SICKR"].values())}
    pin = STS_PINS.get(name)
    forms = ("raw",) if name.startswith("STSB-") else FORMS
    return Entry(
        name,
        "similarity",
        forms,
        rows,
        tuple(_similarity_places(name, forms[0])),
        f"{pin.repository}@{pin.revision}" if pin else "",
    )


def _similarity_places(name: str, form: str) -> list[str]:
    if name in STS_YEARS:
        return sts_places(name, form, f"{name}-en-test/STS.input.{STS_YEARS[name][0].name}.txt")
    tables: dict[str, Table] = STS_TABLES["SICKR" if name == "SICKR-all" else name]
    return sts_places(name.removesuffix("-all"), form, tables["test"].path)
