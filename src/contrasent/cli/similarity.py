"""``contrasent similarity MODEL "a" "b"``."""

from typing import Annotated

import typer

from contrasent.cli.loading import find_model, open_model
from contrasent.cli.options import Json, MaxTokens, ModelName, Pooler, Quiet, emit, quieten


def similarity(
    model: ModelName,
    first: Annotated[str, typer.Argument(metavar='"A"', help="One text.")],
    second: Annotated[str, typer.Argument(metavar='"B"', help="The other text.")],
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print how similar two texts are: the cosine of their vectors, from -1 to 1."""
    quieten(quiet)
    folder = find_model(model)
    encode = open_model(folder, pooler=pooler, max_tokens=max_tokens)
    from contrasent.search.checks import check_vectors

    one, two = check_vectors(encode([first, second]), 2, None, "cosine")
    score = float(one @ two)
    if as_json:
        emit(
            {
                "model": model,
                "a": first,
                "b": second,
                "similarity": score,
                "truncated": encode.truncated,
            }
        )
    else:
        typer.echo(f"{score:.4f}")
    encode.report_cut(quiet=quiet)
