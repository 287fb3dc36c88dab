"""The gain that user queries teach a search, beyond its default.

    CONTRASENT_DATA=... python -m benchmarks.teaching [--vectors CACHE] [--seed 0] COLLECTION ...

The queries of cosqa's dev split teach and those of its test split judge; of stackfaq-answers one
random half teaches and the other judges; of other collections in ``$CONTRASENT_DATA/ir`` all teach
and are judged by cross-fitting alone. nDCG@10, differences to the default search with their
intervals; a line of JSON a collection. Encodings stay in CACHE.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.judged import Judged, arguments
from contrasent.adapt.bench import Bench, difference, queries_of
from contrasent.adapt.cross_validation import learn_from_queries
from contrasent.datasets.beir import read_qrels, read_texts
from contrasent.metrics import normalize
from contrasent.model.pretrained import MINILM
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker
from contrasent.types import Numbers, Vectors

BUDGET = 600.0  # seconds
Asked = Sequence[tuple[str, dict[int, float]]]


class Taught(Judged):
    """A collection whose queries teach."""

    def bench(self, asked: Asked, name: str) -> Bench:
        """Measures queries, whose vectors are kept by a name."""
        documents = self.texts.documents
        index = Index.build(lambda _: self.vectors("document", documents), documents)
        vectors = self.vectors("query", [text for text, _ in asked], name)
        return Bench(index, queries_of(asked), vectors)

    def vectors(self, task: str, texts: Sequence[str], kept: str = "") -> Vectors:
        """(n, d) of length one."""
        return normalize(self.encoded(MINILM, task, texts, kept))

    def dev(self) -> Asked:
        """The queries of the dev split, which stand in a file of their own."""
        places = {name: n for n, name in enumerate(read_texts(self.folder / "corpus.jsonl"))}
        texts = read_texts(self.folder / "queries.dev.jsonl")
        judged = read_qrels(self.folder / "qrels" / "dev.tsv")
        gains = {
            query: {places[d]: g for d, g in judged[query].items() if g > 0 and d in places}
            for query in texts
            if query in judged
        }
        return [(texts[query], some) for query, some in gains.items() if some]

    def split(self) -> tuple[Bench, Bench | None]:
        """The queries that teach, and others that judge."""
        asked = list(zip(self.texts.queries, self.texts.relevant, strict=True))
        test = self.bench(asked, "query")
        if self.name == "cosqa":
            return self.bench(self.dev(), "dev"), test
        if self.name == "stackfaq-answers":
            order = np.random.default_rng(0).permutation(len(asked))
            half = len(asked) // 2
            return part(test, np.sort(order[:half])), part(test, np.sort(order[half:]))
        return test, None


def part(bench: Bench, numbers: Numbers) -> Bench:
    """Some of the queries."""
    queries = queries_of([(q.text, q.relevant) for q in (bench.queries[at] for at in numbers)])
    return Bench(bench.index, queries, bench.vectors[numbers])


def run(collection: Taught, seed: int) -> dict[str, Any]:
    """The line of one collection."""
    own, others = collection.split()
    prior = Ranker()
    began, busy = time.monotonic(), time.process_time()
    until = lambda: BUDGET - (time.monotonic() - began)  # noqa: E731
    result = learn_from_queries(own, prior, seed=seed, until=until)
    line = {
        "collection": collection.name,
        "teach": len(own.queries),
        "seed": seed,
        "improved": result.improved,
        "reason": result.reason,
        "prior": result.before,
        "again": asdict(result.again),
        "new": asdict(result.new),
        "cpu": round(time.process_time() - busy, 1),
    }
    if others is not None:
        (before,) = others.values([prior])
        (after,) = others.values([result.ranker], learned=result.learned)
        line |= {
            "others": len(before),
            "default": float(before.mean()),
            "taught": float(after.mean()),
            "gain": asdict(difference(others.queries, after - before)),
        }
    return line


def main() -> None:
    """Measure, and print lines of JSON."""
    parser = arguments(__doc__, named=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.collections:
        print(json.dumps(run(Taught(name, given.vectors), given.seed)), flush=True)


if __name__ == "__main__":
    main()
