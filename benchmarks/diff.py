"""Does neighbour overlap predict what search loses?

    CONTRASENT_DATA=... python -m benchmarks.diff --collections cranfield cisi

Pairs of models that people really change between are compared on collections with
queries and judgements of people: how much of what the old model finds the new one finds as well,
and what nDCG@10 loses. Pairs of ``CHEAP`` need the base's vectors alone; those of ``DEAR`` encode
everything anew.

Every arm appends its line when it is complete, and what is there is not repeated. ``--table``
prints the lines as Markdown.
"""

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

BASE = "all-MiniLM-L6-v2"
CHEAP = ("whitened", "mapped 0.5", "mapped 1", "256 dimensions", "128 dimensions", "64 dimensions",
         "int8 vectors", "signs")  # fmt: skip
DEAR = ("bf16 weights", "int8 export", "4 layers", "trained", "trained 0.5", "lab trained")
DEPTH = 100
PERSISTENCE = 0.9
PAIRS = 500
"""Titles and sentences that the linear map learns from."""
STEPS, BATCH = 10, 64
"""Of training, on pairs of the collection, or on Wikipedia for the lab's encoder."""
RESULTS = Path("docs/diff")
SEED = 0

Line = dict[str, Any]


class Collection:
    """Passages of a collection, people's queries with their judgements, and the base's vectors."""

    def __init__(self, folder: Path, work: Path) -> None:
        from contrasent.adapt.evidence import judged_evidence
        from contrasent.adapt.reading import load_reading, read_judged, read_source, write_reading

        from contrasent.documents.folder import open_documents
        from contrasent.model.encoder import Encoder
        from contrasent.model.pretrained import resolve

        self.name, self.place = folder.name, work / folder.name
        self.place.mkdir(parents=True, exist_ok=True)
        self.base = Encoder.load(resolve(BASE), normalise=False)
        kept = self.place / "passages.jsonl"
        if not kept.is_file():
            found = read_source(
                open_documents(folder / "corpus.jsonl"),
                count_tokens=lambda texts: [
                    len(one.ids) for one in self.base.tokenizer.backend.encode_batch(list(texts))
                ],
                max_tokens=self.base.max_tokens,
            )
            write_reading(kept, found)
        self.reading = load_reading(kept)
        self.documents = [passage.document for passage in self.reading.passages]
        judged = read_judged(folder, self.reading.documents)
        self.evidence = judged_evidence(
            self.reading.texts, self.documents, self.reading.holding, judged
        )
        self.queries = [query.text for query in self.evidence.queries]

    def saved(self, name: str, make: Callable[[], Any]) -> Any:
        """Vectors on disk, made now if they are not there."""
        path = self.place / f"{name}.npy"
        if not path.is_file():
            np.save(path, make(), allow_pickle=False)
        return np.load(path)

    def encoded(self, name: str, encode: Callable[[list[str]], Any]) -> tuple[Any, Any]:
        """Vectors of queries and passages by a model."""
        rows = self.saved(name, lambda: encode(self.reading.texts))
        return self.saved(f"{name}-queries", lambda: encode(self.queries)), rows

    @property
    def raw(self) -> tuple[Any, Any]:
        """Of the base."""
        return self.encoded("base", self.base.encode)

    def ranked(self, vectors: tuple[Any, Any]) -> tuple[Any, Any]:
        """Documents by their best passage, (q, k) best first, and nDCG@10 of each query."""
        from contrasent.metrics import ndcg_at_k, normalize

        queries, rows = (normalize(np.asarray(one, dtype=np.float32)) for one in vectors)
        scores = np.full((len(queries), len(self.reading.documents)), -np.inf, dtype=np.float32)
        every = queries @ rows.T
        for document, passages in enumerate(self.reading.holding):
            scores[:, document] = every[:, list(passages)].max(axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")
        values = []
        for row, query in zip(order, self.evidence.queries, strict=True):
            ranks = {int(document): rank for rank, document in enumerate(row, 1)}
            gains = [query.relevant[document] for document in query.relevant]
            values.append(ndcg_at_k(gains, [ranks[document] for document in query.relevant], 10))
        return order[:, :DEPTH], np.array(values)


def variants(at: Collection, pair: str) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Vectors of queries and passages by the old model and by the new one."""
    from contrasent.postprocess import linear

    if pair == "lab trained":
        return lab_pair(at)
    old = at.raw
    if pair == "whitened":
        fitted = linear.whiten(old[1])
        return old, (fitted(old[0]), fitted(old[1]))
    if pair.startswith("mapped"):
        from contrasent.adapt.mapping import toward_identity

        matrix = toward_identity(fitted_map(at), float(pair.split()[1])).astype(np.float32)
        return old, (old[0] @ matrix, old[1] @ matrix)
    if pair.endswith("dimensions"):
        size = int(pair.split()[0])
        return old, (old[0][:, :size], old[1][:, :size])
    if pair == "signs":
        return old, (old[0], np.where(old[1] > 0, 1.0, -1.0))
    if pair == "int8 vectors":
        from contrasent.metrics import normalize

        scale = 127 / np.abs(normalize(old[1])).max(axis=0)
        return old, (normalize(old[0]) / scale, np.round(normalize(old[1]) * scale))
    return old, at.encoded(pair.replace(" ", "-"), model(at, pair))


def fitted_map(at: Collection) -> Any:
    """The map that adaptation learns, of titles and sentences of all passages."""
    from contrasent.adapt.mapping import fit_map

    pairs = made_pairs(at, PAIRS)
    queries = at.saved("map-queries", lambda: at.base.encode([pair.query for pair in pairs]))
    rows = at.raw[1][[pair.passage for pair in pairs]]
    documents = [at.documents[pair.passage] for pair in pairs]
    return np.asarray(fit_map(queries, rows, documents, seed=SEED), dtype=np.float64)


def made_pairs(at: Collection, count: int) -> Any:
    """So many pairs of the makers of the adaptation."""
    from contrasent.adapt.mapping import mixture
    from contrasent.adapt.queries import QUERY_MAKERS
    from contrasent.adapt.queries import made_pairs as made

    numbers = range(len(at.reading.passages))
    return mixture(made(QUERY_MAKERS, at.reading.passages, numbers, SEED), count, SEED)


def model(at: Collection, pair: str) -> Callable[[list[str]], Any]:
    """What encodes by the new model of a dear pair."""
    import torch

    from contrasent.model.encoder import Encoder
    from contrasent.model.export import export
    from contrasent.model.pretrained import resolve
    from contrasent.model.runtime import Exported
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings

    changed = Encoder.load(resolve(BASE), normalise=False)
    if pair == "bf16 weights":
        changed.to(torch.bfloat16).to(torch.float32)
        return changed.encode
    if pair == "int8 export":
        target = at.place / "int8"
        if not target.is_dir():
            export(resolve(BASE), target, engine="onnx", calibration=at.reading.texts[:200])
        return Exported.load(target, model=resolve(BASE)).encode
    if pair == "4 layers":
        layers = next(m for m in changed.modules() if isinstance(m, torch.nn.ModuleList))
        del layers[4:]
        return changed.encode
    folder = at.place / "trained"
    rows = [(pair.query, pair.text) for pair in made_pairs(at, STEPS * BATCH)]
    settings = Settings(
        batch=BATCH,
        steps=STEPS,
        lr=5e-5,
        warmup=0.1,
        max_tokens=128,
        checkpoint_every=50,
        seed=SEED,
    )
    learner = prepare(resolve(BASE), "simcse_supervised", {"symmetric": True}, settings)
    fit(learner, rows, settings, folder=folder, resume=folder.exists())
    trained = Encoder.load(folder, normalise=False)
    if pair != "trained":
        before = at.base.state_dict()
        with torch.no_grad():
            for name, value in trained.state_dict().items():
                if value.is_floating_point():
                    value.lerp_(before[name], 0.5)
    return trained.encode


def lab_pair(at: Collection) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """A small encoder of the lab, before and after a short SimCSE on Wikipedia."""
    from contrasent.model.encoder import Encoder
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import Settings

    home = data_folder().parent / "models" / "lab-bert-l4-h384"
    folder = at.place.parent / "lab"
    texts = [text for _, text in islice(wikipedia(), STEPS * 64)]
    settings = Settings(batch=BATCH, steps=STEPS, lr=1e-4, seed=SEED)
    learner = prepare(home, "simcse", {}, settings, pooler="cls")
    fit(learner, texts, settings, folder=folder, resume=folder.exists())
    old = Encoder.load(home, pooler="cls", normalise=False)
    new = Encoder.load(folder, normalise=False)
    return at.encoded("lab-old", old.encode), at.encoded("lab-new", new.encode)


def compare(at: Collection, pair: str) -> Line:
    """One line: how much is found again, and what is lost."""
    from contrasent.metrics import rank_biased_overlap, shared_share

    began = time.process_time()
    old, new = (at.ranked(vectors) for vectors in variants(at, pair))
    line = {
        f"overlap@{k}": round(float(shared_share(old[0][:, :k], new[0][:, :k]).mean()), 5)
        for k in (1, 10, DEPTH)
    }
    line["rbo"] = round(float(rank_biased_overlap(old[0], new[0], PERSISTENCE).mean()), 5)
    return {
        "pair": pair,
        "collection": at.name,
        "queries": len(at.queries),
        **line,
        "old": round(float(old[1].mean()), 5),
        "new": round(float(new[1].mean()), 5),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def data_folder() -> Path:
    """Of the data sets."""
    if "CONTRASENT_DATA" not in os.environ:
        sys.exit("set CONTRASENT_DATA to the folder of the data sets")
    return Path(os.environ["CONTRASENT_DATA"])


def wikipedia() -> Iterator[tuple[str, str]]:
    """Articles' ids and their sentences, the first five of each, in the order of the dump."""
    home = data_folder() / "wiki"
    with gzip.open(home / "enwiki_sentences_1m.docs.tsv.gz", "rt", encoding="utf-8") as stream:
        blocks = [line.split("\t") for line in islice(stream, 1, None)]
    lengths = {int(first): (int(count), page) for first, count, _, page, *_ in blocks}
    with gzip.open(home / "enwiki_sentences_1m.txt.gz", "rt", encoding="utf-8") as stream:
        left, page = 0, ""
        for number, text in enumerate(stream, 1):
            if number in lengths:
                count, page = lengths[number]
                left = min(count, 5)
            if left > 0:
                left -= 1
                yield page, text.strip()


# ---------------------------------------------------------------------- results


def table(lines: Sequence[Line]) -> str:
    """Markdown of all lines, and how well overlap predicts the loss."""
    measures = ("overlap@1", "overlap@10", "overlap@100", "rbo")
    pairs = [one for one in lines if "pair" in one]
    text = []
    if pairs:
        text += ["| pair | collection | " + " | ".join(measures) + " | nDCG@10 | loss |"]
        text += ["|---" * 8 + "|"]
        for one in sorted(pairs, key=lambda one: (one["pair"], one["collection"])):
            cells = [f"{one[name]:.3f}" for name in measures]
            text.append(
                f"| {one['pair']} | {one['collection']} | {' | '.join(cells)} | "
                f"{one['old']:.3f} -> {one['new']:.3f} | {one['old'] - one['new']:+.3f} |"
            )
        text += ["", *(correlation(pairs, name) for name in measures)]
    return "\n".join(text)


def correlation(pairs: Sequence[Line], name: str) -> str:
    """Spearman's correlation of what is not found again with the share of nDCG@10 that is lost."""
    from contrasent.metrics import spearman
    from contrasent.stats.bootstrap import interval

    collections = sorted({one["collection"] for one in pairs})
    points = {
        at: [
            (1 - one[name], 1 - one["new"] / one["old"]) for one in pairs if one["collection"] == at
        ]
        for at in collections
    }
    random = np.random.default_rng(SEED)

    def of(chosen: Sequence[str]) -> float:
        return spearman(*zip(*[point for at in chosen for point in points[at]], strict=True))

    draws = [of(random.choice(collections, len(collections)).tolist()) for _ in range(2000)]
    low, high = interval(draws)
    inside = ", ".join(f"{at} {of([at]):.2f}" for at in collections if len(points[at]) > 2)
    return (
        f"{name}: {of(collections):.2f} [{low:.2f}, {high:.2f}] over {len(pairs)} pairs and "
        f"collections; within {inside}.  "
    )


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/diff"))
    parser.add_argument("--collections", nargs="*", default=["cranfield", "cisi"])
    parser.add_argument("--pairs", nargs="*", default=[*CHEAP, *DEAR], choices=[*CHEAP, *DEAR])
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    out = RESULTS / "overlap.jsonl"
    text = out.read_text("utf-8") if out.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    if options.table:
        print(table(lines))
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)

    def add(line: Line) -> None:
        print(json.dumps(line), flush=True)
        with out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    there = {(one["pair"], one["collection"]) for one in lines}
    for name in options.collections:
        at = Collection(data_folder() / "ir" / name, options.work)
        for pair in options.pairs:
            if (pair, name) not in there:
                add(compare(at, pair))


if __name__ == "__main__":
    main()
