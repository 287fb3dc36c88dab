"""Suites of evaluations, run on one model with each sentence encoded once, and their data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from contrasent.errors import OptionError, check_choice
from contrasent.evaluate.decisions import (
    CLUSTERED,
    clustering,
    pair_classification,
    triplet_accuracy,
)
from contrasent.evaluate.geometry import (
    WHOLE,
    Length,
    geometry,
    length_bias,
    repetition_bias,
    words,
)
from contrasent.evaluate.protocols import OTHER_LANGUAGES, PROTOCOLS, every_protocol
from contrasent.evaluate.retrieval import caption_retrieval, stsb_retrieval
from contrasent.evaluate.sts import sts
from contrasent.evaluate.transfer import FEW_SHOT_TASKS, SEED, TASKS, few_shot, transfer
from contrasent.evaluate.vectors import Cached
from contrasent.report import Report
from contrasent.stats.bootstrap import RESAMPLES
from contrasent.text import labelled, official
from contrasent.text.datasets import FORMS, sts_names, sts_pairs, sts_places
from contrasent.types import EncodeFn

SUITE_DATA: dict[str, tuple[str, ...]] = {
    "sts": official.STS_TASKS,
    "protocols": (*official.STS_TASKS, "SICKR-all", *OTHER_LANGUAGES),
    "transfer": TASKS,
    "geometry": ("STSB",),
    "retrieval": ("STSB", "flickr30k"),
    "bias": (*official.STS_TASKS, "flickr30k"),
    "paraphrase": ("MRPC", "QQP"),
    "triplets": ("NLI",),
    "clustering": CLUSTERED,
    "few-shot": FEW_SHOT_TASKS,
}
"""The named data sets that each suite reads."""

SUITES = tuple(SUITE_DATA)
CAPTIONS = 5000


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the suites; each evaluation documents its own in full."""

    form: str = "senteval"
    tasks: tuple[str, ...] = official.STS_TASKS
    aggregate: tuple[str, ...] = ("all",)
    split: str = "test"
    subsets: bool = False
    seeds: tuple[int, ...] = (SEED,)
    geometry_split: str = "all"
    captions: int = CAPTIONS  # how many of Flickr30k's captions to search, from the end; 0 for all
    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    # counts the model's tokens in a sentence, for the bias of length in tokens; in words alone if
    # None
    tokens: Length | None = None
    resamples: int = RESAMPLES
    folder: Path | None = None  # the data folder, if not the one that `CONTRASENT_DATA` names


def suite_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The suites that a list of names means; "all" is every one."""
    for name in wanted:
        check_choice("--suite", name, (*SUITES, "all"))
    chosen = tuple(s for s in SUITES if "all" in wanted or s in wanted)
    if not chosen:
        raise OptionError("--suite", "", "name at least one", choices=(*SUITES, "all"))
    return chosen


def read_data(suites: Sequence[str], options: Options) -> list[object]:
    """All data that the suites need, so that missing files are found before a model is loaded."""
    found: list[object] = []
    folder, form = options.folder, options.form
    readers: dict[str, Callable[..., object]] = {
        "QQP": labelled.question_pairs,
        "NLI": labelled.inference_triples,
        "flickr30k": labelled.flickr30k,
    }
    for name in dict.fromkeys(name for suite in suites for name in SUITE_DATA[suite]):
        if name in readers:
            found.append(readers[name](folder=folder))
        elif name not in sts_names():
            found.append(labelled.transfer_set(name, folder=folder))
    named = {
        "sts": [(task, options.split, form) for task in options.tasks],
        "protocols": [
            *((task, "test", form) for task in (*official.STS_TASKS, "SICKR-all")),
            *((task, split, form) for task in ("STSB", "SICKR") for split in ("train", "dev")),
            *((task, "test", "raw") for task in OTHER_LANGUAGES),
        ],
        "geometry": [("STSB", split, form) for split in WHOLE],
        "retrieval": [("STSB", "test", form)],
        "bias": [(task, "test", form) for task in official.STS_TASKS],
    }
    needed = dict.fromkeys(pairs for suite in suites for pairs in named.get(suite, ()))
    for task, split, own_form in needed:
        found.append(sts_pairs(task, split=split, form=own_form, folder=folder))
    return found


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
        found = {form: official.find(places, folder) for form, places in self.places.items()}
        # The hub has the raw form alone.
        return {
            form: str(path) if path else self.hub if form == "raw" else ""
            for form, path in found.items()
        }


def data_sets() -> tuple[DataSet, ...]:
    """Every named data set."""
    transfer = []
    for name, files in official.TRANSFER_FILES.items():
        rows: dict[str, int] = {}
        for file in files:
            rows[file.split] = rows.get(file.split, 0) + file.rows
        places = tuple(f"{root}/{files[0].path}" for root in official.ROOTS)
        transfer.append(DataSet(name, "transfer", rows, {"": places}))
    return (
        *(_similarity(name) for name in sts_names()),
        *transfer,
        DataSet("QQP", "pairs", {}, {"": labelled.QQP_PLACES}),
        DataSet("NLI", "triples", {}, {"": labelled.NLI_PLACES}),
        DataSet(
            "flickr30k",
            "captions",
            {"all": labelled.CAPTION_COUNTS[0]},
            {"": labelled.CAPTION_PLACES},
        ),
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
    pin = official.STS_PINS.get(name)
    forms = ("raw",) if name.startswith("STSB-") else FORMS
    places = {form: tuple(sts_places(task, form, path)) for form in forms}
    return DataSet(
        name, "similarity", rows, places, f"{pin.repository}@{pin.revision}" if pin else ""
    )


def missing_data(folder: Path | None = None, form: str = "senteval") -> dict[str, list[str]]:
    """By suite, the data sets that are neither in the data folder nor, in this form, on the hub."""
    absent = set()
    for found in data_sets():
        located = found.locate(folder)
        # Some sets have one form only, whatever is wanted of the others.
        if not (located[form] if form in located else any(located.values())):
            absent.add(found.name)
    return {
        suite: [name for name in names if name in absent] for suite, names in SUITE_DATA.items()
    }


def evaluate(
    encode: EncodeFn, suites: Sequence[str] = ("sts",), options: Options | None = None
) -> Report:
    """Run suites on one model.

    Args:
        encode: the model. Sentences that several suites need are encoded once.
        suites: some of :data:`SUITES`, or "all".
        options: of the suites.

    Returns:
        All rows; the notes hold each suite's notes under its name, how many distinct sentences were
        encoded, and the seconds that encoding and everything else took.

    Raises:
        OptionError: an unknown suite or option.
        DataError: data that are missing or not official, or vectors that cannot be measured.
    """
    chosen = suite_names(suites)
    settings = options or Options()
    cached = Cached(encode)
    began = perf_counter()
    reports = {name: _RUN[name](cached, settings) for name in chosen}
    rest = perf_counter() - began - cached.seconds
    notes: dict[str, Any] = {name: report.notes for name, report in reports.items()}
    notes["distinct_sentences"] = len(cached)
    notes["seconds"] = {"encoding": round(cached.seconds, 1), "measuring": round(rest, 1)}
    whole = Report.join(reports.values())
    return Report(whole.rows, notes, whole.items)


def _retrieval(encode: EncodeFn, o: Options) -> Report:
    captions = labelled.flickr30k(folder=o.folder).last(o.captions)
    found = stsb_retrieval(encode, form=o.form, resamples=o.resamples, folder=o.folder)
    pictures = caption_retrieval(encode, captions, resamples=o.resamples)
    notes = {"stsb": found.notes, "captions": pictures.notes}
    whole = Report.join((found, pictures))
    return Report(whole.rows, notes, whole.items)


def _bias(encode: EncodeFn, o: Options) -> Report:
    units = {"words": words, **({"tokens": o.tokens} if o.tokens else {})}
    length = [
        length_bias(
            encode, form=o.form, length=count, unit=u, resamples=o.resamples, folder=o.folder
        )
        for u, count in units.items()
    ]
    captions = labelled.flickr30k(folder=o.folder).last(CAPTIONS)
    repeated = repetition_bias(encode, captions.texts, resamples=o.resamples)
    notes = {
        **{f"length in {r.rows[0].aggregate}": r.notes for r in length},
        "repetition": {**repeated.notes, "text": "Flickr30k"},
    }
    return Report((*(row for report in length for row in report), *repeated.rows), notes)


def _given(
    measure: Callable[..., Report], *names: str, **renamed: str
) -> Callable[[EncodeFn, Options], Report]:
    """An evaluation with some of the options, by their own names or another of its own."""
    taken = {**dict.fromkeys(("resamples", "folder", *names)), **renamed}

    def run(encode: EncodeFn, options: Options) -> Report:
        return measure(
            encode, **{own: getattr(options, name or own) for own, name in taken.items()}
        )

    return run


_RUN: dict[str, Callable[[EncodeFn, Options], Report]] = {
    "sts": _given(sts, "tasks", "form", "aggregate", "split", "subsets"),
    "protocols": _given(every_protocol, "form", names="protocols"),
    "transfer": _given(transfer, "seeds"),
    "geometry": _given(geometry, "form", split="geometry_split"),
    "retrieval": _retrieval,
    "bias": _bias,
    "paraphrase": _given(pair_classification),
    "triplets": _given(triplet_accuracy),
    "clustering": _given(clustering),
    "few-shot": _given(few_shot),
}
