"""The gain of `adapt` over vectors alone without queries: user queries, whole collections.

    CONTRASENT_DATA=... python -m benchmarks.gain --vectors CACHE [--lines FILE] [COLLECTION ...]

Each folder of ``$CONTRASENT_DATA/ir`` in BEIR's layout is indexed by the installed base for the
language of its texts; then steps are learned from the text as `adapt` learns them. nDCG@10 of
all-MiniLM-L6-v2's vectors alone, of the default search and of what was learned are compared query
by query (bootstrap); the mean over collections resamples each by itself. Encodings of documents and
queries are kept in CACHE and read from there.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.steps import learn_from_text
from contrasent.datasets.beir import Collection, read_collection
from contrasent.evaluate.retrieval import search_retrieval
from contrasent.indexing.models import choose_base
from contrasent.model.base import TaskEncoder
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.pretrained import MINILM, installed_bases, resolve
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts
from contrasent.search.writer import Writer
from contrasent.stats.bootstrap import from_draws, mean_draws
from contrasent.types import Vectors, for_task

RESAMPLES = 10_000


class Judged:
    """A collection, encoded by any base, and searched by any ranker."""

    def __init__(self, folder: Path, vectors: Path) -> None:
        self.name, self.vectors = folder.name, vectors
        self.texts: Collection = read_collection(folder)
        self.ids = [str(n) for n in range(len(self.texts.documents))]
        self.judged = {
            str(n): (text, {str(place): gain for place, gain in gains.items()})
            for n, (text, gains) in enumerate(
                zip(self.texts.queries, self.texts.relevant, strict=True)
            )
        }

    def encoded(self, base: str, task: Any) -> Vectors:
        """(n, d) of queries or documents."""
        path = self.vectors / f"{self.name}.{base}.{task}.npy"
        texts = self.texts.queries if task == "query" else self.texts.documents
        if not path.is_file():
            encode: Any = TaskEncoder(NumpyModel(resolve(base)))
            self.vectors.mkdir(parents=True, exist_ok=True)
            np.save(path, for_task(encode, task)(list(texts)))
        found: Vectors = np.load(path, allow_pickle=False)
        return found

    def index(self, base: str, ranker: Ranker, learned: Learned | None = None) -> Index:
        """An index in memory."""
        with Writer(None, new=Facts()) as writer:
            writer.add(self.texts.documents, self.encoded(base, "document"), ids=self.ids)
            writer.set(ranker=ranker, learned=learned)
        return Index.of(writer)

    def ndcg(self, base: str, index: Index) -> Any:
        """(q,) nDCG@10 of each query."""
        report = search_retrieval(
            lambda texts, k: index.documents(texts, lambda _: self.encoded(base, "query"), k),
            self.ids,
            self.judged,
            own_ids=True,
            task=self.name,
            resamples=0,
        )
        items: Any = report.items[report.one(metric="ndcg@10").key]
        return items.columns[0]


def measure(one: Judged, number: int, seed: int) -> tuple[dict[str, Any], list[Any]]:
    """A line about a collection, and draws of its gains over vectors and over the default."""
    base = choose_base(one.texts.documents, installed_bases())
    prior = Ranker(base.fit.bm25_weight)
    index = one.index(base.name, prior)
    encode: Any = TaskEncoder(NumpyModel(resolve(base.name)))
    begun = time.monotonic()
    steps = learn_from_text(
        index, encode, prior, seed=seed, log=lambda _: None, until=lambda: 600.0
    )
    seconds = time.monotonic() - begun
    vectors = one.ndcg(MINILM, one.index(MINILM, Ranker(0.0)))
    default = one.ndcg(base.name, index)
    after = one.ndcg(base.name, one.index(base.name, steps.ranker, steps.learned))
    line: dict[str, Any] = {
        "collection": one.name,
        "documents": len(one.ids),
        "queries": len(after),
        "base": base.name,
        "seed": seed,
        "ranker": steps.ranker.to_json(),
        "notes": steps.notes,
        "seconds": round(seconds, 1),
    }
    means = {"vectors": vectors, "default": default, "learned": after}
    line |= {name: round(float(values.mean()), 4) for name, values in means.items()}
    draws = []
    for name, before in (("over_vectors", vectors), ("over_default", default)):
        drawn = mean_draws(after - before, RESAMPLES, number)
        gain = from_draws(float((after - before).mean()), drawn)
        line[name] = [round(float(value), 4) for value in (gain.mean, gain.low, gain.high)]
        draws.append(drawn)
    return line, draws


def main() -> None:
    """Measure, and print a line of JSON a collection and one of their mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    home = Path(os.environ["CONTRASENT_DATA"]) / "ir"
    lines, draws = list[dict[str, Any]](), list[list[Any]]()
    for number, name in enumerate(given.collections or sorted(p.name for p in home.iterdir())):
        line, drawn = measure(Judged(home / name, given.vectors), number, given.seed)
        lines.append(line)
        draws.append(drawn)
        print(json.dumps(line), flush=True)
    mean: dict[str, Any] = {"collection": "mean"}
    for at, name in enumerate(("over_vectors", "over_default")):
        gain = from_draws(
            float(np.mean([line[name][0] for line in lines])),
            np.mean([drawn[at] for drawn in draws], axis=0),
        )
        mean[name] = [round(float(value), 4) for value in (gain.mean, gain.low, gain.high)]
    lines.append(mean)
    print(json.dumps(mean))
    if given.lines:
        given.lines.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
