"""What adapting gains on queries that people asked: candidates, verdict, and other recipes.

    CONTRASENT_DATA=... python -m benchmarks.adaptation --budget 30m --seeds 3

``contrasent adapt`` sees the documents of each collection alone. When it is done, queries and
judgements of people say what its candidates find: the base, BM25, both, the best trained model by
itself and beside BM25, and what was shipped, as nDCG@10 over documents with the 95 % interval of
the paired difference from the base (bootstrap over queries). Other recipes train the same base for
as many seconds on the same documents: plain SimCSE of this library by its defaults, and
sentence-transformers' SimCSE and TSDAE as its documentation has them (its own pooling kept).

Every arm appends its line when it is complete, and what is there is not repeated, so the command
may be stopped at any time; a killed adaptation goes on. ``--table`` prints the lines as Markdown.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import append, read

BASE = "all-MiniLM-L6-v2"
ARMS = ("adapt", "simcse", "st-simcse", "st-tsdae")
RESULTS = Path("docs/adaptation/runs.jsonl")
SHORTEST = 10
"""Characters of the shortest sentence that sentence-transformers' recipes train on."""


class Judged:
    """A collection cut into passages as ``adapt`` cuts it, with its queries and judgements."""

    def __init__(self, folder: Path, passages: Path) -> None:
        from contrasent.adapt.candidates import Encoded
        from contrasent.adapt.evidence import judged_evidence
        from contrasent.adapt.reading import load_reading, read_judged

        from contrasent.metrics import normalize
        from contrasent.model.encoder import Encoder
        from contrasent.model.pretrained import resolve
        from contrasent.postprocess import whitening
        from contrasent.search.words import Bm25

        self.reading = load_reading(passages)
        documents = [passage.document for passage in self.reading.passages]
        user_queries = read_judged(folder, self.reading.documents)
        self.evidence = judged_evidence(
            self.reading.texts, documents, self.reading.holding, user_queries
        )
        texts = self.evidence.texts  # the passages, and copies of them that judged documents hold
        self.lexical = Bm25.of(texts)
        encode = Encoder.load(resolve(BASE), normalise=False).encode
        encoded = passages.with_name("base.npy")
        rows = np.load(encoded) if encoded.is_file() else encode(self.reading.texts)
        if copies := texts[len(rows) :]:
            rows = np.concatenate([rows, encode(copies)])
        queries = encode([query.text for query in self.evidence.queries])
        self.raw = Encoded(queries, rows)
        self.base = self.raw.by(normalize)
        fitted = whitening.fit(rows)
        self.whitened = Encoded(normalize(fitted(queries)), normalize(fitted(rows)))
        self.before = self.values(self.base)

    def encoded(self, encode: Any) -> Any:
        """Unit vectors of queries and passages."""
        from contrasent.adapt.candidates import encode_evidence

        from contrasent.metrics import normalize

        passages = encode(self.evidence.texts[: self.evidence.passages])
        return encode_evidence(encode, self.evidence, passages).by(normalize)

    def values(self, encoded: Any = None, fusion: Any = None, *, words: bool = False) -> Any:
        """(q,) nDCG@10 by vectors, words, or both."""
        from contrasent.adapt.candidates import measure_candidate

        lexical = self.lexical if words or fusion is not None else None
        fusions = () if fusion is None else (fusion,)
        return measure_candidate(self.evidence, encoded, lexical, *fusions)[0]

    def line(self, values: Any) -> dict[str, float]:
        """Its mean and its difference from the base."""
        from contrasent.stats.bootstrap import interval, mean_draws

        gaps = values - self.before
        low, high = interval(mean_draws(gaps, 10_000))
        return {
            "ndcg": round(float(np.mean(values)), 5),
            "difference": round(float(gaps.mean()), 5),
            "low": round(low, 5),
            "high": round(high, 5),
        }


def adapted(judged: Judged, output: Path, done: Any) -> dict[str, Any]:
    """What the candidates of a complete adaptation find for people's queries."""
    from contrasent.adapt.mapping import toward_identity

    from contrasent.metrics import normalize

    trials = done.trials
    dense = [t for t in trials if t.candidate.fusion is None]
    known = {("base", 1.0): judged.base, ("whitened", 1.0): judged.whitened}
    for share in {t.candidate.share for t in dense if t.candidate.model == "mapped"}:
        matrix = toward_identity(np.load(output / "work" / "map.npy"), share)
        known["mapped", share] = judged.raw.by(lambda raw, m=matrix: normalize(raw @ np.float32(m)))
    candidates = []
    for trial in trials:
        candidate = trial.candidate
        vectors = known[candidate.model, candidate.share] if candidate.model else None
        values = judged.values(vectors, candidate.fusion, words=not candidate.model)
        candidates.append(
            {"name": candidate.name, "proxy": round(trial.score, 5), **judged.line(values)}
        )
    named = {one["name"]: one for one in candidates}
    hybrids = [t for t in trials if t.candidate.fusion is not None]

    def of(trials: Iterable[Any]) -> dict[str, Any] | None:
        chosen = max(trials, key=lambda t: t.score, default=None)
        return None if chosen is None else named[chosen.candidate.name]

    return {
        "base": named["base"],
        "bm25": named["BM25"],
        "hybrid": of(t for t in hybrids if t.candidate.model == "base"),
        "shipped": named.get(done.shipped.name),
        "shipped_name": done.shipped.name,
        "improved": done.improved,
        "verdict": asdict(done.verdict),
        "trials": [[t.candidate.name, round(t.score, 5)] for t in done.trials],
        "candidates": candidates,
    }


def texts_of(judged: Judged) -> list[str]:
    """Sentences of the documents, for recipes that train on sentences."""
    from contrasent.adapt.reading import sentences_of

    found = (s for p in judged.reading.passages for s in sentences_of(p.text))
    return list(dict.fromkeys(s for s in found if len(s) >= SHORTEST))


def simcse(judged: Judged, seconds: float, seed: int, folder: Path) -> Callable[..., Any]:
    """This library's SimCSE with every default, which stops by steps and not by seconds."""
    from contrasent.model.encoder import Encoder
    from contrasent.model.pretrained import resolve
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.settings import resolve_settings

    texts = texts_of(judged)
    settings = resolve_settings(resolve(BASE), "simcse", {"seed": seed}, corpus=texts).settings
    learner = prepare(resolve(BASE), "simcse", {}, settings)
    fit(learner, texts, settings, folder=folder / "model")
    return Encoder.load(folder / "model").encode


def by_sentence_transformers(
    recipe: str, judged: Judged, seconds: float, seed: int, folder: Path
) -> Callable[..., Any]:
    """SimCSE (pairs of equal sentences, batch 128, 5e-5) or TSDAE (batch 8, 3e-5, 60 % deleted)."""
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.losses import DenoisingAutoEncoderLoss, MultipleNegativesRankingLoss
    from sentence_transformers.training_args import SentenceTransformerTrainingArguments
    from transformers import TrainerCallback

    from contrasent.model.pretrained import resolve

    class Stop(TrainerCallback):
        """Ends a training when its seconds are over."""

        began = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            control.should_training_stop |= time.monotonic() - self.began > seconds
            return control

    random = np.random.default_rng(seed)
    sentences = [str(s) for s in random.permutation(np.array(texts_of(judged), dtype=object))]
    model = SentenceTransformer(str(resolve(BASE)), device="cpu")
    if recipe == "st-simcse":
        rows, batch, rate, schedule = sentences, 128, 5e-5, "linear"
        loss: torch.nn.Module = MultipleNegativesRankingLoss(model)
    else:

        def deleted(text: str) -> str:
            words = text.split()
            left = [word for word in words if random.random() < 0.4]
            return " ".join(left or words[:1])

        rows, batch, rate, schedule = [deleted(s) for s in sentences], 8, 3e-5, "constant"
        loss = DenoisingAutoEncoderLoss(model, tie_encoder_decoder=True)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "trainer"),
        num_train_epochs=1 if recipe == "st-simcse" else 10,
        per_device_train_batch_size=batch,
        learning_rate=rate,
        lr_scheduler_type=schedule,
        weight_decay=0.0,
        seed=seed,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    data = Dataset.from_dict({"first": rows, "second": sentences})
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[Stop()]
    )
    trainer.train()
    model.eval()

    def encode(texts: Sequence[str]) -> Any:
        return np.asarray(model.encode(list(texts), show_progress_bar=False), dtype=np.float32)

    return encode


def reuse_reading(place: Path, name: str, seed: int) -> None:
    """Begin where an earlier seed had read and encoded the documents; its time counts."""
    output = place / f"{name}-{seed}" / "work"
    earlier = place / f"{name}-0" / "work"
    if seed == 0 or output.exists() or not (earlier / "encoded.stage.json").exists():
        return
    output.mkdir(parents=True)
    for file in ("passages.jsonl", "base.npy", "encoded.stage.json"):
        shutil.copy(earlier / file, output)
    config = json.loads((earlier / "config.json").read_text("utf-8"))
    (output / "config.json").write_text(json.dumps(config | {"seed": seed}), "utf-8")


def run(arm: str, collection: Path, budget: float, seed: int, place: Path) -> dict[str, Any]:
    """One line."""
    from contrasent.adapt.run import adapt

    output = place / f"{collection.name}-{seed}"
    source = place / "documents" / collection.name
    source.mkdir(parents=True, exist_ok=True)
    if not (source / "corpus.jsonl").exists():
        shutil.copy(collection / "corpus.jsonl", source)
    if arm == "adapt":
        reuse_reading(place, collection.name, seed)
        done = adapt(
            source / "corpus.jsonl",
            output,
            base=BASE,
            budget=budget,
            seed=seed,
            resume=output.exists(),
            keep_candidates=True,
            say=lambda text: print("  ", text, flush=True),
        )
        judged = Judged(collection, output / "work" / "passages.jsonl")
        facts = {"seconds": done.facts["seconds"], **adapted(judged, output, done)}
    else:
        judged = Judged(collection, output / "work" / "passages.jsonl")
        began, folder = time.monotonic(), place / f"{arm}-{collection.name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        if arm == "simcse":
            encode = simcse(judged, budget, seed, folder)
        else:
            encode = by_sentence_transformers(arm, judged, budget, seed, folder)
        seconds = round(time.monotonic() - began, 1)
        facts = {"seconds": seconds, **judged.line(judged.values(judged.encoded(encode)))}
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "collection": collection.name,
        "arm": arm,
        "seed": seed,
        "budget": budget,
        "queries": len(judged.before),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count(),
        **facts,
    }


def _cell(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    return f"{one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row a collection and seed of what was shipped; differences are from the base."""
    heads = ["collection", "base", "BM25", "seed", "shipped", "people's queries", "made queries"]
    others = {(one["collection"], one["seed"], one["arm"]): one for one in lines}
    there = [arm for arm in ARMS[1:] if any(one["arm"] == arm for one in lines)]
    text = ["| " + " | ".join([*heads, *there]) + " |", "|---" * len(heads + there) + "|"]
    adapted = [one for one in lines if one["arm"] == "adapt"]
    for one in sorted(adapted, key=lambda one: (one["collection"], one["seed"])):
        gap = one["verdict"]["difference"]
        first = one["seed"] == 0
        cells = [one["collection"], f"{one['base']['ndcg']:.3f}", f"{one['bm25']['ndcg']:.3f}"]
        cells = [*(cells if first else [""] * 3), str(one["seed"]), one["shipped_name"]]
        cells += [_cell(one["shipped"]) if one["improved"] else "0"]
        chosen = one["verdict"]["reason"].partition(" changes ")[0]
        said = f"{chosen}: " if gap and not one["improved"] else ""
        cells += ["" if gap is None else said + _cell({**gap, "difference": gap["value"]})]
        cells += [_cell(others.get((one["collection"], one["seed"], arm))) for arm in there]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join([*text, "", summary(adapted)])


def summary(lines: Sequence[dict[str, Any]]) -> str:
    """Proxy against true gain, and the mean gain of what was shipped."""
    from scipy.stats import spearmanr

    if not lines:
        return "No adaptation was run."
    shipped = [one["shipped"]["difference"] for one in lines if one["shipped"]]
    harmed = sum(one["shipped"]["high"] < 0 for one in lines if one["shipped"])
    pairs = [
        (one["proxy"], np.log((one["ndcg"] + 0.01) / (line["base"]["ndcg"] + 0.01)))
        for line in lines
        for one in line["candidates"]
        if one["name"] != "base"
    ]
    rho = spearmanr(*zip(*pairs, strict=True)).statistic if len(pairs) > 2 else float("nan")
    return (
        f"{len(lines)} runs; mean gain of what was shipped {np.mean(shipped):+.3f}; significantly "
        f"worse than the base on people's queries: {harmed}; rank correlation of proxy gain and "
        f"true gain over {len(pairs)} candidates {rho:.2f}."
    )


def main() -> None:
    """Run what is missing."""
    from contrasent.cli.options import parse_budget

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="a file of JSON lines")
    parser.add_argument("--work", type=Path, default=Path("runs/adaptation"))
    parser.add_argument("--collections", nargs="*")
    parser.add_argument("--arms", nargs="*", default=ARMS, choices=ARMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="30m")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = read(options.out)
    if options.table:
        print(table(lines))
        return
    if "CONTRASENT_DATA" not in os.environ:
        sys.exit("set CONTRASENT_DATA to the folder of the data sets")
    folder = Path(os.environ["CONTRASENT_DATA"]) / "ir"
    names = options.collections or sorted(p.name for p in folder.iterdir() if p.is_dir())
    budget = parse_budget(options.budget)
    there = {(one["collection"], one["arm"], one["seed"], one["budget"]) for one in lines}
    for seed in range(options.seeds):
        for name in names:
            for arm in options.arms:
                if (name, arm, seed, budget) in there:
                    continue
                print(f"{name}, {arm}, seed {seed}", flush=True)
                line = run(arm, folder / name, budget, seed, options.work)
                append(options.out, [line])


if __name__ == "__main__":
    main()
