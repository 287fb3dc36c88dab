"""How sure hits are: fitted on judged collections and judged on others.

    CONTRASENT_DATA=... python -m benchmarks.confidence [--vectors CACHE] [--base NAME]
                                                        [COLLECTION ...]

Each collection is indexed whole and as drawn parts of 8 to 3,000 rows that hold the answers of some
of its queries. Searched are its own queries, the same with the rows that answer taken out, and
queries of the other collections. One more collection is made of folders of 4 to 32 mixed files and
a table, indexed as `index` does (``mixed.tsv``: a line is a note, a mail or a row of a table, and a
question that it answers in other words; or a question that none of them answers). The regressions
of :mod:`contrasent.search.ranking` are fitted on all collections but one and judged on that one
whole; printed are a line for each, their mean, and the weights that all collections together give,
as they stand in the code. Encodings are kept in CACHE. ``scifact:1500`` draws so many documents,
those that answer first.
"""

import csv
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.judged import Judged, all_names, arguments, task_encoder
from contrasent.indexing.build import index_folder
from contrasent.metrics import normalize
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.pretrained import MINILM, resolve
from contrasent.search.index import Index, document_of
from contrasent.search.ranking import (
    BEST,
    CALIBRATIONS,
    KNOWN_WEIGHT,
    Calibration,
    RankedRows,
    Ranker,
    about_features,
    answer_features,
)
from contrasent.search.store import Facts
from contrasent.search.writer import Writer
from contrasent.types import Vectors

SIZES = ((8, 8), (20, 4), (60, 2), (250, 1), (800, 1), (3000, 1))  # rows, and parts of that size
WHOLE, PART = (150, 20), (30, 4)  # own queries, and of each other collection, of whole and part
MIXED = ((4, 6), (10, 5), (20, 3), (32, 1))  # files of a folder, and so many folders
FOREIGN, REMOVED = 6.0, 0.5  # weights of such queries; own ones have 1
PROBE = Calibration((0.0,) * 4, (0.0,) * 4, (0.0,) * 3, (0.0,) * 4)  # with one, hits have evidence


class Case(NamedTuple):
    """A search: the collection, whether it is whole, what was asked, and the hits that answer."""

    place: int
    whole: bool
    kind: str  # own, removed or foreign
    evidence: Any  # as RankedRows has it
    answers: NDArray[np.bool_]


class Sample(Judged):
    """A collection of which documents are drawn, encoded as its queries are."""

    def __init__(self, name: str, cache: Path, base: str) -> None:
        folder, _, rows = name.partition(":")
        super().__init__(folder, cache)
        every, most = len(self.texts.documents), int(rows or 0)
        relevant = sorted({one for some in self.texts.relevant for one in some})
        others = [one for one in range(every) if one not in set(relevant)]
        drawn = np.random.default_rng(0).permutation(others)[: max(0, most - len(relevant))]
        whole = not most or most >= every
        kept = list(range(every)) if whole else sorted([*relevant, *drawn.tolist()])
        place = {document: n for n, document in enumerate(kept)}
        self.relevant = [{place[one]: g for one, g in some.items()} for some in self.texts.relevant]
        self.own = [place.get(one, -1) for one in self.texts.own]
        self.documents = [self.texts.documents[one] for one in kept]
        suffix = "" if whole else f"-{most}"
        self.rows, self.queries = (
            normalize(self.encoded(base, task, texts, task + end))
            for task, texts, end in (
                ("document", self.documents, suffix),
                ("query", self.texts.queries, ""),
            )
        )


def index_of(texts: Sequence[str], vectors: Vectors, ranker: Ranker) -> Index:
    """An index in memory whose hits have evidence."""
    with Writer(None, new=Facts()) as writer:
        writer.add(texts, vectors)
        writer.set(ranker=ranker)
    index = Index(writer.store)
    index.__dict__["calibration"] = PROBE
    return index


def part_of(one: Sample, size: int, seed: int) -> tuple[list[int], list[int]]:
    """Rows of a part, and queries whose answers are in it and fill at most half of it."""
    random = np.random.default_rng(seed)
    queries = random.permutation(len(one.relevant))[: (PART if seed else WHOLE)[0]].tolist()
    if not seed:
        return list(range(size)), queries
    asked, needed = list[int](), set[int]()
    for query in queries:
        if len(needed | one.relevant[query].keys()) <= size // 2:
            needed |= one.relevant[query].keys()
            asked.append(query)
    rest = [n for n in random.permutation(len(one.documents)).tolist() if n not in needed]
    return sorted([*needed, *rest[: size - len(needed)]]), asked


def found(index: Index, of: Sample, query: int, hidden: set[int]) -> RankedRows:
    """The hits of a query among the rows that are not hidden."""
    allowed = np.ones(len(index), dtype=bool)
    allowed[[*hidden]] = False
    text, vector = of.texts.queries[query], of.queries[query : query + 1]
    return index.find([text], vector, BEST, index.ranker, allowed=allowed)[0]


def usable(hits: RankedRows, by_vectors: bool) -> bool:
    """Whether words counted: they count less in a query that seems to be in another language."""
    return hits.evidence is not None and (hits.evidence.covered is None) == by_vectors


def cases(samples: Sequence[Sample], ranker: Ranker, by_vectors: bool) -> Iterator[Case]:
    """Searches of every collection, whole and in parts."""
    for place, one in enumerate(samples):
        plans = [(n, seed) for n, parts in SIZES for seed in range(1, parts + 1)]
        plans = [(n, seed) for n, seed in plans if n <= 0.7 * len(one.documents)]
        for size, seed in [(len(one.documents), 0), *plans]:
            rows, asked = part_of(one, size, seed)
            index = index_of([one.documents[n] for n in rows], one.rows[rows], ranker)
            at = {row: n for n, row in enumerate(rows)}
            for query in asked:
                relevant = {at[n] for n in one.relevant[query] if n in at}
                itself = {at[one.own[query]]} if one.own[query] in at else set[int]()
                for kind, hidden in (("own", itself), ("removed", itself | relevant)):
                    hits = found(index, one, query, hidden)
                    if usable(hits, by_vectors) and (relevant or kind == "removed"):
                        answers = np.isin(hits.rows, [*relevant])
                        yield Case(place, not seed, kind, hits.evidence, answers)
            random, few = np.random.default_rng(seed), (PART if seed else WHOLE)[1]
            for other in (other for other in samples if other is not one):
                for query in random.permutation(len(other.relevant))[:few].tolist():
                    hits = found(index, other, query, set())
                    if usable(hits, by_vectors):
                        none = np.zeros(len(hits.rows), dtype=bool)
                        yield Case(place, not seed, "foreign", hits.evidence, none)


class MixedFiles:
    """Small files of ``mixed.tsv``, and questions about them."""

    def __init__(self) -> None:
        path = Path(__file__).with_name("mixed.tsv")
        with path.open(encoding="utf-8", newline="") as stream:
            lines = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
        self.files = [line for line in lines if line["kind"] in ("note", "mail")]
        self.rows = [line for line in lines if line["kind"] == "row"]
        self.foreign = [line["question"] for line in lines if line["kind"] == "foreign"]

    def write(self, folder: Path, chosen: Sequence[int]) -> dict[str, str]:
        """Write some of the files, and the whole table; the questions, each with its document."""
        asked = dict[str, str]()
        for number in chosen:
            line = self.files[number]
            name, text = f"note-{number}.{('md', 'txt')[number % 2]}", line["text"]
            if line["kind"] == "mail":
                head = f"From: a@example.org\nTo: b@example.org\nSubject: {line['subject']}\n"
                head += "Date: Mon, 3 Jun 2024 09:00:00 +0000\nContent-Type: text/plain\n"
                name, text = f"mail-{number}.eml", f"{head}\n{text}"
            (folder / name).write_text(f"{text}\n", "utf-8")
            asked[line["question"]] = name
        table = ["article,supplier,stock,note", *(line["text"] for line in self.rows)]
        (folder / "stock.csv").write_text("\n".join(table) + "\n", "utf-8")
        return asked | {line["question"]: f"stock.csv#{n}" for n, line in enumerate(self.rows, 1)}


def mixed_cases(base: str, place: int, ranker: Ranker, by_vectors: bool) -> Iterator[Case]:
    """Searches of folders of mixed files: their own questions, and those that nothing answers."""
    mixed, random, encode = MixedFiles(), np.random.default_rng(0), task_encoder(base)
    for size in (size for size, folders in MIXED for _ in range(folders)):
        with tempfile.TemporaryDirectory() as home:
            (folder := Path(home, "files")).mkdir()
            asked = mixed.write(folder, random.permutation(len(mixed.files))[:size].tolist())
            index = index_folder(folder, Path(home, "index"), model=base).index
            index.__dict__["calibration"] = PROBE
            queries = [*asked, *mixed.foreign]
            every = index.find(queries, index.query_vectors(queries, encode), BEST, ranker)
            for query, hits in zip(queries, every, strict=True):
                rows = index.rows(hits.rows)
                answers = [document_of(r.id, r.metadata) == asked.get(query) for r in rows]
                if usable(hits, by_vectors):
                    kind = "own" if query in asked else "foreign"
                    yield Case(place, True, kind, hits.evidence, np.array(answers))
            index.close()


def regression(
    features: NDArray[Any], answers: NDArray[Any], weights: NDArray[Any]
) -> tuple[float, ...]:
    """An intercept and weights; features are scaled for the fit alone."""
    mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
    fitted = LogisticRegression(C=10.0, max_iter=1000)
    fitted.fit((features - mean) / scale, answers, sample_weight=weights)
    own = fitted.coef_[0] / scale
    return (float(fitted.intercept_[0] - own @ mean), *map(float, own))


def weighed(rows: Sequence[Case], weight: dict[str, float]) -> NDArray[np.float64]:
    """Weights with which each collection counts the same, and of each kind of query so much."""
    keys = [(case.place, case.kind) for case in rows]
    often = {key: keys.count(key) for key in set(keys)}
    shares = np.array([weight[k] / often[place, k] for place, k in keys], dtype=np.float64)
    return np.asarray(shares * (len(shares) / shares.sum()))


def fit(rows: Sequence[Case]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Both regressions."""
    first = [case for case in rows if case.kind != "removed"]
    about = regression(
        np.array([about_features(case.evidence) for case in first]),
        np.array([case.kind == "own" for case in first]),
        weighed(first, {"own": 1.0, "foreign": FOREIGN}),
    )
    hits = [(case, n) for case in rows if case.kind != "foreign" for n in range(len(case.answers))]
    answers = regression(
        np.array([answer_features(case.evidence)[n] for case, n in hits]),
        np.array([case.answers[n] for case, n in hits]),
        weighed([case for case, _ in hits], {"own": 1.0, "removed": REMOVED}),
    )
    return about, answers


def judged(about: Any, answers: Any, rows: Sequence[Case], well: float) -> Any:
    """Figures of one collection, and its hits: how sure each was, and whether it answers."""
    calibration = Calibration(about, answers, about, answers)
    sure = [calibration.confidence(case.evidence) for case in rows]
    best = np.array([one.max() for one in sure])
    cosines = np.array([case.evidence.best for case in rows])
    kinds = np.array([case.kind for case in rows])
    own = kinds == "own"

    def told(kind: str, values: NDArray[Any]) -> float:
        both = own | (kinds == kind)
        return float(roc_auc_score(own[both], values[both])) if kind in kinds else math.nan

    figures = {
        "queries": int(own.sum()),
        "empty": float((best[own] < well).mean()),
        "foreign found": float((best[kinds == "foreign"] < well).mean()),
        "AUC foreign": told("foreign", best),
        "AUC removed": told("removed", best),
        "AUC removed by cosine": told("removed", cosines),
    }
    pairs = zip(sure, rows, strict=True)
    hits = [
        hit
        for one, case in pairs
        if case.kind == "own"
        for hit in zip(one, case.answers, strict=True)
    ]
    return figures, hits


def confidence(samples: Sequence[Sample], base: str) -> Iterator[dict[str, Any]]:
    """Lines: each collection judged by the others, their mean, and what all of them give."""
    well = CALIBRATIONS[NumpyModel(resolve(base)).identity].well
    for by_vectors in (False, True):
        ranker = Ranker(0.0) if by_vectors else Ranker(KNOWN_WEIGHT)
        rows = [*cases(samples, ranker, by_vectors)]
        rows += mixed_cases(base, len(samples), ranker, by_vectors)
        lines, hits = list[Any](), list[Any]()
        name = {"base": base, "by": "vectors" if by_vectors else "words and vectors"}
        for place, one in enumerate([*(sample.name for sample in samples), "mixed folders"]):
            fitted = fit([case for case in rows if case.place != place])
            figures, some = judged(*fitted, [c for c in rows if c.place == place and c.whole], well)
            hits += some
            lines.append(figures)
            rounded = {key: round(value, 3) for key, value in figures.items()}
            yield {**name, "collection": one, **rounded}
        mean = {key: round(float(np.nanmean([line[key] for line in lines])), 3) for key in lines[0]}
        sure, answers = np.array(hits).T
        group = np.digitize(sure, [10, 20, 35, 50, 65, 80])
        shown = [
            [round(float(of[group == n].mean()), 2) for of in (sure / 100, answers)]
            + [int((group == n).sum())]
            for n in np.unique(group)
        ]
        yield {**name, "collection": "mean", **mean, "sure, answered, hits": shown}
        small = [case for case in rows if not case.whole and case.evidence.rows <= 20]
        about, answered = fit(rows)
        figures, _ = judged(about, answered, small, well)
        yield {**name, "collection": "parts of 8 and 20 rows, not left out", **figures}
        yield {**name, "about": about, "answers": answered}


def main() -> None:
    """Measure, and print lines of JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--base", default=MINILM)
    given = parser.parse_args()
    names = given.collections or all_names()
    samples = [Sample(name, given.vectors, given.base) for name in names]
    for line in confidence(samples, given.base):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
