"""How often something is learned from text in which there is nothing to learn.

    python -m benchmarks.gate [--runs 200] [--base FOLDER]

Every sentence is words drawn on their own, so a sentence has no more to do with the rest of its
passage than with any other. Each run draws 25 to 400 documents of one to three passages. Without
``--base`` a text's vector is the mean of a vector drawn for each of its words, which costs nothing
and sees every word that two texts share.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from contrasent.adapt.steps import Steps, learn_from_text
from contrasent.metrics import normalize
from contrasent.search.index import Index
from contrasent.types import EncodeFn, Vectors

SYLLABLES = ("bal", "cor", "dim", "fer", "gul", "hap", "jin", "kel", "lom", "mur")
ENDINGS = ("an", "esk", "ip", "ond", "ur", "ath", "ell", "ov", "ick", "umb")
WORDS = [beginning + ending for beginning in SYLLABLES for ending in ENDINGS]


class WordVectors:
    """A text's vector is the mean of those of its words, drawn at random."""

    def __init__(self, dimension: int = 64) -> None:
        drawn = np.random.default_rng(0).normal(size=(len(WORDS), dimension))
        self._vectors = dict(zip(WORDS, drawn.astype(np.float32), strict=True))

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """(n, d) unit vectors."""
        means = [
            np.mean([self._vectors[word] for word in text.lower().replace(".", "").split()], axis=0)
            for text in texts
        ]
        found: Vectors = normalize(np.array(means, dtype=np.float32))
        return found


def passages(random: np.random.Generator, documents: int) -> tuple[list[str], list[str]]:
    """Passages of two to eight sentences, and the document of each."""
    texts, names = list[str](), list[str]()
    for document in range(documents):
        for _ in range(random.integers(1, 4)):
            drawn = (" ".join(random.choice(WORDS, 8)) for _ in range(random.integers(2, 9)))
            texts.append(" ".join(f"{sentence.capitalize()}." for sentence in drawn))
            names.append(f"{document}.md")
    return texts, names


def run(encode: EncodeFn, seed: int) -> tuple[int, Steps]:
    """How many documents, and what was learned from them."""
    random = np.random.default_rng(seed)
    documents = int(random.integers(25, 121) if seed % 2 else random.integers(120, 401))
    texts, names = passages(random, documents)
    about = [{"document": name} for name in names]
    index = Index.build(encode, texts, metadata=about)
    return documents, learn_from_text(
        index, encode, index.ranker, seed=seed, log=lambda _: None, until=lambda: 600.0
    )


def main() -> None:
    """Print a line a run, and how many kept something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    given = parser.parse_args()
    encode: EncodeFn = WordVectors()
    if given.base:
        from contrasent.model.numpy_model import NumpyModel

        encode = NumpyModel(given.base).encode
    kept = 0
    for seed in range(given.runs):
        documents, steps = run(encode, seed)
        kept += steps.ranker.uses_learned
        line = {"seed": seed, "documents": documents, "kept": steps.ranker.uses_learned}
        print(json.dumps(line | {"notes": steps.notes}), flush=True)
    print(json.dumps({"runs": given.runs, "kept_something": kept}))


if __name__ == "__main__":
    main()
