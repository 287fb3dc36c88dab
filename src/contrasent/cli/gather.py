"""``contrasent gather OUT``."""

from typing import Annotated

import typer

from contrasent.cli import options


@options.command
def gather(output: Annotated[str, typer.Argument(metavar="OUT")]) -> options.Output:
    """Check that all shards of 'contrasent encode --shard' are there and agree, and finish them.

    Each footer is compared with the folder's manifest: model, settings, input and rows. The
    manifest then lists the shards and is marked complete.

    Options:
        output: Folder of the shards, or its URL.
    """
    from contrasent.encoding.gathering import gather as check

    manifest = check(output)
    facts = {
        "output": output,
        "identity": manifest.facts["model"],
        "texts": manifest.rows,
        "shards": len(manifest.shards),
        "dimension": manifest.dimension,
        "dtype": manifest.facts["dtype"],
    }
    return options.Output(
        facts,
        f"{output}: {manifest.rows:,} vectors of {manifest.dimension} dimensions in "
        f"{len(manifest.shards):,} shards, all of one model",
    )
