"""``contrasent mine INDEX``."""

from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.cli.listing import Listing, check_listing, write_listing

SHOWN = 10


@options.command
def mine(
    index: options.IndexFolder,
    limit: Annotated[int, typer.Option(min=1)] = 1000,
    threshold: float = 0.5,
    identical: bool = False,
    output: Listing = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Mine paraphrases: the pairs of texts of an index that are nearest to each other.

    The file of -o has a pair a line, best first; 'contrasent train' reads it as pairs with
    --columns first,second.

    Options:
        limit: Pairs to find.
        threshold: Leave out pairs that score less.
        identical: Count pairs of the very same text too.
    """
    check_listing(output, overwrite, threshold)
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
    write_listing(output, rows)
    lines = [
        f"{row['score']:.4f}  {options.shortened(row['first'])}\n"
        f"        {options.shortened(row['second'])}"
        for row in rows[:SHOWN]
    ]
    if len(rows) > SHOWN and output is None:
        lines.append(f"... and {len(rows) - SHOWN:,} more: -o FILE.jsonl writes all")
    lines.append(f"{len(rows):,} pairs among {total:,} texts")
    return options.Output({"index": str(index), "texts": total, "pairs": rows}, "\n".join(lines))
