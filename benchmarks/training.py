"""Training against sentence-transformers' trainer, step by step in turn.

    python -m benchmarks.training [--only WORD] [--steps N] [--threads N] [--clock wall|cpu]
                                  [--layers4 FOLDER]

Each side trains in a process of its own and waits for leave before every step, so that one step of
ours is followed by one of theirs and a machine whose speed drifts slows both alike. A step is timed
from one leave until it asks for the next: batches, logs and all. Printed is the median ratio of
neighbouring steps with its 95 % interval (bootstrap).

Both start from the same weights, with the same pooling, dropout 0.1, batch size and token limit,
and learn unsupervised SimCSE: theirs by MultipleNegativesRankingLoss on (s, s). At batch 512 and
128 tokens their padded batch would take tens of GiB, so that there both sides use cached gradients
(theirs CachedMultipleNegativesRankingLoss, 64 sentences at a time; ours ``grad_cache_rows=128``).

Cached gradients are also measured against our own direct step, and the memory of a batch of 4,096
against that of one of 64. The encoder of 4 layers is all-MiniLM-L6-v2 without its last two, unless
a folder is named.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

WARM = 2
GOALS = {32: 1.5, 128: 2.7}
DEAREST = 1.5
"""What a step with cached gradients may cost at most, in direct steps."""
MORE_MEMORY = 1.1
"""What a batch of 4,096 with cached gradients may take, against a direct one of 64."""


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        encoder: "MiniLM" (all-MiniLM-L6-v2, mean pooling) or "4 layers" (cls pooling, as this
            library does for encoders that do not say).
        batch: sentences a step.
        tokens: limit.
        steps: timed steps of each side.
        cached: whether both use cached gradients.
        chunk: rows at once of ours with cached gradients.
        layers4: folder of the 4-layer encoder.
        pairs: learn from pairs of a sentence and one to six that follow it, not from sentences.
    """

    encoder: str
    batch: int
    tokens: int
    steps: int
    cached: bool = False
    chunk: int = 128
    layers4: str = ""
    pairs: bool = False

    @property
    def title(self) -> str:
        """As it is printed."""
        how = ", cached gradients" if self.cached else ", pairs" if self.pairs else ""
        return f"training, {self.encoder}, batch {self.batch}, {self.tokens} tokens, fp32{how}"


CASES = (
    *(
        Case(encoder, batch, tokens, steps, cached=(batch, tokens) == (512, 128))
        for encoder in ("MiniLM", "4 layers")
        for batch, tokens, steps in ((64, 32, 8), (64, 128, 6), (512, 32, 3), (512, 128, 2))
    ),
    Case("MiniLM", 64, 128, 6, pairs=True),
)


class Gate:
    """A step's turn: waits for leave and reports how long the step before it took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.since = clock, 0.0

    def __call__(self) -> None:
        """Report, then wait."""
        sys.stdout.write(f"{self.clock() - self.since}\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            sys.exit(0)
        self.since = self.clock()


def base(case: Case) -> str:
    """Folder of the encoder."""
    from benchmarks.worker import minilm

    return minilm() if case.encoder == "MiniLM" else case.layers4


def examples(case: Case) -> tuple[list[str], list[str]]:
    """Anchors and positives of every step; the same sentences twice unless it is pairs."""
    from benchmarks.worker import sentences

    count = case.batch * (case.steps + WARM + 1)
    if not case.pairs:
        texts = sentences(count)
        return texts, texts
    texts = sentences(8 * count)
    random = np.random.default_rng(0)
    ends = random.integers(1, 7, count)
    return texts[::8], [" ".join(texts[8 * i + 1 : 8 * i + 1 + n]) for i, n in enumerate(ends)]


def cut_to_four_layers(target: Path) -> str:
    """A bare encoder of MiniLM's first four layers."""
    from transformers import AutoModel

    from benchmarks.worker import minilm
    from contrasent.model.description import describe
    from contrasent.text.tokens import Tokenizer

    source = describe(Path(minilm())).transformer
    model = AutoModel.from_pretrained(source, num_hidden_layers=4, add_pooling_layer=False)
    model.save_pretrained(target)
    Tokenizer.load(source, max_tokens=128).save(target)
    return str(target)


def ours(case: Case, gate: Gate) -> None:
    """Train by this library's own loop."""
    _ours(case, gate, chunk=case.chunk if case.cached else 0)


def cached(case: Case, gate: Gate) -> None:
    """The same with cached gradients."""
    _ours(case, gate, chunk=case.chunk)


def _ours(case: Case, gate: Gate, *, chunk: int) -> None:
    from contrasent.encoder.encoder import Encoder
    from contrasent.objectives.simcse import SimCSE
    from contrasent.objectives.simcse_supervised import SupervisedSimCSE
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings
    from contrasent.train.step import StepRunner

    steps = case.steps + WARM
    encoder = Encoder.load(
        base(case),
        pooler="mean" if case.encoder == "MiniLM" else "cls",
        dropout=0.1,
        attention_dropout=0.1,
    )
    take = StepRunner.take

    def taking(self: StepRunner, step: int) -> Any:
        gate()
        return take(self, step)

    StepRunner.take = taking  # type: ignore[method-assign]
    settings = Settings(
        batch=case.batch,
        max_tokens=case.tokens,
        steps=steps + 1,
        grad_cache_rows=chunk,
        checkpoint_every=10**6,
    )
    anchors, positives = examples(case)
    method = SupervisedSimCSE if case.pairs else SimCSE
    corpus = list(zip(anchors, positives, strict=True)) if case.pairs else anchors
    with tempfile.TemporaryDirectory() as folder:
        fit(method(encoder, projector="none"), corpus, settings, folder=Path(folder) / "m")


def theirs(case: Case, gate: Gate) -> None:
    """Train by SentenceTransformerTrainer."""
    from datasets import Dataset
    from sentence_transformers import (  # type: ignore[attr-defined]
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        models,
    )
    from sentence_transformers.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )
    from transformers import TrainerCallback

    if case.encoder == "MiniLM":
        model = SentenceTransformer(base(case), device="cpu")
    else:
        transformer = models.Transformer(base(case))
        pooling = models.Pooling(transformer.get_word_embedding_dimension(), "cls")
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    model.max_seq_length = case.tokens
    steps = case.steps + WARM
    anchors, positives = examples(case)
    loss = (
        CachedMultipleNegativesRankingLoss(model, scale=20.0, mini_batch_size=64)
        if case.cached
        else MultipleNegativesRankingLoss(model, scale=20.0)
    )

    class Turn(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            gate()

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=case.batch,
            max_steps=steps + 1,
            learning_rate=3e-5,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_num_workers=0,
            use_cpu=True,
        )
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"anchor": anchors, "positive": positives}),
            loss=loss,
            callbacks=[Turn()],
        ).train()


class Side:
    """One side's process: ``module`` is what it runs, ``environment`` is added to ours."""

    def __init__(
        self,
        side: str,
        case: Case,
        threads: int,
        clock: str,
        module: str = "benchmarks.training",
        environment: dict[str, str] | None = None,
    ) -> None:
        told = json.dumps({"side": side, "case": asdict(case), "clock": clock})
        self.name = f"{case.title}: {side}"
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "--run", told],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)} | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.read()  # it has come to its first step

    def read(self) -> float:
        """Seconds that the side reports; ends the benchmark if it is gone."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                return float(line)
            except ValueError:
                continue  # what a library prints
        self.errors.seek(0)
        sys.exit(f"{self.name} ended with {self.process.wait()}:\n{self.errors.read()[-2000:]}")

    def step(self) -> float:
        """Let it take one step."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def peak(self) -> float:
        """Its greatest resident memory so far, MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self.errors.close()


def interval(ratios: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of a median."""
    picked = np.random.default_rng(0).choice(ratios, (draws, len(ratios)))
    low, high = np.percentile(np.median(picked, axis=1), [2.5, 97.5])
    return float(low), float(high)


def in_turn(
    case: Case, names: tuple[str, str], threads: int, clock: str
) -> tuple[list[float], list[float]]:
    """Seconds of the steps of two sides."""
    sides: list[Side] = []
    try:
        for name in names:
            sides.append(Side(name, case, threads, clock))
        times = [[side.step() for side in sides] for _ in range(case.steps + WARM)][WARM:]
    finally:
        for side in sides:
            side.close()
    return [a for a, _ in times], [b for _, b in times]


def compare(case: Case, threads: int, clock: str) -> tuple[bool, str]:
    """Whether the goal is met, and the line that says so."""
    mine, others = in_turn(case, ("ours", "theirs"), threads, clock)
    ratios = [b / a for a, b in zip(mine, others, strict=True)]
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    one, two = (case.batch / statistics.median(column) for column in (mine, others))
    goal = GOALS[case.tokens]
    return middle >= goal, (
        f"{case.title}: {middle:.2f}x ({low:.2f} to {high:.2f}, {len(ratios)} steps in turn), goal "
        f"at least {goal}x; sentences a second {one:.1f} against {two:.1f} of sentence-transformers"
    )


def cost(case: Case, threads: int, clock: str) -> tuple[bool, str]:
    """A step with cached gradients against a direct one."""
    direct, again = in_turn(case, ("ours", "cached"), threads, clock)
    ratios = [b / a for a, b in zip(direct, again, strict=True)]
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    return middle <= DEAREST, (
        f"cached gradients, {case.encoder}, batch {case.batch}, {case.chunk} rows at once: a step "
        f"costs {middle:.2f} direct ones ({low:.2f} to {high:.2f}, {len(ratios)} steps in turn), "
        f"goal at most {DEAREST}"
    )


def memory(layers4: str, threads: int) -> tuple[bool, str]:
    """Peak resident memory of batches of 4,096 with cached gradients, and of batches of 64.

    Both go through 8,192 sentences: what the process holds grows at first, with each new shape.
    """
    peaks = []
    for batch, name in ((64, "ours"), (4096, "cached")):
        steps = 8192 // batch
        case = Case("4 layers", batch, 32, steps, chunk=64, layers4=layers4)
        side = Side(name, case, threads, "wall")
        try:
            for _ in range(steps):
                side.step()
            peaks.append(side.peak())
        finally:
            side.close()
    few, many = peaks
    return many <= MORE_MEMORY * few, (
        f"cached gradients, 4 layers, batch 4096, 64 rows at once: {many:.0f} MiB at most against "
        f"{few:.0f} MiB of a direct batch of 64 over as many sentences, {many / few:.2f}x, goal at "
        f"most {MORE_MEMORY}x"
    )


def memory_of_pairs(threads: int, steps: int) -> tuple[bool, str]:
    """Peak resident memory of a training of pairs on both sides, one after the other."""
    case = Case("MiniLM", 64, 128, steps, pairs=True)
    peaks = []
    for name in ("ours", "theirs"):
        side = Side(name, case, threads, "wall")
        try:
            begun = side.peak()
            for _ in range(steps):
                side.step()
            peaks.append((begun, side.peak()))
        finally:
            side.close()
    (start, ours), (other_start, theirs) = peaks
    return ours <= theirs, (
        f"memory, {case.title}: {ours:.0f} MiB at most after {steps} steps, {start:.0f} before the "
        f"first, against {theirs:.0f} and {other_start:.0f} of sentence-transformers, goal no more"
    )


def measure(
    only: str = "",
    *,
    steps: int | None = None,
    threads: int = 0,
    clock: str = "wall",
    layers4: str = "",
) -> list[tuple[bool, str]]:
    """All comparisons whose title has a word in it."""
    threads = threads or os.cpu_count() or 1
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        layers4 = layers4 or cut_to_four_layers(Path(folder) / "four")
        for case in CASES:
            if only in case.title:
                changed = {"layers4": layers4, "steps": steps or case.steps}
                lines.append(compare(Case(**asdict(case) | changed), threads, clock))
                print(lines[-1][1], flush=True)
        if only in "cached gradients, cost":
            case = Case("4 layers", 512, 32, steps or 3, layers4=layers4)
            lines.append(cost(case, threads, clock))
            print(lines[-1][1], flush=True)
        if only in "cached gradients, memory":
            lines.append(memory(layers4, threads))
            print(lines[-1][1], flush=True)
        if only in "memory, pairs":
            lines.append(memory_of_pairs(threads, steps or 12))
            print(lines[-1][1], flush=True)
    return lines


def run(text: str) -> None:
    """Be a side's process."""
    told = json.loads(text)
    clock = time.process_time if told["clock"] == "cpu" else time.perf_counter
    side = {"ours": ours, "cached": cached, "theirs": theirs}[told["side"]]
    side(Case(**told["case"]), Gate(clock))


def main() -> None:
    """Measure and print, missed goals first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="comparisons whose title has this in it")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--layers4", default="", help="folder of an encoder of 4 layers")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return
    lines = measure(options.only, steps=options.steps, threads=options.threads, clock=options.clock)
    if not lines:
        sys.exit(f"no comparison has {options.only!r} in its title")
    print("\nsummary, missed goals first")
    for met, line in sorted(lines):
        print(f"{'met   ' if met else 'MISSED'} {line}")


if __name__ == "__main__":
    main()
