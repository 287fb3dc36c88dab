"""``contrasent whiten MODEL CORPUS -o MODEL2``."""

from typing import Annotated

import typer

from contrasent.cli.fitting import (
    NewModel,
    Text,
    bare_encoder,
    check_target,
    distinct_sentences,
)
from contrasent.cli.options import (
    BatchSize,
    MaxTokens,
    ModelName,
    Overwrite,
    Pooler,
    Quiet,
    quieten,
    remark,
)


def whiten(
    model: ModelName,
    corpus: Text,
    output: NewModel,
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Keep so many dimensions; all by default.")
    ] = None,
    sentences: Annotated[
        int, typer.Option(min=2, help="Fit on at most so many distinct sentences.")
    ] = 100_000,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Whiten a model's vectors on your text; save it as an ordinary model with one more layer."""
    quieten(quiet)
    texts = distinct_sentences(corpus, sentences)
    check_target(output, overwrite)
    encoder = bare_encoder(model, pooler, max_tokens)
    from contrasent.model.heads import add_layer
    from contrasent.postprocess.whitening import fit

    found = fit(encoder.encode(texts, batch=batch), dimensions=dimensions)
    add_layer(encoder, found.matrix, found.bias)
    size = found.matrix.shape[1]
    card = (
        f"# {output.name}\n\n{model}, whitened (Su et al., 2021) on {len(texts):,} sentences of "
        f"{corpus.name}; {size} dimensions.\n"
    )
    encoder.save(output, card=card)
    remark(f"wrote {output}: {size} dimensions, fitted on {len(texts):,} sentences", quiet=quiet)
