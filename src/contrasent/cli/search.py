"""``contrasent search INDEX "query"``."""

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.errors import OptionError, check_count
from contrasent.progress import printable

if TYPE_CHECKING:
    from contrasent.search.answers import Answer
    from contrasent.search.index import Hit

Line = list[tuple[str, str]]  # parts of a line, each with its style; the first is in the margin

INDENT = " " * 5
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
# Marks of direction, in Arabic and Hebrew, are left out; a heading is set apart from its text.
_MARKS: dict[int, str | None] = dict.fromkeys((0x61C, 0x200E, 0x200F)) | {0x2028: " – "}


@options.command
def search(
    index: Path,
    loading: Annotated[options.Loading, "runtime"],
    query: Annotated[list[str] | None, typer.Argument(metavar="QUERY...")] = None,
    k: Annotated[int, typer.Option("-k")] = 10,
    threshold: float | None = None,
    where: list[str] | None = None,
    exact: bool = False,
    all_rows: bool = False,
    flat: bool = False,
    bm25_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    query_file: Path | None = None,
    model: str | None = None,
) -> options.Output:
    """Find the texts of an index that best answer a query, with BM25 and vectors.

    Prints the sentence that answers, from the best passage of each document.

    Options:
        index: Index folder, made by 'contrasent index'.
        query: Words to search for; together they are one query.
        k: Documents for each query, or rows with --flat.
        threshold: Omit results below this confidence in percent, or below this cosine if the model
            is not calibrated.
        where: Only rows whose metadata matches: year>=2000, or a JSON filter.
        exact: Search for the words as typed, without correcting typing errors.
        all_rows: Compare every row, even of a large index.
        flat: Print every row found, even several of one document.
        query_file: File with one query per line, in addition to QUERY.
        model: The current location of the index's model, if it moved.
    """
    from contrasent.indexing.models import find_hits, open_index_model
    from contrasent.search.answers import answers, path_of
    from contrasent.search.filters import parse_where
    from contrasent.search.index import grouped
    from contrasent.search.opening import open_index

    check_count("k", k)
    condition = parse_where(where or [])
    wanted = [" ".join(query)] if query else []
    wanted += read_queries(query_file) if query_file else []
    if not wanted or not all(map(str.strip, wanted)):
        raise OptionError("QUERY", "", "is empty; give a query or --query-file FILE")
    weight = options.chosen_weight(bm25_weight, vectors_only)
    opened = open_index(index)
    ranker = opened.ranker.with_bm25(weight)
    encode = open_index_model(opened, model, runtime=loading.runtime)
    began = time.monotonic()
    how: dict[str, Any] = {"k": k, "threshold": threshold, "where": condition, "ranker": ranker}
    how |= {"all_rows": all_rows, "exact": exact}
    searched, vectors, hit_lists = find_hits(opened, wanted, encode, rows=flat, **how)
    truncated = encode.truncated
    with progress.shown(False):
        best = answers(searched, vectors, hit_lists, encode, opened.analyzer)
    seconds = time.monotonic() - began
    root = str(opened.facts.origin.get("root", ""))  # only documents have one
    results, lines = [], list[Line]()
    for typed, text, hits, some in zip(wanted, searched, hit_lists, best, strict=True):
        groups = [[at] for at in range(len(hits))] if flat else grouped(hits)
        lines += [[("", ""), (typed, "italic")]] if len(wanted) > 1 else []
        if text != typed:
            repaired = f"showing results for {text}; to search for {typed}, add --exact"
            lines.append([("", ""), (repaired, "")])
        no_match = opened.nothing_matches(hits)
        if no_match or not hits:
            lines.append([("", ""), ("no good match" if no_match else "nothing found", "")])
        for rank, group in enumerate(groups, 1):
            # Prose of a document is shown before its tasks and its table of contents.
            first, *others = sorted(group, key=lambda at: some[at].listed)
            lines += _entry(rank, [hits[at] for at in (first, *others)], some[first], root)
        entry_of = {at: number for number, group in enumerate(groups, 1) for at in group}
        paths = [path_of(hit, root) for hit in hits]
        rows = [
            {
                **asdict(hit),
                "entry": entry_of[at],
                "path": path and str(path),
                "answer": answer.to_json(hit),
            }
            for at, (hit, answer, path) in enumerate(zip(hits, some, paths, strict=True))
        ]
        results.append({"query": typed, "searched": text, "no_match": no_match, "hits": rows})
    facts = {
        "index": str(index),
        "model": opened.model,
        "k": k,
        "bm25_weight": ranker.bm25_weight,
        "threshold": threshold,
        "where": condition,
        "seconds": round(seconds, 4),
        "truncated": truncated,
        "bm25_only": opened.bm25_only,
        "results": results,
    }
    most = encode.encoder.max_seq_length
    cut = f"{truncated:,} of {len(wanted):,} queries were truncated to {most} tokens"
    notes = [cut] if truncated else []
    if opened.bm25_only:
        notes.append(f"{opened.bm25_only}; 'contrasent index {index} --sync' encodes the rest")
    return options.Output(facts, _printed(lines), notes, styled=True)


def _entry(rank: int, hits: Sequence["Hit"], answer: "Answer", root: str) -> list[Line]:
    """The lines of a hit with others of its document: the answer, and its place."""
    from contrasent.search.answers import path_of, place_of, set_apart
    from contrasent.search.index import document_of

    hit, path = hits[0], path_of(hits[0], root)
    text, start, (before, behind) = set_apart(hit.text), answer.start, answer.cut
    line: Line = [(f"{rank:>3}  ", "bold"), ("… " * before, "")]
    for a, b in answer.marks:
        line += [(text[start:a], ""), (text[a:b], "bold")]
        start = b
    line += [(text[start : answer.end], ""), (" …" * behind, "")]
    name = str(path or document_of(hit.id, hit.metadata))
    name = name.removeprefix(_here())  # as it is seen from here
    (headings, page), more = place_of(hit, answer.start), len(hits) - 1
    place = "".join(f" › {heading}" for heading in headings)
    place += f" · page {page}" if page else ""
    place += f" · {hit.shown}"
    place += f" · {more} more passage{'s' * (more > 1)}" if more else ""
    link = f"cyan link {path.absolute().as_uri()}" if path else "cyan"
    return [line, [(INDENT, ""), (name, link), (place, "dim")]]


def _here() -> str:
    """The working folder, with a slash; nothing if it was deleted."""
    try:
        return f"{Path.cwd()}/"
    except FileNotFoundError:
        return ""


def _printed(lines: Sequence[Line]) -> str:
    """Lines as they are for a pipe, or wrapped, with bold words and links, for a terminal."""
    clean = [
        [
            head,
            *((printable(_BLANK.sub(" ", text.translate(_MARKS))), style) for text, style in body),
        ]
        for head, *body in lines
    ]
    if not sys.stdout.isatty():
        return "\n".join("".join(text for text, _ in line) for line in clean)
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    with console.capture() as captured:
        for head, *body in clean:
            wrapped = Text.assemble(*body).wrap(console, max(20, console.width - len(INDENT)))
            for number, line in enumerate(wrapped):
                console.print(Text.assemble((INDENT, "") if number else head, line))
    return captured.get().rstrip("\n")


def read_queries(path: Path) -> list[str]:
    """One query per line; blank lines are left out."""
    from contrasent.text.sources import find

    lines = (line.strip() for file in find(str(path)) for _, line in file.lines())
    return [line for line in lines if line]
