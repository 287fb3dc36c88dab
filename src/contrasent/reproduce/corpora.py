"""The corpora that recipes train on and fit to, built from the data folder's files.

A corpus is sampled (with a fixed seed, whatever the run's), written once below the results, and
known by the digest of its rows.
"""

import csv
import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from contrasent.errors import DataError
from contrasent.files import atomic_file, write_json

Row = tuple[str, ...]

DRAW = 20210418
"""Seed of every sample: rows of two runs differ in order alone, never in what they are drawn from.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A named corpus.

    Attributes:
        said: what it is, for readers.
        places: files below the data folder, any one of which will do.
        rows: reads them.
        documents: whether its rows are in document order, an empty row between documents.
    """

    said: str
    places: tuple[str, ...]
    rows: Callable[[Path], Iterable[Row]]
    documents: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """A corpus that is ready to be read.

    Attributes:
        name: of the corpus.
        path: a text or csv file.
        documents: whether a blank line parts documents.
        count: rows.
        digest: sha256 of the file.
        source: name of the file that it was drawn from.
    """

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


def _sentences(path: Path) -> Iterator[Row]:
    return ((line.strip(),) for line in _lines(path) if line.strip())


def _documents(path: Path) -> Iterator[Row]:
    """Sentences in order with () before each document; the list of documents lies beside them."""
    listed = path.with_name(path.name.replace(".txt.gz", ".docs.tsv.gz"))
    if not listed.is_file():
        raise DataError(f"{listed}: missing; it says where the documents of {path.name} begin")
    starts = {int(row.split("\t")[0]) for i, row in enumerate(_lines(listed)) if i}
    for number, line in enumerate(_lines(path), start=1):
        if number in starts:
            yield ()
        if line.strip():
            yield (line.strip(),)


def _triples(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        next(rows)
        for row in rows:
            cells = tuple(" ".join(cell.split()) for cell in row[:3])
            if len(cells) == 3 and all(cells):
                yield cells


def _triples_as_pairs(path: Path) -> Iterator[Row]:
    return (row[:2] for row in _triples(path))


def _labelled(path: Path) -> Iterator[tuple[str, str, str]]:
    """(label, premise, hypothesis) of NLI pairs."""
    for i, line in enumerate(_lines(path)):
        cells = line.split("\t")
        if i and len(cells) == 5 and cells[3].strip() and cells[4].strip():
            yield cells[2], cells[3].strip(), cells[4].strip()


def _pairs_of(*labels: str) -> Callable[[Path], Iterator[Row]]:
    def rows(path: Path) -> Iterator[Row]:
        return ((one, two) for label, one, two in _labelled(path) if label in labels)

    return rows


def _with_neutral(path: Path) -> Iterator[Row]:
    """Premise, entailed, contradicting, neutral: a premise with all three hypotheses."""
    found: dict[str, dict[str, str]] = {}
    for label, one, two in _labelled(path):
        found.setdefault(one, {}).setdefault(label, two)
    for premise, by in found.items():
        if len(by) == 3:
            yield premise, by["entailment"], by["contradiction"], by["neutral"]


def _nli_sentences(path: Path) -> Iterator[Row]:
    seen: set[str] = set()
    for _, *pair in _labelled(path):
        for text in pair:
            if text not in seen:
                seen.add(text)
                yield (text,)


def _duplicates(path: Path) -> Iterator[Row]:
    """Questions that were marked as duplicates: split, question 1, question 2, 0 or 1."""
    with path.open(encoding="utf-8", newline="") as stream:
        for i, row in enumerate(csv.reader(stream, delimiter="\t")):
            if i and len(row) >= 4 and row[-1].strip() == "1":
                yield row[-3].strip(), row[-2].strip()


def _captions(path: Path) -> Iterator[Row]:
    """Pairs of captions of one picture, each caption with the next."""
    last = ("", "")
    for line in _lines(path):
        name, _, text = line.partition("\t")
        here = (name.rpartition("#")[0], text.strip())
        if here[0] == last[0] and last[1] and here[1] and last[1] != here[1]:
            yield last[1], here[1]
        last = here


def _never(path: Path) -> Iterator[Row]:
    raise DataError(f"{path}: its form is not known here")


WIKI = ("wiki/wiki1m_for_simcse.txt", "wiki/enwiki_sentences_1m.txt.gz")
NLI = ("nli/nli_pairs.tsv.gz",)

CORPORA: dict[str, Kind] = {
    "wiki": Kind("sentences of English Wikipedia", WIKI, _sentences),
    "wiki_documents": Kind("the same in document order", WIKI[1:], _documents, documents=True),
    "nli_triples": Kind(
        "NLI: premise, entailed, contradicting",
        ("nli/nli_for_simcse.csv", "nli/nli_triples.csv"),
        _triples,
    ),
    "nli_triples_as_pairs": Kind(
        "the same without the hard negative",
        ("nli/nli_for_simcse.csv", "nli/nli_triples.csv"),
        _triples_as_pairs,
    ),
    "nli_with_neutral": Kind("NLI: all three hypotheses of a premise", NLI, _with_neutral),
    "nli_entailment": Kind("NLI: entailment pairs", NLI, _pairs_of("entailment")),
    "nli_neutral": Kind("NLI: neutral pairs", NLI, _pairs_of("neutral")),
    "nli_contradiction": Kind("NLI: contradiction pairs", NLI, _pairs_of("contradiction")),
    "nli_all": Kind("NLI: all pairs", NLI, _pairs_of("entailment", "neutral", "contradiction")),
    "nli_sentences": Kind("NLI: every distinct sentence", NLI, _nli_sentences),
    "qqp": Kind("Quora question pairs, duplicates", ("qqp/qqp_subset.tsv",), _duplicates),
    "flickr30k": Kind(
        "Flickr30k: two captions of a picture",
        ("flickr30k/flickr30k_captions.token.gz", "flickr30k/results_20130124.token"),
        _captions,
    ),
    "paranmt": Kind("ParaNMT paraphrases", ("paranmt/para-nmt-5m-processed.txt",), _never),
    "anli": Kind("Adversarial NLI entailment and contradiction", ("anli/anli.tsv",), _never),
}
"""Corpora by name. ``paranmt`` and ``anli`` were not published with the papers: they are named so
that a recipe can say what it needs."""


def place_of(name: str, folder: Path | None) -> Path:
    """The file of a corpus.

    Raises:
        DataError: it is not in the data folder, or there is none.
    """
    places = CORPORA[name].places
    if folder is not None:
        for place in places:
            if (folder / place).is_file():
                return folder / place
    where = folder or "the folder that CONTRASENT_DATA names"
    raise DataError(f"the corpus {name!r} ({CORPORA[name].said}): no {places[0]} in {where}")


def build(name: str, sentences: int | None, data: Path | None, home: Path) -> Built:
    """Sample and write a corpus, or find it written.

    Args:
        name: of ``CORPORA``.
        sentences: rows to sample, kept in their order; all if None. Of documents, whole ones are
            sampled until there are so many sentences.
        data: the data folder.
        home: where corpora are written.

    Raises:
        DataError: its file is missing, or holds fewer rows than two.
    """
    kind = CORPORA[name]
    source = place_of(name, data)
    stamp = source.stat()
    told = f"{source.name} {stamp.st_size} {stamp.st_mtime_ns} {sentences} {DRAW}"
    mark = hashlib.sha256(told.encode()).hexdigest()[:12]
    meta = home / f"{name}-{sentences or 'all'}-{mark}.json"
    if meta.is_file():
        found = Built(**json.loads(meta.read_text("utf-8")))
        if Path(found.path).is_file():
            return found
    if kind.documents:
        groups = _sampled_documents(list(_grouped(kind.rows(source))), sentences)
        text = "\n\n".join("\n".join(row[0] for row in group) for group in groups) + "\n"
        count, suffix = sum(map(len, groups)), ".txt"
    else:
        rows = _sampled(list(kind.rows(source)), sentences)
        width = len(rows[0]) if rows else 0
        text, suffix = _written(rows, width), ".txt" if width == 1 else ".csv"
        count = len(rows)
    if count < 2:
        raise DataError(f"{source}: {count} usable rows; is it the right file?")
    digest = hashlib.sha256(text.encode()).hexdigest()
    # Named by what it holds: a run that was begun goes on if its source was merely copied anew.
    target = home / f"{name}-{sentences or 'all'}-{digest[:12]}{suffix}"
    with atomic_file(target) as stream:
        stream.write(text)
    built = Built(name, str(target.resolve()), kind.documents, count, digest, source.name)
    write_json(meta, asdict(built))
    return built


def sample(name: str, count: int, data: Path | None) -> tuple[str, ...]:
    """The first texts of sampled rows of a corpus.

    Raises:
        DataError: its file is missing.
    """
    rows = CORPORA[name].rows(place_of(name, data))
    return tuple(row[0] for row in _sampled(list(rows), count))


def _written(rows: list[Row], width: int) -> str:
    if width == 1:
        return "".join(f"{row[0]}\n" for row in rows)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([f"text{i}" for i in range(width)])
    writer.writerows(rows)
    return stream.getvalue()


def _sampled(rows: list[Row], count: int | None) -> list[Row]:
    if not count or count >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(DRAW).sample(range(len(rows)), count))]


def _grouped(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in rows:
        if row:
            group.append(row)
        elif group:
            yield group
            group = []
    if group:
        yield group


def _sampled_documents(groups: list[list[Row]], count: int | None) -> list[list[Row]]:
    if not count:
        return groups
    order = random.Random(DRAW).sample(range(len(groups)), len(groups))
    chosen, total = [], 0
    for i in order:
        if total >= count:
            break
        chosen.append(i)
        total += len(groups[i])
    return [groups[i] for i in sorted(chosen)]
