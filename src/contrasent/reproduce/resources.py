"""Corpora and scales: what the items of a folder share.

A corpus is sampled from a file of the data folder (with a fixed seed, whatever the run's), written
once below the results, and known by the digest of its rows.
"""

import csv
import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path

from pydantic import Field

from contrasent.datasets.official import find
from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import DataError, InputError, OptionError, suggestion
from contrasent.files import atomic_file, write_json
from contrasent.reproduce.tables import (
    HERE,
    SCALES,
    Item,
    ScaleName,
    Selection,
    Settings,
    Strict,
    TableRow,
    decode,
    read_toml,
    shared,
)
from contrasent.text.sources import Source
from contrasent.text.tables import open_table
from contrasent.train import settings as run_settings

Texts = tuple[str, ...]  # A row: a sentence, or texts that belong together
# Of every sample: rows of two runs differ in order alone, never in what they are drawn from.
SAMPLE_SEED = 20210418


class Corpus(Strict):
    """A named corpus."""

    name: str
    title: str
    files: tuple[str, ...]  # below the data folder, any one of which will do
    form: str = ""  # of the file, a name of ``READERS``; "" if it is not known here
    columns: int = 1  # texts a row, of the form "columns"
    keep: int = 0  # the first columns that are used; 0 for all
    labels: tuple[str, ...] = ()

    def path(self, folder: Path | None) -> Path:
        """Its file in the data folder."""
        if (path := find(self.files, folder)) is not None:
            return path
        # Stored with the results, so without the name of this machine's folder.
        where = "the data folder" if folder else "the folder that CONTRASENT_DATA names"
        raise DataError(f"the corpus {self.name!r} ({self.title}): no {self.files[0]} in {where}")

    def rows(self, folder: Path | None) -> list[Texts]:
        """All of its rows; of documents with () before each."""
        path = self.path(folder)
        if not self.form:
            raise DataError(f"{path}: its form is not known here")
        return list(READERS[self.form](path, self))


@dataclass(frozen=True, slots=True)
class Built:
    """A corpus that is ready to be read; ``source`` is the name of the file it was drawn from."""

    name: str
    path: str
    documents: bool
    count: int
    digest: str
    source: str


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else raw as stream:
        for line in stream:
            yield line.decode("utf-8").rstrip("\r\n")


def _table(path: Path, delimiter: str) -> Iterator[Sequence[str]]:
    """Rows of a table whose cells are quoted, without its header."""
    table = open_table(Source(path, ".csv", str(path)), header=True, delimiter=delimiter)
    return (cells for _, cells in table.stream() if cells is not None)


def _sentences(path: Path, corpus: Corpus) -> Iterator[Texts]:
    return ((line.strip(),) for line in _lines(path) if line.strip())


def _documents(path: Path, corpus: Corpus) -> Iterator[Texts]:
    """Sentences in order; the first line of each document is listed in a .docs.tsv.gz."""
    listed = path.with_name(path.name.replace(".txt.gz", ".docs.tsv.gz"))
    if not listed.is_file():
        raise DataError(f"{listed}: missing; it says where the documents of {path.name} begin")
    starts = {int(row.split("\t")[0]) for i, row in enumerate(_lines(listed)) if i}
    for number, line in enumerate(_lines(path), start=1):
        if number in starts:
            yield ()
        if line.strip():
            yield (line.strip(),)


def _columns(path: Path, corpus: Corpus) -> Iterator[Texts]:
    for row in _table(path, ","):
        cells = tuple(" ".join(cell.split()) for cell in row[: corpus.columns])
        if len(cells) == corpus.columns and all(cells):
            yield cells[: corpus.keep or None]


def _nli(path: Path) -> Iterator[Texts]:
    """(label, premise, hypothesis) of a file of source, split, label, premise, hypothesis."""
    for i, line in enumerate(_lines(path)):
        cells = line.split("\t")
        if i and len(cells) == 5 and cells[3].strip() and cells[4].strip():
            yield cells[2], cells[3].strip(), cells[4].strip()


def _labelled_pairs(path: Path, corpus: Corpus) -> Iterator[Texts]:
    return ((one, two) for label, one, two in _nli(path) if label in corpus.labels)


def _hypotheses(path: Path, corpus: Corpus) -> Iterator[Texts]:
    """A premise with the first hypothesis of each label."""
    found: dict[str, dict[str, str]] = {}
    for label, one, two in _nli(path):
        found.setdefault(one, {}).setdefault(label, two)
    for premise, by in found.items():
        if len(by) == len(corpus.labels):
            yield premise, *(by[label] for label in corpus.labels)


def _labelled_sentences(path: Path, corpus: Corpus) -> Iterator[Texts]:
    texts = dict.fromkeys(text for _, *pair in _nli(path) for text in pair)
    return ((text,) for text in texts)


def _duplicates(path: Path, corpus: Corpus) -> Iterator[Texts]:
    """Questions that were marked as duplicates: split, question 1, question 2, 0 or 1."""
    for row in _table(path, "\t"):
        if len(row) >= 4 and row[-1].strip() == "1":
            yield row[-3].strip(), row[-2].strip()


def _captions(path: Path, corpus: Corpus) -> Iterator[Texts]:
    """Pairs of captions of one picture (picture#number, caption), each with the next."""
    cut = (line.partition("\t") for line in _lines(path))
    every = ((name.rpartition("#")[0], text.strip()) for name, _, text in cut)
    for (before, one), (after, two) in pairwise(every):
        if before == after and one and two and one != two:
            yield one, two


READERS: dict[str, Callable[[Path, Corpus], Iterable[Texts]]] = {
    "sentences": _sentences,
    "documents": _documents,
    "columns": _columns,
    "hypotheses": _hypotheses,
    "labelled_pairs": _labelled_pairs,
    "labelled_sentences": _labelled_sentences,
    "duplicates": _duplicates,
    "captions": _captions,
}


def read_corpora(folder: Path = HERE) -> dict[str, Corpus]:
    """The corpora of a folder of items, by name; the package's if it brings none."""
    path = shared(folder, "corpora.toml")
    found = {}
    for name, data in read_toml(path).items():
        found[name] = decode(Corpus, {"name": name, **data}, path, name)
        form = found[name].form
        if form not in ("", *READERS):
            raise InputError(path, f"{name}.form {form!r}: unknown{suggestion(form, READERS)}")
    return found


def build(corpus: Corpus, sentences: int | None, data: Path | None, home: Path) -> Built:
    """Sample and write a corpus, or find it written."""
    source = corpus.path(data)
    stamp = source.stat()
    text = f"{source.name} {stamp.st_size} {stamp.st_mtime_ns} {sentences} {SAMPLE_SEED}"
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    stem = f"{corpus.name}-{sentences or 'all'}"
    meta = home / f"{stem}-{mark}.json"
    if meta.is_file():
        found = Built(**json.loads(meta.read_text("utf-8")))
        if Path(found.path).is_file():
            return found
    documents = corpus.form == "documents"
    if documents:
        parts = groupby(corpus.rows(data), key=bool)
        groups = _sampled_documents([list(part) for some, part in parts if some], sentences)
        text = "\n\n".join("\n".join(row[0] for row in group) for group in groups) + "\n"
        count, suffix = sum(map(len, groups)), ".txt"
    else:
        rows = _sampled(corpus.rows(data), sentences)
        count, width = len(rows), len(rows[0]) if rows else 0
        text, suffix = _written(rows, width), ".txt" if width == 1 else ".csv"
    if count < 2:
        raise DataError(f"{source}: {count} usable rows; is it the right file?")
    digest = hashlib.sha256(text.encode()).hexdigest()
    # Named by what it holds: a run that was begun goes on if its source was merely copied anew.
    target = home / f"{stem}-{digest[:12]}{suffix}"
    with atomic_file(target) as stream:
        stream.write(text)
    built = Built(corpus.name, str(target.resolve()), documents, count, digest, source.name)
    write_json(meta, asdict(built))
    return built


def sample(corpus: Corpus, count: int, data: Path | None) -> Texts:
    """The first texts of sampled rows of a corpus."""
    return tuple(row[0] for row in _sampled(corpus.rows(data), count))


def _written(rows: list[Texts], width: int) -> str:
    if width == 1:
        return "".join(f"{row[0]}\n" for row in rows)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([f"text{i}" for i in range(width)])
    writer.writerows(rows)
    return stream.getvalue()


def _sampled(rows: list[Texts], count: int | None) -> list[Texts]:
    if not count or count >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(SAMPLE_SEED).sample(range(len(rows)), count))]


def _sampled_documents(groups: list[list[Texts]], count: int | None) -> list[list[Texts]]:
    if not count:
        return groups
    order = random.Random(SAMPLE_SEED).sample(range(len(groups)), len(groups))
    before = accumulate((len(groups[i]) for i in order), initial=0)
    chosen = [i for i, total in zip(order, before, strict=False) if total < count]
    return [groups[i] for i in sorted(chosen)]


MODELS = ("generator", "filler", "copy_filler", "language_head")
"""Parameters that name a model: "@base" is the base, other names are checkpoints."""

AUTO = "auto"  # A precision: bf16 where the machine computes in it, else fp32
ANY = "simcse"  # an objective; settings of a run are checked with its parameters


class Scale(Strict):
    """How large the runs are."""

    name: ScaleName
    title: str
    base: str
    select: Selection  # which model of a run is measured
    set: Settings = Field(default_factory=dict)  # settings of a run, for all items
    sentences: int | None = None  # rows sampled from a corpus; None for all
    changes: Settings = Field(default_factory=dict)
    # settings and parameters of the runs of one objective, by its name; see ``of``
    own: dict[str, Settings] = Field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences."""
        # Items and rows that say something of their own about a setting still do.
        own: dict[str, Settings] = {}
        for name in [name for name in settings if "." in name]:
            objective, _, inner = name.partition(".")
            for part in run_settings.choose({inner: settings[name]}, objective, option="--set"):
                own.setdefault(objective, {}).update(part)
        of_all = {name: value for name, value in settings.items() if "." not in name}
        known, foreign = run_settings.choose(of_all, ANY, option="--set")
        for name in foreign:
            problem = "belongs to an objective; the rows say what theirs are, or OBJECTIVE.NAME"
            raise OptionError("--set", name, problem)
        whole = {k: v for k, v in {**self.set, **known}.items() if v != AUTO}
        run_settings.Settings(**run_settings.choose(whole, ANY)[0])
        for objective, values in own.items():
            run_settings.Settings(**run_settings.choose({**whole, **values}, objective)[0])
        changes = dict(known) | ({} if sentences is None else {"sentences": sentences})
        changes |= {f"{name}.{k}": v for name, values in own.items() for k, v in values.items()}
        count = self.sentences if sentences is None else sentences or None
        changed = {**self.set, **known}
        update = {"set": changed, "sentences": count, "changes": changes, "own": own}
        return self.model_copy(update=update)

    def of(self, objective: str) -> Settings:
        """The settings for an objective; for a combination, those for its parts as well."""
        # Its own settings go before those of its parts, an earlier part's before a later one's.
        names = [*reversed([method.name for method in methods(objective)]), objective]
        return {k: v for name in names for k, v in self.own.get(name, {}).items()}


def read_scales(folder: Path = HERE) -> dict[ScaleName, Scale]:
    """The scales of a folder of items: of its ``scales.toml``, or the package's if it has none."""
    path = shared(folder, "scales.toml")
    data = read_toml(path)
    for name in data:
        if name not in SCALES:
            raise InputError(path, f"no such scale {name!r}{suggestion(name, SCALES)}")
    return {
        name: decode(Scale, {"name": name, **data.get(name, {})}, path, name) for name in SCALES
    }


@dataclass(frozen=True, slots=True)
class Resolved:
    """The training run of a row."""

    objective: str
    given: Mapping[str, object]
    defaults: Mapping[str, object]
    settings: Mapping[str, object]
    select: Selection
    sentences: int | None  # rows sampled from the corpus; None for all


def resolve_row(item: Item, row: TableRow, scale: Scale, *, seed: int = 0) -> Resolved:
    """The settings of a row at a scale: the scale's, its objective's, the item's, the row's own."""
    changes = item.scale[scale.name]
    own = scale.of(row.objective)
    given = {**scale.set, **own, **changes.set, **row.settings[scale.name], "seed": seed}
    if given.get("precision") == AUTO:
        given["precision"] = precision()
    of_run, parts = run_settings.choose(given, row.objective, option="set")
    settings = run_settings.Settings(**of_run)
    check(row.objective, parts, models=False)
    defaults = {name: p.default for name, p in parameters(row.objective).items()}
    counts = (row.sentences.get(scale.name), changes.sentences, scale.sentences)
    return Resolved(
        row.objective,
        parts,
        defaults,
        asdict(settings),
        changes.select or scale.select,
        next((n for n in counts if n is not None), None),
    )


def models_of(values: Mapping[str, object]) -> dict[str, str]:
    """The parameters that name a model, and the names."""
    return {k: str(v) for k, v in values.items() if k in MODELS and v and v != "new"}


def precision() -> str:
    """The precision that this machine computes fast in: "bf16" or "fp32"."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return "fp32"
    return "bf16" if "avx512_bf16" in flags or "amx_bf16" in flags else "fp32"
