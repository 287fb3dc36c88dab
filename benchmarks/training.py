"""Training against sentence-transformers' trainer, step by step in turn, and the machine's limit.

    python -m benchmarks.training [--only WORD] [--steps N] [--threads N] [--clock wall|cpu]
                                  [--layers4 FOLDER] [--decoder FOLDER]

Each side trains in a process of its own and waits for leave before every step, so that one step of
ours is followed by one of theirs and a machine whose speed drifts slows both alike. A step is timed
from one leave until it asks for the next: batches, logs and all. Ours trains in fp32, as theirs
does, and again as it comes, in the precision that the machine is fast in. Printed are the median
ratios of neighboring steps with their 95 % intervals (bootstrap), and the share of the limit: the
operations of a step's real tokens in all layers, a second, of what the fastest product of these
shapes reaches (:mod:`benchmarks.limit`).

Both start from the same weights, with the same pooling, dropout 0.1, batch size and token limit,
and learn unsupervised SimCSE: theirs by MultipleNegativesRankingLoss on (s, s). At batch 512 and
128 tokens their padded batch would take tens of GiB, so that there both sides use cached gradients
(theirs CachedMultipleNegativesRankingLoss, 64 sentences at a time; ours ``mini_batch_size=128``).

Cached gradients are also measured against our own direct step, and the memory of a batch of 4,096
against that of one of 64. The encoder of 4 layers is all-MiniLM-L6-v2 without its last two, unless
a folder is named; the decoder has SmolLM2-135M's shape and random weights, which take as long.
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

from benchmarks import limit
from benchmarks.limit import Measured, report

WARM = 2
GOALS = {
    ("MiniLM", 32, False): (2.5, 4.0),
    ("MiniLM", 128, False): (5.0, 8.0),
    ("MiniLM", 128, True): (3.5, 5.0),
    ("decoder", 32, False): (0.0, 2.0),
}
"""Of an encoder, tokens and pairs or not: the ratios wanted like for like and as both come.
Elsewhere they are those of earlier waves."""
EARLIER = {32: (1.5, 1.5), 128: (2.7, 2.7)}
SHARES = {"MiniLM": (0.75, 0.65), "decoder": (0.0, 0.55)}
"""The shares of the limit wanted in fp32 and bf16."""
DEAREST = 1.5
"""What a step with cached gradients may cost at most, in direct steps."""
MORE_MEMORY = 1.1
"""What a batch of 4,096 with cached gradients may take, against a direct one of 64."""


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        encoder: "MiniLM" (all-MiniLM-L6-v2, mean pooling), "4 layers" (cls pooling, as this
            library does for encoders that do not say) or "decoder" (last_token).
        batch: sentences a step.
        tokens: limit.
        steps: timed steps of each side.
        cached: whether both use cached gradients.
        chunk: rows at once of ours with cached gradients.
        layers4: folder of the 4-layer encoder.
        decoder: folder of the decoder.
        pairs: learn from pairs of a sentence and one to six that follow it, not from sentences.
    """

    encoder: str
    batch: int
    tokens: int
    steps: int
    cached: bool = False
    chunk: int = 128
    layers4: str = ""
    decoder: str = ""
    pairs: bool = False

    @property
    def title(self) -> str:
        """As it is printed."""
        how = ", cached gradients" if self.cached else ", pairs" if self.pairs else ""
        return f"training, {self.encoder}, batch {self.batch}, {self.tokens} tokens{how}"

    @property
    def pooling(self) -> str:
        """Of both sides."""
        return {"MiniLM": "mean", "decoder": "last_token"}.get(self.encoder, "cls")

    @property
    def goals(self) -> tuple[float, float]:
        """Ratios wanted, like for like and as both come."""
        return GOALS.get((self.encoder, self.tokens, self.pairs), EARLIER[self.tokens])


CASES = (
    *(
        Case(encoder, batch, tokens, steps, cached=(batch, tokens) == (512, 128))
        for encoder in ("MiniLM", "4 layers")
        for batch, tokens, steps in ((64, 32, 8), (64, 128, 6), (512, 32, 3), (512, 128, 2))
    ),
    Case("MiniLM", 64, 128, 6, pairs=True),
    Case("decoder", 64, 32, 3),
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

    named = {"4 layers": case.layers4, "decoder": case.decoder}
    return named[case.encoder] if case.encoder in named else minilm()


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
    Tokenizer.load(source, max_seq_length=128).save(target)
    return str(target)


def decoder_of_smollm2s_shape(target: Path) -> str:
    """30 layers of 576 with random weights, and MiniLM's vocabulary."""
    from transformers import LlamaConfig, LlamaModel

    from benchmarks.worker import minilm
    from contrasent.model.description import describe
    from contrasent.text.tokens import Tokenizer

    tokenizer = Tokenizer.load(describe(Path(minilm())).transformer, max_seq_length=128)
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    config = LlamaConfig(vocab_size=tokenizer.size, pad_token_id=0, **shape, **heads)
    LlamaModel(config).save_pretrained(target)
    tokenizer.save(target)
    return str(target)


def operations(case: Case) -> float:
    """Operations of a timed step, a mean; the backward pass has two products for each forward."""
    from contrasent.encoder.encoder import TorchEncoder

    encoder = TorchEncoder.load(base(case), pooling=case.pooling, max_seq_length=case.tokens)
    timed = slice(case.batch * WARM, case.batch * (case.steps + WARM))
    forward = sum(limit.operations(encoder, column[timed]) for column in examples(case))
    return (4 if case.cached else 3) * forward / case.steps


def ours(case: Case, gate: Gate) -> None:
    """Train by this library's own loop, in fp32."""
    _ours(case, gate, chunk=case.chunk if case.cached else 0)


def as_it_comes(case: Case, gate: Gate) -> None:
    """The same in the precision that the machine is fast in."""
    _ours(case, gate, chunk=case.chunk if case.cached else 0, precision="auto")


def cached(case: Case, gate: Gate) -> None:
    """The same with cached gradients."""
    _ours(case, gate, chunk=case.chunk)


def _ours(case: Case, gate: Gate, *, chunk: int, precision: Any = "fp32") -> None:
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.objectives.simcse import SimCSE
    from contrasent.objectives.simcse_supervised import SupervisedSimCSE
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings
    from contrasent.train.step import StepRunner

    steps = case.steps + WARM
    encoder = TorchEncoder.load(
        base(case),
        pooling=case.pooling,
        dropout=0.1,
        attention_dropout=0.1,
    )
    take = StepRunner.take

    def taking(self: StepRunner, step: int) -> Any:
        gate()
        return take(self, step)

    StepRunner.take = taking  # type: ignore[method-assign]
    settings = Settings(
        batch_size=case.batch,
        max_seq_length=case.tokens,
        max_steps=steps + 1,
        mini_batch_size=chunk,
        precision=precision,
        save_steps=10**6,
    )
    anchors, positives = examples(case)
    method = SupervisedSimCSE if case.pairs else SimCSE
    corpus = list(zip(anchors, positives, strict=True)) if case.pairs else anchors
    with tempfile.TemporaryDirectory() as folder:
        fit(method(encoder, projector="none"), corpus, settings, output_dir=Path(folder) / "m")


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
        pooling = models.Pooling(
            transformer.get_word_embedding_dimension(), case.pooling.replace("_", "")
        )
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
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_num_workers=0,
            use_cpu=True,
            per_device_train_batch_size=case.batch,
            max_steps=steps + 1,
            learning_rate=3e-5,
        )
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"anchor": anchors, "positive": positives}),
            loss=loss,
            callbacks=[Turn()],
        ).train()


class Side:
    """One side's process."""

    def __init__(self, side: str, case: Case, threads: int, clock: str) -> None:
        told = json.dumps({"side": side, "case": asdict(case), "clock": clock})
        self.name = f"{case.title}: {side}"
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.training", "--run", told],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
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


def in_turn(case: Case, names: tuple[str, ...], threads: int, clock: str) -> list[list[float]]:
    """Seconds of the steps of each side."""
    sides: list[Side] = []
    try:
        for name in names:
            sides.append(Side(name, case, threads, clock))
        times = [[side.step() for side in sides] for _ in range(case.steps + WARM)][WARM:]
    finally:
        for side in sides:
            side.close()
    return [list(column) for column in zip(*times, strict=True)]


def compare(case: Case, threads: int, clock: str, limits: dict[str, float]) -> Measured:
    """Whether the goals are met, the line that says so, and the row of the table."""
    from contrasent.train.settings import fast_precision

    precisions = "fp32", fast_precision()
    sides = ("ours", "as_it_comes", "theirs") if precisions[1] != "fp32" else ("ours", "theirs")
    *mine, others = in_turn(case, sides, threads, clock)
    work = operations(case) / 1e9
    good, told, cells = [], [], list[str]()
    wanted = zip(mine, precisions, case.goals, SHARES.get(case.encoder, (0, 0)), strict=False)
    for seconds, precision, goal, least in wanted:
        ratios = [b / a for a, b in zip(seconds, others, strict=True)]
        middle, (low, high) = statistics.median(ratios), interval(ratios)
        share = work * len(seconds) / sum(seconds) / limits[precision]
        rate = case.batch / statistics.median(seconds)
        good.append(middle >= goal and share >= least)
        told.append(
            f"{precision} {middle:.2f}x ({low:.2f} to {high:.2f}), goal {goal}x, {rate:.1f} "
            f"sentences a second, {share:.0%} of {limits[precision]:.0f} GFLOP/s, goal {least:.0%}"
        )
        cells += [
            f"{middle:.2f}x [{low:.2f}, {high:.2f}]",
            f"{share:.0%} of {limits[precision]:.0f}, {precision}",
        ]
    theirs = case.batch / statistics.median(others)
    return Measured(
        all(good),
        f"{case.title}, {len(others)} steps in turn: {'; '.join(told)}; {theirs:.1f} of "
        "sentence-transformers",
        (case.title, cells[0], cells[-2], "; ".join(cells[1::2])),
    )


def cost(case: Case, threads: int, clock: str) -> Measured:
    """A step with cached gradients against a direct one."""
    direct, again = in_turn(case, ("ours", "cached"), threads, clock)
    ratios = [b / a for a, b in zip(direct, again, strict=True)]
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    return Measured(
        middle <= DEAREST,
        f"cached gradients, {case.encoder}, batch {case.batch}, {case.chunk} rows at once: a step "
        f"costs {middle:.2f} direct ones ({low:.2f} to {high:.2f}, {len(ratios)} steps in turn), "
        f"goal at most {DEAREST}",
    )


def memory(layers4: str, threads: int) -> Measured:
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
    return Measured(
        many <= MORE_MEMORY * few,
        f"cached gradients, 4 layers, batch 4096, 64 rows at once: {many:.0f} MiB at most against "
        f"{few:.0f} MiB of a direct batch of 64 over as many sentences, {many / few:.2f}x, goal at "
        f"most {MORE_MEMORY}x",
    )


def memory_of_pairs(threads: int, steps: int) -> Measured:
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
    return Measured(
        ours <= theirs,
        f"memory, {case.title}: {ours:.0f} MiB at most after {steps} steps, {start:.0f} before the "
        f"first, against {theirs:.0f} and {other_start:.0f} of sentence-transformers, goal no more",
    )


def measure(
    only: str = "",
    *,
    steps: int | None = None,
    threads: int = 0,
    clock: str = "wall",
    layers4: str = "",
    decoder: str = "",
) -> list[Measured]:
    """All comparisons whose title has a word in it."""
    threads = threads or os.cpu_count() or 1
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        layers4 = layers4 or cut_to_four_layers(Path(folder) / "four")
        decoder = decoder or decoder_of_smollm2s_shape(Path(folder) / "decoder")
        folders = {"layers4": layers4, "decoder": decoder}
        for case in CASES:
            if only in case.title:
                changed = folders | {"steps": steps or case.steps}
                # A machine's speed drifts: the limit is that of the moment.
                limits = limit.limits(limit.measured(threads))
                lines.append(compare(Case(**asdict(case) | changed), threads, clock, limits))
                print(lines[-1].line, flush=True)
        if only in "cached gradients, cost":
            case = Case("4 layers", 512, 32, steps or 3, layers4=layers4)
            lines.append(cost(case, threads, clock))
            print(lines[-1].line, flush=True)
        if only in "cached gradients, memory":
            lines.append(memory(layers4, threads))
            print(lines[-1].line, flush=True)
        if only in "memory, pairs":
            lines.append(memory_of_pairs(threads, steps or 12))
            print(lines[-1].line, flush=True)
    return lines


def run(text: str) -> None:
    """Be a side's process."""
    told = json.loads(text)
    clock = time.process_time if told["clock"] == "cpu" else time.perf_counter
    sides = {"ours": ours, "as_it_comes": as_it_comes, "cached": cached, "theirs": theirs}
    sides[told["side"]](Case(**told["case"]), Gate(clock))


def main() -> None:
    """Measure and print, missed goals first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="comparisons whose title has this in it")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--layers4", default="", help="folder of an encoder of 4 layers")
    parser.add_argument("--decoder", default="", help="folder of a decoder")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return
    threads = options.threads or os.cpu_count() or 1
    print(limit.line(limit.measured(threads), threads), flush=True)
    lines = measure(
        options.only,
        steps=options.steps,
        threads=threads,
        clock=options.clock,
        layers4=options.layers4,
        decoder=options.decoder,
    )
    if not lines:
        sys.exit(f"no comparison has {options.only!r} in its title")
    report(lines)


if __name__ == "__main__":
    main()
