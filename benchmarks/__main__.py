"""``make bench``: the figures of docs/performance.md, measured here and now.

Two things are compared by running them in turn, A B A B ..., each in a process of its own; what is
printed is the median of the ratios of neighbours, with the smallest and the largest. Those that
miss their goal are listed first. A benchmark that does not run is a failure. Training has its own
way of taking turns, see :mod:`benchmarks.training`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import training
from benchmarks.limit import Measured, processor, report

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Comparison:
    """Two jobs that do the same thing.

    Attributes:
        title: what is compared.
        ours: job of benchmarks.worker.
        theirs: the other job.
        goal: smallest ratio wanted.
        options: of both jobs.
    """

    title: str
    ours: str
    theirs: str
    goal: float
    options: dict[str, Any] = field(default_factory=dict)


COMPARISONS = (
    Comparison(
        "encoding, MiniLM, Wikipedia sentences, batch 64",
        "encode_ours",
        "encode_theirs",
        1.1,
        {"batch": 64, "count": 1500},
    ),
)


def worker(job: str, options: dict[str, Any]) -> float:
    """Run a job in a process of its own and give its rate."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker", job, json.dumps(options)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{job} {options} failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["rate"])


def compare(comparison: Comparison, rounds: int) -> tuple[list[float], list[float]]:
    """Rates of both jobs, run in turn."""
    pairs = [
        (worker(comparison.ours, comparison.options), worker(comparison.theirs, comparison.options))
        for _ in range(rounds)
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def seconds(command: list[str], rounds: int) -> list[float]:
    """Wall time of a whole process, after one warm-up."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return times[1:]


def difference() -> float:
    """Largest difference of a vector's component between both libraries."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{name}.npy") for name in ("a", "b")]
        for job, path in zip(("encode_ours", "encode_theirs"), paths, strict=True):
            worker(job, {"batch": 64, "count": 500, "keep": path})
        one, two = (np.load(path, allow_pickle=False) for path in paths)
    return float(np.abs(one - two).max())


def whole_processes(rounds: int) -> list[Measured]:
    """Figures of the command line as a whole."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "one.txt"
        text.write_text("A short sentence to encode.\nAnd another one.\n", "utf-8")
        target = str(Path(folder) / "v.npy")
        encode = ["encode", "all-MiniLM-L6-v2", str(text), "-o", target, "--overwrite", "--quiet"]
        for title, arguments, goal in (
            ("contrasent --help, seconds", ["--help"], 0.5),
            ("contrasent encode, cold, seconds", encode, 5.0),
        ):
            times = seconds([str(BIN / "contrasent"), *arguments], rounds)
            middle = statistics.median(times)
            line = f"{middle:.2f} ({min(times):.2f} to {max(times):.2f}), goal at most {goal}"
            lines.append(Measured(middle <= goal, f"{title}: {line}"))
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="comparisons whose title has this in it")
    options = parser.parse_args()
    import torch

    print(
        f"{processor()}, {os.cpu_count()} cores, "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{options.rounds} rounds in turn"
    )
    lines = training.measure(options.only)
    if not options.only:
        lines += whole_processes(options.rounds)
    for comparison in COMPARISONS:
        if options.only not in comparison.title:
            continue
        ours, theirs = compare(comparison, options.rounds)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        middle = statistics.median(ratios)
        line = (
            f"{comparison.title}: {middle:.2f}x ({min(ratios):.2f} to {max(ratios):.2f}), goal at "
            f"least {comparison.goal}x; sentences a second {statistics.median(ours):.1f} against "
            f"{statistics.median(theirs):.1f} of sentence-transformers"
        )
        print(line, flush=True)
        lines.append(Measured(middle >= comparison.goal, line))
    if not options.only:
        gap = difference()
        line = f"vectors differ by at most {gap:.1e}, goal at most 1e-5"
        lines.append(Measured(gap <= 1e-5, line))
    if not lines:
        sys.exit(f"no comparison has {options.only!r} in its title")
    report(lines)


if __name__ == "__main__":
    main()
