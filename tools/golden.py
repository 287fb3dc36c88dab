"""Write golden files of this version: a model, an index, shards and a report, all of them tiny.

    python -m tools.golden tests/golden/0.1

Made once a minor version and never changed: tests/test_golden_files.py reads all versions' files.
"""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
TEXTS = (
    "The lighthouse keeper counts the ships.",
    "Twelve boats came home before the storm.",
    "Bread is baked at four in the morning.",
    "The baker sleeps when others rise.",
    "A storm took the roof of the boathouse.",
)


def main() -> None:
    """Write all of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch

    import contrasent
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.search.index import Index
    from contrasent.search.writer import Writer
    from tiny_models import write_backbone, write_tokenizer

    target = Path(sys.argv[1])
    bare = target / "bare"
    torch.manual_seed(1)
    write_backbone("bert", bare, write_tokenizer("bert", bare))
    encoder = TorchEncoder.load(bare, pooling="mean", normalize=True)
    encoder.save(target / "model")
    for path in bare.iterdir():
        path.unlink()
    bare.rmdir()
    (target / "texts.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    np.save(target / "vectors.npy", encoder.encode(list(TEXTS)))
    ratings = "\n".join(f"{a},{b},{n}" for n, (a, b) in enumerate(pairwise(TEXTS)))
    (target / "ratings.csv").write_text(ratings + "\n", "utf-8")
    about = [{"line": n} for n in range(len(TEXTS) + 1)]
    texts = [*TEXTS, "A text that is deleted."]
    index = Index.build(
        encoder.encode, texts, metadata=about, model=encoder.identity, source="model"
    )
    index.save(target / "index")
    with Writer(target / "index") as writer:
        writer.delete([str(len(TEXTS))])
    (target / "index" / ".lock").unlink(missing_ok=True)
    commands = (
        "encode model texts.txt -o shards",
        "evaluate model --pairs ratings.csv --columns 0,1,2 --json-file report.json",
    )
    for words in commands:
        run = [str(Path(sys.executable).with_name("contrasent")), *words.split(), "--quiet"]
        subprocess.run(run, cwd=target, check=True)
    (target / "shards" / ".lock").unlink(missing_ok=True)
    facts = {"version": contrasent.__version__}
    (target / "made.json").write_text(json.dumps(facts) + "\n", "utf-8")


if __name__ == "__main__":
    main()
