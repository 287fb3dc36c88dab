"""The gain of ``adapt`` on user queries: whole collections, the whole command, its defaults.

    CONTRASENT_DATA=... python -m benchmarks.adaptation --work FOLDER [COLLECTION ...]

``contrasent adapt`` sees the documents of each folder of ``$CONTRASENT_DATA/ir`` in BEIR's layout,
and with ``--teach N`` as many of its queries, drawn by the seed. The other queries then compare the
search as it is left with that of its defaults, and with vectors alone: nDCG@10, with the 95 %
interval of the difference (bootstrap over queries). Collections are indexed once, and the index is
what is adapted. Each run adds its line to ``FOLDER/lines.jsonl`` and is not repeated; a killed one
goes on. ``--table`` prints the lines as Markdown.
"""

import argparse
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import append, read
from contrasent.adapt.run import adapt_index
from contrasent.cli.options import parse_budget
from contrasent.datasets.beir import Judged, read_judged, read_texts
from contrasent.evaluate.retrieval import Search, search_retrieval
from contrasent.indexing.build import index_folder
from contrasent.indexing.models import open_index_model
from contrasent.search.folder import is_index
from contrasent.search.index import Index, document_of
from contrasent.search.ranking import Ranker
from contrasent.stats.bootstrap import from_draws, mean_draws

RESAMPLES = 10_000


def difference(after: Any, before: Any, seed: int = 0) -> list[float]:
    """The mean difference of queries with its interval."""
    gaps = after - before
    found = from_draws(float(gaps.mean()), mean_draws(gaps, RESAMPLES, seed))
    return [round(one, 4) for one in (found.mean, found.low, found.high)]


def values(search: Search, names: Sequence[str], judged: Judged) -> Any:
    """(q,) nDCG@10 of each query."""
    report = search_retrieval(search, names, judged, own_ids=True, resamples=0)
    items: Any = report.items[report.one(metric="ndcg@10").key]
    return items.columns[0]


def by_index(index: Index, ranker: Ranker, judged: Judged) -> Any:
    """(q,) nDCG@10 as a ranker finds documents in an index."""
    encode = open_index_model(index)
    names = list(dict.fromkeys(document_of(row.id, row.metadata) for row in index.every()))
    return values(lambda texts, k: index.documents(texts, encode, k, ranker), names, judged)


def run(folder: Path, place: Path, budget: float, seed: int, teach: int) -> dict[str, Any]:
    """The line of one run."""
    judged = read_judged(folder)
    asked = [
        (text, {name: gain for name, gain in gains.items() if gain > 0})
        for text, gains in judged.values()
    ]
    asked = [one for one in asked if one[1]]
    taught = np.zeros(len(asked), dtype=bool)
    taught[np.random.default_rng(seed).permutation(len(asked))[:teach]] = True
    output = place / f"{folder.name}-{seed}-{teach}"
    queries = place / f"{output.name}.csv"
    with queries.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("query", "document", "gain"))
        for at in np.flatnonzero(taught):
            writer.writerows((asked[at][0], name, gain) for name, gain in asked[at][1].items())
    source = place / "indexes" / folder.name
    if not is_index(source):
        index_folder(folder / "corpus.jsonl", source)
    done = adapt_index(
        source,
        output,
        budget=budget,
        queries=queries if teach else None,
        seed=seed,
        resume=output.exists(),
        log=lambda line: print("  ", line, flush=True),
    )
    index = Index.open(output / "index")
    default = Ranker.from_json(done.facts["default"])
    after, before = by_index(index, index.ranker, judged), by_index(index, default, judged)
    alone = by_index(index, default.without_words, judged)
    after, before, alone = after[~taught], before[~taught], alone[~taught]
    return {
        "collection": folder.name,
        "documents": len(read_texts(folder / "corpus.jsonl")),
        "queries": len(after),
        "taught": teach,
        "seed": seed,
        "budget": budget,
        "seconds": done.facts["seconds"],
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count(),
        "alone": round(float(alone.mean()), 4),
        "default": round(float(before.mean()), 4),
        "adapted": round(float(after.mean()), 4),
        "improved": done.improved,
        "reason": done.reason,
        "over vectors alone": difference(after, alone),
        "over the default": difference(after, before),
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row a run, then the means over runs that were taught by as many queries."""
    heads = ["collection", "queries", "taught", "seed", "seconds", "vectors alone", "by default"]
    heads += ["adapted", "over vectors alone", "over the default"]
    text = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for one in sorted(lines, key=lambda one: (one["taught"], one["collection"], one["seed"])):
        cells = [one["collection"], one["queries"], one["taught"], one["seed"]]
        cells += [f"{one['seconds']:.0f}"]
        cells += [f"{one[name]:.3f}" for name in ("alone", "default", "adapted")]
        for name in heads[-2:]:
            mean, low, high = one[name]
            cells.append(f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]")
        text.append("| " + " | ".join(map(str, cells)) + " |")
    for taught in sorted({one["taught"] for one in lines}):
        for name in heads[-2:]:
            gains = [one[name] for one in lines if one["taught"] == taught]
            worse = sum(high < 0 for _, _, high in gains)
            mean = f"{np.mean([gain for gain, _, _ in gains]):+.3f} {name}"
            text.append(f"\n{len(gains)} runs, {taught} taught: {mean}, {worse} certainly worse.")
    return "\n".join(text)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--budget", type=parse_budget, default=1800.0)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--teach", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    path = given.work / "lines.jsonl"
    given.work.mkdir(parents=True, exist_ok=True)
    home = Path(os.environ["CONTRASENT_DATA"]) / "ir"
    there = {(one["collection"], one["seed"], one["taught"], one["budget"]) for one in read(path)}
    names = given.collections or sorted(one.name for one in home.iterdir() if one.is_dir())
    for seed in () if given.table else given.seeds:
        for name in names:
            if (name, seed, given.teach, given.budget) not in there:
                print(f"{name}, seed {seed}", flush=True)
                append(path, [run(home / name, given.work, given.budget, seed, given.teach)])
    print(table(read(path)))


if __name__ == "__main__":
    main()
