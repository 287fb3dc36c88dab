"""The measures that an item's ``[evaluations.NAME]`` names by ``kind``, without torch."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from contrasent.datasets.labeled import flickr30k, transfer_set
from contrasent.datasets.official import STS_YEARS, data_folder, find
from contrasent.datasets.sts import SPLITS, sts_pairs
from contrasent.engine.parameters import Size
from contrasent.errors import DataError
from contrasent.evaluate.geometry import (
    batch_ranks,
    by_rating,
    geometry,
    length_bias,
    repetition_bias,
    spectral_bound,
)
from contrasent.evaluate.retrieval import nearest_documents, stsb_retrieval
from contrasent.evaluate.sts import sts
from contrasent.evaluate.transfer import transfer
from contrasent.metrics import cosine
from contrasent.report import Report, Row
from contrasent.reproduce.corpora import read_corpora, sample
from contrasent.reproduce.store import Json
from contrasent.reproduce.strict import Names, Value
from contrasent.text.corpus import ScoredPairs
from contrasent.types import EncodeFn

Sts = Literal["STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR"]
Transfer = Literal["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
Form = Literal["senteval", "raw"]
Split = Literal["train", "dev", "test"]
STS: tuple[Sts, ...] = get_args(Sts)

SENTENCES = 20_000  # of Wikipedia, if a measure reads a sample of it
Options = Mapping[str, Value | Names]
OptionTypes = dict[str, tuple[Any, Value | Names]]  # type and default of each

GLOVE = ("glove/glove.840B.300d.txt", "GloVe/glove.840B.300d.txt", "glove.840B.300d.txt")
FOLLOWING = ("trace", "curve")  # measures that evaluate a run during training
FORM = (Form, "senteval")
TASKS = tuple[Sts, ...]


def glove(folder: Path | None) -> Path:
    """The file of GloVe vectors."""
    if (path := find(GLOVE, folder)) is not None:
        return path
    # Stored with the results, so without local folder names.
    where = "in the data folder" if folder or data_folder() else "without CONTRASENT_DATA"
    raise DataError(f"needs GloVe's vectors: no {GLOVE[0]} {where}")


def scored_pairs(
    folder: Path | None,
    *,
    tasks: Iterable[str] = ("STSB",),
    split: str = "test",
    form: str = "senteval",
) -> list[ScoredPairs]:
    """All pairs of tasks; split "all" stands for every split."""
    pairs: list[ScoredPairs] = []
    for task in tasks:
        every = ("test",) if task in STS_YEARS else SPLITS
        for name in every if split == "all" else (split,):
            pairs += sts_pairs(task, split=name, form=form, folder=folder)
    return pairs


def trace(record: Json, **options: Any) -> Report:
    """The path of a training run: alignment and uniformity first, last, and their change."""
    reports = [(step, Report.from_json(report)) for step, report in record["trace"]]
    points = [
        (step, report.one(metric="uniformity"), report.one(metric="alignment"))
        for step, report in reports
    ]
    rows = []
    for name, place in (("alignment", 2), ("uniformity", 1)):
        first, last = points[0][place], points[-1][place]
        values = {"first": first.value, "last": last.value, "change": last.value - first.value}
        rows += [Row("trace", "", f"{name}_{k}", "", v, first.count) for k, v in values.items()]
    # The notes have the whole path, step 0 first.
    return Report(tuple(rows), {"path": [[step, u.value, a.value] for step, u, a in points]})


def curve(record: Json, **options: Any) -> Report:
    """Spearman's correlation after some steps of a run, at its best, and at the end."""
    reports = [(step, Report.from_json(report)) for step, report in record["trace"]]
    rows, curves = [], {}
    for task in options["tasks"]:
        wanted = {"task": task, "metric": "spearman", "aggregate": "all"}
        points = [(step, report.one(**wanted)) for step, report in reports]
        curves[task] = [[step, row.value] for step, row in points]
        rows += [replace(row, aggregate=str(step)) for step, row in points]
        rows += _best_and_last(points)
    return Report(tuple(rows), {"curves": curves})


def development(record: Json) -> Report:
    """The development set's Spearman correlation that chose the step of a run, and the last one."""
    history = [[int(step), float(score)] for step, score in record["history"]]
    trained = [point for point in history if point[0]]  # the papers choose among trained steps
    if not trained:
        raise DataError('the run was never evaluated; set select = "stsb"')
    named, count = ("STSB", "dev", "spearman", ""), len(trained)
    points = [(step, Row(*named, score, count)) for step, score in trained]
    return Report(_best_and_last(points), {"curves": {"STSB": history}})


def _best_and_last(points: Sequence[tuple[float, Row]]) -> tuple[Row, Row, Row]:
    """The best score, the last step's, and the best one's step, of scores after some steps."""
    top, best = max(points, key=lambda point: point[1].value)
    last = points[-1][1]
    step = Row(last.task, last.split, "best_step", "", float(top), last.count)
    return replace(best, aggregate="best"), replace(last, aggregate="last"), step


def terms(record: Json) -> Report:
    """Loss terms in the second half of a run, each also as a multiple of the contrastive one."""
    if not record.get("late_terms"):
        raise DataError("the run's loss has no terms by name")
    known, steps = record["late_terms"], int(record["steps"])
    rows = [Row(name, "", "loss", "", value, steps) for name, value in known.items()]
    rows += [
        Row(name, "", "to_contrast", "", value / known["contrast"], steps)
        for name, value in known.items()
        if known.get("contrast") and name != "contrast"
    ]
    return Report(tuple(rows), {})


def speed(record: Json) -> Report:
    """The speed of a training run, evaluations excluded."""
    rate = float(record["sentences_per_second"])
    steps, batch = int(record["steps"]), int(record["batch_size"])
    rows = (
        Row("training", "", "sentences_per_second", "", rate, steps * batch),
        Row("training", "", "seconds_per_step", "", batch / rate if rate else 0.0, steps),
    )
    return Report(rows, {})


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure."""

    # from model, data folder and options to a report; for training, from the record of a run
    run: Callable[..., Report]
    # from data folder and options to the texts to measure on
    reads: Callable[..., Iterable[str]] = lambda folder, **options: ()
    # type and default of each; 0 captions or samples are all
    options: OptionTypes = field(default_factory=dict)
    of_training: bool = False  # whether it follows training, and needs no model

    def complete(self, given: Options) -> Options:
        """All options, with defaults for those not given."""
        return {name: default for name, (_, default) in self.options.items()} | dict(given)


def texts_digest(kind: str, options: Options, folder: Path | None) -> str:
    """A digest of all texts that a measure reads, 24 hexadecimal digits."""
    total = hashlib.sha256()
    for text in MEASURES[kind].reads(folder, **options):
        total.update(text.encode() + b"\n")
    return total.hexdigest()[:24]


def _pairs(folder: Path | None, **options: Any) -> Iterator[str]:
    """STS sets, the named ones, else STS-B, the scores as text."""
    named = {k: v for k, v in options.items() if k in ("tasks", "split", "form")}
    for part in scored_pairs(folder, **named):
        yield from part.first
        yield from part.second
        yield part.scores.tobytes().hex()


def _transfer_texts(folder: Path | None, *, tasks: Iterable[str], **_: Any) -> Iterator[str]:
    """Transfer tasks, the labels as text."""
    for task in tasks:
        for part in transfer_set(task, folder=folder).values():
            yield from part.first
            yield from part.second or ()
            yield part.labels.tobytes().hex()


def _captions(folder: Path | None, *, captions: int = 0, **_: Any) -> Sequence[str]:
    """The last captions of Flickr30k; all for 0."""
    return flickr30k(folder=folder).last(captions).texts


def _listed(folder: Path | None, *, documents: str, captions: int, **_: Any) -> Iterable[str]:
    return _captions(folder, captions=captions) if documents == "flickr30k" else _pairs(folder)


def _repeated(folder: Path | None, *, text: str, **_: Any) -> Sequence[str]:
    if text == "flickr30k":
        return _captions(folder)
    return sample(read_corpora()[text], SENTENCES, folder or data_folder())


def _geometry(encode: EncodeFn, folder: Path | None, *, split: str, form: str) -> Report:
    shape = geometry(encode, split=split, form=form, folder=folder)
    more = by_rating(encode, scored_pairs(folder, split=split, form=form), split)
    return Report((*shape.rows, *more.rows), shape.notes, shape.items | more.items)


def _spectrum(encode: EncodeFn, folder: Path | None, *, split: str, form: str) -> Report:
    parts = scored_pairs(folder, split=split, form=form)
    texts = list(dict.fromkeys(s for part in parts for s in (*part.first, *part.second)))
    vectors = encode(texts)
    values = spectral_bound(vectors)
    ranks = np.asarray(batch_ranks(vectors), np.float64).mean(axis=0)
    values |= {"batch_rank": float(ranks[0]), "centered_batch_rank": float(ranks[1])}
    rows = [Row("STSB", split, name, "", value, len(texts)) for name, value in values.items()]
    return Report(tuple(rows), {})


def lexical_overlap(first: str, second: str) -> float:
    """F1 of two bags of words (SimCSE, Section 4)."""
    left, right = (Counter(re.findall(r"\w+", text.lower())) for text in (first, second))
    return 2 * (left & right).total() / max(1, left.total() + right.total())


def _overlap(encode: EncodeFn, folder: Path | None, *, corpora: Names) -> Report:
    """Lexical overlap of the pairs of corpora; the model is not used."""
    rows = []
    for name in corpora:
        values = [lexical_overlap(*row[:2]) for row in read_corpora()[name].rows(folder)]
        rows.append(Row(name, "", "f1", "", float(np.mean(values)), len(values)))
    return Report(tuple(rows), {})


def _corpus_texts(folder: Path | None, *, corpora: Names) -> Iterator[str]:
    for name in corpora:
        yield from ("\t".join(row) for row in read_corpora()[name].rows(folder))


def _listing(encode: EncodeFn, folder: Path | None, *, queries: Names, k: int, **of: Any) -> Report:
    if of["documents"] == "flickr30k":
        texts = _captions(folder, captions=of["captions"])
    else:
        parts = scored_pairs(folder)
        texts = [*(s for p in parts for s in p.first), *(s for p in parts for s in p.second)]
    wanted = queries or texts[:: max(1, len(texts) // 3)][:3]
    hits = nearest_documents(encode, wanted, texts, k=k)
    best = sum(nearest[0][0] for _, nearest in hits) / len(hits)
    row = Row(of["documents"], "", "best_cosine", "", float(best), len(hits))
    return Report((row,), {"listing": hits})


def _repetition_bias(encode: EncodeFn, folder: Path | None, *, queries: int, text: str) -> Report:
    return repetition_bias(encode, _repeated(folder, text=text), queries=queries)


def _pair_similarity(encode: EncodeFn, folder: Path | None, *, query: str, texts: Names) -> Report:
    vectors = encode([query, *texts])
    cosines = cosine(vectors[:1].repeat(len(texts), axis=0), vectors[1:])
    rows = [Row(str(i), "", "cosine", "", float(v), 1) for i, v in enumerate(cosines, start=1)]
    return Report(tuple(rows), {})


PAIRS = tuple[Literal[Sts, "SICKR-all", "STSB-de", "STSB-es"], ...]
AGGREGATES = tuple[Literal["all", "mean", "wmean"], ...]
TEST: OptionTypes = {"split": (Split, "test"), "form": FORM}
EVERY: OptionTypes = {"split": (Literal["all", Split], "all"), "form": FORM}

MEASURES = {
    "sts": Measure(
        sts,
        _pairs,
        {
            **TEST,
            "tasks": (PAIRS, STS),
            "aggregate": (AGGREGATES, ("all",)),
            "subsets": (bool, False),
        },
    ),
    "transfer": Measure(
        transfer,
        _transfer_texts,
        {
            "tasks": (tuple[Transfer, ...], get_args(Transfer)),
            "solver": (Literal["fast", "senteval"], "fast"),
        },
    ),
    "geometry": Measure(_geometry, _pairs, EVERY),
    "spectrum": Measure(_spectrum, _pairs, TEST),
    "lexical_overlap": Measure(_overlap, _corpus_texts, {"corpora": (Names, ())}),
    "trace": Measure(
        trace, _pairs, {**EVERY, "every": (Size, 10), "sample": (Size, 0)}, of_training=True
    ),
    "curve": Measure(
        curve,
        _pairs,
        {"every": (Size, 100), "tasks": (TASKS, ("STSB",)), "split": (Split, "dev"), "form": FORM},
        of_training=True,
    ),
    "development": Measure(development, of_training=True),
    "stsb_retrieval": Measure(
        stsb_retrieval, _pairs, {**TEST, "directions": (Literal["both", "first"], "both")}
    ),
    "listing": Measure(
        _listing,
        _listed,
        {
            "queries": (Names, ()),
            "documents": (Literal["flickr30k", "stsb-test"], "flickr30k"),
            "captions": (Size, 0),
            "k": (Size, 3),
        },
    ),
    "length_bias": Measure(length_bias, _pairs, {"tasks": (TASKS, STS), "form": FORM}),
    "repetition_bias": Measure(
        _repetition_bias,
        _repeated,
        {"queries": (Size, 100), "text": (Literal["flickr30k", "wiki"], "flickr30k")},
    ),
    "pair_similarity": Measure(
        _pair_similarity,
        lambda folder, query, texts: (query, *texts),
        {"query": (str, ""), "texts": (Names, ())},
    ),
    "terms": Measure(terms, of_training=True),
    "speed": Measure(speed, of_training=True),
}
"""By name."""
