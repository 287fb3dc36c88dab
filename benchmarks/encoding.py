"""Encoding by every runtime against ``SentenceTransformer.encode``, in turn.

    CONTRASENT_DATA=... python -m benchmarks.encoding [--rounds 5] [--peers PEERS/bin/python]

Each measurement is a process of its own that loads all-MiniLM-L6-v2, warms up on other texts, and
times one pass over texts that it has not seen. Rounds are interleaved; printed are the medians of
the ratios to sentence-transformers' rate of the same round, with the smallest and the largest, and
how far the vectors are from its, and the share of the machine's limit (:mod:`benchmarks.limit`)
that torch reaches. Missed goals come first. With ``--peers``, an environment that has
what ``benchmarks/peers.txt`` names, sentence-transformers' own ONNX and OpenVINO backends and
fastembed take their turns too (:mod:`benchmarks.peer_encoding`), with the same weights.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import limit
from benchmarks.limit import Measured, report
from benchmarks.peer_encoding import NAMES as PEERS
from benchmarks.worker import minilm, sentences

EXPORTS = {"onnx": [], "openvino": [], "onnx-int8": ["--int8"], "openvino-int8": ["--int8"]}
THEIRS = "sentence-transformers"
RUNTIMES = (THEIRS, "torch", "invariant", *EXPORTS)
TEXTS = {"short": 1500, "mixed": 300}
FULL = ("torch", "onnx", "openvino")
GOALS = {"short": (2.3, 4.0), "mixed": (2.3, 4.0)}
LIMIT = 1e-5
NEAREST = 0.98
"""Smallest cosine to full precision that a short text may have in int8."""


def short(count: int) -> list[str]:
    """Different sentences of the STS sets, in random order."""
    from contrasent.datasets.sts import sts_pairs

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


def texts_of(kind: str) -> tuple[list[str], list[str]]:
    """Texts to time, and others to warm up with."""
    count = TEXTS[kind]
    texts = {"short": short, "mixed": mixed}[kind](count + 64)
    return texts[:count], texts[count:]


def measure(runtime: str, kind: str, exports: str, keep: str | None) -> float:
    """Sentences a second of one pass, in this process."""
    logging.disable(logging.WARNING)
    texts, warm = texts_of(kind)
    if runtime == THEIRS:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(minilm())

        def encode(rows: list[str]) -> Any:
            return model.encode(rows, show_progress_bar=False)
    else:
        from contrasent.cli.options import Loading, open_model

        ours = runtime in ("torch", "invariant")
        folder = Path(minilm()) if ours else Path(exports) / runtime
        opened = open_model(folder, Loading(batch_invariant=runtime == "invariant"))

        def encode(rows: list[str]) -> Any:
            return opened(rows)

    encode(warm)
    began = time.perf_counter()
    vectors = encode(texts)
    rate = len(texts) / (time.perf_counter() - began)
    if keep:
        np.save(keep, np.asarray(vectors, dtype=np.float32), allow_pickle=False)
    return rate


def run(command: list[str], what: str) -> str:
    """The last line that a process of its own prints."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{what} failed:\n{done.stderr[-2000:]}")
    return done.stdout.strip().rpartition("\n")[2]


@dataclass(frozen=True)
class Others:
    """Peers in an environment of their own.

    Attributes:
        python: its interpreter.
        folder: what they exported, and the texts.
    """

    python: Path
    folder: Path

    def prepare(self) -> None:
        """Let them export the model, and write down the texts."""
        from contrasent.cli.models import calibration

        self.folder.mkdir()
        for kind in TEXTS:
            for name, texts in zip((kind, f"{kind}-warm"), texts_of(kind), strict=True):
                (self.folder / f"{name}.json").write_text(json.dumps(texts), "utf-8")
        sentences_file = self.folder / "calibration.json"
        sentences_file.write_text(json.dumps(calibration(None)), "utf-8")
        run([*self._command("prepare", minilm()), str(sentences_file)], "the peers' export")

    def rate(self, name: str, kind: str, keep: str | None) -> float:
        """Sentences a second of one of them."""
        texts = [str(self.folder / f"{file}.json") for file in (kind, f"{kind}-warm")]
        command = [*self._command("encode", name), *texts, *([keep] if keep else [])]
        return float(run(command, f"{name}, {kind}"))

    def _command(self, job: str, what: str) -> list[str]:
        script = str(Path(__file__).with_name("peer_encoding.py"))
        return [str(self.python), script, job, what, str(self.folder)]


def worker(runtime: str, kind: str, exports: str, keep: str | None = None) -> float:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.encoding", "--job"]
    return float(run([*command, json.dumps([runtime, kind, exports, keep])], f"{runtime}, {kind}"))


def cold(exports: str, rounds: int) -> list[Measured]:
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
                Measured(
                    middle <= 1.5 and size <= 300,
                    f"one sentence, cold, {name}: {middle:.2f} s ({min(times[1:]):.2f} to "
                    f"{max(times[1:]):.2f}), {size:.0f} MB, goal at most 1.5 s and 300 MB",
                    (f"one sentence, cold, {name}", "", f"{middle:.2f} s, {size:.0f} MB", ""),
                )
            )
    return lines


def _work(kind: str) -> float:
    """Billions of operations of a text, a mean."""
    from contrasent.encoder.encoder import TorchEncoder

    texts, _ = texts_of(kind)
    return limit.operations(TorchEncoder.load(minilm()), texts) / len(texts) / 1e9


def table(
    kind: str,
    exports: str,
    rounds: int,
    vectors: Path,
    others: Others | None,
    limits: dict[str, float],
) -> list[Measured]:
    """Rates of all runtimes on one kind of text."""
    peers = PEERS if others else ()
    rates: dict[str, list[float]] = {name: [] for name in (*RUNTIMES, *peers)}
    for turn in range(rounds):
        for name in rates:
            keep = str(vectors / f"{name}.npy") if turn == 0 else None
            if others and name in peers:
                rates[name].append(others.rate(name, kind, keep))
            else:
                rates[name].append(worker(name, kind, exports, keep))
    theirs = np.load(vectors / f"{THEIRS}.npy", allow_pickle=False)
    lines = []
    best, gaps = {}, {}
    for name in [name for name in rates if name != THEIRS]:
        ratios = [a / b for a, b in zip(rates[name], rates[THEIRS], strict=True)]
        found = np.load(vectors / f"{name}.npy", allow_pickle=False)
        gap, cosine = np.abs(found - theirs).max(), (found * theirs).sum(axis=1).min()
        middle = best[name] = statistics.median(ratios)
        gaps[name] = float(gap)
        exact = name in FULL or name == "invariant"
        line = (
            f"encoding {TEXTS[kind]} {kind} texts, {name}: {middle:.2f}x ({min(ratios):.2f} to "
            f"{max(ratios):.2f}), {statistics.median(rates[name]):.1f} a second; differs by "
            f"{gap:.1e}, smallest cosine {cosine:.5f}"
        )
        print(line, flush=True)
        near = kind != "short" or name not in EXPORTS or cosine >= NEAREST
        share = ""
        if name == "torch":
            share = f"{_work(kind) * statistics.median(rates[name]) / limits['fp32']:.0%} fp32"
        ratio = f"{middle:.2f}x [{min(ratios):.2f}, {max(ratios):.2f}]"
        row = (f"encode {TEXTS[kind]} {kind} texts, {name}", ratio if exact else "", ratio, share)
        lines.append(Measured(bool(gap <= LIMIT if exact else near), line, row))
    for title, names, goal in (
        ("full precision", FULL, GOALS[kind][0]),
        ("int8", [name for name in EXPORTS if "int8" in name], GOALS[kind][1]),
    ):
        name = max(names, key=lambda one: best[one])
        said = f"encoding, {kind}, fastest in {title} ({name}): {best[name]:.2f}x, goal {goal}x"
        lines.append(Measured(best[name] >= goal, said))
        alike = [peer for peer in peers if (gaps[peer] <= LIMIT) == (title == "full precision")]
        if alike:
            peer = max(alike, key=lambda one: best[one])
            ratios = [a / b for a, b in zip(rates[name], rates[peer], strict=True)]
            middle = statistics.median(ratios)
            said = (
                f"encoding, {kind}, fastest in {title} ({name}) against the fastest peer that is "
                f"{'exact' if title == 'full precision' else 'not exact'} to {LIMIT} ({peer}): "
                f"{middle:.2f}x ({min(ratios):.2f} to {max(ratios):.2f}), goal 1x"
            )
            lines.append(Measured(middle >= 1, said))
    return lines


def measured(
    rounds: int, limits: dict[str, float], *, exports: Path | None = None, peers: Path | None = None
) -> list[Measured]:
    """All comparisons of encoding; ``exports`` keeps the exports, ``peers`` runs others' code."""
    with tempfile.TemporaryDirectory() as scratch:
        home = exports or Path(scratch)
        for name, more in EXPORTS.items():
            if not (home / name / "export.json").is_file():
                command = [sys.executable, "-m", "contrasent", "export", "all-MiniLM-L6-v2", "-q"]
                command += ["--to", name.removesuffix("-int8"), "-o", str(home / name), *more]
                subprocess.run(command, check=True)
        others = Others(peers, Path(scratch) / "peers") if peers else None
        if others:
            others.prepare()
        lines = cold(str(home), rounds)
        for kind in TEXTS:
            lines += table(kind, str(home), rounds, Path(scratch), others, limits)
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exports", type=Path, help="folder to keep the exports in")
    parser.add_argument("--peers", type=Path, help="python of an environment with the peers")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(measure(*json.loads(options.job)))
        return
    if not os.environ.get("CONTRASENT_DATA"):
        sys.exit("the STS sentences are needed; set CONTRASENT_DATA")
    cores = os.cpu_count() or 1
    products = limit.measured(cores)
    print(limit.line(products, cores), flush=True)
    limits = limit.limits(products)
    report(measured(options.rounds, limits, exports=options.exports, peers=options.peers))


if __name__ == "__main__":
    main()
