"""Training on a GPU: sentences a second, share of the peak, and the time of an epoch.

    python -m benchmarks.gpu [--steps 30] [--peak 989e12] [--tiny]

An encoder of BERT-base's size with random weights and MiniLM's tokenizer trains unsupervised SimCSE
in bf16, 512 sentences of 32 tokens a step, by this library (padding to multiples of 8 tokens,
torch.compile with CUDA graphs) and by sentence-transformers' trainer (bf16, the same batch). Each
is a process of its own; once both have compiled and warmed up, they take turns: so many steps of
one while the other waits. Printed are the median rate and ratio of five turns with the smallest and
the largest, the share of the peak (6 FLOP a weight and token, embeddings left out, real tokens
only), and the seconds that an epoch of 1,000,000 sentences takes at this rate.

``--tiny`` does the same with two small layers, to see on any machine that it runs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS, TOKENS, EPOCH = 5, 32, 1_000_000
GOAL_RATIO, GOAL_EPOCH = 3.0, 240.0
WARM = 6
"""Steps before the first turn: shapes are compiled in them."""


def write_model(folder: Path, *, tiny: bool) -> int:
    """An encoder with random weights; how many it has, embeddings left out."""
    import torch
    from transformers import BertConfig, BertModel

    from benchmarks.worker import minilm
    from contrasent.model.description import describe
    from contrasent.text.tokens import Tokenizer

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    sizes |= {"num_attention_heads": 2}
    torch.manual_seed(0)
    config = BertConfig(**(sizes if tiny else {}), max_position_embeddings=512)
    model = BertModel(config, add_pooling_layer=False)
    model.save_pretrained(folder)
    Tokenizer.load(describe(Path(minilm())).transformer, max_seq_length=512).save(folder)
    return sum(w.numel() for name, w in model.named_parameters() if "embeddings" not in name)


class Turns:
    """A worker's turns: it waits for a line, takes so many steps, and answers with the time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.since = time.perf_counter()
        self.tokens = 0

    def step(self, number: int) -> None:
        """To be called before each step, with its number from 0."""
        import torch

        if number < WARM or (number - WARM) % self.steps:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent = time.perf_counter() - self.since
        print(json.dumps({"seconds": spent, "tokens": self.tokens}), flush=True)
        if not sys.stdin.readline():
            raise SystemExit
        self.since, self.tokens = time.perf_counter(), 0


def ours(options: dict[str, Any], texts: list[str], turns: Turns, folder: str) -> None:
    """Train by this library."""
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.objectives.simcse import SimCSE
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings
    from contrasent.train.step import StepRunner

    encoder = TorchEncoder.load(options["base"], pooling="mean", dropout=0.1, attention_dropout=0.1)
    take, pool = StepRunner.take, TorchEncoder.pool

    def taking(self: StepRunner, step: int) -> Any:
        turns.step(step)
        return take(self, step)

    def pooling(self: TorchEncoder, block: Any) -> Any:
        turns.tokens += int(block.lengths.sum())
        return pool(self, block)

    StepRunner.take = taking  # type: ignore[method-assign]
    TorchEncoder.pool = pooling  # type: ignore[method-assign, assignment]
    settings = Settings(
        batch_size=options["batch"],
        max_seq_length=TOKENS,
        max_steps=options["total"],
        precision="bf16",
        compile=True,
        save_steps=10**6,
    )
    fit(SimCSE(encoder, projector="none"), texts, settings, output_dir=Path(folder) / "m")


def theirs(options: dict[str, Any], texts: list[str], turns: Turns, folder: str) -> None:
    """Train by sentence-transformers' trainer."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    class OnStep(TrainerCallback):
        def on_step_begin(self, arguments: Any, state: Any, *args: Any, **kwargs: Any) -> None:
            turns.step(state.global_step)

    cuda = torch.cuda.is_available()
    model = SentenceTransformer(options["base"])
    model.max_seq_length = TOKENS
    arguments = SentenceTransformerTrainingArguments(
        folder,
        per_device_train_batch_size=options["batch"],
        max_steps=options["total"],
        bf16=cuda,
        use_cpu=not cuda,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_num_workers=4 if cuda else 0,
    )
    SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"anchor": texts, "positive": texts}),
        loss=MultipleNegativesRankingLoss(model, scale=20.0),
        callbacks=[OnStep()],
    ).train()


class Worker:
    """A process that takes turns."""

    def __init__(self, job: str, options: dict[str, Any], errors: Path) -> None:
        self.job, self.errors = job, errors
        told = json.dumps({**options, "job": job})
        with errors.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu", "--run", told],
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


def be_worker(options: dict[str, Any]) -> None:
    """Train in this process."""
    from benchmarks.worker import sentences

    train = {"ours": ours, "theirs": theirs}[options["job"]]
    texts = sentences(options["batch"] * options["total"])
    turns = Turns(options["steps"])
    with tempfile.TemporaryDirectory() as folder:
        train(options, texts, turns, folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30, help="of a turn")
    parser.add_argument("--peak", type=float, default=989e12, help="FLOP a second in bf16, dense")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        be_worker(json.loads(chosen.run))
        return
    import torch

    cuda = torch.cuda.is_available()
    if not cuda and not chosen.tiny:
        sys.exit("there is no GPU here; --tiny shows that it runs without one")
    batch = 16 if chosen.tiny else 512
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = write_model(folder / "base", tiny=chosen.tiny)
        total = WARM + chosen.steps * ROUNDS + 1
        options = {"base": str(folder / "base"), "batch": batch, "steps": chosen.steps}
        options |= {"total": total}
        workers = [Worker(job, options, folder / f"{job}.txt") for job in ("ours", "theirs")]
        before = [worker.read()["seconds"] for worker in workers]
        print("compiled; taking turns", file=sys.stderr, flush=True)
        turns = [[worker.turn() for worker in workers] for _ in range(ROUNDS)]
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
    rows = batch * chosen.steps
    rate, other = (
        statistics.median(rows / turn[side]["seconds"] for turn in turns) for side in (0, 1)
    )
    flops = statistics.median(6 * weights * m["tokens"] / m["seconds"] for m, _ in turns)
    ratios = [theirs["seconds"] / mine["seconds"] for mine, theirs in turns]
    device = torch.cuda.get_device_name() if cuda else "CPU, tiny model"
    print(f"{device}, torch {torch.__version__}, batch {batch}, {TOKENS} tokens, bf16")
    share = 100 * flops / chosen.peak
    print(f"{rate:,.0f} sentences a second, {share:.1f} % of {chosen.peak:.3g} FLOP/s")
    print(f"an epoch of {EPOCH:,}: {EPOCH / rate:,.0f} s, goal at most {GOAL_EPOCH:.0f}")
    print(f"before the first timed step: {before[0]:.0f} s")
    print(
        f"sentence-transformers: {other:,.0f}; ratio {statistics.median(ratios):.2f}x "
        f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} turns), goal at least "
        f"{GOAL_RATIO}x"
    )


if __name__ == "__main__":
    main()
