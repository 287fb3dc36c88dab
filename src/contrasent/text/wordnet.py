"""Synonyms from the database files of WordNet."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from contrasent.errors import DataError

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet", "/usr/local/WordNet-3.0/dict")


def wordnet_synonyms(folder: str | Path | None = None) -> Callable[[str], Sequence[str]]:
    """A word's synonyms: the other members of all its synsets, of every part of speech, sorted."""
    folder = folder or os.environ.get("WNSEARCHDIR")
    if folder is None:
        folder = next((place for place in FOLDERS if Path(place, FILES[0]).is_file()), None)
    if folder is None:
        raise DataError(
            "synonyms need WordNet: apt install wordnet-base, or set "
            f"WNSEARCHDIR to a folder with {', '.join(FILES)}"
        )
    missing = [name for name in FILES if not Path(folder, name).is_file()]
    if missing:
        raise DataError(f"{folder}: {missing[0]} is missing; not a WordNet folder")
    members_of: dict[str, set[str]] = {}
    for name in FILES:
        for members in _synsets(Path(folder, name)):
            for member in members:
                members_of.setdefault(member.lower(), set()).update(members)
    table = {
        word: tuple(sorted(member for member in members if member.lower() != word))
        for word, members in members_of.items()
    }
    return lambda word: table.get(word, ())


def _synsets(path: Path) -> Iterator[list[str]]:
    """Members of each synset of a data file (the format is WordNet's manual page wndb(5WN))."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.startswith("  "):  # the license
                continue
            fields = line.split(" ")
            try:
                # offset, file, part of speech, count in hexadecimal, then word and sense number
                words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            except (IndexError, ValueError) as error:
                raise DataError(f"{path}:{number}: not a line of a WordNet data file") from error
            # Adjectives may carry a marker of position: "alone(p)".
            yield [word.split("(")[0].replace("_", " ") for word in words]
