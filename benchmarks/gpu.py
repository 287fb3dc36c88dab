"""Training on a GPU: sentences a second, share of the peak, and the time of an epoch.

    python -m benchmarks.gpu [--steps 30] [--batch-size 512] [--tokens 32] [--rounds 5]
                             [--peak 989e12] [--tiny] [--no-theirs]

An encoder of BERT-base's size with random weights and MiniLM's tokenizer trains unsupervised SimCSE
in bf16, by this library (padding to multiples of 8 tokens, torch.compile with CUDA graphs) and by
sentence-transformers' trainer (bf16, the same batch). Each is a process of its own; once both have
compiled and warmed up, they take turns: so many steps of one while the other waits.
Printed are the median rate and ratio with the smallest and the largest, the share of the peak
(6 FLOP a weight and token, embeddings left out, real tokens only), and the seconds that an epoch of
1,000,000 sentences takes at this rate.

``--tiny`` does the same with two small layers, to see on any machine that it runs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPOCH = 1_000_000
GOAL_RATIO, GOAL_EPOCH = 3.0, 240.0
WARM = 6
"""Steps before the first turn: shapes are compiled in them."""


def write_model(folder: Path, tokenizer: Path, *, tiny: bool) -> None:
    """An encoder with random weights."""
    import torch
    from transformers import BertConfig, BertModel

    from contrasent.model.description import describe
    from contrasent.text.tokens import Tokenizer

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    sizes |= {"num_attention_heads": 2}
    torch.manual_seed(0)
    config = BertConfig(**(sizes if tiny else {}), max_position_embeddings=512)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    Tokenizer.load(describe(tokenizer).transformer, max_seq_length=512).save(folder)


class Turns:
    """A worker's turns: it waits for a line, takes so many steps, and answers with the time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.began = self.started = time.perf_counter()
        self.tokens = 0

    def step(self, number: int) -> None:
        """To be called before each step, with its number from 0."""
        if number < WARM or (number - WARM) % self.steps:
            return
        settle()
        now = time.perf_counter()
        if number == WARM:
            print(json.dumps({"before": now - self.began}), flush=True)
        else:
            print(json.dumps({"seconds": now - self.started, "tokens": self.tokens}), flush=True)
        if not sys.stdin.readline():
            raise SystemExit
        self.started, self.tokens = time.perf_counter(), 0


def ours(options: dict[str, Any]) -> None:
    """By this library."""
    from benchmarks.worker import sentences
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.objectives.simcse import SimCSE
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings
    from contrasent.train.step import StepRunner

    turns = Turns(options["steps"])
    encoder = TorchEncoder.load(options["base"], pooling="mean", dropout=0.1, attention_dropout=0.1)
    total = options["total"]
    take, pool = StepRunner.take, TorchEncoder.pool

    def taking(self: StepRunner, step: int) -> Any:
        turns.step(step)
        return take(self, step)

    def pooling(self: TorchEncoder, block: Any) -> Any:
        turns.tokens += int(block.lengths.sum())
        return pool(self, block)

    StepRunner.take = taking  # type: ignore[method-assign]
    TorchEncoder.pool = pooling  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            batch_size=options["batch_size"],
            max_seq_length=options["tokens"],
            max_steps=total,
            precision="bf16",
            compile=options["compile"],
            save_steps=10**6,
        )
        texts = sentences(options["batch_size"] * total)
        fit(SimCSE(encoder, projector="none"), texts, settings, output_dir=Path(folder) / "m")


def theirs(options: dict[str, Any]) -> None:
    """By sentence-transformers' trainer."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    from benchmarks.worker import sentences

    turns = Turns(options["steps"])
    model = SentenceTransformer(options["base"])
    model.max_seq_length = options["tokens"]
    texts = sentences(options["batch_size"] * options["total"])

    class OnStep(TrainerCallback):
        def on_step_begin(self, arguments: Any, state: Any, *args: Any, **kwargs: Any) -> None:
            turns.step(state.global_step)

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=options["batch_size"],
            max_steps=options["total"],
            bf16=options["cuda"],
            use_cpu=not options["cuda"],
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_num_workers=4 if options["cuda"] else 0,
        )
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"anchor": texts, "positive": texts}),
            loss=MultipleNegativesRankingLoss(model, scale=20.0),
            callbacks=[OnStep()],
        ).train()


def settle() -> None:
    """Wait for the GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Worker:
    """A process that takes turns."""

    def __init__(self, job: str, options: dict[str, Any], errors: Path) -> None:
        self.job, self.errors = job, errors
        command = [sys.executable, "-m", "benchmarks.gpu", "--run", job]
        with errors.open("w") as stream:
            self.process = subprocess.Popen(
                [*command, "--options", json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )

    def read(self) -> dict[str, float]:
        """What it measured; other lines, of libraries, are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        sys.exit(f"{self.job} failed:\n{self.errors.read_text()[-2000:]}")

    def turn(self) -> dict[str, float]:
        """Let it take its steps."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.read()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", type=float, default=989e12, help="FLOP a second in bf16, dense")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="of all-MiniLM-L6-v2 by default")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-theirs", action="store_true")
    parser.add_argument("--run", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--options", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        jobs: dict[str, Callable[[dict[str, Any]], None]] = {"ours": ours, "theirs": theirs}
        jobs[chosen.run](json.loads(chosen.options))
        return
    import torch

    from benchmarks.worker import minilm

    cuda = torch.cuda.is_available()
    if not cuda and not chosen.tiny:
        sys.exit("there is no GPU here; --tiny shows that it runs without one")
    device = torch.cuda.get_device_name() if cuda else "CPU, tiny model"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "base", Path(chosen.tokenizer or minilm()), tiny=chosen.tiny)
        options = {
            "base": str(folder / "base"),
            "batch_size": chosen.batch_size,
            "steps": chosen.steps,
            "total": WARM + chosen.steps * chosen.rounds + 1,
            "tokens": chosen.tokens,
            "compile": not chosen.no_compile,
            "cuda": cuda,
        }
        names = ["ours"] if chosen.no_theirs else ["ours", "theirs"]
        workers = [Worker(name, options, folder / f"{name}.txt") for name in names]
        before = [worker.read()["before"] for worker in workers]
        print("compiled; taking turns", file=sys.stderr, flush=True)
        turns = [[worker.turn() for worker in workers] for _ in range(chosen.rounds)]
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
        weights = weights_of(folder / "base")
    rows = chosen.batch_size * chosen.steps
    rate = statistics.median(rows / mine["seconds"] for mine, *_ in turns)
    flops = statistics.median(6 * weights * m["tokens"] / m["seconds"] for m, *_ in turns)
    print(
        f"{device}, torch {torch.__version__}, "
        f"batch {chosen.batch_size}, {chosen.tokens} tokens, bf16"
    )
    share = 100 * flops / chosen.peak
    print(f"{rate:,.0f} sentences a second, {share:.1f} % of {chosen.peak:.3g} FLOP/s")
    print(f"an epoch of {EPOCH:,}: {EPOCH / rate:,.0f} s, goal at most {GOAL_EPOCH:.0f}")
    print(f"before the first timed step: {before[0]:.0f} s")
    if not chosen.no_theirs:
        ratios = [theirs["seconds"] / mine["seconds"] for mine, theirs in turns]
        theirs_rate = statistics.median(rows / theirs["seconds"] for _, theirs in turns)
        print(
            f"sentence-transformers: {theirs_rate:,.0f}; ratio {statistics.median(ratios):.2f}x "
            f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} turns), "
            f"goal at least {GOAL_RATIO}x"
        )


def weights_of(folder: Path) -> int:
    """Weights of the encoder, embeddings left out."""
    from contrasent.encoder.encoder import TorchEncoder

    named = TorchEncoder.load(folder, pooling="mean").named_parameters()
    return sum(weight.numel() for name, weight in named if "embeddings" not in name)


if __name__ == "__main__":
    main()
