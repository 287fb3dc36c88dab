"""``contrasent dedupe INDEX``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent.cli.listing import Output, check_listing, named, shortened, write_listing
from contrasent.cli.options import Json, Overwrite, Quiet, emit, quieten
from contrasent.errors import OptionError

SHOWN = 10


def dedupe(
    index: Annotated[Path, typer.Argument(help="Index folder.")],
    threshold: Annotated[
        float, typer.Option(help="Cosine from which two texts count as the same.")
    ] = 0.95,
    output: Output = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the near-duplicates from the index.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find texts that nearly repeat an earlier one; the first of each kind is kept.

    The file of -o has one line for each text: its id, its text, and for a near-duplicate the id of
    the text it repeats and their score.
    """
    quieten(quiet)
    if not -1 <= threshold <= 1:
        raise OptionError("--threshold", threshold, "must lie in -1 to 1")
    check_listing(output, overwrite)
    from contrasent.search.index import Index
    from contrasent.search.pairs import near_duplicates
    from contrasent.search.writer import Writer

    opened = Index.open(index)
    found = near_duplicates(opened, threshold)
    if output is not None:
        repeats = {pair.second: pair for pair in found.pairs}
        order = sorted([*found.kept.tolist(), *repeats])
        write_listing(
            output,
            (
                {
                    **named(opened, row),
                    "repeats": named(opened, repeats[row].first)["id"] if row in repeats else None,
                    "score": repeats[row].score if row in repeats else None,
                }
                for row in order
            ),
        )
    if remove and found.pairs:
        with Writer(index) as writer:
            writer.delete([named(opened, pair.second)["id"] for pair in found.pairs])
    pairs: list[dict[str, Any]] = [
        {
            "score": pair.score,
            "kept": named(opened, pair.first),
            "repeat": named(opened, pair.second),
        }
        for pair in sorted(found.pairs, key=lambda pair: -pair.score)
    ]
    if as_json:
        emit(
            {
                "index": str(index),
                "threshold": threshold,
                "texts": len(opened),
                "kept": len(found.kept),
                "near_duplicates": len(found.pairs),
                "removed": len(found.pairs) if remove else 0,
                "pairs": pairs,
            }
        )
        return
    for pair in pairs[:SHOWN]:
        typer.echo(f"{pair['score']:.4f}  {shortened(pair['repeat']['text'])}")
        typer.echo(f"        {shortened(pair['kept']['text'])}")
    if len(pairs) > SHOWN:
        typer.echo(f"... and {len(pairs) - SHOWN:,} more: -o FILE.jsonl writes all")
    done = "removed" if remove else "found"
    typer.echo(
        f"{len(found.pairs):,} near-duplicates {done} among {len(opened):,} texts "
        f"at {threshold:g} and more"
    )
