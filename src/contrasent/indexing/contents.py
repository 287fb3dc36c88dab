"""The contents of an index for its owner: documents, formats, languages, what is left out."""

import os
import time
from collections import Counter
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from contrasent.documents.archives import Reason, entries
from contrasent.documents.folder import Origin, file_of
from contrasent.errors import InputError
from contrasent.indexing.following import own_folder
from contrasent.search.folder import CHECKSUM, DATABASE
from contrasent.search.index import Index
from contrasent.search.languages import language_name
from contrasent.search.learned import THERE
from contrasent.search.ranking import Ranker

LABELLED = 2000  # documents whose language is looked at
MOST = 100_000  # files that are listed where the documents were

_DOCUMENTS = """SELECT coalesce(json_extract(metadata, '$.document'), id) AS name, count(*),
    min(row) FROM rows GROUP BY name ORDER BY name"""


def list_documents(index: str | Path, pattern: str = "*") -> list[dict[str, Any]]:
    """The documents of an index whose names match a pattern, and how many rows each has."""
    with closing(Index.open(own_folder(index))) as opened:
        named = [(str(name), rows) for name, rows, _ in opened.ask(_DOCUMENTS)]
    wanted = pattern.casefold()
    return [
        {"document": name, "rows": rows}
        for name, rows in named
        if fnmatchcase(name.casefold(), wanted)
    ]


def describe(index: str | Path) -> dict[str, Any]:
    """Facts about an index; none of its vectors and no model is read."""
    folder = own_folder(index)
    with closing(Index.open(folder)) as opened:
        known, facts = opened.files(), opened.facts
        found = opened.ask(_DOCUMENTS)
        sample = found[:: max(1, -(-len(found) // LABELLED))]
        rows = opened.rows([row for *_, row in sample])
        unfinished, learned = opened.unfinished, []
        if opened.ask(THERE):
            learned = [name for (name,) in opened.ask("SELECT name FROM learned ORDER BY name")]
    starts = [row.metadata.get("body") if isinstance(row.metadata, dict) else 0 for row in rows]
    texts = (
        row.text[start if isinstance(start, int) else 0 :]
        for row, start in zip(rows, starts, strict=True)
    )
    files = {file_of(str(name), known) for name, *_ in found}
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
        "documents": len(found),
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
    """The files where the documents were; those passed over by their names are put to the others.

    None where the documents are gone, or more files than the index could have come from are there.
    """
    left = MOST

    def skip(reason: Reason, name: str) -> None:
        nonlocal left
        left -= 1
        passed.setdefault(str(reason), []).append(name)
        if left < 0:
            raise InputError(name, "is one too many")

    passed, listed = dict[str, list[str]](), set[str]()
    # Of a forged index, the path may be too long for one.
    if origin is None or not os.path.exists(origin.path):  # noqa: PTH110
        return None
    try:
        for entry in entries(Path(origin.path), skip):
            listed.add(entry.name)
            if len(listed) > MOST:
                return None
    except InputError:
        return None
    for reason, names in passed.items():
        skipped.setdefault(reason, []).extend(names)
    return listed


def _form(name: str) -> str:
    last = name.rpartition("/")[2].casefold().removesuffix(".gz")
    return last.rpartition(".")[2] if "." in last else "no suffix"


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
