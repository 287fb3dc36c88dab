"""Approximate search for millions of rows: binary codes, or faiss HNSW or IVF-PQ.

They propose candidates among the rows they were built over; the scores of these are computed anew
from the exact vectors, and rows that came later are searched exactly. So scores are always exact,
and what is approximate is only which rows are found: the recall against exact search is measured
when the index is built and kept with it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from contrasent import progress
from contrasent.errors import OptionError, import_extra
from contrasent.files import writing
from contrasent.search.backends import FAISS, Backend, BinaryCodes, open_backend
from contrasent.search.checks import check_approximate
from contrasent.search.exact import Best, scan
from contrasent.search.index import Index
from contrasent.search.manifest import BINARY, FORMER_KINDS, Part, read_manifest
from contrasent.search.segment_writer import describe
from contrasent.search.writer import Writer

FEWEST = 1000
LINKS = 32
BUILD_EFFORT = 128
BLOCK = 16_384
PROBES = 200
RECALL_AT = 10


def build_approximate(
    folder: str | Path, kind: str = "hnsw", *, effort: int | None = None, seed: int = 0
) -> Index:
    """Put an approximate index beside all rows of an index folder, and measure its recall."""
    kind = FORMER_KINDS.get(kind, kind)
    check_approximate(kind, read_manifest(Path(folder)).metric)
    with Writer(folder) as writer:
        writer.compact()
        index = writer.index
        if len(index) < FEWEST:
            raise OptionError(
                "kind", kind, f"{len(index)} rows are searched faster exactly; {FEWEST:,} at least"
            )
        name = writer.new_name("backend")
        build = _build_binary if kind == BINARY else _build_faiss
        part = build(writer, kind, name)
        if effort is not None and kind != BINARY:
            part.facts["effort"] = effort
        backend = open_backend(writer.folder, part, index.dimension)
        part.facts["recall"] = _recall(index, backend, seed=seed)
        writer.set_backend(part)
    return writer.index


def _build_binary(writer: Writer, kind: str, name: str) -> Part:
    index = writer.index
    vectors = (segment.vectors for segment in index.segments)
    codes = BinaryCodes.of(vectors, len(index), index.dimension)
    path = writer.folder / f"{name}.npy"
    with writing(writer.folder):
        np.save(path, codes.columns, allow_pickle=False)
        return Part(path.name, len(index), {path.name: describe(path)}, codes.facts())


def _build_faiss(writer: Writer, kind: str, name: str) -> Part:
    index, purpose = writer.index, f"an approximate index of {writer.folder}"
    faiss = import_extra("faiss", "faiss", purpose, package=FAISS)
    built, effort = _train(faiss, index, kind)
    with progress.task("approximate index", len(index), "texts") as advance:
        for start in range(0, len(index), BLOCK):
            stop = min(start + BLOCK, len(index))
            built.add(index.vectors_of(np.arange(start, stop)))
            advance(stop - start)
    path = writer.folder / f"{name}.faiss"
    with writing(writer.folder):
        faiss.write_index(built, str(path))
        files = {path.name: describe(path)}
    return Part(path.name, len(index), files, {"kind": kind, "effort": effort})


def _train(faiss: Any, index: Index, kind: str) -> tuple[Any, int]:
    """An empty faiss index of this kind, trained, and its usual effort."""
    metric = faiss.METRIC_INNER_PRODUCT
    d, count = index.dimension, len(index)
    if kind == "hnsw":
        built = faiss.IndexHNSWSQ(d, faiss.ScalarQuantizer.QT_fp16, LINKS, metric)
        built.hnsw.efConstruction = BUILD_EFFORT
        built.train(index.vectors_of(np.arange(1)))
        return built, 64
    lists = max(4, min(65_536, round(4 * count**0.5), count // 39))
    parts = next(m for m in range(max(1, d // 4), 0, -1) if d % m == 0)
    bits = 8 if count >= 10_000 else 6
    quantiser = faiss.IndexFlatIP(d)
    built = faiss.IndexIVFPQ(quantiser, d, lists, parts, bits, metric)
    built.own_fields = True
    quantiser.this.disown()
    rows = np.linspace(0, count - 1, min(count, 256 * lists)).astype(np.int64)
    built.train(index.vectors_of(np.unique(rows)))
    return built, max(4, lists // 16)


def _recall(index: Index, backend: Backend, *, seed: int = 0) -> float:
    """Recall@10 against exact search, with 200 rows as queries, each without itself."""
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(len(index), min(PROBES, len(index)), replace=False))
    queries = index.vectors_of(rows)
    k = min(RECALL_AT + 1, len(index))
    best = Best(len(rows), k)
    blocks = ((int(f), s.vectors) for f, s in zip(index.firsts, index.segments, strict=False))
    scan(queries, blocks, best)
    found = backend.candidates(queries, k, None)
    shares = []
    for at, row in enumerate(rows):
        scores = index.vectors_of(found[at]) @ queries[at]
        top = found[at][np.argsort(-scores, kind="stable")[:k]]
        wanted = set(best.rows[at].tolist()) - {int(row)}
        shares.append(len(wanted & set(top.tolist())) / max(1, len(wanted)))
    return float(np.mean(shares))
