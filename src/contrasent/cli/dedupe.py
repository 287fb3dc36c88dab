"""``contrasent dedupe INDEX``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.search.index import Index
    from contrasent.search.pairs import Duplicates

SHOWN = 10


@options.command
def dedupe(
    index: Path,
    threshold: float = 0.95,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    remove: bool = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Find texts that nearly repeat an earlier one; the first of each kind is kept.

    The file of -o has one line for each text: its id, its text, and for a near-duplicate the id of
    the text it repeats and their score.

    Options:
        index: Index folder.
        threshold: Cosine from which two texts count as the same.
        output: Write all of it to FILE.jsonl.
        remove: Remove the near-duplicates from the index.
    """
    if not -1 <= threshold <= 1:
        raise OptionError("--threshold", threshold, "must lie in -1 to 1")
    if output is not None:
        if output.suffix != ".jsonl":
            raise OptionError("-o", str(output), "must end in .jsonl")
        options.check_new(output, overwrite)
    from contrasent.files import atomic_file
    from contrasent.search.opening import local_index, open_writer
    from contrasent.search.pairs import near_duplicates

    with local_index(index) as opened:
        found = near_duplicates(opened, threshold)
        if output is not None:
            with atomic_file(output) as stream:
                for row in _listed(opened, found):
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        pairs: list[dict[str, Any]] = [
            {
                "score": pair.score,
                "kept": _named(opened, pair.first),
                "repeat": _named(opened, pair.second),
            }
            for pair in sorted(found.pairs, key=lambda pair: -pair.score)
        ]
        total = len(opened)
    if remove and pairs:
        with open_writer(index) as writer:
            writer.delete([pair["repeat"]["id"] for pair in pairs])
    lines = [
        f"{pair['score']:.4f}  {options.shortened(pair['repeat']['text'])}\n"
        f"        {options.shortened(pair['kept']['text'])}"
        for pair in pairs[:SHOWN]
    ]
    if len(pairs) > SHOWN:
        lines.append(f"... and {len(pairs) - SHOWN:,} more: -o FILE.jsonl writes all")
    done = "removed" if remove else "found"
    lines.append(
        f"{len(pairs):,} near-duplicates {done} among {total:,} texts at {threshold:g} and more"
    )
    facts = {
        "index": str(index),
        "threshold": threshold,
        "texts": total,
        "kept": len(found.kept),
        "near_duplicates": len(pairs),
        "removed": len(pairs) if remove else 0,
        "pairs": pairs,
    }
    return options.Output(facts, "\n".join(lines))


def _named(opened: "Index", row: int) -> dict[str, Any]:
    found = opened.row(row)
    return {"id": found.id, "text": found.text, "metadata": found.metadata}


def _listed(opened: "Index", found: "Duplicates") -> Iterator[dict[str, Any]]:
    """Every text; near-duplicates with the id of the text that they repeat."""
    repeats = {pair.second: pair for pair in found.pairs}
    for row in sorted([*found.kept.tolist(), *repeats]):
        pair = repeats.get(row)
        yield {
            **_named(opened, row),
            "repeats": opened.row(pair.first).id if pair else None,
            "score": pair.score if pair else None,
        }
