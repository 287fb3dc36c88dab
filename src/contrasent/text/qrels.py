"""Retrieval collections on disk: BEIR's folders, and qrels in TREC's or BEIR's form."""

import json
from dataclasses import dataclass
from pathlib import Path

from contrasent.errors import DataError
from contrasent.text.datafiles import read_lines


@dataclass(frozen=True, slots=True)
class Collection:
    """Queries, documents, and which of them belong together.

    Attributes:
        relevant: of each query, {position of a document: gain}.
        own: of each query, the position of the document with its id; -1 where there is none, or
            where it is judged relevant, so that the ids are equal by chance.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: tuple[dict[int, float], ...]
    own: tuple[int, ...]


def read_collection(folder: Path, *, split: str = "test") -> Collection:
    """Read a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    Queries without a relevant document in the split are left out.
    """
    documents = _texts(folder / "corpus.jsonl")
    queries = _texts(folder / "queries.jsonl")
    judged = read_qrels(folder / "qrels" / f"{split}.tsv")
    place = {name: i for i, name in enumerate(documents)}
    texts, relevant, own = [], [], []
    for query, gains in judged.items():
        unknown = [d for d in gains if d not in place]
        if query not in queries or unknown:
            raise DataError(
                f"{folder / 'qrels' / f'{split}.tsv'}: names "
                f"{'document ' + unknown[0] if unknown else 'query ' + query}, which is not there"
            )
        positive = {place[d]: g for d, g in gains.items() if g > 0}
        if positive:
            texts.append(queries[query])
            relevant.append(positive)
            itself = place.get(query, -1)
            own.append(-1 if itself in positive else itself)
    return Collection(tuple(texts), tuple(documents.values()), tuple(relevant), tuple(own))


def read_qrels(path: Path) -> dict[str, dict[str, float]]:
    """Read judgements as {query: {document: gain}}."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; judgements are lines of query, document, gain")
    judged: dict[str, dict[str, float]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split()
        if not columns or (number == 1 and columns[-1].lower() in ("score", "gain", "relevance")):
            continue
        try:
            query, document = columns[0], columns[-2]
            gain = float(columns[-1])
        except (IndexError, ValueError) as error:
            raise DataError(f"{path}:{number}: expected query, document and gain") from error
        if len(columns) not in (3, 4):
            raise DataError(f"{path}:{number}: {len(columns)} columns, expected 3 or 4")
        judged.setdefault(query, {})[document] = gain
    if not judged:
        raise DataError(f"{path}: holds no judgements")
    return judged


def _texts(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected lines of {{_id, text}}, as BEIR has them")
    found = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            title = str(record.get("title") or "")
            found[str(record["_id"])] = f"{title} {record['text']}".strip()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}:{number}: expected a JSON object with _id and text") from error
    return found
