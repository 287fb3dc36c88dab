"""Suites of evaluations, entries of :data:`SUITES`: a model encodes each sentence once for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from contrasent.datasets import labeled, official
from contrasent.datasets.sts import SPLITS, sts_pairs
from contrasent.errors import OptionError, check_choice
from contrasent.evaluate.decisions import (
    CLUSTERED,
    clustering,
    pair_classification,
    triplet_accuracy,
)
from contrasent.evaluate.geometry import Length, geometry, length_bias, repetition_bias, words
from contrasent.evaluate.protocols import (
    OTHER_LANGUAGES,
    PROTOCOLS,
    every_protocol,
    needed_aggregates,
)
from contrasent.evaluate.retrieval import caption_retrieval, stsb_retrieval
from contrasent.evaluate.sts import check_subsets, sts
from contrasent.evaluate.transfer import FEW_SHOT_TASKS, SEED, TASKS, few_shot, transfer
from contrasent.evaluate.vectors import Cached
from contrasent.report import Report
from contrasent.stats.bootstrap import RESAMPLES
from contrasent.text.corpus import ScoredPairs
from contrasent.types import EncodeFn

CAPTIONS = 5000

Pairs = tuple[str, str, str]  # task, split and form of scored pairs


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the suites of :func:`evaluate_model`."""

    form: str = "senteval"
    tasks: tuple[str, ...] = official.STS_TASKS
    aggregate: tuple[str, ...] = ("all",)
    split: str = "test"
    subsets: bool = False
    seeds: tuple[int, ...] = (SEED,)
    geometry_split: str = "all"
    captions: int = CAPTIONS  # number of Flickr30k's captions to search, from the end; 0 for all
    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    tokens: Length | None = None  # counts a sentence's tokens, for length bias in tokens too
    resamples: int = RESAMPLES
    folder: str | Path | None = None  # the data folder; that of `CONTRASENT_DATA` by default


@dataclass(frozen=True, slots=True)
class Suite:
    """A group of evaluations: how it runs, the scored pairs and the other data sets it reads."""

    run: Callable[[EncodeFn, Options], Report]
    pairs: Callable[[Options], Sequence[Pairs]] = lambda options: ()
    others: tuple[str, ...] = ()

    @property
    def data(self) -> tuple[str, ...]:
        """The named data sets that it reads by default."""
        return (*dict.fromkeys(task for task, _, _ in self.pairs(Options())), *self.others)


def _shared(options: Options) -> dict[str, Any]:
    """Options of every evaluation."""
    return {"resamples": options.resamples, "folder": options.folder}


def _retrieval(encode: EncodeFn, o: Options) -> Report:
    captions = labeled.flickr30k(folder=o.folder).last(o.captions)
    sentences = stsb_retrieval(encode, form=o.form, **_shared(o))
    pictures = caption_retrieval(encode, captions, resamples=o.resamples)
    notes = {"stsb": sentences.notes, "captions": pictures.notes}
    whole = Report.join((sentences, pictures))
    return Report(whole.rows, notes, whole.items)


def _bias(encode: EncodeFn, o: Options) -> Report:
    units = {"words": words, **({"tokens": o.tokens} if o.tokens else {})}
    length = {
        unit: length_bias(encode, form=o.form, length=count, unit=unit, **_shared(o))
        for unit, count in units.items()
    }
    captions = labeled.flickr30k(folder=o.folder).last(CAPTIONS)
    repeated = repetition_bias(encode, captions.texts, resamples=o.resamples)
    notes = {f"length in {unit}": report.notes for unit, report in length.items()}
    notes["repetition"] = {**repeated.notes, "text": "Flickr30k"}
    return Report(Report.join((*length.values(), repeated)).rows, notes)


def _sts(encode: EncodeFn, o: Options) -> Report:
    names = ("tasks", "form", "aggregate", "split", "subsets")
    return sts(encode, **{name: getattr(o, name) for name in names}, **_shared(o))


def _tests(options: Options) -> list[Pairs]:
    return [(task, "test", options.form) for task in official.STS_TASKS]


def _of_protocols(options: Options) -> list[Pairs]:
    splits = product(("STSB", "SICKR"), ("train", "dev"), (options.form,))
    whole, others = ("SICKR-all", "test", options.form), product(OTHER_LANGUAGES, ["test"], ["raw"])
    return [*_tests(options), whole, *splits, *others]


SUITES: dict[str, Suite] = {
    "sts": Suite(_sts, lambda o: [(task, o.split, o.form) for task in o.tasks]),
    "protocols": Suite(
        lambda encode, o: every_protocol(encode, o.protocols, form=o.form, **_shared(o)),
        _of_protocols,
    ),
    "transfer": Suite(
        lambda encode, o: transfer(encode, seeds=o.seeds, **_shared(o)), others=TASKS
    ),
    "geometry": Suite(
        lambda encode, o: geometry(encode, split=o.geometry_split, form=o.form, **_shared(o)),
        lambda o: [("STSB", split, o.form) for split in SPLITS],
    ),
    "retrieval": Suite(_retrieval, lambda o: [("STSB", "test", o.form)], ("flickr30k",)),
    "bias": Suite(_bias, _tests, ("flickr30k",)),
    "paraphrase": Suite(
        lambda encode, o: pair_classification(encode, **_shared(o)), others=("MRPC", "QQP")
    ),
    "triplets": Suite(lambda encode, o: triplet_accuracy(encode, **_shared(o)), others=("NLI",)),
    "clustering": Suite(lambda encode, o: clustering(encode, **_shared(o)), others=CLUSTERED),
    "few-shot": Suite(lambda encode, o: few_shot(encode, **_shared(o)), others=FEW_SHOT_TASKS),
}


def suite_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The suites by their names; "all" is every one."""
    for name in wanted:
        check_choice("--suite", name, (*SUITES, "all"))
    chosen = tuple(s for s in SUITES if "all" in wanted or s in wanted)
    if not chosen:
        raise OptionError("--suite", "", "give at least one", choices=(*SUITES, "all"))
    return chosen


def read_data(suites: Sequence[str], options: Options) -> None:
    """Read what the suites need, so that missing files are found before a model is loaded."""
    readers: dict[str, Callable[..., object]] = {
        "QQP": labeled.question_pairs,
        "NLI": labeled.inference_triples,
        "flickr30k": labeled.flickr30k,
    }
    for name in dict.fromkeys(name for suite in suites for name in SUITES[suite].others):
        read = readers.get(name) or partial(labeled.transfer_set, name)
        read(folder=options.folder)
    found = dict[str, Sequence[ScoredPairs]]()
    wanted = (pairs for suite in suites for pairs in SUITES[suite].pairs(options))
    for task, split, form in dict.fromkeys(wanted):
        found[task] = sts_pairs(task, split=split, form=form, folder=options.folder)
    if "sts" in suites:
        check_subsets(found, options.aggregate, options.subsets)
    if "protocols" in suites:
        check_subsets(found, needed_aggregates(options.protocols), subsets=False)


def missing_data(folder: str | Path | None = None, form: str = "senteval") -> dict[str, list[str]]:
    """By suite, the data sets that are neither in the data folder nor, in this form, on the hub."""
    located = {data_set.name: data_set.locate(folder) for data_set in official.data_sets()}
    # Some sets have only one form, regardless of the others.
    there = {name for name, by in located.items() if by.get(form, any(by.values()))}
    return {n: [own for own in suite.data if own not in there] for n, suite in SUITES.items()}


def evaluate_model(
    encode: EncodeFn, suites: Sequence[str] = ("sts",), options: Options | None = None
) -> Report:
    """Evaluate a model by suites, such as "sts" and "transfer".

    Args:
        encode: the model, a function from texts to vectors. Each sentence is encoded once for all
            suites.
        suites: names: "sts", "protocols", "transfer", "geometry", "retrieval", "bias",
            "paraphrase", "triplets", "clustering", "few-shot", or "all".
        options: options of the suites.

    Returns:
        The rows of all suites. The notes have each suite's notes by name, the number of distinct
        sentences, and the seconds for encoding and for everything else.

    Raises:
        OptionError: a suite or an option is unknown.
        DataError: data is missing or not official, or vectors are not finite.

    Examples:
        >>> from contrasent import Encoder, evaluate_model
        >>> from contrasent.evaluate.suite import Options
        >>> encode = Encoder.load("contrasent-small", pooling="mean").encode
        >>> report = evaluate_model(encode, ["sts"], Options(tasks=("STSB",)))
        >>> round(report.one(metric="spearman").value, 2), report.notes["distinct_sentences"]
        (0.43, 2551)
    """
    chosen = suite_names(suites)
    settings = options or Options()
    cached = encode if isinstance(encode, Cached) else Cached(encode)
    began = perf_counter()
    reports = {name: SUITES[name].run(cached, settings) for name in chosen}
    measuring = perf_counter() - began - cached.seconds
    notes: dict[str, Any] = {name: report.notes for name, report in reports.items()}
    notes["distinct_sentences"] = len(cached)
    notes["seconds"] = {"encoding": round(cached.seconds, 1), "measuring": round(measuring, 1)}
    whole = Report.join(reports.values())
    return Report(whole.rows, notes, whole.items)
