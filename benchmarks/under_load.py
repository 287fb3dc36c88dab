"""A training beside other busy processes: what it keeps of its fair share.

    python -m benchmarks.under_load [--busy 1 2 4] [--rounds 3] [--steps 4] [--batch 64]
                                    [--arm NAME=VALUE ...]

An arm is a training process of its own (all-MiniLM-L6-v2, unsupervised SimCSE, 32 tokens, fp32, one
thread for each core) that takes a few steps when it is its turn: alone, then beside k busy
processes that this program starts, and so on in turn. The first arm is the library as it comes;
``--arm`` adds others with environment variables of their own, ``+`` between several.

The fair share: with t threads of ours and k of others on c cores, each thread is due min(1, c / (t
+ k)) of a core, and the training min(t, c) alone, so that its rate should be

    t * min(1, c / (t + k)) / min(t, c)

of what it is alone. ``of fair`` is the rate beside k processes over that. On a machine that others
use too nothing is ever alone; ``by CPU time`` then says the same from what the scheduler gave out:

    (sentences / (t * CPU seconds of a busy process)) / (sentences / CPU seconds alone)

which is 1 if every CPU second due to the training's threads did as much as alone, in the turn that
spent least. Each turn is printed as (wall seconds, CPU seconds of ours, of a busy process).
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.training import Case, Side, run

GOAL = 0.8
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and all its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Busy:
    """Processes that do nothing but compute, for a block."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> "Busy":
        program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
        command = [sys.executable, "-c", program]
        self.processes = [subprocess.Popen(command) for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def cpu(self) -> float:
        """Mean CPU time of one of them so far."""
        return sum(cpu_seconds(p.pid) for p in self.processes) / max(1, self.count)


def turn(side: Side, steps: int, busy: Busy) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds of the training, and CPU seconds of a busy process."""
    side.step()  # caches and the scheduler settle
    wall, own, other = time.perf_counter(), cpu_seconds(side.process.pid), busy.cpu()
    for _ in range(steps):
        side.step()
    return (
        time.perf_counter() - wall,
        cpu_seconds(side.process.pid) - own,
        busy.cpu() - other,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--arm", action="append", default=[], metavar="NAME=VALUE[+NAME=VALUE]")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return
    cores, threads = os.cpu_count() or 1, options.threads
    turns = options.rounds * (len(options.busy) + 1)
    case = Case("MiniLM", options.batch, 32, turns * (options.steps + 1))
    arms: dict[str, Side] = {}
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    print(f"{cores} cores, {threads} threads, load before {os.getloadavg()}", flush=True)
    try:
        for arm in ("as it comes", *options.arm):
            values = dict(pair.split("=", 1) for pair in arm.split("+")) if "=" in arm else {}
            arms[arm] = Side("ours", case, threads, "wall", "benchmarks.under_load", values)
            for _ in range(2):
                arms[arm].step()
        for _ in range(options.rounds):
            for count in (0, *options.busy):
                for arm, side in arms.items():
                    with Busy(count) as busy:
                        found.setdefault((arm, count), []).append(turn(side, options.steps, busy))
                    print(f"{arm}, {count} busy: {found[arm, count][-1]}", flush=True)
    finally:
        for side in arms.values():
            side.close()
    print(f"load after {os.getloadavg()}")
    sentences = options.steps * case.batch
    least = min(cpu / sentences for arm in arms for _, cpu, _ in found[arm, 0])
    for arm in arms:
        alone = found[arm, 0]
        rates = [sentences / wall for wall, *_ in alone]
        spent = statistics.median(cpu / sentences for _, cpu, _ in alone)
        print(f"{arm}: alone {statistics.median(rates):.1f} a second, {spent * 1e3:.1f} ms of CPU")
        for count in options.busy:
            fair = threads * min(1, cores / (threads + count)) / min(threads, cores)
            rows = found[arm, count]
            shares = [wall[0] / row[0] / fair for wall, row in zip(alone, rows, strict=True)]
            by_cpu = [sentences * least / (threads * max(row[2], 1 / TICKS)) for row in rows]
            middle = statistics.median(shares)
            print(
                f"  {'met   ' if middle >= GOAL else 'MISSED'} beside {count}: "
                f"{statistics.median(sentences / row[0] for row in rows):.1f} a second, "
                f"{middle:.2f} of fair ({min(shares):.2f} to {max(shares):.2f}; fair {fair:.2f}), "
                f"by CPU time {statistics.median(by_cpu):.2f} "
                f"({min(by_cpu):.2f} to {max(by_cpu):.2f}); cores used "
                f"{statistics.median(row[1] / row[0] for row in rows):.2f}, goal {GOAL}",
                flush=True,
            )


if __name__ == "__main__":
    main()
