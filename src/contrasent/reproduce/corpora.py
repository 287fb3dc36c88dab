"""The corpora that the items of a folder train on.

A corpus is sampled from a file of the data folder (with a fixed seed, whatever the run's), written
once below the results, and known by the digest of its rows.
"""

import csv
import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path

from contrasent.datasets.official import find
from contrasent.errors import DataError, InputError, suggestion
from contrasent.files import atomic_file, write_json
from contrasent.reproduce.tables import HERE, Strict, decode, read_toml, shared
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.sources import Source
from contrasent.text.tables import open_table

Texts = tuple[str, ...]  # A row: a sentence, or texts that belong together
# Of every sample: rows of two runs differ only in order.
SAMPLE_SEED = 20210418


class NamedCorpus(Strict):
    """A named corpus."""

    name: str
    title: str
    files: tuple[str, ...]  # below the data folder; any one will do
    form: str = ""  # of the file, a name in ``READERS``; "" if unknown
    columns: int = 1  # texts a row, of the form "columns"
    keep: int = 0  # the first columns that are used; 0 for all
    labels: tuple[str, ...] = ()

    def path(self, folder: Path | None) -> Path:
        """Its file in the data folder."""
        if (path := find(self.files, folder)) is not None:
            return path
        # Stored with the results, so without local folder names.
        where = "the data folder" if folder else "the folder that CONTRASENT_DATA names"
        raise DataError(f"the corpus {self.name!r} ({self.title}): no {self.files[0]} in {where}")

    def rows(self, folder: Path | None) -> list[Texts]:
        """All of its rows; with () before each document."""
        path = self.path(folder)
        if not self.form:
            raise DataError(f"{path}: its form is not known here")
        return list(READERS[self.form](path, self))


@dataclass(frozen=True, slots=True)
class Built:
    """A corpus that is ready to read; ``source`` is the name of the file it was drawn from."""

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


def _sentences(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    return ((line.strip(),) for line in _lines(path) if line.strip())


def _documents(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """Sentences in order; the first line of each document is listed in a .docs.tsv.gz."""
    listed = _beginnings(path)
    if not listed.is_file():
        raise DataError(f"{listed}: missing; it says where the documents of {path.name} begin")
    starts = {int(row.split("\t")[0]) for i, row in enumerate(_lines(listed)) if i}
    for number, line in enumerate(_lines(path), start=1):
        if number in starts:
            yield ()
        if line.strip():
            yield (line.strip(),)


def open_built(path: str | Path, *, documents: bool = False) -> Corpus:
    """Open a corpus that was written here; of rows all columns, in their order."""
    rows = Path(path).suffix == ".jsonl"
    columns = list(json.loads(next(_lines(Path(path))))) if rows else None
    return open_corpus(path, columns=columns, documents=documents)


def _beginnings(path: Path) -> Path:
    """The file that lists where the documents of another begin."""
    return path.with_name(path.name.replace(".txt.gz", ".docs.tsv.gz"))


def _columns(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
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


def _labelled_pairs(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    return ((first, second) for label, first, second in _nli(path) if label in corpus.labels)


def _hypotheses(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """A premise with the first hypothesis of each label."""
    by_premise: dict[str, dict[str, str]] = {}
    for label, first, second in _nli(path):
        by_premise.setdefault(first, {}).setdefault(label, second)
    for premise, by in by_premise.items():
        if len(by) == len(corpus.labels):
            yield premise, *(by[label] for label in corpus.labels)


def _labelled_sentences(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    texts = dict.fromkeys(text for _, *pair in _nli(path) for text in pair)
    return ((text,) for text in texts)


def _duplicates(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """Questions marked as duplicates: split, question 1, question 2, 0 or 1."""
    for row in _table(path, "\t"):
        if len(row) >= 4 and row[-1].strip() == "1":
            yield row[-3].strip(), row[-2].strip()


def _captions(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """Pairs of captions of one picture (picture#number, caption), each with the next."""
    cut = (line.partition("\t") for line in _lines(path))
    every = ((name.rpartition("#")[0], text.strip()) for name, _, text in cut)
    for (before, first), (after, second) in pairwise(every):
        if before == after and first and second and first != second:
            yield first, second


READERS: dict[str, Callable[[Path, NamedCorpus], Iterable[Texts]]] = {
    "sentences": _sentences,
    "documents": _documents,
    "columns": _columns,
    "hypotheses": _hypotheses,
    "labelled_pairs": _labelled_pairs,
    "labelled_sentences": _labelled_sentences,
    "duplicates": _duplicates,
    "captions": _captions,
}


def read_corpora(folder: Path = HERE) -> dict[str, NamedCorpus]:
    """The corpora of a folder of items, by name; the package's if it brings none."""
    path = shared(folder, "corpora.toml")
    corpora = {}
    for name, data in read_toml(path).items():
        corpora[name] = decode(NamedCorpus, {"name": name, **data}, path, name)
        form = corpora[name].form
        if form not in ("", *READERS):
            raise InputError(path, f"{name}.form {form!r}: unknown{suggestion(form, READERS)}")
    return corpora


def build(corpus: NamedCorpus, sentences: int | None, data: Path | None, home: Path) -> Built:
    """Sample and write a corpus, unless it is already written."""
    source = corpus.path(data)
    files = (path.stat() for path in (source, _beginnings(source)) if path.is_file())
    stamps = [(file.st_size, file.st_mtime_ns) for file in files]
    how = corpus.form, corpus.columns, corpus.keep, corpus.labels, sentences, SAMPLE_SEED
    mark = hashlib.sha256(repr((source.name, stamps, how)).encode()).hexdigest()[:12]
    stem = f"{corpus.name}-{sentences or 'all'}"
    meta = home / f"{stem}-{mark}.json"
    if meta.is_file():
        built_before = Built(**json.loads(meta.read_text("utf-8")))
        if Path(built_before.path).is_file():
            return built_before
    documents, width = corpus.form == "documents", 1
    if documents:
        parts = groupby(corpus.rows(data), key=bool)
        groups = _sampled_documents([list(part) for some, part in parts if some], sentences)
        text = "\n\n".join("\n".join(row[0] for row in group) for group in groups) + "\n"
        count = sum(map(len, groups))
    else:
        rows = _sampled(corpus.rows(data), sentences)
        count, width = len(rows), len(rows[0]) if rows else 0
        text = _as_text(rows, width)
    if count < 2:
        raise DataError(f"{source}: {count} usable rows; is it the right file?")
    digest = hashlib.sha256(text.encode()).hexdigest()
    # Named by its content: a run can be resumed if its source was merely copied again.
    target = home / f"{stem}-{digest[:12]}{'.txt' if width == 1 else '.jsonl'}"
    with atomic_file(target) as stream:
        # A spreadsheet would evaluate cells of a csv that begin with "=".
        for row in rows if width > 1 else ():
            stream.write(json.dumps({f"text{i}": text for i, text in enumerate(row)}) + "\n")
        if width == 1:
            stream.write(text)
    built = Built(corpus.name, str(target.resolve()), documents, count, digest, source.name)
    write_json(meta, asdict(built))
    return built


def sample(corpus: NamedCorpus, count: int, data: Path | None) -> Texts:
    """The first texts of sampled rows of a corpus."""
    return tuple(row[0] for row in _sampled(corpus.rows(data), count))


def _as_text(rows: list[Texts], width: int) -> str:
    """Rows as the text whose digest names a corpus: lines, or csv."""
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
