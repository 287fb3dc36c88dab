"""The corpora that the items of a folder train on.

A corpus is sampled from a file of the data folder (with a fixed seed, not the run's), written
once below the results, and known by the digest of its rows.
"""

import hashlib
import json
import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate, combinations, groupby
from pathlib import Path

from contrasent.datasets.official import STS_TASKS, find, stream_lines
from contrasent.datasets.sts import sts_pairs
from contrasent.errors import DataError
from contrasent.files import write_json, write_text
from contrasent.reproduce.strict import (
    HERE,
    Strict,
    check_names,
    decode,
    read_toml,
    reading,
    shared_file,
)
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.text.sources import Source
from contrasent.text.tables import open_table

log = logging.getLogger(__name__)

Texts = tuple[str, ...]  # A row: a sentence, or texts that belong together
# The same for every run, unless an item draws one for each seed: rows differ only in order.
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
    itself: bool = False  # after each row one in which the first text is its own positive
    unseen: bool = False  # without rows that hold a sentence of a test set of STS or SICK

    def path(self, folder: Path | None) -> Path:
        """Its file in the data folder."""
        if (path := find(self.files, folder)) is not None:
            return path
        # Stored with the results, so without local folder names.
        where = "the data folder" if folder else "the folder that CONTRASENT_DATA names"
        raise DataError(f"the corpus {self.name!r} ({self.title}): no {self.files[0]} in {where}")

    def rows(self, folder: Path | None) -> list[Texts]:
        """The columns in use of all rows of its file; with () before each document."""
        path = self.path(folder)
        if not self.form:
            raise DataError(f"{path}: unknown format")
        rows = list(READERS[self.form](path, self))
        if self.unseen:
            tested, every = tested_sentences(folder), len(rows)
            rows = [row for row in rows if tested.isdisjoint(map(letters, row))]
            log.warning(
                f"{self.name}: {every - len(rows):,} of {every:,} rows removed: they contain a "
                "test sentence of STS or SICK"
            )
        rows = [row[: self.keep or None] for row in rows]
        if self.itself:
            rows = [r for row in rows for r in (row, (row[0], row[0], *row[2:]))]
        return rows


@dataclass(frozen=True, slots=True)
class Built:
    """A corpus that is ready to read; ``source`` is the name of the file it was drawn from."""

    name: str
    path: str
    documents: bool
    count: int
    digest: str
    source: str


def letters(text: str) -> str:
    """A sentence's letters and digits, lower-cased: the same however it was cut into tokens."""
    return "".join(re.findall(r"\w+", text.lower()))


@cache
def tested_sentences(folder: Path | None) -> frozenset[str]:
    """The letters of all sentences of the seven test sets."""
    pairs = (part for task in STS_TASKS for part in sts_pairs(task, folder=folder))
    return frozenset(letters(text) for part in pairs for text in (*part.first, *part.second))


def _table(path: Path, delimiter: str) -> Iterator[Sequence[str]]:
    """Rows of a table whose cells are quoted, without its header."""
    table = open_table(Source(path, ".csv", str(path)), header=True, delimiter=delimiter)
    return (cells for _, cells in table.stream() if cells is not None)


def _sentences(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    return ((line.strip(),) for line in stream_lines(path) if line.strip())


def _documents(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """Sentences in order; the first line of each document is listed in a .docs.tsv.gz."""
    listed = _beginnings(path)
    if not listed.is_file():
        raise DataError(f"{listed}: missing; it lists where the documents of {path.name} begin")
    try:
        starts = {int(row.split("\t")[0]) for i, row in enumerate(stream_lines(listed)) if i}
    except ValueError as error:
        problem = "a header, then a line for each document, with the number of its first one"
        raise DataError(f"{listed}: must have {problem} ({error})") from error
    for number, line in enumerate(stream_lines(path), start=1):
        if number in starts:
            yield ()
        if line.strip():
            yield (line.strip(),)


def open_built(path: str | Path, *, documents: bool = False) -> Corpus:
    """Open a corpus that was written here; of rows all columns, in their order."""
    rows = Path(path).suffix == ".jsonl"
    columns = list(json.loads(next(stream_lines(Path(path))))) if rows else None
    return open_corpus(path, columns=columns, documents=documents)


def _beginnings(path: Path) -> Path:
    """The file that lists where the documents of another begin."""
    return path.with_name(re.sub(r"\.txt(\.gz)?$", ".docs.tsv.gz", path.name))


def _columns(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    for row in _table(path, ","):
        cells = tuple(" ".join(cell.split()) for cell in row[: corpus.columns])
        if len(cells) == corpus.columns and all(cells):
            yield cells


def _nli(path: Path) -> Iterator[Texts]:
    """(label, premise, hypothesis) of a file of source, split, label, premise, hypothesis."""
    for i, line in enumerate(stream_lines(path)):
        cells = line.split("\t")
        if i and len(cells) == 5 and cells[3].strip() and cells[4].strip():
            yield cells[2], cells[3].strip(), cells[4].strip()


def _labeled_pairs(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    return ((first, second) for label, first, second in _nli(path) if label in corpus.labels)


def _hypotheses(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """A premise with a hypothesis of each label, the next one where a label stands again."""
    by_premise: dict[str, dict[str, dict[str, None]]] = {}
    for label, first, second in _nli(path):
        by_premise.setdefault(first, {}).setdefault(label, {})[second] = None
    for premise, by in by_premise.items():
        left = {label: iter(texts) for label, texts in by.items()}
        row = (premise, *(next(left.get(label, iter(())), "") for label in corpus.labels))
        if all(row):
            yield row


def _labeled_sentences(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    texts = dict.fromkeys(text for _, *pair in _nli(path) for text in pair)
    return ((text,) for text in texts)


def _duplicates(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """Questions marked as duplicates: split, question 1, question 2, 0 or 1."""
    for row in _table(path, "\t"):
        if len(row) >= 4 and row[-1].strip() == "1":
            yield row[-3].strip(), row[-2].strip()


def _captions(path: Path, corpus: NamedCorpus) -> Iterator[Texts]:
    """Any two captions of one picture (picture#number, caption): ten pairs of five."""
    cut = (line.partition("\t") for line in stream_lines(path))
    every = ((name.rpartition("#")[0], text.strip()) for name, _, text in cut)
    for _, captions in groupby(every, key=lambda caption: caption[0]):
        for first, second in combinations((text for _, text in captions if text), 2):
            if first != second:
                yield first, second


READERS: dict[str, Callable[[Path, NamedCorpus], Iterable[Texts]]] = {
    "sentences": _sentences,
    "documents": _documents,
    "columns": _columns,
    "hypotheses": _hypotheses,
    "labeled_pairs": _labeled_pairs,
    "labeled_sentences": _labeled_sentences,
    "duplicates": _duplicates,
    "captions": _captions,
}


def read_corpora(folder: Path = HERE) -> dict[str, NamedCorpus]:
    """The corpora of a folder of items, by name; the package's if it brings none."""
    path = shared_file(folder, "corpora.toml")
    corpora = {}
    for name, data in read_toml(path).items():
        with reading(path):
            corpora[name] = decode(NamedCorpus, {"name": name, **data}, name)
            check_names(f"{name}.form", ("", *READERS), corpora[name].form)
    return corpora


def build(
    corpus: NamedCorpus, sentences: int | None, data: Path | None, home: Path, draw: int = 0
) -> Built:
    """Sample and write a corpus, unless it is already written; ``draw``: which sample."""
    seed, source = SAMPLE_SEED + draw, corpus.path(data)
    files = (path.stat() for path in (source, _beginnings(source)) if path.is_file())
    stamps = [(file.st_size, file.st_mtime_ns) for file in files]
    tested = sorted(tested_sentences(data)) if corpus.unseen else None
    how = (corpus.model_dump(exclude={"title", "files"}), tested, sentences, seed)
    mark = hashlib.sha256(repr((source.name, stamps, how)).encode()).hexdigest()[:12]
    stem = f"{corpus.name}-{sentences or 'all'}"
    meta = home / f"{stem}-{mark}.json"
    if meta.is_file():
        built_before = Built(**json.loads(meta.read_text("utf-8")))
        if Path(built_before.path).is_file():
            return built_before
    documents, width = corpus.form == "documents", 1
    rows = corpus.rows(data)
    if documents:
        parts = groupby(rows, key=bool)
        groups = [list(part) for some, part in parts if some]
        if sentences:
            # Whole documents in a random order, until there are enough sentences.
            order = random.Random(seed).sample(range(len(groups)), len(groups))
            before = accumulate((len(groups[i]) for i in order), initial=0)
            chosen = [i for i, total in zip(order, before, strict=False) if total < sentences]
            groups = [groups[i] for i in sorted(chosen)]
        text = "\n\n".join("\n".join(row[0] for row in group) for group in groups) + "\n"
        count = sum(map(len, groups))
    else:
        rows = _sampled(rows, sentences, seed)
        count, width = len(rows), len(rows[0]) if rows else 0
        # Not csv: a spreadsheet would evaluate cells that begin with "=".
        lines = (
            row[0] if width == 1 else json.dumps({f"text{i}": t for i, t in enumerate(row)})
            for row in rows
        )
        text = "".join(f"{line}\n" for line in lines)
    if count < 2:
        raise DataError(f"{source}: {count} usable rows; check that this is the right file")
    digest = hashlib.sha256(text.encode()).hexdigest()
    # Named by its content: a run can be resumed if its source was merely copied again.
    target = home / f"{stem}-{digest[:12]}{'.txt' if width == 1 else '.jsonl'}"
    write_text(target, text)
    built = Built(corpus.name, str(target.resolve()), documents, count, digest, source.name)
    write_json(meta, asdict(built))
    return built


def sample(corpus: NamedCorpus, count: int, data: Path | None) -> Texts:
    """The first texts of sampled rows of a corpus."""
    return tuple(row[0] for row in _sampled(corpus.rows(data), count))


def _sampled(rows: list[Texts], count: int | None, seed: int = SAMPLE_SEED) -> list[Texts]:
    if not count or count >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(seed).sample(range(len(rows)), count))]
