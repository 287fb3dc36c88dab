"""SmolLM2-135M trained by SimCSE, here and by sentence-transformers, step by step in turn.

    python -m benchmarks.laptop [--steps N] [--threads N]

Both take the same sentences of Wikipedia, 64 a step, at most 32 tokens, the same rate (falling to
zero), temperature, pooling (mean) and dropout in attention (0.1), in fp32. Printed are the minutes
of all steps (of ours with saving the model, which the other does not), the median ratio of
neighboring steps with its 95 % interval, and what each model scores on STS-B's development set
(Spearman x 100, the papers' form), with the base's score.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.training import Case, Gate, Side, interval, train_theirs, wait_at_steps
from benchmarks.worker import sentences

BASE = "smollm2-135m"
RATE, SEED = 1e-4, 5


def scored(encode: Any) -> float:
    """Spearman x 100 on STS-B's development set."""
    from contrasent.evaluate.sts import sts

    report = sts(encode, tasks=("STSB",), split="dev", resamples=0)
    return 100 * report.one(task="STSB", metric="spearman").value


def base_score() -> float:
    """Of the base, averaged."""
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.model.pretrained import resolve

    return scored(TorchEncoder.load(resolve(BASE), pooling="mean").encode)


def ours(case: Case, gate: Gate) -> float:
    """Train by this library, as the command line does."""
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings

    wait_at_steps(gate)
    settings = Settings(
        batch_size=case.batch,
        max_seq_length=case.tokens,
        max_steps=case.steps,
        learning_rate=RATE,
        seed=SEED,
        pooling="mean",
        precision="fp32",
        save_steps=10**6,
    )
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "m"
        texts = sentences(case.batch * case.steps)
        fit("simcse", texts, settings, base=BASE, output_dir=target, evaluate="none")
        gate()
        return scored(TorchEncoder.load(target).encode)


def theirs(case: Case, gate: Gate) -> float:
    """Train by SentenceTransformerTrainer."""
    from sentence_transformers import SentenceTransformer, models  # type: ignore[attr-defined]
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    from contrasent.model.pretrained import resolve

    transformer = models.Transformer(str(resolve(BASE)), config_kwargs={"attention_dropout": 0.1})
    pooling = models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    model.max_seq_length = case.tokens

    texts, loss = (
        sentences(case.batch * case.steps),
        MultipleNegativesRankingLoss(model, scale=20.0),
    )
    how = {"per_device_train_batch_size": case.batch, "max_steps": case.steps, "seed": SEED}
    train_theirs(model, loss, texts, texts, gate, learning_rate=RATE, **how)
    gate()
    return scored(lambda texts: model.encode(texts, show_progress_bar=False))


def compare(case: Case, threads: int) -> None:
    """Train both in turn, and print times and scores."""
    sides = [Side(name, case, threads, "wall", "benchmarks.laptop") for name in ("ours", "theirs")]
    try:
        times = list[list[float]]()
        for step in range(case.steps):
            times.append([side.step() for side in sides])
            print(f"step {step + 1}: {times[-1][0]:.1f} and {times[-1][1]:.1f} s", flush=True)
        scores = [side.step() for side in sides]
    finally:
        for side in sides:
            side.close()
    ratios = [b / a for a, b in times[1:]]
    low, high = interval(ratios)
    print(f"{case.title}, {threads} threads, fp32, seed {SEED}:")
    for name, seconds, score in zip(
        ("ours", "sentence-transformers"), zip(*times, strict=True), scores, strict=True
    ):
        print(f"{name}: {sum(seconds) / 60:.1f} minutes, {score:.1f} on STS-B's development set")
    middle = statistics.median(ratios)
    print(f"{middle:.2f}x by the median of neighboring steps but the first [{low:.2f}, {high:.2f}]")


def main() -> None:
    """Be a side's process, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        told = json.loads(options.run)
        side = {"ours": ours, "theirs": theirs}[told["side"]]
        print(side(Case(**told["case"]), Gate(time.perf_counter)), flush=True)
        return
    print(f"the base: {base_score():.1f}", flush=True)
    compare(Case(BASE, 64, 32, options.steps), options.threads)


if __name__ == "__main__":
    main()
