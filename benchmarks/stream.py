"""Encoding a long file in bounded memory, killed on the way and gone on with.

    CONTRASENT_DATA=... python -m benchmarks.stream [--lines 1000000] [--runtime openvino-int8]
                                                    [--keep VECTORS.npy]

The first lines of a million Wikipedia sentences are encoded into one .npy file by ``contrasent
encode``. With a tenth of the rows written the process gets SIGKILL, and the same command goes on.
Printed are lines a second of the second process, the largest resident memory of both,
less that of a process which encodes one line, and whether random rows are those of encoding their
lines alone.
"""

import argparse
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from contrasent.model.runtime import Exported

GOAL = 600.0
CHECKED = 200
ALIKE = 0.98
"""Smallest cosine of a vector with that of its line alone; not 1 in int8, whatever the calls."""
ROW = 4 * 384  # bytes of a vector
PROGRAM = (
    "import sys; from contrasent.cli.app import app\n"
    "try: app(sys.argv[1:])\n"
    "except SystemExit as end: code = end.code\n"
    "else: code = 0\n"
    "print(*[l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')])\n"
    "sys.exit(code)"
)


def take(source: Path, lines: int, target: Path) -> list[str]:
    """Write the first sentences of the corpus to a file, and give them back."""
    kept = []
    with (
        gzip.open(source, "rt", encoding="utf-8") as stream,
        target.open("w", encoding="utf-8") as out,
    ):
        for number, line in enumerate(stream):
            if number == lines:
                break
            out.write(line.strip() + "\n")
            kept.append(line.strip())
    if len(kept) < lines:
        sys.exit(f"{source} has {len(kept):,} lines only; use --lines")
    return kept


def peak(process: subprocess.Popen[str]) -> float:
    """Largest resident memory of a process so far, MB."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
    except OSError:
        return 0.0
    return max(
        (int(row.split()[1]) / 1024 for row in status.splitlines() if row[:5] == "VmHWM"),
        default=0.0,
    )


def start(model: Path, text: Path, target: Path) -> "subprocess.Popen[str]":
    """``contrasent encode`` in a process of its own."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "encode",
        str(model),
        str(text),
        "-o",
        str(target),
        "-q",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> float:
    """Wait for it; its largest resident memory, MB."""
    out, errors = process.communicate()
    if process.returncode:
        sys.exit(f"contrasent encode failed:\n{errors[-2000:]}")
    return int(out.split()[-1]) / 1024


def kill_early(process: "subprocess.Popen[str]", target: Path, lines: int) -> tuple[float, int]:
    """SIGKILL when a tenth of the rows is written: its largest memory until then, MB, and these."""
    most, rows = 0.0, 0
    while rows < lines / 10:
        growing = target.parent.glob(f".{target.name}.contrasent-*")
        rows = max((path.stat().st_size // ROW for path in growing), default=0)
        if process.poll() is not None:
            sys.exit(f"contrasent encode ended early:\n{process.communicate()[1][-2000:]}")
        most = max(most, peak(process))
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return most, rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--runtime", default="openvino-int8", help="export to make and use")
    parser.add_argument("--exports", type=Path, help="folder with exports made before")
    parser.add_argument("--keep", type=Path, help="file for the vectors")
    options = parser.parse_args()
    data = os.environ.get("CONTRASENT_DATA")
    if not data:
        sys.exit("the Wikipedia sentences are needed; set CONTRASENT_DATA")
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        model = (options.exports or home) / options.runtime
        if not (model / "export.json").is_file():
            command = [sys.executable, "-m", "contrasent", "export", "all-MiniLM-L6-v2", "-q"]
            command += ["--to", options.runtime.removesuffix("-int8"), "-o", str(model)]
            command += ["--int8"] if options.runtime.endswith("-int8") else []
            subprocess.run(command, check=True)
        lines = take(
            Path(data) / "wiki" / "enwiki_sentences_1m.txt.gz", options.lines, home / "big.txt"
        )
        (home / "one.txt").write_text(lines[0] + "\n", "utf-8")
        one = finish(start(model, home / "one.txt", home / "one.npy"))
        target = (options.keep or home / "big.npy").absolute()
        most, done = kill_early(start(model, home / "big.txt", target), target, len(lines))
        began = time.perf_counter()
        most = max(most, finish(start(model, home / "big.txt", target)))
        seconds = time.perf_counter() - began
        vectors = np.load(target, mmap_mode="r", allow_pickle=False)
        rows = np.sort(np.random.default_rng(0).integers(0, len(lines), CHECKED))
        alone = Exported.open(model).encode([lines[row] for row in rows])
        cosine = float((alone * vectors[rows]).sum(axis=1).min())
        whole = vectors.shape == (len(lines), alone.shape[1])
    rate = (len(lines) - done) / seconds
    met = most - one <= GOAL and whole and cosine > ALIKE
    print(
        f"{'met   ' if met else 'MISSED'} {len(lines):,} lines, {options.runtime}, killed after a "
        f"tenth and gone on with: {most - one:.0f} MB at most above one line's {one:.0f} MB, goal "
        f"{GOAL:.0f}; about {rate:.0f} lines a second; {vectors.shape[0]:,} rows, {CHECKED} of "
        f"them against their lines alone: smallest cosine {cosine:.4f}"
    )


if __name__ == "__main__":
    main()
