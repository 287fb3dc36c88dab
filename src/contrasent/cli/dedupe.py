"""``contrasent dedupe INDEX``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli.listing import Output, check_listing, write_listing
from contrasent.cli.options import IndexFolder, Json, Overwrite, Quiet, emit, quieten, shortened
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contrasent.search.pairs import Duplicates
    from contrasent.search.rows import Rows

SHOWN = 10
USUAL = 0.95


def dedupe(
    index: IndexFolder,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Cosine from which two texts count as the same. [default: that which 'threshold "
            "--pairs' has found for the index, else 0.95]"
        ),
    ] = None,
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
    if threshold is not None and not -1 <= threshold <= 1:
        raise OptionError("--threshold", threshold, "must lie in -1 to 1")
    check_listing(output, overwrite)
    from contrasent.search.opening import local_index, open_writer
    from contrasent.search.pairs import near_duplicates

    with local_index(index) as opened:
        threshold = own_threshold(opened) if threshold is None else threshold
        found = near_duplicates(opened, threshold)
        if output is not None:
            write_listing(output, listed(opened, found))
        pairs = paired(opened, found)
        total = len(opened)
    if remove and pairs:
        with open_writer(index) as writer:
            writer.delete([pair["repeat"]["id"] for pair in pairs])
    if as_json:
        emit(
            {
                "index": str(index),
                "threshold": threshold,
                "texts": total,
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
        f"{len(found.pairs):,} near-duplicates {done} among {total:,} texts "
        f"at {threshold:g} and more"
    )


def own_threshold(opened: "Rows") -> float:
    """The index's threshold for "the same"; one of random pairs parts the unrelated alone."""
    manifest = opened.manifest
    rated = manifest.threshold is not None and manifest.settings["threshold"]["basis"] == "pairs"
    return float(manifest.threshold or USUAL) if rated else USUAL


def listed(opened: "Rows", found: "Duplicates") -> "Iterator[dict[str, Any]]":
    """Every text, near-duplicates with what they repeat."""
    repeats = {pair.second: pair for pair in found.pairs}
    for row in sorted([*found.kept.tolist(), *repeats]):
        pair = repeats.get(row)
        yield {
            **opened.named(row),
            "repeats": opened.named(pair.first)["id"] if pair else None,
            "score": pair.score if pair else None,
        }


def paired(opened: "Rows", found: "Duplicates") -> list[dict[str, Any]]:
    """The near-duplicates with the texts they repeat, closest first."""
    return [
        {
            "score": pair.score,
            "kept": opened.named(pair.first),
            "repeat": opened.named(pair.second),
        }
        for pair in sorted(found.pairs, key=lambda pair: -pair.score)
    ]
