"""User queries with the documents that answer them, from files, evaluation sets and clicks."""

import math
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from contrasent.datasets.beir import places_of, read_qrels, read_texts
from contrasent.errors import InputError
from contrasent.text.columns import query_roles, spoken
from contrasent.text.sources import find
from contrasent.text.tables import ABSENT, as_number, brief, open_table
from contrasent.types import Log, composed

Files = str | Path | Sequence[str | Path] | None
UserQueries = list[tuple[str, dict[int, float]]]
"""Queries, each with the gains of the documents that answer it, by their numbers."""

MIN_QUERIES, MIN_DOCUMENTS = 40, 20  # fewer can be neither trained nor evaluated on
MOST_GAIN, HALF = 4.0, 3  # the limit of a clicked document's gain, and the clicks of half of it
COMMON = 0.5  # share of all queries beyond which a document that answers them is ignored

_Key = tuple[str, int | str]  # a query, and a document's number, or the name of one not there
_Row = tuple[str, Any, Any, Any]  # its place for messages, then query, document and gain


def read_user_queries(
    queries: Files,
    collection: Files,
    clicks: Files,
    documents: Sequence[str],
    log: Log,
    *,
    earlier: Path | None = None,
    root: str = "",
) -> tuple[UserQueries, list[dict[str, Any]]]:
    """Queries of files, of folders in BEIR's layout and of click logs.

    Also everything that was given, as the rows of a table of queries: it may be usable when there
    are more queries or other documents. ``earlier``: such a table, which may be of no use now.
    ``root``: the indexed folder, which may stand before the names of documents, as search shows it.
    """
    names, useless = [*map(composed, documents)], []
    places = places_of(names)
    for folder in (root, os.path.relpath(root)) if root else ():
        places |= {os.path.join(composed(folder), name): n for n, name in enumerate(names)}  # noqa: PTH118
    by_text = dict[str, tuple[str, dict[int | str, float]]]()
    files = [(path, _rows(path, "gain"), False) for path in (*paths(queries), *paths(earlier))]
    files += [(path, _evaluation_set(path, log), False) for path in paths(collection)]
    files += [(path, _rows(path, "count"), True) for path in paths(clicks)]
    counts = dict[_Key, float]()  # of all logs together
    for path, rows, clicked in files:
        gains, problem = _gather(path, rows, places, log, clicked)
        for (query, number), gain in gains.items():
            known = by_text.setdefault(folded(query), (query, {}))[1]
            if clicked:
                # Counts mostly reflect positions and how frequent a query is: the hundredth click
                # adds little to the tenth, and with counts as gains a query's other answers would
                # be worth nothing.
                key = folded(query), number
                counts[key] = count = counts.get(key, 0.0) + gain
                gain = MOST_GAIN * count / (count + HALF)
            known[number] = max(known.get(number, 0.0), gain)
        if path != earlier and not any(isinstance(number, int) for _, number in gains):
            useless.append(InputError(path, f"{problem}; documents are such as {documents[0]!r}"))
    numbered = (
        (query, {number: gain for number, gain in gains.items() if isinstance(number, int)})
        for query, gains in by_text.values()
    )
    usable = [(query, gains) for query, gains in numbered if gains]
    if useless and not usable:
        raise useless[0]
    given = [
        {"query": query, "document": documents[n] if isinstance(n, int) else n, "gain": gain}
        for query, gains in by_text.values()
        for n, gain in gains.items()
    ]
    return _without_common(usable, documents, log), given


def folded(query: str) -> str:
    """A query in a form to compare: without case and superfluous spaces."""
    return " ".join(query.split()).casefold()


def _gather(
    path: Path, rows: Iterable[_Row], places: Mapping[str, int], log: Log, clicked: bool
) -> tuple[dict[_Key, float], str]:
    """The gains of a file's rows, and why others cannot be used, which is logged."""
    gains, first, left_out = dict[_Key, float](), dict[str, str](), Counter[str]()
    texts, count, what = dict[str, str](), 0, "count" if clicked else "gain"
    for place, query, document, amount in rows:
        count += 1
        text, name = _text(query), composed(_text(document))
        gain = 1.0 if amount is ABSENT or not _text(amount) else as_number(amount)
        if not text or not name:
            problem, value = f"{'document' if text else 'query'} missing", ""
        elif gain is None or not math.isfinite(gain):
            problem, value = f"the {what} is not a number", brief(amount)
        else:
            if gain > 0:
                key = texts.setdefault(folded(text), text), places.get(name, name)
                before = gains.get(key, 0.0)
                gains[key] = before + gain if clicked else max(before, gain)
            problem, value = "unknown document", repr(name)
            if name in places:
                if gain > 0:
                    continue
                problem, value = f"the {what} is not above 0", brief(amount)
        left_out[problem] += 1
        first.setdefault(problem, f"{place}{value and ': '}{value}")
    share = f"of {count} rows ignored"
    lines = [f"{number} {share}: {why} ({first[why]})" for why, number in left_out.items()]
    for line in lines:
        log(f"{path}: {line}")
    return gains, "; ".join(lines) or "contains no answers"


def too_few(queries: UserQueries) -> str:
    """Why queries are too few to learn from and evaluate by; empty if they are enough."""
    about = len({max(gains, key=lambda number: gains[number]) for _, gains in queries})
    if len(queries) < MIN_QUERIES:
        return f"there are {len(queries)}; {needed()} are required"
    if about < MIN_DOCUMENTS:
        return f"they cover {about} documents; {MIN_DOCUMENTS} are required"
    return ""


def needed() -> str:
    """The fewest queries that can be trained and evaluated on."""
    return f"{MIN_QUERIES} queries about {MIN_DOCUMENTS} documents"


def _without_common(queries: UserQueries, documents: Sequence[str], log: Log) -> UserQueries:
    """Queries without answers that most of them share, such as a home page."""
    # The search would learn to return it always, which queries about it would count as a gain.
    counts = Counter(number for _, gains in queries for number in gains)
    common = {n for n, count in counts.items() if count > max(1, COMMON * len(queries))}
    left = [(text, {n: g for n, g in gains.items() if n not in common}) for text, gains in queries]
    usable = [(text, gains) for text, gains in left if gains]
    for number in sorted(common):
        shared = f"{counts[number]} of {len(queries)} queries point to it"
        log(f"Ignoring {documents[number]} as an answer: {shared}")
    if left_out := len(queries) - len(usable):
        log(f"Ignoring {left_out} queries without another answer")
    return usable


def paths(given: Files) -> list[Path]:
    """None, one or several paths as a list."""
    several = () if given is None else [given] if isinstance(given, str | Path) else given
    return [Path(path) for path in several]


def _text(cell: Any) -> str:
    return "" if cell is None or cell is ABSENT else str(cell).strip()


def _rows(path: Path, amount: Literal["gain", "count"]) -> Iterator[_Row]:
    """The rows of csv, tsv, jsonl or parquet; an unreadable one counts as one without a query."""
    for file in find(path):
        table = open_table(file, header=True, lenient=True)
        places = query_roles(table, amount)
        for line, cells in table.rows([at for _, at in places]):
            named = {} if not cells else dict(zip([part for part, _ in places], cells, strict=True))
            yield f"line {line}", named.get("query"), named.get("document"), named.get(amount)


def log_roles(queries: Files, collection: Files, clicks: Files, log: Log) -> None:
    """Log the role of every column of tables of queries; inputs without what is needed fail."""
    for folder in paths(collection):
        deque(_evaluation_set(folder, lambda line: None), maxlen=0)
    amounts: list[tuple[Files, Literal["gain", "count"]]] = [(queries, "gain"), (clicks, "count")]
    for several, amount in amounts:
        for file in (file for path in paths(several) for file in find(path)):
            table = open_table(file, header=True, lenient=True)
            log(f"{file.shown}: {spoken(table.columns, query_roles(table, amount))}")


def _evaluation_set(folder: Path, log: Log) -> Iterator[_Row]:
    """The queries and answers of a folder in BEIR's layout, whose corpus is not read."""
    texts = read_texts(folder / "queries.jsonl")
    for path in sorted(folder.glob("queries.*.jsonl")):  # some collections have one a split
        texts |= read_texts(path)
    # Learning from the test split would spoil it for evaluation.
    splits = {split: folder / "qrels" / f"{split}.tsv" for split in ("train", "dev")}
    sets = {split: read_qrels(qrels) for split, qrels in splits.items() if qrels.is_file()}
    if any(query in texts for answers in sets.values() for query in answers):
        log(f"{folder}: uses the splits {' and '.join(sets)}; test is reserved for evaluation")
    else:
        sets = {"test": read_qrels(folder / "qrels" / "test.tsv")}
    for split, answers in sets.items():
        for name, gains in answers.items():
            for document, gain in gains.items():
                yield f"{split}.tsv, query {name}", texts.get(name), document, gain
