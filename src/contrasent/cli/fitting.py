"""What the commands share that fit something on a fixed model's vectors of the user's text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.errors import OutputError

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder

Text = Annotated[Path, typer.Argument(help="Text to fit on: a file or folder.")]
NewModel = Annotated[Path, typer.Option("--output", "-o", help="Folder of the new model.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the vectors.")]
LearningRate = Annotated[float, typer.Option(help="Learning rate.")]


def distinct_sentences(corpus: Path, most: int) -> list[str]:
    """Every distinct text of a corpus, all columns, the first ones up to a number."""
    from contrasent.text.corpus import open_corpus

    found: dict[str, None] = {}
    for row in open_corpus(corpus):
        for text in row:
            found.setdefault(text)
        if len(found) >= most:
            break
    return list(found)[:most]


def check_target(output: Path, overwrite: bool) -> None:
    """Refuse to replace a folder unasked, and one that cannot be written, before any work."""
    from contrasent.files import check_writable

    if output.exists() and any(output.iterdir() if output.is_dir() else [output]) and not overwrite:
        raise OutputError(f"{output}: is there already; choose another name or add --overwrite")
    check_writable(output.absolute().parent)


def bare_encoder(model: str, pooler: str | None, max_tokens: int | None) -> "Encoder":
    """The model, its vectors not scaled to unit length."""
    from contrasent.cli.loading import find_model

    folder = find_model(model)
    from contrasent.model.encoder import Encoder

    return Encoder.load(folder, pooler=pooler, max_tokens=max_tokens, normalise=False)
