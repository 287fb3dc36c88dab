"""The gain that user queries teach a search, beyond its default: judged collections, and a trainer.

    CONTRASENT_DATA=... python -m benchmarks.teaching --vectors CACHE --lines FILE [COLLECTION ...]

The queries of cosqa's dev split teach and those of its test split judge; of stackfaq-answers one
random half teaches and the other judges; of other collections in ``$CONTRASENT_DATA/ir`` all teach
and are judged by cross-fitting alone. ``--teach N`` lets only so many teach. nDCG@10, differences
to the default search with 95 % intervals. Each run adds a line to FILE; encodings stay in CACHE.

``--trainer`` also fine-tunes the base by sentence-transformers (MultipleNegativesRankingLoss, no
duplicates in a batch) on the same pairs for the processor seconds that teaching took, encodes
everything again and adds words with the default's share. ``--false RUNS`` counts what is kept where
nothing helps: simulated choices among strategies, and texts or queries without meaning.
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gate import WORDS, WordVectors, passages
from benchmarks.lines import append
from contrasent.adapt.bench import Bench, Query, Values, difference, document_names, queries_of
from contrasent.adapt.teaching import (
    AGAIN,
    FOLDS,
    LEVEL,
    NEW,
    TeachingResult,
    cross_fitted,
    learn_from_queries,
)
from contrasent.metrics import normalize
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.pretrained import MINILM, resolve
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker
from contrasent.types import Numbers, Task, Vectors, for_task

Asked = list[tuple[str, dict[int, float]]]


class Collection:
    """Documents and queries with their vectors."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.name, self.folder, self.cache = folder.name, folder, cache
        rows = list(_lines(folder / "corpus.jsonl"))
        self.texts = [f"{row.get('title') or ''}\n{row['text']}".strip() for row in rows]
        self.places = {row["_id"]: place for place, row in enumerate(rows)}
        vectors = self._kept("document", self.texts)
        self.index = Index.build(lambda _: vectors, self.texts)

    def asked(self, part: str = "", split: str = "test") -> Asked:
        """Queries with the gains of what answers them."""
        gains: dict[str, dict[int, float]] = {}
        for line in (self.folder / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]:
            query, document, gain = line.split("\t")
            if float(gain) > 0 and document in self.places:
                gains.setdefault(query, {})[self.places[document]] = float(gain)
        rows = _lines(self.folder / f"queries{part}.jsonl")
        return [(row["text"], gains[row["_id"]]) for row in rows if row["_id"] in gains]

    def bench(self, asked: Asked, name: str) -> Bench:
        """Measures these queries."""
        vectors = self._kept(name, [text for text, _ in asked])
        names = [str(place) for place in range(len(self.texts))]
        return Bench(self.index, queries_of(asked), vectors, names, np.arange(len(names)))

    def _kept(self, name: str, texts: Sequence[str]) -> Vectors:
        path = self.cache / f"{self.name}.{name}.npy"
        if not path.is_file():
            task: Task = "document" if name == "document" else "query"
            self.cache.mkdir(parents=True, exist_ok=True)
            np.save(path, for_task(NumpyModel(resolve(MINILM)).encode, task)(list(texts)))
        found: Vectors = normalize(np.load(path, allow_pickle=False).astype(np.float32))
        return found


def _lines(path: Path) -> Any:
    return (json.loads(line) for line in path.read_text("utf-8").splitlines())


def split(collection: Collection, teaching: int, seed: int) -> tuple[Bench, Bench | None, Asked]:
    """The queries that teach, those that judge, and the pairs of the first."""
    if collection.name == "cosqa":
        first = collection.asked(".dev", "dev")
        own, others = collection.bench(first, "dev"), collection.bench(collection.asked(), "test")
    else:
        first, others = collection.asked(), None
        own = collection.bench(first, "test")
        if collection.name == "stackfaq-answers":
            order = np.random.default_rng(0).permutation(len(first))
            others = part(own, np.sort(order[len(first) // 2 :]))
            teachers = np.sort(order[: len(first) // 2])
            own, first = part(own, teachers), [first[at] for at in teachers]
    if teaching:
        some = np.sort(np.random.default_rng(seed).permutation(len(first))[:teaching])
        own, first = part(own, some), [first[at] for at in some]
    return own, others, first


def part(bench: Bench, numbers: Any) -> Bench:
    """Some of the queries."""
    queries = queries_of([(q.text, q.relevant) for q in (bench.queries[at] for at in numbers)])
    return Bench(bench.index, queries, bench.vectors[numbers], bench.documents, bench.units)


def learn(bench: Bench, seed: int, until: Callable[[], float]) -> TeachingResult:
    """The result of a bench's queries."""
    return learn_from_queries(bench, Ranker(), seed=seed, until=until)


def run(collection: Collection, teaching: int, seed: int, budget: float, trainer: bool) -> Any:
    """The line of one collection."""
    own, others, asked = split(collection, teaching, seed)
    prior = Ranker()
    began, busy = time.monotonic(), time.process_time()
    result = learn(own, seed, lambda: budget - (time.monotonic() - began))
    seconds, used = time.monotonic() - began, time.process_time() - busy
    line = {
        "collection": collection.name,
        "teach": len(asked),
        "seed": seed,
        "improved": result.improved,
        "reason": result.reason,
        "prior": result.before,
        "again": asdict(result.again),
        "new": asdict(result.new),
        "seconds": round(seconds, 1),
        "cpu": round(used, 1),
    }
    if others is not None:
        (before,) = others.values([prior])
        (after,) = others.values([result.ranker], learned=result.learned)
        line |= {
            "others": len(before),
            "default": float(before.mean()),
            "taught": float(after.mean()),
            "gain": asdict(difference(others.queries, after - before)),
            "vectors": float(others.values([Ranker(0.0)]).mean()),
        }
        if trainer:
            theirs = by_trainer(collection, others, asked, used, seed, prior)
            line["trainer"] = {
                "nDCG@10": float(theirs.mean()),
                "gain": asdict(difference(others.queries, theirs - before)),
                "ours": asdict(difference(others.queries, after - theirs)),
            }
    return line


def by_trainer(
    collection: Collection, others: Bench, asked: Asked, seconds: float, seed: int, prior: Ranker
) -> Any:
    """(q,) nDCG@10 of the other queries by a base that was fine-tuned on the pairs."""
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.training_args import (
        BatchSamplers,
        SentenceTransformerTrainingArguments,
    )
    from transformers import TrainerCallback

    torch.set_num_threads(1)
    pairs = [(text, collection.texts[at]) for text, gains in asked for at in gains]

    class Stop(TrainerCallback):
        """Ends the training when its processor seconds are over."""

        began = time.process_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            control.should_training_stop |= time.process_time() - self.began > seconds
            return control

    model = SentenceTransformer(str(resolve(MINILM)), device="cpu")
    model.max_seq_length = 128
    first, second = zip(*pairs, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=folder,
                num_train_epochs=10,
                per_device_train_batch_size=32,
                learning_rate=2e-5,
                lr_scheduler_type="constant",
                batch_sampler=BatchSamplers.NO_DUPLICATES,
                seed=seed,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"query": first, "document": second}),
            loss=MultipleNegativesRankingLoss(model),
            callbacks=[Stop()],
        ).train()
    model.max_seq_length = 256
    texts = [query.text for query in others.queries]
    vectors, queries = (
        model.encode(part, normalize_embeddings=True, convert_to_numpy=True, batch_size=32)
        for part in (collection.texts, texts)
    )
    index = Index.build(lambda _: vectors, collection.texts)
    own = Bench(index, others.queries, queries, others.documents, others.units)
    return own.values([prior])[0]


def chance(seed: int, documents: int, each: int, shared: float, size: int = 16) -> Bench:
    """Queries that are noise; those of one document have ``shared`` of their variance in common."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(documents), each)
    own = random.normal(size=(len(of), size))
    common = random.normal(size=(documents, size))[of]
    queries = np.sqrt(1 - shared) * own + np.sqrt(shared) * common
    rows = random.normal(size=(documents, size)).astype(np.float32)
    index = Index.build(lambda _: rows, [f"the note on matter {n}" for n in range(documents)])
    asked = queries_of([(f"question {n}", {int(at): 1.0}) for n, at in enumerate(of)])
    names = [str(n) for n in range(documents)]
    vectors = normalize(queries.astype(np.float32))
    return Bench(index, asked, vectors, names, np.arange(documents))


def choices(
    seed: int, documents: int, each: int, strategies: int = 20, shared: float = 0.3
) -> tuple[list[Query], Values, Numbers]:
    """Gains of strategies that help nobody; those of one document have ``shared`` in common."""
    random, count = np.random.default_rng(seed), documents * each
    of = np.sort(np.r_[np.arange(documents), random.integers(0, documents, count - documents)])
    common = random.normal(size=(strategies, documents))[:, of]
    either = random.normal(size=(strategies, count))
    values = {}
    for kind in (AGAIN, NEW):
        alone = (either + random.normal(size=(strategies, count))) * np.sqrt((1 - shared) / 2)
        values[kind] = np.sqrt(shared) * common + alone
        values[kind][0] = 0.0
    queries = queries_of([(f"question {n}", {int(at): 1.0}) for n, at in enumerate(of)])
    main = np.unique([query.document for query in queries], return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(np.arange(main.max() + 1) % FOLDS)
    return queries, values, order[main]


def texts(seed: int) -> Bench:
    """Passages of words drawn at random, and as random queries of as random documents."""
    random, encode = np.random.default_rng(seed), WordVectors()
    documents, count = int(random.integers(25, 121)), int(random.integers(40, 161))
    rows, names = passages(random, documents)
    index = Index.build(encode, rows, metadata=[{"document": name} for name in names])
    of = random.integers(0, documents, count)
    asked = queries_of([(" ".join(random.choice(WORDS, 8)), {int(at): 1.0}) for at in of])
    vectors = index.query_vectors([query.text for query in asked], encode)
    return Bench(index, asked, vectors, *document_names(index))


def count_false(runs: int) -> Iterator[dict[str, Any]]:
    """Lines: what is kept, by intervals of 95 % and of 99 %, where nothing helps."""
    shapes = ((25, 2), (25, 4), (50, 4), (60, 2), (120, 1))
    for (documents, each), strategies in itertools.product(shapes, (20, 150)):
        kept = dict.fromkeys((0.95, LEVEL), 0)
        for seed in range(runs):
            queries, values, folds = choices(seed, documents, each, strategies)
            found = cross_fitted(values, folds)[AGAIN]
            for level in kept:
                kept[level] += difference(queries, found, seed=seed, level=level).low > 0
        about = {"documents": documents, "queries": documents * each, "strategies": strategies}
        yield {"false choices": about, "runs": runs, "kept": {str(k): v for k, v in kept.items()}}
    benches: dict[str, Callable[[int], Bench]] = {"texts without meaning": texts}
    for documents, each in ((60, 2), (25, 4), (120, 1)):
        benches[f"{documents} documents, {each} queries about each"] = partial(
            chance, documents=documents, each=each, shared=0.0
        )
    for name, make in benches.items():
        count = sum(learn(make(seed), seed, lambda: 0.0).improved for seed in range(runs))
        yield {"false": name, "runs": runs, "kept": count}


def main() -> None:
    """Measure, and add lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--teach", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--trainer", action="store_true")
    parser.add_argument("--false", type=int, default=0, metavar="RUNS")
    given = parser.parse_args()
    for line in count_false(given.false) if given.false else ():
        append(given.lines, [line])
        print(json.dumps(line), flush=True)
    home = Path(os.environ["CONTRASENT_DATA"]) / "ir"
    for name in given.collections:
        collection = Collection(home / name, given.vectors)
        line = run(collection, given.teach, given.seed, given.budget, given.trainer)
        append(given.lines, [line])
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
