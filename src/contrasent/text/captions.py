"""Flickr30k's captions: five sentences for each of some 31,000 pictures."""

import gzip
from dataclasses import dataclass
from pathlib import Path

from contrasent.errors import DataError
from contrasent.text.datafiles import need

PLACES = (
    "flickr30k/flickr30k_captions.token.gz",
    "flickr30k/results_20130124.token",
    "flickr30k/flickr30k_captions.token",
)
COUNTS = (158_915, 155_070)
"""Captions of the published file, and of its copy in Multi30k (31,014 pictures of 31,783)."""


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions in the file's order."""

    texts: tuple[str, ...]
    pictures: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def last(self, count: int) -> "Captions":
        """The last ``count`` captions; all of them for 0 (Multi30k's test pictures come last)."""
        return Captions(self.texts[-count:], self.pictures[-count:]) if count else self


def flickr30k(*, folder: Path | None = None) -> Captions:
    """Read the captions from the data folder: lines of ``picture.jpg#k``, a tab and the caption."""
    path = need("flickr30k", PLACES, folder, "its licence allows no copy on the hub")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    texts, pictures = [], []
    for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        name, tab, caption = line.partition("\t")
        if not tab or "#" not in name:
            raise DataError(f"{path}:{number}: expected picture.jpg#k, a tab and a caption")
        texts.append(caption.strip())
        pictures.append(name.rpartition("#")[0])
    if len(texts) not in COUNTS:
        raise DataError(
            f"{path}: {len(texts):,} captions, expected {' or '.join(f'{c:,}' for c in COUNTS)}"
        )
    return Captions(tuple(texts), tuple(pictures))
