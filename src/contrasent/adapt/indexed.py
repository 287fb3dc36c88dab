"""Text as passages again: that of an index, and new text read as the index's was."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.documents import open_documents
from contrasent.adapt.duplicates import hash_of
from contrasent.adapt.passages import CountTokens, Passage, prefixes
from contrasent.adapt.reading import read_source
from contrasent.adapt.splitting import by_hash
from contrasent.errors import InputError
from contrasent.search.records import Records, column
from contrasent.search.rows import Rows


def document_of(text: str, metadata: Any) -> str:
    """The document that a row belongs to: the one it names, else its own text.

    So copies of one text are one document, wherever they stand.
    """
    named = metadata.get("document") if isinstance(metadata, dict) else None
    return named if isinstance(named, str) else f"\0{hash_of(text):016x}"


def passage_of(text: str, identity: str, metadata: Any, document: int) -> Passage:
    """The passage that a row of an index was."""
    known = metadata if isinstance(metadata, dict) and "headings" in metadata else {}
    title, headings = str(known.get("title", "")), tuple(known.get("headings", ()))
    before = (p for p in prefixes(title, headings) if p and text.startswith(f"{p}\n"))
    prefix = next(before, "")
    own = text[len(prefix) + 1 :] if prefix else text
    return Passage(identity, document, title, headings, 0, own, prefix)


def row_numbers(index: Rows) -> NDArray[np.int64]:
    """The rows of an index that are there."""
    rows = np.flatnonzero(index.alive())
    if not any(index.named(int(row))["text"].strip() for row in rows[:1000]):
        problem = "holds no texts to compare with" if len(rows) else "is empty"
        raise InputError(str(index.folder or "the index"), problem)
    return rows


def index_documents(index: Rows, rows: NDArray[np.int64]) -> list[str]:
    """The document of each row.

    ``rows``: (n,) numbers.
    """
    places = (index.place(int(row)) for row in rows)
    return [document_of(part.texts[at], part.metadata_of(at)) for part, at in places]


def knows_documents(index: Rows, rows: NDArray[np.int64]) -> bool:
    """Whether 'contrasent adapt' made an index, of documents cut into passages.

    ``rows``: (n,) numbers, one at least.
    """
    segment, at = index.place(int(rows[0]))
    metadata = segment.metadata_of(at)
    return isinstance(metadata, dict) and {"document", "headings"} <= metadata.keys()


def read_passages(
    source: str,
    *,
    documents: bool,
    text_column: str | None,
    count_tokens: CountTokens,
    max_tokens: int,
) -> tuple[list[Passage], list[str]]:
    """New text as passages, and the document of each."""
    if documents:
        columns = None if text_column is None else [text_column]
        found = read_source(
            open_documents(Path(source), columns=columns),
            count_tokens=count_tokens,
            max_tokens=max_tokens,
        )
        names = [found.documents[passage.document] for passage in found.passages]
        return list(found.passages), names
    rows = Records(source, text=None if text_column is None else column(text_column))
    texts = [text for text, _, _ in rows]
    passages = [passage_of(text, str(number), None, 0) for number, text in enumerate(texts)]
    return passages, [document_of(text, None) for text in texts]


def sampled(
    places: Sequence[int],
    documents: Sequence[str],
    text_of: Callable[[int], str],
    *,
    limit: int,
    seed: int,
) -> list[int]:
    """At most so many of some rows, spread over as many documents as that allows."""
    rows: dict[str, list[int]] = {}
    for place in places:
        rows.setdefault(documents[place], []).append(place)
    names = list(rows)
    names = [names[at] for at in by_hash(names, seed=seed)[:limit]]
    each = max(1, limit // max(1, len(names)))
    chosen = []
    for name in names:
        texts = [text_of(place) for place in rows[name]]
        chosen += [rows[name][at] for at in by_hash(texts, seed=seed)[:each]]
    return chosen
