"""``contrasent similarity MODEL "a" "b"``."""

from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model, open_model


@options.command
def similarity(
    model: options.ModelName,
    first: Annotated[str, typer.Argument(metavar='"A"')],
    second: Annotated[str, typer.Argument(metavar='"B"')],
    loading: options.Reading,
) -> options.Output:
    """Print how similar two texts are: the cosine of their vectors, from -1 to 1.

    Options:
        first: One text.
        second: The other text.
    """
    encode = open_model(find_model(model), loading, light=True)
    from contrasent.search.folder import check_vectors

    one, two = check_vectors(encode([first, second]), 2, None, "cosine")
    found = {"model": model, "a": first, "b": second, "similarity": float(one @ two)}
    return options.Output(
        {**found, "truncated": encode.truncated}, f"{found['similarity']:.4f}", encode.notes
    )
