"""``contrasent import CHECKPOINT -o MODEL``."""

from typing import Annotated

import typer

from contrasent.cli.options import (
    Json,
    MaxTokens,
    NewModel,
    Overwrite,
    Quiet,
    check_new,
    emit,
    quieten,
)


def import_(
    checkpoint: Annotated[
        str, typer.Argument(help="Folder of a released checkpoint, or its name@commit on the hub.")
    ],
    output: NewModel,
    method: Annotated[
        str | None,
        typer.Option(help="unsup-simcse, sup-simcse, esimcse, diffcse or simcse++, if untold."),
    ] = None,
    max_tokens: MaxTokens = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a model folder of a checkpoint of SimCSE, ESimCSE, DiffCSE or SimCSE++.

    The folder says how its vectors are pooled and whether the head belongs to them, as the paper
    evaluates it, so that every reader gives the same vectors. Weights must be safetensors.
    """
    quieten(quiet)
    from contrasent.model.pretrained import resolve

    check_new(output, overwrite and (output / "modules.json").is_file(), "target")
    folder = resolve(checkpoint)
    from contrasent.model.card import CardMetadata, card
    from contrasent.model.released import import_checkpoint

    encoder, found = import_checkpoint(folder, method=method, max_tokens=max_tokens)
    encoder.save(
        output, card=card(encoder, CardMetadata(base=checkpoint, objective={"name": found}))
    )
    pooled = "[CLS]" if encoder.head is None else "[CLS] through the tanh head"
    if as_json:
        emit(
            {
                "checkpoint": checkpoint,
                "model": str(output),
                "method": found,
                "pooling": encoder.pooling,
                "head": encoder.head is not None,
                "dimension": encoder.dimension,
                "identity": encoder.identity,
            }
        )
    else:
        typer.echo(f"{output}: {found}, {encoder.dimension} dimensions, {pooled}")
