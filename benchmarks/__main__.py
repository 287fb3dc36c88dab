"""``make bench``: the table of research/performance.md, measured here and now.

    python -m benchmarks [--only WORD] [--rounds 3] [--peers PEERS/bin/python] [--page FILE.md]

First the machine's own limit: the fastest products of its cores (:mod:`benchmarks.limit`). Then
training (:mod:`benchmarks.training`) and encoding (:mod:`benchmarks.encoding`), ours and
sentence-transformers in turn, and whole processes. Goals that were missed are listed first; the
table follows, and replaces the one of ``--page``. A benchmark that does not run is a failure.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks import encoding, limit, training
from benchmarks.limit import Measured

BIN = Path(sys.executable).parent


def seconds(command: list[str], rounds: int) -> list[float]:
    """Wall time of a whole process, after one warm-up."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return times[1:]


def whole_processes(rounds: int) -> list[Measured]:
    """Figures of the command line as a whole."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "one.txt"
        text.write_text("A short sentence to encode.\nAnd another one.\n", "utf-8")
        target = str(Path(folder) / "v.npy")
        encode = ["encode", "all-MiniLM-L6-v2", str(text), "-o", target, "--overwrite", "--quiet"]
        for title, arguments, goal in (
            ("`contrasent --help`", ["--help"], 0.5),
            ("one sentence, cold, torch", encode, 5.0),
        ):
            times = seconds([str(BIN / "contrasent"), *arguments], rounds)
            middle = statistics.median(times)
            spread = f"{middle:.2f} s ({min(times):.2f} to {max(times):.2f})"
            row = title, "", spread, ""
            lines.append(Measured(middle <= goal, f"{title}: {spread}, goal at most {goal} s", row))
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="trainings whose title has this in it, alone")
    parser.add_argument("--peers", type=Path, help="python of an environment with the peers")
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    options = parser.parse_args()
    if not os.environ.get("CONTRASENT_DATA"):
        sys.exit("sentences are needed; set CONTRASENT_DATA")
    cores = os.cpu_count() or 1
    products = limit.measured(cores)
    machine = f"{limit.line(products, cores)}, torch {torch.__version__}, load {os.getloadavg()}"
    print(machine, flush=True)
    lines = training.measure(options.only)
    if not options.only:
        limits = limit.limits(limit.measured(cores))
        lines += encoding.measured(options.rounds, limits, peers=options.peers)
        lines += whole_processes(options.rounds)
    if not lines:
        sys.exit(f"no training has {options.only!r} in its title")
    limit.report(lines)
    if options.page:
        limit.replace_table(options.page, lines, machine)


if __name__ == "__main__":
    main()
