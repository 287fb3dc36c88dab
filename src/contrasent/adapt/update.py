"""New text for a model that an earlier adaptation left, without forgetting what it was made of.

The earlier index holds the old text: its passages and vectors are taken over, and documents that
the new text has as well are replaced. Old documents that were held out before are held out again:
the old model has never seen them.
"""

import json
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.reading import Reading
from contrasent.adapt.shipping import INDEX, REPORT, is_adapted
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN, parts_of
from contrasent.documents.passages import Passage
from contrasent.errors import InputError, OutputError
from contrasent.model.encoder import Encoder
from contrasent.search.index import Index, document_of
from contrasent.search.ranking import Ranker
from contrasent.types import Vectors


@dataclass(frozen=True, slots=True, eq=False)
class Previous:
    """The output of an earlier adaptation."""

    folder: Path
    index: Index
    # ids that chose and that judged, if it says
    held_out: tuple[frozenset[str], frozenset[str]] | None

    @property
    def fusion(self) -> Ranker | None:
        """How words count next to its vectors."""
        return self.index.ranker if self.index.ranker.uses_words else None

    @property
    def stamp(self) -> list[str | int]:
        """Changes when another run of the same command would begin from something else."""
        return [str(self.folder), self.index.model, self.index.generation]

    def check_model(self, encoder: Encoder) -> None:
        """Reject a folder whose index is of another model than the one in it."""
        scaled, encoder.normalise = encoder.normalise, True
        self.index.check_model(encoder.identity, f"the model in {self.folder}")
        encoder.normalise = scaled


def open_previous(folder: Path, target: Path) -> Previous:
    """Open the adaptation that is updated."""
    if not is_adapted(folder):
        raise InputError(
            folder,
            f"was not made by 'contrasent adapt' (no {REPORT} or no {INDEX} in it); adapt it with "
            "--base, on the old and the new text together",
        )
    if target.resolve().is_relative_to(folder.resolve()):
        raise OutputError(f"{target}: is the model that is updated; choose another folder")
    index = Index.open(folder / INDEX)
    _check_texts(index)
    stated = json.loads((folder / REPORT).read_text("utf-8")).get("held_out")
    held_out = stated and (frozenset(stated["choose"]), frozenset(stated["judge"]))
    return Previous(folder, index, held_out)


def with_previous(previous: Previous, new: Reading) -> Reading:
    """The old passages and the new ones; ``facts`` says how many of each are old."""
    numbers: dict[str, int] = {}
    passages: list[Passage] = []
    place: dict[str, int] = {}
    held = {row.text for row in previous.index.every()}
    if all(passage.indexed in held for passage in new.passages):
        raise InputError("the new text", f"is in {previous.folder} already, all of it")
    for hit in previous.index.rows(_rows(previous, set(new.documents))):
        name = document_of(hit.id, hit.metadata)
        number = numbers.setdefault(name, len(numbers))
        place.setdefault(hit.text, len(passages))
        passages.append(passage_of(hit.text, hit.id, hit.metadata, number))
    holding: list[list[int]] = [[] for _ in numbers]
    for at, passage in enumerate(passages):
        holding[passage.document].append(at)
    old, moved = len(passages), list[int]()
    for passage in new.passages:
        if passage.indexed not in place:
            place[passage.indexed] = len(passages)
            number = passage.document + len(numbers)
            passages.append(replace(passage, document=number))
        moved.append(place[passage.indexed])
    holding += [[moved[at] for at in held] for held in new.holding]
    lines = (
        *new.lines,
        f"{old:,} passages of {len(numbers):,} documents are in {previous.folder} already",
    )
    # An index of two sources can follow neither.
    known = previous.index.facts.origin.get("path", "") == new.origin.get("path")
    facts = {**new.facts, "old_documents": len(numbers), "old_passages": old}
    return Reading(
        tuple(passages),
        (*numbers, *new.documents),
        tuple(map(tuple, holding)),
        lines,
        {**facts, "passages": len(passages)},
        new.origin if known else {},
        {**previous.index.files(), **new.files} if known else {},
    )


def old_vectors(previous: Previous, reading: Reading) -> Vectors:
    """(old passages, d) unit vectors of the old passages of :func:`with_previous`."""
    new = set(reading.documents[reading.facts["old_documents"] :])
    return np.asarray(previous.index.vectors[_rows(previous, new)])


def updated_parts(previous: Previous, reading: Reading, *, seed: int) -> NDArray[np.int8]:
    """(documents,) the part of each: the new ones divided, the old ones as they were."""
    count = reading.facts["old_documents"]
    old, new = reading.documents[:count], reading.documents[count:]
    if previous.held_out is None:
        parts = parts_of(old, seed=seed)
    else:
        choose, judge = previous.held_out
        names = [SELECT if name in choose else SEALED if name in judge else TRAIN for name in old]
        parts = np.array(names, dtype=np.int8)
    return np.concatenate([parts, parts_of(new, seed=seed)])


def _rows(previous: Previous, new: set[str]) -> NDArray[np.int64]:
    """Rows of the earlier index, without those of documents that the new text has as well."""
    every = previous.index.every()
    return np.array(
        [row.row for row in every if document_of(row.id, row.metadata) not in new], dtype=np.int64
    )


def passage_of(text: str, identity: str, metadata: Any, document: int) -> Passage:
    """The passage that a row of an index was."""
    known = metadata if isinstance(metadata, dict) and "headings" in metadata else {}
    title, headings = str(known.get("title", "")), tuple(known.get("headings", ()))
    body = int(known.get("body", 0))
    prefix = text[: max(0, body - 1)]
    return Passage(identity, document, title, headings, 0, text[body:], prefix)


def _check_texts(index: Index) -> None:
    """Reject an index without texts."""
    if not any(row.text.strip() for row in islice(index.every(), 1000)):
        problem = "holds no texts to compare with" if len(index) else "is empty"
        raise InputError(str(index.folder or "the index"), problem)
