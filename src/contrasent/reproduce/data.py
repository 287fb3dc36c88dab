"""What measures read, found in the data folder; no torch."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from contrasent.errors import DataError
from contrasent.text.datasets import ScoredPairs, sts_pairs
from contrasent.text.labelled import Captions, flickr30k, transfer_set
from contrasent.text.official import STS_YEARS, data_folder

GLOVE = ("glove/glove.840B.300d.txt", "GloVe/glove.840B.300d.txt", "glove.840B.300d.txt")
WHOLE = ("train", "dev", "test")


def glove(folder: Path | None) -> Path:
    """The file of GloVe vectors."""
    root = folder or data_folder()
    found = next((root / p for p in GLOVE if (root / p).is_file()), None) if root else None
    if found is None:
        # Stored with the results, so without the name of this machine's folder.
        where = "in the data folder" if root else "without CONTRASENT_DATA"
        raise DataError(f"needs GloVe's vectors: no {GLOVE[0]} {where}")
    return found


def scored_pairs(
    folder: Path | None,
    *,
    tasks: Iterable[str] = ("STSB",),
    split: str = "test",
    form: str = "senteval",
) -> list[ScoredPairs]:
    """All pairs of tasks; of split "all" those of every split."""
    found: list[ScoredPairs] = []
    for task in tasks:
        every = ("test",) if task in STS_YEARS else WHOLE
        for name in every if split == "all" else (split,):
            found += sts_pairs(task, split=name, form=form, folder=folder)
    return found


def pair_texts(pairs: Iterable[ScoredPairs]) -> Iterator[str]:
    """All that scored pairs consist of, the scores as text."""
    for part in pairs:
        yield from part.first
        yield from part.second
        yield part.scores.tobytes().hex()


def transfer_texts(folder: Path | None, tasks: Iterable[str]) -> Iterator[str]:
    """All that transfer tasks consist of, the labels as text."""
    for task in tasks:
        for found in transfer_set(task, folder=folder).values():
            yield from found.first
            yield from found.second or ()
            yield found.labels.tobytes().hex()


def captions(folder: Path | None, count: int = 0) -> Captions:
    """The last captions of Flickr30k; all for 0."""
    return flickr30k(folder=folder).last(count)
