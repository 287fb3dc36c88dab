"""How often ``adapt`` ships something where there is nothing to learn: at most one time in twenty.

    python -m benchmarks.gate --base FOLDER --runs 200

Every sentence and title is words drawn on their own, so a query has no more to do with the text it
was cut out of than with any other: labels without meaning. Whatever is better than the base on the
sealed part is so by chance. ``--base`` is best a small encoder: a run of a random one of two layers
takes seconds.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

SYLLABLES = ("bal", "cor", "dim", "fer", "gul", "hap", "jin", "kel", "lom", "mur")
ENDINGS = ("an", "esk", "ip", "ond", "ur", "ath", "ell", "ov", "ick", "umb")


def write_documents(folder: Path, seed: int, *, count: int = 100) -> None:
    """Notes of a title and two to eight sentences, all of words drawn on their own."""
    random = np.random.default_rng(seed)
    words = [beginning + ending for beginning in SYLLABLES for ending in ENDINGS]

    def drawn(length: int) -> str:
        return " ".join(random.choice(words, length)).capitalize()

    folder.mkdir()
    for number in range(count):
        body = " ".join(f"{drawn(8)}." for _ in range(random.integers(2, 9)))
        (folder / f"{number:03d}.md").write_text(f"# {drawn(4)}\n\n{body}\n", "utf-8")


def run(base: Path, folder: Path, seed: int) -> dict[str, object]:
    """One adaptation to text without meaning; what it chose and shipped."""
    from contrasent.adapt.run import adapt

    write_documents(folder / "documents", seed)
    done = adapt(folder / "documents", folder / "out", base=str(base), budget=120.0, seed=seed)
    return {
        "seed": seed,
        "tried": len(done.trials),
        "shipped": done.shipped.name,
        "improved": done.improved,
        "reason": done.verdict.reason,
    }


def main() -> None:
    """Print a line a run, and how many shipped anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    shipped = 0
    for seed in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            line = run(options.base, Path(folder), seed)
        shipped += bool(line["improved"])
        print(json.dumps(line), flush=True)
    print(f"{shipped} of {options.runs} runs shipped something", file=sys.stderr)


if __name__ == "__main__":
    main()
