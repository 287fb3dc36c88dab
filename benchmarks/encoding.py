"""Encoding by every runtime against ``SentenceTransformer.encode``, in turn.

    CONTRASENT_DATA=... python -m benchmarks.encoding [--rounds 5]

Each measurement is a process of its own that loads all-MiniLM-L6-v2, warms up on other texts, and
times one pass over texts that it has not seen. Rounds are interleaved; printed are the medians of
the ratios to sentence-transformers' rate of the same round, with the smallest and the largest, and
how far the vectors are from its. Missed goals come first. sentence-transformers' own ONNX backend
needs optimum, of which no release goes with transformers 5, and fastembed fetches its own weights;
neither can be measured on the same model here.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.worker import minilm, sentences

EXPORTS = {"onnx": [], "openvino": [], "onnx-int8": ["--int8"], "openvino-int8": ["--int8"]}
THEIRS = "sentence-transformers"
RUNTIMES = (THEIRS, "torch", "invariant", *EXPORTS)
TEXTS = {"short": 1500, "mixed": 300}
FULL = ("torch", "onnx", "openvino")
GOALS = {"short": (1.3, 4.0), "mixed": (1.5, 4.0)}
LIMIT = 1e-5


def short(count: int) -> list[str]:
    """Different sentences of the STS sets, in random order."""
    from contrasent.text.datasets import sts_pairs

    found: list[str] = []
    for task in ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR"):
        for part in sts_pairs(task, form="raw"):
            found += [*part.first, *part.second]
    distinct = list(dict.fromkeys(found))
    order = np.random.default_rng(0).permutation(len(distinct))[:count]
    return [distinct[row] for row in order]


def mixed(count: int) -> list[str]:
    """Texts of 5 to 256 tokens, all lengths alike: Wikipedia's words cut anew."""
    words = " ".join(sentences(count * 12)).split()
    random, at, found = np.random.default_rng(1), 0, []
    for tokens in random.integers(5, 257, count):
        taken = max(1, round((tokens - 2) / 1.35))
        found.append(" ".join(words[at : at + taken]))
        at += taken
    return found


def measure(runtime: str, kind: str, exports: str, keep: str | None) -> float:
    """Sentences a second of one pass, in this process."""
    logging.disable(logging.WARNING)
    make = {"short": short, "mixed": mixed}[kind]
    count = TEXTS[kind]
    texts = make(count + 64)
    texts, warm = texts[:count], texts[count:]
    if runtime == THEIRS:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(minilm())

        def encode(rows: list[str]) -> Any:
            return model.encode(rows, show_progress_bar=False)
    else:
        from contrasent.cli.loading import open_model

        ours = runtime in ("torch", "invariant")
        folder = Path(minilm()) if ours else Path(exports) / runtime
        encode = open_model(folder, invariant=runtime == "invariant")
    encode(warm)
    began = time.perf_counter()
    vectors = encode(texts)
    rate = count / (time.perf_counter() - began)
    if keep:
        np.save(keep, np.asarray(vectors, dtype=np.float32), allow_pickle=False)
    return rate


def worker(runtime: str, kind: str, exports: str, keep: str | None = None) -> float:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.encoding", "--job"]
    command.append(json.dumps([runtime, kind, exports, keep]))
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{runtime}, {kind} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def cold(exports: str, rounds: int) -> list[tuple[bool, str]]:
    """Wall time and resident memory of encoding one sentence, the whole process."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        text, target = Path(folder) / "one.txt", Path(folder) / "v.npy"
        text.write_text("A short sentence to encode.\n", "utf-8")
        program = (
            "import sys; from contrasent.cli.app import app\n"
            "try: app(sys.argv[1:])\n"
            "except SystemExit: pass\n"
            "print(*[l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')])"
        )
        for name in EXPORTS:
            arguments = ["encode", f"{exports}/{name}", str(text), "-o", str(target)]
            command = [sys.executable, "-c", program, *arguments, "--overwrite", "--quiet"]
            times, sizes = [], []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                times.append(time.perf_counter() - began)
                sizes.append(int(done.stdout.split()[-1]) / 1024)
            middle, size = statistics.median(times[1:]), max(sizes)
            lines.append(
                (
                    middle <= 1.5 and size <= 300,
                    f"one sentence, cold, {name}: {middle:.2f} s ({min(times[1:]):.2f} to "
                    f"{max(times[1:]):.2f}), {size:.0f} MB, goal at most 1.5 s and 300 MB",
                )
            )
    return lines


def table(kind: str, exports: str, rounds: int, vectors: Path) -> list[tuple[bool, str]]:
    """Rates of all runtimes on one kind of text."""
    rates: dict[str, list[float]] = {name: [] for name in RUNTIMES}
    for turn in range(rounds):
        for name in RUNTIMES:
            keep = str(vectors / f"{name}.npy") if turn == 0 else None
            rates[name].append(worker(name, kind, exports, keep))
    theirs = np.load(vectors / f"{THEIRS}.npy", allow_pickle=False)
    lines = []
    best = {}
    for name in RUNTIMES[1:]:
        ratios = [a / b for a, b in zip(rates[name], rates[THEIRS], strict=True)]
        found = np.load(vectors / f"{name}.npy", allow_pickle=False)
        gap, cosine = np.abs(found - theirs).max(), (found * theirs).sum(axis=1).min()
        middle = best[name] = statistics.median(ratios)
        exact = name in FULL or name == "invariant"
        told = (
            f"encoding {TEXTS[kind]} {kind} texts, {name}: {middle:.2f}x ({min(ratios):.2f} to "
            f"{max(ratios):.2f}), {statistics.median(rates[name]):.1f} a second; differs by "
            f"{gap:.1e}, smallest cosine {cosine:.5f}"
        )
        print(told, flush=True)
        lines.append((gap <= LIMIT if exact else True, told))
    for title, names, goal in (
        ("full precision", FULL, GOALS[kind][0]),
        ("int8", [name for name in EXPORTS if "int8" in name], GOALS[kind][1]),
    ):
        name = max(names, key=lambda one: best[one])
        said = f"encoding, {kind}, fastest in {title} ({name}): {best[name]:.2f}x, goal {goal}x"
        lines.append((best[name] >= goal, said))
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exports", type=Path, help="folder to keep the exports in")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(measure(*json.loads(options.job)))
        return
    if not os.environ.get("CONTRASENT_DATA"):
        sys.exit("the STS sentences are needed; set CONTRASENT_DATA")
    with tempfile.TemporaryDirectory() as scratch:
        home = options.exports or Path(scratch)
        for name, more in EXPORTS.items():
            if not (home / name / "export.json").is_file():
                command = [sys.executable, "-m", "contrasent", "export", "all-MiniLM-L6-v2", "-q"]
                command += ["--to", name.removesuffix("-int8"), "-o", str(home / name), *more]
                subprocess.run(command, check=True)
        lines = cold(str(home), options.rounds)
        for kind in TEXTS:
            lines += table(kind, str(home), options.rounds, Path(scratch))
    print(f"\nsummary of {options.rounds} rounds, missed goals first")
    for met, line in sorted(lines):
        print(f"{'met   ' if met else 'MISSED'} {line}")


if __name__ == "__main__":
    main()
