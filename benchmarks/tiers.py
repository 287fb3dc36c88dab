"""The first tier of an index against the whole one: how well both find, and how soon.

    python -m benchmarks.tiers [cranfield cisi ...] [--text FILE --passages 100000]

For collections in CONTRASENT_DATA/ir, nDCG@10 of the index made whole, and how much the first tier
differs, alone and with its best 50 rows ordered by the model's vectors, with 95 % intervals
(bootstrap over queries). Both tiers are made by ``contrasent.index_folder``. Then passages of ten
lines of a text are indexed: seconds until they can be searched, all and of processor time, and the
peak of memory.
"""

import argparse
import gzip
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from contrasent import progress
from contrasent.datasets.beir import read_collection
from contrasent.indexing.build import index_folder
from contrasent.indexing.models import open_index_model
from contrasent.indexing.tiers import CANDIDATES
from contrasent.metrics import ndcg_at_k
from contrasent.search.index import Index
from contrasent.types import batched

K, LINES = 10, 10  # rows that are judged, and lines of a passage


def write(path: Path, texts: Iterable[str]) -> int:
    """Write a table of texts; how many there are."""
    with path.open("w", encoding="utf-8") as stream:
        count = sum(bool(stream.write(json.dumps({"text": text}) + "\n")) for text in texts)
    return count


def compare(folder: Path, place: Path) -> None:
    """Print nDCG@10 of both tiers on a collection."""
    collection = read_collection(folder)
    table = place / "table.jsonl"
    write(table, collection.documents)
    made = {}
    for name, fast in (("first", True), ("whole", False)):
        began = time.process_time()
        made[name] = index_folder(table, place / name, column="text", fast=fast).index
        print(f"{folder.name}, {name}: {time.process_time() - began:.0f} s of processor time")
    first, whole = made["first"], made["whole"]
    assert isinstance(first, Index) and isinstance(whole, Index)
    queries = list(collection.queries)
    vectors = whole.query_vectors(queries, open_index_model(whole))
    scores: dict[str, list[float]] = {name: [] for name in ("whole", "first", "best")}
    for n, query in enumerate(queries):
        given, gains, own = vectors[n : n + 1], collection.relevant[n], collection.own[n]
        allowed = np.ones(len(whole), bool)
        allowed[[own] if own >= 0 else []] = False
        (near,) = first.find([query], given, CANDIDATES, first.ranker, allowed=allowed)
        some = np.zeros(len(whole), bool)
        some[near.rows] = True
        (best,) = whole.find([query], given, K, whole.ranker, allowed=some)
        (all_,) = whole.find([query], given, K, whole.ranker, allowed=allowed)
        for name, rows in (("first", near.rows), ("best", best.rows), ("whole", all_.rows)):
            place_of = {int(row): at for at, row in enumerate(rows[:K], 1)}
            ranks = [float(place_of.get(row, K + 1)) for row in gains]
            scores[name].append(ndcg_at_k([*gains.values()], ranks, K))
    base = np.array(scores["whole"])
    draws = np.random.default_rng(0).integers(0, len(base), (2000, len(base)))
    print(f"{folder.name}: {len(whole):,} rows, {len(base)} queries, whole {base.mean():.4f}")
    for name, shown in (("first", "first tier"), ("best", f"its best {CANDIDATES} by the model")):
        change = np.array(scores[name]) - base
        low, high = np.percentile(change[draws].mean(axis=1), [2.5, 97.5])
        print(f"  {shown}: {change.mean():+.4f} [{low:+.4f}, {high:+.4f}]", flush=True)


def speed(text: Path, passages: int, place: Path) -> None:
    """Print how soon passages can be searched."""
    opened = gzip.open if text.suffix == ".gz" else open
    with opened(text, "rt", encoding="utf-8") as stream:
        joined = (" ".join(map(str.strip, some)) for some in batched(stream, LINES))
        count = write(place / "passages.jsonl", islice(joined, passages))
    began, own = time.monotonic(), time.process_time()
    made = index_folder(place / "passages.jsonl", place / "passages", column="text", fast=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    wall, own = time.monotonic() - began, time.process_time() - own
    print(f"{count:,} passages can be searched after {wall:.0f} s, {own:.0f} s of processor time, ")
    print(f"{peak:.2f} GB; {made.unfinished:,} rows are left to the second tier")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collections", nargs="*", help="folders in CONTRASENT_DATA/ir")
    parser.add_argument("--text", type=Path, help="text of one sentence a line, gzip too")
    parser.add_argument("--passages", type=int, default=100_000)
    given = parser.parse_args()
    progress.show("auto")
    for name in given.collections:
        with tempfile.TemporaryDirectory() as place:
            compare(Path(os.environ["CONTRASENT_DATA"]) / "ir" / name, Path(place))
    if given.text is not None:
        with tempfile.TemporaryDirectory() as place:
            speed(given.text, given.passages, Path(place))


if __name__ == "__main__":
    main()
