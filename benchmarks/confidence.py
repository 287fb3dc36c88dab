"""How sure hits are, and typing errors: fitted on judged collections and judged on others.

    python -m benchmarks.confidence --vectors CACHE [--base NAME] [COLLECTION ...]
    CONTRASENT_DATA=... python -m benchmarks.confidence --vectors CACHE --typos [COLLECTION ...]

Each collection is indexed whole and as drawn parts of 8 to 3,000 rows that hold the answers of some
of its queries. Searched are its own queries, the same with the rows that answer taken out, and
queries of the other collections. One more collection is made of folders of 4 to 32 mixed files and
a table (:mod:`benchmarks.mixed`), indexed as `index` does. The regressions of
:mod:`contrasent.search.ranking` are fitted on all collections but one and judged on that one whole;
printed are a line for each, their mean, and the weights that all collections together give, as they
stand in the code. With ``--typos`` nDCG@10
of queries with one random typing error each, and of clean queries, with and without repair.
Encodings are kept in CACHE as :mod:`benchmarks.gain` keeps them. ``scifact:1500`` draws so many
documents, those that answer first.
"""

import argparse
import json
import math
import os
import string
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks import mixed
from benchmarks.gain import Judged
from contrasent.indexing.build import index_folder
from contrasent.metrics import ndcg_at_k, normalize
from contrasent.model.base import TaskEncoder
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
from contrasent.search.words import STOP_WORDS, WORD
from contrasent.search.writer import Writer
from contrasent.stats.bootstrap import from_draws, mean_draws
from contrasent.types import Vectors, for_task

SIZES = ((8, 8), (20, 4), (60, 2), (250, 1), (800, 1), (3000, 1))  # rows, and parts of that size
WHOLE, PART = (150, 20), (30, 4)  # own queries, and of each other collection, of whole and part
MIXED = ((4, 6), (10, 5), (20, 3), (32, 1))  # files of a folder, and so many folders
FOREIGN, REMOVED = 6.0, 0.5  # weights of such queries; own ones have 1
PROBE: dict[str, Any] = {
    "about": (0.0,) * 4, "answers": (0.0,) * 4,
    "about_by_vectors": (0.0,) * 3, "answers_by_vectors": (0.0,) * 4,
}  # fmt: skip


class Case(NamedTuple):
    """A search: the collection, whether it is whole, what was asked, and the hits that answer."""

    place: int
    whole: bool
    kind: str  # own, removed or foreign
    evidence: Any  # as RankedRows has it
    answers: NDArray[np.bool_]


class Sample(Judged):
    """A collection of which documents are drawn, encoded as its queries are."""

    def __init__(self, folder: Path, vectors: Path, base: str, rows: int) -> None:
        super().__init__(folder, vectors)
        every, self.base = len(self.texts.documents), base
        relevant = sorted({one for some in self.texts.relevant for one in some})
        others = [one for one in range(every) if one not in set(relevant)]
        drawn = np.random.default_rng(0).permutation(others)[: max(0, rows - len(relevant))]
        whole = not rows or rows >= every
        self.drawn = list(range(every)) if whole else sorted([*relevant, *drawn.tolist()])
        self.suffix = "" if whole else f"-{rows}"
        place = {document: n for n, document in enumerate(self.drawn)}
        self.relevant = [{place[one]: g for one, g in some.items()} for some in self.texts.relevant]
        self.own = [place.get(one, -1) for one in self.texts.own]

    def vectors_of(self, task: Any, texts: Sequence[str], name: str) -> Vectors:
        """(n, d) of texts, from the cache if they are there."""
        path = self.vectors / f"{self.name}.{self.base}.{name}.npy"
        if not path.is_file():
            encode: Any = TaskEncoder(NumpyModel(resolve(self.base)))
            self.vectors.mkdir(parents=True, exist_ok=True)
            np.save(path, for_task(encode, task)(list(texts)))
        return normalize(np.load(path, allow_pickle=False))

    @cached_property
    def queries(self) -> Vectors:
        """(q, d)."""
        return self.vectors_of("query", self.texts.queries, "query")

    @property
    def documents(self) -> list[str]:
        """The texts of the documents that were drawn."""
        return [self.texts.documents[one] for one in self.drawn]

    @cached_property
    def encoded_documents(self) -> Vectors:
        """(n, d)."""
        return self.vectors_of("document", self.documents, f"document{self.suffix}")


def index_of(texts: Sequence[str], vectors: Vectors, ranker: Ranker) -> Index:
    """An index in memory whose hits have evidence."""
    with Writer(None, new=Facts()) as writer:
        writer.add(texts, vectors)
        writer.set(ranker=ranker)
    index = Index.of(writer)
    index.__dict__["calibration"] = Calibration(**PROBE)  # that there is one
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
    rest = [n for n in random.permutation(len(one.drawn)).tolist() if n not in needed]
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


def cases(samples: Sequence[Sample], by_vectors: bool) -> Iterator[Case]:
    """Searches of every collection, whole and in parts."""
    ranker = Ranker(0.0) if by_vectors else Ranker(KNOWN_WEIGHT)
    for place, one in enumerate(samples):
        texts, vectors = one.documents, one.encoded_documents
        plans = [(n, seed) for n, parts in SIZES for seed in range(1, parts + 1)]
        plans = [(n, seed) for n, seed in plans if n <= 0.7 * len(texts)]
        for size, seed in [(len(texts), 0), *plans]:
            rows, asked = part_of(one, size, seed)
            index = index_of([texts[n] for n in rows], vectors[rows], ranker)
            at = {row: n for n, row in enumerate(rows)}
            for query in asked:
                relevant = {at[n] for n in one.relevant[query] if n in at}
                itself = {at[one.own[query]]} if one.own[query] in at else set[int]()
                for kind, hidden in (("own", itself), ("removed", itself | relevant)):
                    hits = found(index, one, query, hidden)
                    if usable(hits, by_vectors) and (relevant or kind == "removed"):
                        answers = np.isin(hits.rows, [*relevant])
                        yield Case(place, not seed, kind, hits.evidence, answers)
            random = np.random.default_rng(seed)
            for other in (other for other in samples if other is not one):
                few = (PART if seed else WHOLE)[1]
                for query in random.permutation(len(other.relevant))[:few].tolist():
                    hits = found(index, other, query, set())
                    if usable(hits, by_vectors):
                        none = np.zeros(len(hits.rows), dtype=bool)
                        yield Case(place, not seed, "foreign", hits.evidence, none)


def mixed_cases(base: str, place: int, by_vectors: bool) -> Iterator[Case]:
    """Searches of folders of mixed files: their own questions, and those that nothing answers."""
    ranker = Ranker(0.0) if by_vectors else Ranker(KNOWN_WEIGHT)
    random, encode = np.random.default_rng(0), TaskEncoder(NumpyModel(resolve(base)))
    for size, folders in MIXED:
        for _ in range(folders):
            with tempfile.TemporaryDirectory() as home:
                chosen = random.permutation(len(mixed.FILES))[:size].tolist()
                (folder := Path(home, "files")).mkdir()
                asked = mixed.write_folder(folder, chosen)
                index = index_folder(folder, Path(home, "index"), model=base).index
                index.__dict__["calibration"] = Calibration(**PROBE)
                queries = [*asked, *mixed.FOREIGN]
                vectors = index.query_vectors(queries, encode)
                for query, hits in zip(
                    queries, index.find(queries, vectors, BEST, ranker), strict=True
                ):
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
    found = np.array([weight[k] / often[place, k] for place, k in keys], dtype=np.float64)
    return np.asarray(found * (len(found) / found.sum()))


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
    kinds = np.array([case.kind for case in rows])

    def told(kind: str, values: NDArray[Any]) -> float:
        both = (kinds == "own") | (kinds == kind)
        if kind not in kinds:
            return math.nan
        return float(roc_auc_score(kinds[both] == "own", values[both]))

    own = kinds == "own"
    cosines = np.array([case.evidence.best for case in rows])
    firsts = np.array([case.answers[0] for case in rows])[own]
    figures = {
        "queries": int(own.sum()),
        "empty": float((best[own] < well).mean()),
        "foreign found": float((best[kinds == "foreign"] < well).mean()),
        "AUC foreign": told("foreign", best),
        "AUC removed": told("removed", best),
        "AUC removed by cosine": told("removed", cosines),
        "AUC first hit": float(roc_auc_score(firsts, best[own])),
    }
    hits = [(s, a) for one, case in zip(sure, rows, strict=True) if case.kind == "own"
            for s, a in zip(one, case.answers, strict=True)]  # fmt: skip
    return figures, hits


def confidence(samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    """Lines: each collection judged by the others, their mean, and what all of them give."""
    for by_vectors in (False, True):
        base, rows = samples[0].base, [*cases(samples, by_vectors)]
        well = CALIBRATIONS[NumpyModel(resolve(base)).identity].well
        rows += mixed_cases(base, len(samples), by_vectors)
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
        part = np.digitize(sure, [10, 20, 35, 50, 65, 80])
        shown = [
            [round(float(of[part == n].mean()), 2) for of in (sure / 100, answers)]
            + [int((part == n).sum())]
            for n in np.unique(part)
        ]
        yield {**name, "collection": "mean", **mean, "sure, answered, hits": shown}
        small = [case for case in rows if not case.whole and case.evidence.rows <= 20]
        about, answered = fit(rows)
        figures, _ = judged(about, answered, small, well)
        yield {**name, "collection": "parts of 8 and 20 rows, not left out", **figures}
        yield {**name, "about": about, "answers": answered}


def mistyped(query: str, language: str, random: np.random.Generator) -> str:
    """A query with one letter wrong, missing, too many, or in the place of the next."""
    places = [
        match.span()
        for match in WORD.finditer(query)
        if len(match[0]) > 3 and match[0].isalpha() and match[0].lower() not in STOP_WORDS[language]
    ]
    if not places:
        return query
    start, end = places[random.integers(len(places))]
    word, kind = query[start:end], random.integers(4)
    at = int(random.integers(1, len(word) - (kind == 3)))
    letters = string.ascii_uppercase if word.isupper() else string.ascii_lowercase
    letter = letters[random.integers(26)]
    changed = ("", letter, letter + word[at], word[at : at + 2][::-1])[kind]
    return query[:start] + word[:at] + changed + word[at + 1 + (kind == 3) :] + query[end:]


def typos(sample: Sample, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """nDCG@10 of the default search for clean and mistyped queries, as they are and repaired."""
    index = index_of(sample.documents, sample.encoded_documents, Ranker(KNOWN_WEIGHT))
    encoder, queries = NumpyModel(resolve(sample.base)), [*sample.texts.queries]
    encode = for_task(TaskEncoder(encoder), "query")
    random, language = np.random.default_rng(0), index.facts.language
    wrong = [mistyped(query, language, random) for query in queries]
    values = dict[str, Any]()
    for name, texts in (("clean", queries), ("typo", wrong)):
        for way in ("", " repaired"):
            asked = index.repaired(texts, encoder.tokenizer.knows) if way else texts
            vectors = sample.queries.copy()
            changed = [n for n, text in enumerate(asked) if text != queries[n]]
            known = values.setdefault("vectors", {})
            new = [*{asked[n] for n in changed} - known.keys()]
            known.update(zip(new, normalize(encode(new)) if new else (), strict=True))
            for n in changed:
                vectors[n] = known[asked[n]]
            hits = index.search(asked, vectors=vectors, k=11)
            values[name + way] = np.array([
                ndcg(sample, n, [int(hit.id) for hit in some]) for n, some in enumerate(hits)
            ])  # fmt: skip
            values[f"{name}{way} changed"] = len(changed)
    values.pop("vectors")
    clean, draws = values["clean"], {}
    line: dict[str, Any] = {"collection": sample.name, "base": sample.base, "queries": len(clean)}
    line |= {key: value for key, value in values.items() if key.endswith("changed")}
    line["clean"] = round(float(clean.mean()), 4)
    for key in ("typo", "typo repaired", "clean repaired"):
        drawn = mean_draws(values[key] - clean, 2000, number)
        gain, draws[key] = from_draws(float((values[key] - clean).mean()), drawn), drawn
        line[key] = [round(float(value), 4) for value in (gain.mean, gain.low, gain.high)]
    return line, draws


def ndcg(sample: Sample, query: int, ranked: Sequence[int]) -> float:
    """nDCG@10 of a query's ranking."""
    ranks = {n: rank for rank, n in enumerate((n for n in ranked if n != sample.own[query]), 1)}
    gains = sorted((ranks.get(n, 99), gain) for n, gain in sample.relevant[query].items())
    return float(ndcg_at_k(np.array([g for _, g in gains]), np.array([r for r, _ in gains]), 10))


def main() -> None:
    """Measure, and print lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--base", default=MINILM)
    parser.add_argument("--typos", action="store_true")
    given = parser.parse_args()
    home = Path(os.environ["CONTRASENT_DATA"]) / "ir"
    samples = list[Sample]()
    for name in given.collections or sorted(path.name for path in home.iterdir()):
        folder, _, rows = name.partition(":")
        samples.append(Sample(home / folder, given.vectors, given.base, int(rows or 0)))
    if not given.typos:
        for line in confidence(samples):
            print(json.dumps(line), flush=True)
        return
    every = [typos(sample, number) for number, sample in enumerate(samples)]
    for line, _ in every:
        print(json.dumps(line))
    mean: dict[str, Any] = {"collection": "mean"}
    for key in every[0][1]:
        drawn = np.mean([draws[key] for _, draws in every], axis=0)
        gain = from_draws(float(np.mean([line[key][0] for line, _ in every])), drawn)
        mean[key] = [round(float(value), 4) for value in (gain.mean, gain.low, gain.high)]
    print(json.dumps(mean))


if __name__ == "__main__":
    main()
