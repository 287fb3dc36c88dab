"""What measures read, found in the data folder, and a digest of it; no torch."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contrasent.errors import DataError
from contrasent.reproduce import corpora
from contrasent.text.captions import Captions, flickr30k
from contrasent.text.datafiles import data_folder
from contrasent.text.datasets import ScoredPairs, sts_pairs
from contrasent.text.official import STS_YEARS
from contrasent.text.transfer import transfer_set

GLOVE = ("glove/glove.840B.300d.txt", "GloVe/glove.840B.300d.txt", "glove.840B.300d.txt")
SENTENCES = 20_000
WHOLE = ("train", "dev", "test")


def glove(folder: Path | None) -> Path:
    """The file of GloVe vectors.

    Raises:
        DataError: it is not in the data folder.
    """
    root = folder or data_folder()
    found = next((root / p for p in GLOVE if (root / p).is_file()), None) if root else None
    if found is None:
        # Stored with the results, so without the name of this machine's folder.
        where = "in the data folder" if root else "without CONTRASENT_DATA"
        raise DataError(f"needs GloVe's vectors: no {GLOVE[0]} {where}")
    return found


def scored_pairs(options: dict[str, Any], folder: Path | None) -> list[ScoredPairs]:
    """All pairs of the tasks and split that a measure names.

    Raises:
        DataError: data that are missing or not official.
    """
    form = options.get("form", "senteval")
    split = options.get("split", "test")
    found: list[ScoredPairs] = []
    for task in options.get("tasks", ("STSB",)):
        every = ("test",) if task in STS_YEARS else WHOLE
        splits = every if split == "all" else (split,)
        for name in splits:
            found += sts_pairs(task, split=name, form=form, folder=folder)
    return found


def captions(options: dict[str, Any], folder: Path | None) -> Captions:
    """The captions that a measure searches.

    Raises:
        DataError: data that are missing or not official.
    """
    return flickr30k(folder=folder).last(options.get("captions", 0))


def sentences(name: str, folder: Path | None) -> tuple[str, ...]:
    """All captions of Flickr30k, or a sample of Wikipedia's sentences.

    Raises:
        DataError: data that are missing or not official.
    """
    if name == "flickr30k":
        return captions({}, folder).texts
    return corpora.sample(name, SENTENCES, folder or data_folder())


def texts_digest(kind: str, options: dict[str, Any], folder: Path | None) -> str:
    """24 hexadecimal digits of all that a measure reads.

    Raises:
        DataError: data that are missing or not official.
    """
    total = hashlib.sha256()
    for text in _texts(kind, options, folder):
        total.update(text.encode() + b"\n")
    return total.hexdigest()[:24]


def _texts(kind: str, options: dict[str, Any], folder: Path | None) -> Iterator[str]:
    if kind == "speed":
        return
    if kind == "transfer":
        for task in options["tasks"]:
            for found in transfer_set(task, folder=folder).values():
                yield from found.first
                yield from found.second or ()
                yield found.labels.tobytes().hex()
        return
    if kind == "caption_retrieval" or options.get("documents") == "flickr30k":
        yield from captions(options, folder).texts
        return
    if kind == "repetition_bias":
        yield from sentences(options["text"], folder)
        return
    if kind == "pair_similarity":
        yield from (options["query"], *options["texts"])
        return
    for part in scored_pairs(options, folder):
        yield from part.first
        yield from part.second
        yield part.scores.tobytes().hex()
