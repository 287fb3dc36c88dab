"""What a search gains over vectors alone by default: people's queries, whole collections.

    CONTRASENT_DATA=... python -m benchmarks.fusion --vectors CACHE [COLLECTION ...]

Each folder of ``$CONTRASENT_DATA/ir`` in BEIR's layout is indexed as ``contrasent index`` does it,
with the installed base for the language of its texts, words and vectors by the weight that follows.
Its nDCG@10 is compared with that of all-MiniLM-L6-v2's vectors alone, query by query (bootstrap);
the mean over collections resamples each by itself. Encodings are kept in CACHE and read from there.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.evaluate.searching import search_retrieval
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.pretrained import MINILM, installed_bases, resolve
from contrasent.search.index import Index
from contrasent.search.languages import choose_base
from contrasent.search.ranking import Ranker
from contrasent.stats.bootstrap import from_draws, mean_draws
from contrasent.text.labelled import Collection, read_collection
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

    def encoded(self, base: str) -> tuple[Vectors, Vectors]:
        """(q, d) of queries and (n, d) of documents."""
        found: list[Vectors] = []
        for task, texts in (("query", self.texts.queries), ("document", self.texts.documents)):
            path = self.vectors / f"{self.name}.{base}.{task}.npy"
            if not path.is_file():
                encode: Any = NumpyModel(resolve(base))
                self.vectors.mkdir(parents=True, exist_ok=True)
                np.save(path, for_task(encode.encode, task)(list(texts)))
            found.append(np.load(path, allow_pickle=False))
        return found[0], found[1]

    def ndcg(self, base: str, ranker: Ranker) -> Any:
        """(q,) nDCG@10 of each query."""
        queries, documents = self.encoded(base)
        index = Index.build(lambda _: documents, self.texts.documents, ids=self.ids, ranker=ranker)
        report = search_retrieval(
            lambda texts, k: index.documents(texts, lambda _: queries, k),
            self.ids,
            self.judged,
            own_ids=True,
            task=self.name,
            resamples=0,
        )
        return report.items[report.one(metric="ndcg@10").key].columns[0]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--vectors", type=Path, required=True)
    given = parser.parse_args()
    home = Path(os.environ["CONTRASENT_DATA"]) / "ir"
    names = given.collections or sorted(path.name for path in home.iterdir())
    bases = installed_bases()
    print("| collection | queries | base | words | vectors alone | by default | gain |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    draws, values = [], []
    for number, name in enumerate(names):
        one = Judged(home / name, given.vectors)
        base = choose_base(one.texts.documents, bases)
        before = one.ndcg(MINILM, Ranker(0.0))
        after = one.ndcg(base.name, Ranker(base.fit.word_weight))
        values.append(float((after - before).mean()))
        draws.append(mean_draws(after - before, RESAMPLES, number))
        gain = from_draws(values[-1], draws[-1])
        print(
            f"| {name} | {len(before)} | {base.name} | {base.fit.word_weight:g} "
            f"| {before.mean():.3f} | {after.mean():.3f} "
            f"| {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] |",
            flush=True,
        )
    gain = from_draws(float(np.mean(values)), np.mean(draws, axis=0))
    print(f"| mean | | | | | | {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] |")


if __name__ == "__main__":
    main()
