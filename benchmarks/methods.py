"""The cost of a step of each method, as a ratio to a step of SimCSE.

    CONTRASENT_DATA=... taskset -c 0 python -m benchmarks.methods [METHOD ...] [--steps N]
                                                                  [--clock cpu|wall]

SimCSE and a method train in a process each and take their steps in turn, as in
:mod:`benchmarks.training`, so that both meet the same machine. Base: contrasent-small, batch 64, 32
tokens, fp32, one thread, Wikipedia sentences; pairs are neighboring sentences. DiffCSE's generator
is as large as the encoder, the guide is all-MiniLM-L6-v2. Printed is the median ratio of
neighboring steps with its 95 % interval (bootstrap).
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.training import WARM, Case, Gate, Side, interval

BASE = "contrasent-small"
GUIDE = "all-MiniLM-L6-v2"
BATCH, TOKENS = 64, 32
METHODS: dict[str, tuple[int, dict[str, Any]]] = {
    "simcse": (1, {}),
    "esimcse": (1, {}),
    "simcse_plus_plus": (1, {}),
    "esimcse+simcse_plus_plus": (1, {}),
    "diffcse": (1, {"generator": BASE}),
    "diffcse+simcse_plus_plus": (1, {"generator": BASE}),
    "simcse+masked_lm": (1, {"language_head": "new"}),
    "promptbert": (1, {}),
    "ranking_distillation": (1, {"guide": GUIDE}),
    "simcse_supervised": (2, {}),
    "simcse_supervised, one hard negative": (3, {}),
    "simcse_supervised, five hard negatives": (7, {}),
    "gist": (2, {"guide": GUIDE}),
    "matryoshka+simcse_supervised": (2, {"dimensions": "128,64"}),
    "cosent": (2, {}),
}
"""The corpus's columns and the method's settings, by its name, after which a comma may follow."""


def train(told: dict[str, Any]) -> None:
    """Be a side's process: train by a method, waiting for leave before every step."""
    from benchmarks.worker import sentences
    from contrasent.text.corpus import open_corpus
    from contrasent.train.fit import fit
    from contrasent.train.step import StepRunner

    columns, own = METHODS[told["side"]]
    method = told["side"].split(",")[0]
    steps = told["case"]["steps"] + WARM + 1
    texts = sentences(columns * BATCH * steps)
    rows: list[Any] = [tuple(texts[i : i + columns]) for i in range(0, len(texts), columns)]
    rows = texts if columns == 1 else rows
    corpus: Any = rows
    gate = Gate(time.process_time if told["clock"] == "cpu" else time.perf_counter)
    take = StepRunner.take

    def taking(self: StepRunner, step: int) -> Any:
        self.moments = frozenset()  # the look at the terms' shares is not a part of a step
        gate()
        return take(self, step)

    StepRunner.take = taking  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        if method == "cosent":
            table = Path(folder) / "rated.jsonl"
            lines = [{"a": a, "b": b, "score": n % 6} for n, (a, b) in enumerate(rows)]
            table.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
            corpus = open_corpus(table, columns=["a", "b"], score="score")
        settings: dict[str, Any] = {
            "batch_size": BATCH,
            "max_seq_length": TOKENS,
            "steps": steps,
            "learning_rate": 1e-5,
        }
        settings |= {"save_steps": 10**6, "precision": "fp32", "mini_batch_size": 0, **own}
        fit(method, corpus, settings, base=BASE, output_dir=Path(folder) / "m", evaluate="none")


def cost(name: str, steps: int, clock: str) -> str:
    """The line of a method."""
    case = Case(BASE, BATCH, TOKENS, steps)
    sides: list[Side] = []
    try:
        for method in ("simcse", name):
            sides.append(Side(method, case, 1, clock, "benchmarks.methods"))
        times = [[side.step() for side in sides] for _ in range(steps + WARM)][WARM:]
    finally:
        for side in sides:
            side.close()
    ratios = [b / a for a, b in times]
    low, high = interval(ratios)
    seconds = statistics.median(a for a, _ in times)
    return (
        f"| `{name}` | {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}) | {seconds:.2f} |"
    )


def main() -> None:
    """Measure and print rows of a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=list(METHODS)[1:])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="cpu")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        train(json.loads(options.run))
        return
    print("| method | a step, in steps of SimCSE | one of SimCSE, s |\n| --- | --- | --- |")
    for name in options.methods:
        print(cost(name, options.steps, options.clock), flush=True)


if __name__ == "__main__":
    main()
