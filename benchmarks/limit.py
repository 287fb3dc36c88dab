"""How fast this machine multiplies matrices: the limit of everything that trains or encodes on it.

    python -m benchmarks.limit [--threads N]

Products of the shapes that MiniLM's layers have, forward and for both gradients, by every library
in torch. Printed is the rate of each, and the fastest in float32 and bfloat16.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROWS, INNER, OUTER = 3200, 384, 1536
ROUNDS = 12


def processor() -> str:
    """The processor's name, as the system has it."""
    information = Path("/proc/cpuinfo")
    text = information.read_text("utf-8") if information.exists() else ""
    found = [re.search(rf"^{key}\s*:\s*(.*)$", text, re.M) for key in ("model name", "cpu family")]
    name, family = (match[1].strip() if match else "" for match in found)
    return f"{name} (family {family})" if name else os.uname().machine


def products() -> dict[str, dict[str, float]]:
    """GFLOP/s of each kind of product in this process, by precision and library."""
    import torch
    from torch.nn import functional

    drawn = torch.Generator().manual_seed(0)
    x, w, g = (
        torch.randn(shape, generator=drawn)
        for shape in ((ROWS, INNER), (OUTER, INNER), (ROWS, OUTER))
    )
    pointwise = torch.ops.mkldnn._linear_pointwise

    def by_onednn(a: Any, b: Any) -> Any:
        return pointwise(a, b, None, "none", [], "")

    halves = [part.bfloat16() for part in (x, w, g)]
    found: dict[str, dict[str, float]] = {}
    for name, multiply, operands in (
        ("fp32, torch", functional.linear, (x, w, g)),
        ("fp32, oneDNN", by_onednn, (x, w, g)),
        ("bf16, torch", functional.linear, halves),
    ):
        x, w, g = operands
        pairs = {"forward": (x, w), "by x": (g, w.t()), "by w": (g.t(), x.t())}
        found[name] = {
            kind: max(_rate(multiply, *pair) for _ in range(ROUNDS)) for kind, pair in pairs.items()
        }
    return found


def _rate(multiply: Callable[[Any, Any], Any], a: Any, b: Any) -> float:
    began = time.perf_counter()
    multiply(a, b)
    return 2 * ROWS * INNER * OUTER / (time.perf_counter() - began) / 1e9


def measured(threads: int) -> dict[str, dict[str, float]]:
    """The same in a process of its own with so many threads."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.limit", "--job"],
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def limits(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """GFLOP/s that the fastest kind of product reaches, by precision."""
    return {
        precision: max(
            max(rates.values()) for name, rates in found.items() if name.startswith(precision)
        )
        for precision in ("fp32", "bf16")
    }


def operations(encoder: Any, texts: list[str]) -> float:
    """Operations of a forward pass over texts: products of all layers' weights, and attention."""
    weights = sum(
        p.numel()
        for name, p in encoder.backbone.named_parameters()
        if p.ndim == 2 and "embed" not in name
    )
    lengths = encoder.tokenize(texts)[0].lengths.astype(float)
    size = int(encoder.backbone.config.hidden_size)
    return float(2 * weights * lengths.sum() + 4 * size * encoder.layers * (lengths**2).sum())


def line(found: dict[str, dict[str, float]], threads: int) -> str:
    """What was found, for people."""
    rates = "; ".join(
        f"{name} {', '.join(f'{kind} {rate:.0f}' for kind, rate in by_kind.items())}"
        for name, by_kind in found.items()
    )
    most = " and ".join(f"{rate:.0f} in {name}" for name, rate in limits(found).items())
    return f"{processor()}, {threads} threads: at most {most} GFLOP/s ({rates})"


class Measured(NamedTuple):
    """What came of a comparison: whether its goals are met, a line, and a row of the table."""

    met: bool
    line: str
    row: tuple[str, ...] = ()


HEADER = ("measured", "like for like, fp32", "as both come", "share of the limit")


def report(lines: list[Measured]) -> None:
    """Print all lines, missed goals first, then their table."""
    print("\nsummary, missed goals first")
    for found in sorted(lines):
        print(f"{'met   ' if found.met else 'MISSED'} {found.line}")
    print("", *_table(lines), sep="\n")


def replace_table(page: Path, lines: list[Measured], machine: str) -> None:
    """Put the table, and the machine it was measured on, in the place of a page's first one."""
    text = page.read_text("utf-8").splitlines()
    begin = next(i for i, line in enumerate(text) if line.startswith(f"| {HEADER[0]} |"))
    end = next(i for i in range(begin, len(text)) if not text[i].startswith("|"))
    if text[begin - 2].startswith("Measured on "):
        begin -= 2
    measured = f"Measured on {date.today().isoformat()}: {machine}."
    page.write_text(
        "\n".join([*text[:begin], measured, "", *_table(lines), *text[end:], ""]), "utf-8"
    )


def _table(lines: list[Measured]) -> list[str]:
    rows = [found.row for found in lines if found.row]
    whole = (HEADER, ("---",) * len(HEADER), *rows) if rows else ()
    return [f"| {' | '.join(row)} |" for row in whole]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(products()))
        return
    print(line(measured(options.threads), options.threads))


if __name__ == "__main__":
    main()
