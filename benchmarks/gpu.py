"""Training on a GPU: sentences a second, share of the peak, and the time of an epoch.

    python -m benchmarks.gpu [--steps 30] [--batch 512] [--tokens 32] [--rounds 3]
                             [--peak 989e12] [--tiny] [--no-theirs]

An encoder of BERT-base's size with random weights and MiniLM's tokenizer trains unsupervised SimCSE
in bf16, by this library (padding to multiples of 8 tokens, torch.compile with CUDA graphs) and by
sentence-transformers' trainer (bf16, the same batch), each in a process of its own, in turn.
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
from pathlib import Path
from typing import Any

EPOCH = 1_000_000
GOAL_RATIO, GOAL_EPOCH = 3.0, 240.0
WARM = 6
"""Steps before the clock starts: shapes are compiled in them."""


def write_model(folder: Path, *, tiny: bool) -> None:
    """An encoder with random weights."""
    import torch
    from transformers import BertConfig, BertModel

    from benchmarks.worker import minilm
    from contrasent.model.description import describe
    from contrasent.text.tokens import Tokenizer

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    sizes |= {"num_attention_heads": 2}
    torch.manual_seed(0)
    config = BertConfig(**(sizes if tiny else {}), max_position_embeddings=512)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    Tokenizer.load(describe(Path(minilm())).transformer, max_tokens=512).save(folder)


def ours(options: dict[str, Any]) -> dict[str, float]:
    """By this library."""
    from benchmarks.worker import sentences
    from contrasent.encoder.encoder import Encoder
    from contrasent.objectives.simcse import SimCSE
    from contrasent.train.fit import fit
    from contrasent.train.settings import Settings
    from contrasent.train.step import StepRunner

    encoder = Encoder.load(options["base"], pooler="mean", dropout=0.1, attention_dropout=0.1)
    total = options["steps"] + WARM
    marks: list[float] = []
    take, tokens = StepRunner.take, list[int]()

    def taking(self: StepRunner, step: int) -> Any:
        if step in (WARM, total - 1):
            settle()
            marks.append(time.perf_counter())
        return take(self, step)

    StepRunner.take = taking  # type: ignore[method-assign]
    pool = Encoder.pool

    def pooling(self: Encoder, block: Any) -> Any:
        tokens.append(int(block.lengths.sum()))
        return pool(self, block)

    Encoder.pool = pooling  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            batch=options["batch"],
            max_tokens=options["tokens"],
            steps=total,
            precision="bf16",
            compile=options["compile"],
            checkpoint_every=10**6,
        )
        texts = sentences(options["batch"] * total)
        began = time.perf_counter()
        fit(
            SimCSE(encoder, projector="none"),
            texts,
            settings,
            folder=Path(folder) / "m",
        )
        whole = time.perf_counter() - began
    timed = options["steps"] - 1
    seconds = marks[1] - marks[0]
    weights = sum(p.numel() for n, p in encoder.named_parameters() if "embeddings" not in n)
    return {
        "rate": options["batch"] * timed / seconds,
        "flops": 6 * weights * sum(tokens[WARM : WARM + timed]) / seconds,
        "before": whole - seconds,
    }


def theirs(options: dict[str, Any]) -> dict[str, float]:
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

    total = options["steps"] + WARM
    model = SentenceTransformer(options["base"])
    model.max_seq_length = options["tokens"]
    texts = sentences(options["batch"] * total)
    marks: list[float] = []

    class Marks(TrainerCallback):
        def on_step_begin(self, arguments: Any, state: Any, *args: Any, **kwargs: Any) -> None:
            if state.global_step in (WARM, total - 1):
                settle()
                marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=options["batch"],
            max_steps=total,
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
            callbacks=[Marks()],
        ).train()
    return {"rate": options["batch"] * (options["steps"] - 1) / (marks[1] - marks[0])}


def settle() -> None:
    """Wait for the GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def run(job: str, options: dict[str, Any]) -> dict[str, float]:
    """A job in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--run",
        job,
        "--options",
        json.dumps(options),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{job} {options} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak", type=float, default=989e12, help="FLOP a second in bf16, dense")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-theirs", action="store_true")
    parser.add_argument("--run", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--options", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        work = {"ours": ours, "theirs": theirs}[chosen.run]
        print(json.dumps(work(json.loads(chosen.options))))
        return
    import torch

    cuda = torch.cuda.is_available()
    if not cuda and not chosen.tiny:
        sys.exit("there is no GPU here; --tiny shows that it runs without one")
    device = torch.cuda.get_device_name() if cuda else "CPU, tiny model"
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), tiny=chosen.tiny)
        options = {
            "base": folder,
            "batch": chosen.batch,
            "steps": chosen.steps,
            "tokens": chosen.tokens,
            "compile": not chosen.no_compile,
            "cuda": cuda,
        }
        mine, others = [], []
        for _ in range(chosen.rounds):
            mine.append(run("ours", options))
            if not chosen.no_theirs:
                others.append(run("theirs", options))
    rate = statistics.median(m["rate"] for m in mine)
    share = statistics.median(m["flops"] for m in mine) / chosen.peak
    print(
        f"{device}, torch {torch.__version__}, batch {chosen.batch}, {chosen.tokens} tokens, bf16"
    )
    print(f"{rate:,.0f} sentences a second, {100 * share:.1f} % of {chosen.peak:.3g} FLOP/s")
    print(f"an epoch of {EPOCH:,}: {EPOCH / rate:,.0f} s, goal at most {GOAL_EPOCH:.0f}")
    print(f"before the first timed step: {statistics.median(m['before'] for m in mine):.0f} s")
    if others:
        ratios = [a["rate"] / b["rate"] for a, b in zip(mine, others, strict=True)]
        print(
            f"against sentence-transformers: {statistics.median(ratios):.2f}x ({min(ratios):.2f} "
            f"to {max(ratios):.2f}), goal at least {GOAL_RATIO}x"
        )


if __name__ == "__main__":
    main()
