"""Synonyms from WordNet: its database files, or a lexicon of the package ``wn``."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from contrasent.errors import DataError, MissingExtraError, import_extra

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet", "/usr/local/WordNet-3.0/dict")


def wordnet_synonyms(source: str | Path | None = None) -> Callable[[str], Sequence[str]]:
    """A word's synonyms: the other members of all its synsets, of every part of speech, sorted."""
    if source is not None:
        if Path(source).is_dir():
            return _from_files(Path(source))
        if os.sep in str(source):
            raise DataError(f"{source}: no such folder of WordNet database files")
        return _from_lexicon(str(source))
    named = os.environ.get("WNSEARCHDIR")
    if named:
        return _from_files(Path(named))
    for folder in FOLDERS:
        if Path(folder, FILES[0]).is_file():
            return _from_files(Path(folder))
    try:
        return _from_lexicon(None)
    except (MissingExtraError, DataError) as error:
        raise DataError(
            "synonyms need WordNet, and it is not here: apt install wordnet-base, or set "
            "WNSEARCHDIR to a folder with data.noun, data.verb, data.adj and data.adv, or "
            "pip install wn and python -m wn download oewn:2024"
        ) from error


def _from_files(folder: Path) -> Callable[[str], Sequence[str]]:
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder}: {missing[0]} is missing, so these are not WordNet's files")
    members_of: dict[str, set[str]] = {}
    for name in FILES:
        for members in _synsets(folder / name):
            for member in members:
                members_of.setdefault(member.lower(), set()).update(members)
    table = {word: _others(word, members) for word, members in members_of.items()}
    return lambda word: table.get(word, ())


def _synsets(path: Path) -> Iterator[list[str]]:
    """Members of each synset of a data file (the format is WordNet's manual page wndb(5WN))."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.startswith("  "):  # the licence
                continue
            fields = line.split(" ")
            try:
                # offset, file, part of speech, count in hexadecimal, then word and sense number
                words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            except (IndexError, ValueError) as error:
                raise DataError(f"{path}:{number}: not a line of a WordNet data file") from error
            # Adjectives may carry a marker of position: "alone(p)".
            yield [word.split("(")[0].replace("_", " ") for word in words]


def _from_lexicon(lexicon: str | None) -> Callable[[str], Sequence[str]]:
    wn = import_extra("wn", "synonyms", "a lexicon for synonyms")
    try:
        words = wn.Wordnet(lexicon) if lexicon else wn.Wordnet(lang="en")
    except wn.Error as error:
        name = lexicon or "oewn:2024"
        raise DataError(
            f"the package wn has no lexicon {lexicon or 'for English'}; "
            f"python -m wn download {name} fetches it"
        ) from error

    @lru_cache(maxsize=100_000)
    def synonyms(word: str) -> tuple[str, ...]:
        members = {lemma for synset in words.synsets(word) for lemma in synset.lemmas()}
        return _others(word, members)

    return synonyms


def _others(word: str, members: set[str]) -> tuple[str, ...]:
    return tuple(sorted(m for m in members if m.lower() != word))
