"""The gain of `adapt` over vectors alone without queries: user queries, whole collections.

    CONTRASENT_DATA=... python -m benchmarks.gain [--vectors CACHE] [--seed 0] [COLLECTION ...]

Each folder of ``$CONTRASENT_DATA/ir`` in BEIR's layout is indexed by the installed base for the
language of its texts; then steps are learned from the text as `adapt` learns them. nDCG@10 of
all-MiniLM-L6-v2's vectors alone, of the default search and of what was learned are compared query
by query (bootstrap); the mean over collections resamples each by itself. Encodings of documents and
queries are kept in CACHE and read from there.
"""

import json
import time
from typing import Any

import numpy as np

from benchmarks.judged import Judged, all_names, arguments, task_encoder
from contrasent.adapt.steps import learn_from_text
from contrasent.evaluate.retrieval import search_retrieval
from contrasent.indexing.models import choose_base
from contrasent.model.pretrained import MINILM, installed_bases
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts
from contrasent.search.writer import Writer
from contrasent.stats.bootstrap import from_draws, mean_draws

RESAMPLES = 10_000
GAINS = {"over_vectors": "vectors", "over_default": "default"}


def index_of(one: Judged, base: str, ranker: Ranker, learned: Learned | None = None) -> Index:
    """An index in memory."""
    ids = [str(n) for n in range(len(one.texts.documents))]
    with Writer(None, new=Facts()) as writer:
        vectors = one.encoded(base, "document", one.texts.documents)
        writer.add(one.texts.documents, vectors, ids=ids)
        writer.set(ranker=ranker, learned=learned)
    return Index(writer.store)


def ndcg(one: Judged, base: str, index: Index) -> Any:
    """(q,) nDCG@10 of each query."""
    vectors = one.encoded(base, "query", one.texts.queries)
    gains = [{str(n): g for n, g in some.items()} for some in one.texts.relevant]
    queries = enumerate(zip(one.texts.queries, gains, strict=True))
    report = search_retrieval(
        lambda texts, k: index.documents(texts, lambda _: vectors, k),
        [str(n) for n in range(len(one.texts.documents))],
        {str(n): query for n, query in queries},
        own_ids=True,
        task=one.name,
        resamples=0,
    )
    items: Any = report.items[report.one(metric="ndcg@10").key]
    return items.columns[0]


def estimate(value: float, draws: Any) -> list[float]:
    """A gain and its interval, as they are printed."""
    gain = from_draws(value, draws)
    return [round(float(part), 4) for part in (gain.mean, gain.low, gain.high)]


def measure(one: Judged, number: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A line about a collection, and draws of its gains over vectors and over the default."""
    base = choose_base(one.texts.documents, installed_bases())
    prior = Ranker(base.fit.bm25_weight)
    index = index_of(one, base.name, prior)
    begun = time.monotonic()
    steps = learn_from_text(
        index,
        task_encoder(base.name),
        prior,
        seed=seed,
        log=lambda _: None,
        until=lambda: 600.0,
    )
    seconds = time.monotonic() - begun
    values = {
        "vectors": ndcg(one, MINILM, index_of(one, MINILM, Ranker(0.0))),
        "default": ndcg(one, base.name, index),
        "learned": ndcg(one, base.name, index_of(one, base.name, steps.ranker, steps.learned)),
    }
    line: dict[str, Any] = {
        "collection": one.name,
        "documents": len(one.texts.documents),
        "queries": len(one.texts.queries),
        "base": base.name,
        "seed": seed,
        "ranker": steps.ranker.to_json(),
        "notes": steps.notes,
        "seconds": round(seconds, 1),
        **{name: round(float(some.mean()), 4) for name, some in values.items()},
    }
    draws = {}
    for name, before in GAINS.items():
        gained = values["learned"] - values[before]
        draws[name] = mean_draws(gained, RESAMPLES, number)
        line[name] = estimate(float(gained.mean()), draws[name])
    return line, draws


def main() -> None:
    """Measure, and print a line of JSON a collection and one of their mean."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = []
    for number, name in enumerate(given.collections or all_names()):
        found.append(measure(Judged(name, given.vectors), number, given.seed))
        print(json.dumps(found[-1][0]), flush=True)
    mean: dict[str, Any] = {"collection": "mean"}
    for name in GAINS:
        value = float(np.mean([line[name][0] for line, _ in found]))
        mean[name] = estimate(value, np.mean([draws[name] for _, draws in found], axis=0))
    print(json.dumps(mean))


if __name__ == "__main__":
    main()
