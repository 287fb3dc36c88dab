"""Search of a million rows on disk: exact, by binary codes, and by words and vectors together.

    python -m benchmarks.search [--rows 1000000] [--rounds 15]

Vectors of 384 numbers are made (clusters with noise, so that neighbors differ by little); texts are
words drawn by Zipf's law. Both go into an index as anything else does; the queries are no part of
it. In turn with the exact scan the same product by numpy alone is measured. Printed are the median
of the time, the smallest and largest, and the processor time, which other work on the machine
hardly changes. Exit 1: the binary codes miss too many of the best rows.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.nearest import Best, scan
from contrasent.search.index import Index
from contrasent.search.store import Facts
from contrasent.search.writer import Writer
from contrasent.types import Vectors

DIMENSION, BLOCK, QUERIES = 384, 50_000, 50
GOALS = {"exact": 250.0, "binary codes, then exact": 80.0, "words and vectors": 150.0}  # ms
RECALL = 0.99
VOCABULARY, LENGTH = 100_000, 20

Times = list[tuple[float, float]]
"""Wall and processor time of calls, in milliseconds."""


def made(rows: int, seed: int) -> Iterator[Vectors]:
    """Unit vectors around 2,000 middles, in blocks."""
    middles = np.random.default_rng(0).standard_normal((2000, DIMENSION), dtype=np.float32)
    random = np.random.default_rng([1, seed])
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        noise = random.standard_normal((count, DIMENSION), dtype=np.float32)
        block = middles[random.integers(0, len(middles), count)] + noise
        yield block / np.linalg.norm(block, axis=1, keepdims=True)


def texts(count: int, seed: int, length: int = LENGTH) -> list[str]:
    """Texts of words whose frequency falls with their rank (Zipf and Mandelbrot), no stop words."""
    shares = np.cumsum(1 / (np.arange(VOCABULARY) + 10))
    drawn = np.random.default_rng(seed).random((count, length)) * shares[-1]
    return [" ".join(f"w{rank}" for rank in row) for row in np.searchsorted(shares, drawn)]


def timed(work: Callable[[], Any], times: Times) -> None:
    """Add the time of a call."""
    wall, own = time.perf_counter(), time.process_time()
    work()
    times.append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - own)))


def shown(times: Times) -> str:
    """The median, smallest and largest time, and the median of processor time."""
    wall, own = zip(*times, strict=True)
    return (
        f"{statistics.median(wall):.0f} ms ({min(wall):.0f} to {max(wall):.0f}), "
        f"{statistics.median(own):.0f} ms of processor time"
    )


def build(folder: Path, rows: int) -> None:
    """Write an index of texts and their vectors."""
    with Writer(folder, new=Facts()) as writer:
        for seed, block in enumerate(made(rows, 1)):
            writer.add(texts(len(block), seed), block)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        writing = Times()
        timed(lambda: build(Path(place) / "index", options.rows), writing)
        index = Index.open(Path(place) / "index")
        vectors, (queries,), asked = index.vectors, made(QUERIES, 2), texts(QUERIES, 7919, 5)
        print(f"{len(index):,} x {index.dimension} float32 and their words: {shown(writing)}")
        plain, exact, binary, both = (Times() for _ in range(4))
        found = list[float]()
        for n in range(options.rounds):
            query, best, text = queries[n : n + 1], Best(1, 10), asked[n]
            timed(lambda: vectors @ query[0], plain)  # noqa: B023
            timed(lambda: scan(query, vectors, best), exact)  # noqa: B023
            timed(lambda: index.search(query), binary)  # noqa: B023
            timed(lambda: index.search([text], vectors=query), both)  # noqa: B023
            near = {int(hit.id) for hit in index.search(query)[0]}
            found.append(len(near & set(best.rows[0].tolist())) / 10)
    recall = statistics.mean(found)
    print(f"       plain product by numpy: {shown(plain)}")
    for (name, goal), times in zip(GOALS.items(), (exact, binary, both), strict=True):
        met = statistics.median(wall for wall, _ in times) <= goal
        print(f"{'met   ' if met else 'MISSED'} {name}: {shown(times)}, goal {goal:.0f} ms")
    print(f"{'met   ' if recall >= RECALL else 'MISSED'} recall@10 {recall:.3f}, goal {RECALL}")
    sys.exit(recall < RECALL)


if __name__ == "__main__":
    main()
