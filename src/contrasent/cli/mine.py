"""``contrasent mine INDEX``."""

from typing import Annotated

import typer

from contrasent.cli.listing import Output, check_listing, write_listing
from contrasent.cli.options import IndexFolder, Json, Overwrite, Quiet, emit, quieten, shortened
from contrasent.errors import OptionError

SHOWN = 10


def mine(
    index: IndexFolder,
    limit: Annotated[int, typer.Option(min=1, help="Pairs to find.")] = 1000,
    threshold: Annotated[float, typer.Option(help="Leave out pairs that score less.")] = 0.5,
    identical: Annotated[
        bool, typer.Option("--identical", help="Count pairs of the very same text too.")
    ] = False,
    output: Output = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Mine paraphrases: the pairs of texts of an index that are nearest to each other.

    The file of -o has a pair a line, best first; 'contrasent train' reads it as pairs with
    --columns first,second.
    """
    quieten(quiet)
    if not -1 <= threshold <= 1:
        raise OptionError("--threshold", threshold, "must lie in -1 to 1")
    check_listing(output, overwrite)
    from contrasent.search.opening import local_index
    from contrasent.search.pairs import paraphrases

    with local_index(index) as opened:
        found = paraphrases(opened, limit=limit, threshold=threshold, identical=identical)
        rows = [
            {
                "first": first["text"],
                "second": second["text"],
                "score": pair.score,
                "first_id": first["id"],
                "second_id": second["id"],
            }
            for pair in found
            for first, second in [(opened.named(pair.first), opened.named(pair.second))]
        ]
        total = len(opened)
    if output is not None:
        write_listing(output, rows)
    if as_json:
        emit({"index": str(index), "texts": total, "pairs": rows})
        return
    for row in rows[:SHOWN]:
        typer.echo(f"{row['score']:.4f}  {shortened(row['first'])}")
        typer.echo(f"        {shortened(row['second'])}")
    if len(rows) > SHOWN and output is None:
        typer.echo(f"... and {len(rows) - SHOWN:,} more: -o FILE.jsonl writes all")
    typer.echo(f"{len(rows):,} pairs among {total:,} texts")
