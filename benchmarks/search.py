"""Exact search of a million vectors on disk: one query, the ten best.

    python -m benchmarks.search [--rows 1000000] [--rounds 15] [--vectors FILE.npy]

That many rows of 384 numbers are made (clusters with noise, so that neighbours differ by little),
mapped, and searched by :func:`contrasent.search.exact.scan`; or the rows of a file, such as
``contrasent encode`` and ``python -m benchmarks.stream --keep`` write. The last rows are the
queries and no part of the index. What memory can give is measured beside it in turn: the largest
of all numbers of the same mapped file by one thread a core, which has to read them all and does
hardly anything else. Printed is the median time, the smallest and the largest, and the share of
that bandwidth. A missed goal comes first.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from contrasent.search.exact import Best, scan

DIMENSION = 384
BLOCK = 50_000
GOAL = 250.0
BINARY_GOAL = 80.0
RECALL = 0.99
QUERIES = 50


def write_vectors(path: Path, rows: int) -> None:
    """Unit vectors around 2,000 middles."""
    random = np.random.default_rng(0)
    middles = random.standard_normal((2000, DIMENSION), dtype=np.float32)
    stored = np.lib.format.open_memmap(path, "w+", "<f4", (rows, DIMENSION))
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        noise = random.standard_normal((count, DIMENSION), dtype=np.float32)
        block = middles[random.integers(0, len(middles), count)] + noise
        stored[start : start + count] = block / np.linalg.norm(block, axis=1, keepdims=True)
    stored.flush()


def milliseconds(work: Callable[[], object]) -> float:
    """Wall time of a call."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def binary(vectors: np.ndarray, queries: np.ndarray) -> None:
    """Time and recall of binary codes with exact scores of the candidates."""
    from contrasent.search.binary import BinaryCodes

    built = BinaryCodes.of(vectors)
    times, found = [], []
    for query in queries:
        began = time.perf_counter()
        (near,) = built.candidates(query[None], 10, None)
        scores = vectors[near] @ query
        rows = near[np.argsort(-scores, kind="stable")[:10]]
        times.append(1000 * (time.perf_counter() - began))
        best = Best(1, 10)
        scan(query[None], vectors, best)
        found.append(len(set(rows) & set(best.rows[0])) / 10)
    middle, recall = statistics.median(times), statistics.mean(found)
    met = middle <= BINARY_GOAL and recall >= RECALL
    print(
        f"{'met   ' if met else 'MISSED'} binary codes, one query, top 10, scored exactly: "
        f"{middle:.0f} ms ({min(times):.0f} to {max(times):.0f}), goal {BINARY_GOAL:.0f}; "
        f"recall@10 of {len(queries)} queries {recall:.3f}, goal {RECALL}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--vectors", type=Path, help="rows of length one in a file, to search")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as threads:
        path = options.vectors or Path(folder) / "vectors.npy"
        if options.vectors is None:
            write_vectors(path, options.rows + QUERIES)
        stored = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        vectors, queries = stored[:-QUERIES], np.array(stored[-QUERIES:])
        parts = np.array_split(vectors.reshape(-1), cores)
        query = queries[:1]

        def read() -> None:
            list(threads.map(np.max, parts))

        def search() -> Best:
            best = Best(1, 10)
            scan(query, vectors, best)
            return best

        whole = (vectors @ query[0]).astype(np.float32)
        wanted = np.argsort(-whole, kind="stable")[:10]
        recall = len(set(wanted.tolist()) & set(search().rows[0].tolist())) / 10
        searches, reads = [], []
        for _ in range(options.rounds):
            reads.append(milliseconds(read))
            searches.append(milliseconds(search))
    middle, reading = statistics.median(searches), statistics.median(reads)
    share = statistics.median(r / s for r, s in zip(reads, searches, strict=True))
    size = vectors.nbytes / 1e9
    rows, width = vectors.shape
    print(f"{cores} cores, {rows:,} x {width} float32, {size:.2f} GB, mapped")
    print(f"reading all of it: {reading:.0f} ms, {size / reading * 1000:.1f} GB a second")
    binary(vectors, queries)
    met = middle <= GOAL and recall == 1
    print(
        f"{'met   ' if met else 'MISSED'} exact search, one query, top 10: {middle:.0f} ms "
        f"({min(searches):.0f} to {max(searches):.0f}), goal {GOAL:.0f} ms; {share:.0%} of the "
        f"bandwidth measured; recall {recall:.2f}"
    )
    sys.exit(recall < 1)


if __name__ == "__main__":
    main()
