"""Do two versions of sentence-transformers read our models and give the same vectors?

    python -m benchmarks.check_sentence_transformers [--base FOLDER] [--cache FOLDER]

Saves models with every pooler, with a dense head and with normalised vectors, installs each version
with pip (without its dependencies) into a folder of its own, lets it load the models in a fresh
process, and prints the largest difference. Ends with 1 if any is above 1e-5.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

VERSIONS = ("5.3.0", "6.2.0")
LIMIT = 1e-5
TEXTS = [
    "The kettle is on the stove.",
    "",
    "A sentence of more words than the ones before it, with a comma, and a NUMBER: 42.",
    "Ein alter Seemann, 老水手 🎻",
    "longer than the limit " * 40,
]
CASES = [
    ("cls", "none", False),
    ("mean", "none", True),
    ("max", "none", False),
    ("first_last", "tanh", True),
    ("embeddings_last", "none", False),
    ("last_two", "none", True),
    ("cls", "tanh", False),
    ("mean", "batchnorm", True),
]
READER = """
import json, sys, warnings
import numpy as np
import sentence_transformers
told = json.load(sys.stdin)
for name in told["models"]:
    model = sentence_transformers.SentenceTransformer(f"{told['home']}/{name}", device="cpu")
    np.save(f"{told['home']}/{name}.{sentence_transformers.__version__}.npy",
            model.encode(told["texts"], show_progress_bar=False))
print(sentence_transformers.__version__)
"""


def save_models(base: str, home: Path) -> dict[str, np.ndarray]:
    """Save a model of every case; returns our vectors by name."""
    import torch

    from contrasent.model.encoder import Encoder

    logging.getLogger("contrasent").setLevel(logging.ERROR)
    vectors = {}
    for pooler, head, normalise in CASES:
        torch.manual_seed(0)
        options = {"pooler": pooler, "head": head, "normalise": normalise, "max_tokens": 64}
        encoder = Encoder.load(base, device="cpu", **options)
        name = f"{pooler}-{head}-{'unit' if normalise else 'plain'}"
        encoder.save(home / name)
        vectors[name] = encoder.encode(TEXTS)
    return vectors


def installed(version: str, cache: Path) -> Path:
    """A folder that holds this version alone."""
    target = cache / version
    if not (target / "sentence_transformers").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--target", str(target), f"sentence-transformers=={version}"]
        subprocess.run(command, check=True)
    return target


def read_by(version: str, cache: Path, home: Path, names: list[str]) -> None:
    """Let a version encode the texts with every model, in a fresh process."""
    environment = os.environ | {"PYTHONPATH": str(installed(version, cache))}
    told = json.dumps({"models": names, "home": str(home), "texts": TEXTS})
    command = [sys.executable, "-c", READER]
    done = subprocess.run(
        command, input=told, env=environment, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"sentence-transformers {version}: {done.stderr}")
    if done.stdout.split()[-1] != version:
        raise SystemExit(f"asked for {version}, got {done.stdout}")


def main() -> None:
    """Print a table of the largest differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="all-MiniLM-L6-v2", help="model to save")
    parser.add_argument("--cache", type=Path, default=Path("build/sentence-transformers"))
    asked = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        ours = save_models(asked.base, home)
        for version in VERSIONS:
            read_by(version, asked.cache.resolve(), home, list(ours))
        print(f"{'model':28}" + "".join(f"{version:>12}" for version in VERSIONS))
        for name, vectors in ours.items():
            files = [home / f"{name}.{version}.npy" for version in VERSIONS]
            gaps = [float(np.abs(np.load(f, allow_pickle=False) - vectors).max()) for f in files]
            worst = max(worst, *gaps)
            print(f"{name:28}" + "".join(f"{gap:12.1e}" for gap in gaps))
    print(f"largest difference {worst:.1e}, allowed {LIMIT:.0e}")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
