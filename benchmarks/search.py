"""Search of a million rows on disk: exact, by binary codes, and by words and vectors together.

    python -m benchmarks.search [--rows 1000000] [--rounds 15] [--vectors FILE.npy]

Vectors of 384 numbers are made (clusters with noise, so that neighbors differ by little) or read
from a file, such as ``contrasent encode`` writes; texts are words drawn by Zipf's law. Both go into
an index as anything else does. The last vectors are the queries and no part of it. In turn with the
exact scan the same product by numpy alone is measured. Printed are the median of the time, the
smallest and largest, and the processor time, which other work on the machine hardly changes. Last,
the first 100,000 rows are written alone, and compared with encoding as many texts. A missed goal
comes first.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.nearest import Best, scan
from contrasent.search.index import Index
from contrasent.search.store import Facts
from contrasent.search.writer import Writer

DIMENSION, BLOCK, QUERIES = 384, 50_000, 50
EXACT, BINARY, WORDS, RECALL, BUILT = 250.0, 80.0, 150.0, 0.99, 1.3
VOCABULARY, LENGTH = 100_000, 20
BUILDS, ENCODED = 100_000, 400

Vectors = NDArray[np.float32]


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
    ranks = np.searchsorted(shares, drawn)
    return [" ".join(f"w{rank}" for rank in row) for row in ranks]


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor time of a call, in milliseconds."""
    wall, own = time.perf_counter(), time.process_time()
    work()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - own)


def shown(times: list[tuple[float, float]]) -> str:
    """The median, smallest and largest time, and the median of processor time."""
    wall, own = zip(*times, strict=True)
    return (
        f"{statistics.median(wall):.0f} ms ({min(wall):.0f} to {max(wall):.0f}), "
        f"{statistics.median(own):.0f} ms of processor time"
    )


def report(name: str, times: list[tuple[float, float]], goal: float, more: str, good: bool) -> None:
    """A line about one way to search."""
    met = statistics.median(wall for wall, _ in times) <= goal and good
    print(f"{'met   ' if met else 'MISSED'} {name}: {shown(times)}, goal {goal:.0f} ms; {more}")


def ratio(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
    """The median ratio of times that were taken in turn."""
    return statistics.median(a[0] / b[0] for a, b in zip(first, second, strict=True))


def build(folder: Path, blocks: Iterable[tuple[list[str], Vectors]]) -> None:
    """Write an index of texts and their vectors."""
    with Writer(folder, new=Facts()) as writer:
        for some, block in blocks:
            writer.add(some, block)


def building(folder: Path, vectors: Vectors) -> None:
    """The processor time that writing 100,000 rows adds to encoding them."""
    from contrasent.cli.options import Loading, open_model

    held = texts(min(BUILDS, len(vectors)), 0)
    _, write = timed(lambda: build(folder, [(held, vectors[: len(held)])]))
    encode = open_model("all-MiniLM-L6-v2", Loading(), light=True)
    _, encoding = timed(lambda: encode(texts(ENCODED, 1)))
    whole = encoding * len(held) / ENCODED
    met = write + whole <= BUILT * whole
    print(
        f"{'met   ' if met else 'MISSED'} building {len(held):,} rows: {write / 1000:.0f} s of "
        f"processor time next to {whole / 1000:.0f} s to encode them, together "
        f"{1 + write / whole:.2f} of it, goal {BUILT}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--vectors", type=Path, help="rows of length one in a file, to search")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if options.vectors is None:
            given, (queries,) = made(options.rows, 1), made(QUERIES, 2)
        else:
            stored = np.load(options.vectors, mmap_mode="r", allow_pickle=False)
            queries, rows = np.array(stored[-QUERIES:]), len(stored) - QUERIES
            given = (np.array(stored[n : min(n + BLOCK, rows)]) for n in range(0, rows, BLOCK))
        blocks = ((texts(len(block), seed), block) for seed, block in enumerate(given))
        target = Path(place) / "index"
        seconds, own = (ms / 1000 for ms in timed(lambda: build(target, blocks)))
        index = Index.open(target)
        vectors, asked = index.vectors, texts(QUERIES, 7919, 5)
        print(f"{len(index):,} x {index.dimension} float32 and their words, mapped")
        print(f"written in {seconds:.0f} s, {own:.0f} s of processor time")
        plain, exact, binary, both, found = [], [], [], [], []
        for n in range(options.rounds):
            query, best = queries[n : n + 1], Best(1, 10)
            text, own_vector = asked[n], queries[n]
            plain.append(timed(lambda: vectors @ own_vector))  # noqa: B023
            exact.append(timed(lambda: scan(query, vectors, best)))  # noqa: B023
            binary.append(timed(lambda: index.search(query)))  # noqa: B023
            both.append(timed(lambda: index.search([text], vectors=query)))  # noqa: B023
            near = {int(hit.id) for hit in index.search(query)[0]}
            found.append(len(near & set(best.rows[0].tolist())) / 10)
        recall = statistics.mean(found)
        print(f"       plain product by numpy: {shown(plain)}")
        report("exact", exact, EXACT, f"{ratio(exact, plain):.2f} of the product", True)
        more = f"{ratio(binary, exact):.2f} of exact; recall@10 {recall:.3f}, goal {RECALL}"
        report("binary codes, then exact", binary, BINARY, more, recall >= RECALL)
        more = f"{ratio(both, exact):.2f} of exact; five words a query"
        report("words and vectors", both, WORDS, more, True)
        building(Path(place) / "again", vectors)
    sys.exit(recall < RECALL)


if __name__ == "__main__":
    main()
