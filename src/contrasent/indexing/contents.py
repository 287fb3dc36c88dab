"""The contents of an index for its owner: documents, formats, languages, near-duplicates."""

import os
import time
from collections import Counter
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrasent import progress
from contrasent.documents.archives import Reason, entries
from contrasent.documents.folder import Origin, file_of
from contrasent.errors import InputError, OptionError
from contrasent.indexing.following import own_folder
from contrasent.indexing.models import language_name
from contrasent.nearest import Best
from contrasent.search.folder import CHECKSUM, DATABASE
from contrasent.search.index import Index
from contrasent.search.learned import HAS_LEARNED_TABLE
from contrasent.search.ranking import Ranker
from contrasent.types import Numbers, composed

LABELED = 2000  # documents whose language is checked
MOST = 100_000  # files that are listed where the documents were
PAIRED_ROWS, PAIRED_COLUMNS = 1024, 8192


def list_documents(index: str | Path, pattern: str = "*") -> list[dict[str, Any]]:
    """The documents of an index whose names match a pattern, and how many rows each has."""
    with closing(Index.open(own_folder(index))) as opened:
        documents = opened.row_documents
    return [
        {"document": name, "rows": len(documents.rows_of(name))}
        for name in sorted(documents.numbers)
        if fnmatchcase(composed(name.casefold()), composed(pattern.casefold()))
    ]


def describe(index: str | Path) -> dict[str, Any]:
    """Facts about an index, without reading its vectors or a model."""
    folder = own_folder(index)
    with closing(Index.open(folder)) as opened:
        known, facts = opened.store.files(), opened.facts
        documents = opened.row_documents
        sample = sorted(documents.numbers)[:: -(-len(documents.numbers) // LABELED) or 1]
        rows = opened.rows([documents.rows_of(name)[0] for name in sample])
        unfinished, learned = opened.unfinished, []
        if opened.store.query(HAS_LEARNED_TABLE):
            learned = [
                name for (name,) in opened.store.query("SELECT name FROM learned ORDER BY name")
            ]
    starts = [row.metadata.get("body") if isinstance(row.metadata, dict) else 0 for row in rows]
    starts = [start if isinstance(start, int) else 0 for start in starts]
    texts = (row.text[start:] for row, start in zip(rows, starts, strict=True))
    files = {file_of(name, known) for name in documents.numbers}
    skipped = dict[str, list[str]]()
    for name, about in known.items():
        if reason := about.get("skipped"):
            skipped.setdefault(str(reason), []).append(name)
    listed = _listed(Origin.read(facts.origin), skipped)
    there = [folder / name for name in (DATABASE, CHECKSUM) if (folder / name).exists()]
    changed = [path.stat().st_mtime for path in there]
    return {
        "rows": facts.rows - facts.dead,
        "unfinished": unfinished,
        "documents": len(documents.numbers),
        "formats": dict(Counter(map(_form, files)).most_common()),
        "languages": dict(Counter(map(language_name, texts)).most_common()),
        "languages_of": len(sample),
        "skipped": skipped,
        "removed_by_hand": [name for name, about in known.items() if about.get("removed")],
        "not_read_yet": None if listed is None else sorted(listed - known.keys()),
        "source": facts.origin.get("path"),
        "columns": facts.origin.get("columns"),
        "model": facts.source,
        "dimension": facts.dimension,
        "metric": facts.metric,
        "ranker": Ranker.from_json(facts.ranker).summary,
        "learned": learned,
        "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        "changed": _at(changed[0]),
        "synced": _at(max(changed)),
    }


def _listed(origin: Origin | None, skipped: dict[str, list[str]]) -> set[str] | None:
    """The files where the documents were; those skipped by name are added to ``skipped``.

    None if the documents are gone, or there are more files than the index could have come from.
    """
    passed, listed = list[tuple[Reason, str]](), set[str]()

    def skip(reason: Reason, name: str) -> None:
        passed.append((reason, name))
        if len(passed) > MOST:
            raise InputError(name, "is one argument too many")

    if origin is None or not os.path.exists(origin.path):  # noqa: PTH110
        return None
    try:
        for entry in entries(Path(origin.path), skip, origin.choice()):
            listed.add(entry.name)
            if len(listed) > MOST:
                return None
    except InputError:
        return None
    for reason, name in passed:
        skipped.setdefault(str(reason), []).append(name)
    return listed


def _form(name: str) -> str:
    last = name.rpartition("/")[2].casefold().removesuffix(".gz")
    return last.rpartition(".")[2] if "." in last else "no suffix"


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


class Pair(NamedTuple):
    """Two rows of an index, the kept one first."""

    first: int
    second: int
    score: float


def near_duplicates(index: Index, threshold: float) -> tuple[Numbers, list[Pair]]:
    """The rows that are kept (k,), and each other one with the nearest that was kept before it."""
    if not np.isfinite(threshold) or (index.metric == "cosine" and not -1 <= threshold <= 1):
        raise OptionError("threshold", threshold, "must be from -1 to 1")
    index.check_finished("looking for duplicates")
    rows, kept_rows = index.numbers(), np.empty(0, dtype=np.int64)
    pairs: list[Pair] = []
    with progress.task("dedupe", len(rows), "texts") as advance:
        for start in range(0, len(rows), PAIRED_ROWS):
            here = rows[start : start + PAIRED_ROWS]
            vectors = np.asarray(index.vectors[here])
            best = Best(len(here), 1)
            for place in range(0, len(kept_rows), PAIRED_COLUMNS):
                some = kept_rows[place : place + PAIRED_COLUMNS]
                best.offer(vectors @ np.asarray(index.vectors[some]).T, some)
            scores, partner = best.scores[:, 0], best.rows[:, 0]
            within, stays = vectors @ vectors.T, np.zeros(len(here), dtype=bool)
            for place in range(len(here)):
                before = np.flatnonzero(stays[:place])
                if len(before) and (most := within[place, before]).max() > scores[place]:
                    scores[place], partner[place] = most.max(), here[before[most.argmax()]]
                stays[place] = scores[place] < threshold
            pairs += [
                Pair(int(partner[place]), int(here[place]), float(scores[place]))
                for place in np.flatnonzero(~stays)
            ]
            kept_rows = np.concatenate([kept_rows, here[stays]])
            advance(len(here), kept=len(kept_rows))
    return kept_rows, pairs
