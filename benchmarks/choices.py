"""The gain of choices in training from pairs, on queries that took no part.

    CONTRASENT_DATA=... python -m benchmarks.choices --work FOLDER [ARM ...] [--seeds N]

Support answers (stackfaq-answers): the judged pairs of 624 queries train, the other 625 queries
search all answers. Python functions (cosqa): its 500 dev queries train, its 500 test queries search
the functions that answer any of the 1,000. Each arm is ``contrasent train`` with what :data:`ARMS`
says after the settings that all share; nDCG@10 of cosines follows. A line of ``FOLDER/lines.jsonl``
is one model on one collection, and is not repeated; ``--table`` prints, for each arm, its mean over
seeds, the difference from its reference with a 95 % interval (bootstrap over queries, of the mean
over seeds), and the difference of each seed.
"""

import argparse
import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import append, read
from contrasent.datasets.beir import Judged, read_judged, read_qrels, read_texts
from contrasent.stats.bootstrap import from_draws, mean_draws

COLLECTIONS = {"stackfaq": "stackfaq-answers", "cosqa": "cosqa"}
TAUGHT = 624  # queries of stackfaq
TOKENS = 32
SHARED = ("batch_size=24", "max_steps=12", f"max_seq_length={TOKENS}")
# Corpora, settings, and the arm that the difference is from.
ARMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "base": ((), (), ""),
    "stackfaq": (("stackfaq",), (), "base"),
    "stackfaq mined": (("stackfaq",), ("hard_negatives=5",), "stackfaq"),
    "cosqa": (("cosqa",), (), "base"),
    "cosqa mined": (("cosqa",), ("hard_negatives=5",), "cosqa"),
    "stackfaq lora": (("stackfaq",), ("lora=16",), "stackfaq"),
    "stackfaq lora 2e-4": (("stackfaq",), ("lora=16", "learning_rate=2e-4"), "stackfaq"),
    **{
        f"stackfaq {learning_rate}": (("stackfaq",), (learning_rate,), "stackfaq")
        for learning_rate in ("learning_rate=1e-5", "learning_rate=3e-5", "learning_rate=1e-4")
    },
    "both": (("stackfaq", "cosqa"), ("weights=1,1", "max_steps=24"), ""),
    "both 2,1": (("stackfaq", "cosqa"), ("weights=2,1", "max_steps=24"), "both"),
    "stackfaq 84": (("stackfaq",), ("batch_size=84",), "stackfaq"),
    "cosqa 84": (("cosqa",), ("batch_size=84",), "cosqa"),
}


def parts(name: str) -> tuple[list[tuple[str, str]], Judged, dict[str, str]]:
    """Pairs that train, queries that judge, and the documents."""
    folder = Path(os.environ["CONTRASENT_DATA"]) / "ir" / COLLECTIONS[name]
    documents, judged = read_texts(folder / "corpus.jsonl"), read_judged(folder)
    if name == "cosqa":
        texts = read_texts(folder / "queries.dev.jsonl")
        taught = {q: (texts[q], gains) for q, gains in read_qrels(folder / "qrels/dev.tsv").items()}
        answers = {key for _, gains in (*taught.values(), *judged.values()) for key in gains}
        documents = {key: text for key, text in documents.items() if key in answers}
    else:
        names = list(judged)
        chosen = np.random.default_rng(0).permutation(len(names))[:TAUGHT]
        taught = {names[at]: judged[names[at]] for at in sorted(chosen)}
        judged = {query: one for query, one in judged.items() if query not in taught}
    pairs = [
        (text, documents[key]) for text, gains in taught.values() for key in gains if gains[key] > 0
    ]
    return pairs, judged, documents


def scores(model: str, name: str) -> list[float]:
    """nDCG@10 of each query."""
    from contrasent.datasets.beir import places_of
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.evaluate.retrieval import rank_vectors

    _, judged, documents = parts(name)
    places = places_of(list(documents))
    encoder = TorchEncoder.load(model, max_seq_length=TOKENS)
    relevant = [
        {places[key]: gain for key, gain in gains.items() if gain > 0}
        for _, gains in judged.values()
    ]
    queries = encoder.encode([text for text, _ in judged.values()])
    found = rank_vectors(queries, encoder.encode(list(documents.values())), relevant).ndcg(10)
    return [round(float(value), 6) for value in found]


def run(arm: str, seed: int, work: Path) -> None:
    """Train an arm with a seed, and measure it."""
    corpora, settings, _ = ARMS[arm]
    target = work / f"{arm.replace(' ', '-')}-{seed}"
    command = [sys.executable, "-m", "contrasent", "train"]
    for name in corpora:
        path = work / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("query", "answer"), *parts(name)[0]])
        command.append(str(path))
    command += ["-o", str(target), "--overwrite", "--seed", str(seed)]
    command += ["--evaluate", "none"]
    for setting in (*SHARED, *settings):
        command += ["--set", setting]
    if corpora:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        print(done.stdout, flush=True)
    for name in corpora or COLLECTIONS:
        found = scores(str(target) if corpora else "all-MiniLM-L6-v2", name)
        line = {"arm": arm, "seed": seed, "collection": name, "ndcg@10": found}
        append(work / "lines.jsonl", [line])
        print(arm, seed, name, round(float(np.mean(found)), 4), flush=True)


def table(work: Path) -> list[str]:
    """The lines as rows of a table."""
    found: dict[tuple[str, str], dict[int, Any]] = {}
    for line in read(work / "lines.jsonl"):
        of = found.setdefault((line["arm"], line["collection"]), {})
        of[line["seed"]] = np.asarray(line["ndcg@10"])
    rows = ["| arm | collection | seeds | nDCG@10 | difference | each seed |", "| --- " * 6 + "|"]
    for (arm, name), values in found.items():
        corpora, _, stated = ARMS[arm]
        reference = stated or (name if len(corpora) > 1 else "")
        others = found.get((reference, name), {})
        pairs = [
            one - others.get(seed, next(iter(others.values())))
            for seed, one in values.items()
            if seed in others or reference == "base"
        ]
        gap = each = ""
        if pairs and others:
            mean = np.mean(pairs, axis=0)
            effect = from_draws(float(mean.mean()), mean_draws(mean, 10_000, 0))
            gap = f"{effect.mean:+.4f} [{effect.low:+.4f}, {effect.high:+.4f}] from {reference}"
            each = ", ".join(f"{float(one.mean()):+.4f}" for one in pairs)
        score = float(np.mean([one.mean() for one in values.values()]))
        rows.append(f"| {arm} | {name} | {len(values)} | {score:.4f} | {gap} | {each} |")
    return rows


def main() -> None:
    """Run what is not there, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arms", nargs="*", default=list(ARMS))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    lines = read(options.work / "lines.jsonl")
    done = {(line["arm"], line["seed"]) for line in lines}
    for arm in [] if options.table else options.arms:
        for seed in range(options.seeds if ARMS[arm][0] else 1):
            if (arm, seed) not in done:
                run(arm, seed, options.work)
    print("\n".join(table(options.work)))


if __name__ == "__main__":
    main()
