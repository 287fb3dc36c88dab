"""``contrasent dimension-wise MODEL CORPUS -o MODEL2``."""

from typing import Annotated

import typer

from contrasent.cli.fitting import (
    Epochs,
    LearningRate,
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


def dimension_wise(
    model: ModelName,
    corpus: Text,
    output: NewModel,
    temperature: Annotated[float, typer.Option(help="Of the dimension-wise loss.")] = 0.05,
    lr: LearningRate = 1e-3,
    epochs: Epochs = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of dropout's views and the order.")] = 0,
    sentences: Annotated[
        int, typer.Option(min=512, help="Fit on at most so many distinct sentences.")
    ] = 100_000,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Learn one more layer on a fixed model's vectors by dimension-wise contrast (SimCSE++).

    To train the encoder itself with that loss: `contrasent train --objective dimension_wise`.
    """
    quieten(quiet)
    texts = distinct_sentences(corpus, sentences)
    check_target(output, overwrite)
    encoder = bare_encoder(model, pooler, max_tokens)
    from contrasent.model.heads import add_layer
    from contrasent.model.noise import dropout_view
    from contrasent.postprocess.dimension_wise import Settings, fit

    first, second = (
        dropout_view(encoder, texts, seed=2 * seed + view, batch=batch) for view in (0, 1)
    )
    losses: list[float] = []
    layer = fit(
        first,
        second,
        Settings(temperature=temperature, lr=lr, epochs=epochs, seed=seed),
        report=lambda step, loss: losses.append(loss),
    )
    add_layer(encoder, layer.matrix, layer.bias)
    card = (
        f"# {output.name}\n\n{model} with one more layer, learnt by dimension-wise contrast (Xu et "
        f"al., 2023) on two dropout views of {len(texts):,} sentences of {corpus.name}.\n"
    )
    encoder.save(output, card=card)
    remark(
        f"wrote {output}: {len(losses):,} steps on {len(texts):,} sentences, loss "
        f"{losses[0]:.3f} to {losses[-1]:.3f}",
        quiet=quiet,
    )
