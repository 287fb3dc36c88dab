"""``contrasent flow MODEL CORPUS -o MODEL2``."""

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


def flow(
    model: ModelName,
    corpus: Text,
    output: NewModel,
    epochs: Epochs = 1,
    lr: LearningRate = 1e-3,
    levels: Annotated[int, typer.Option(min=1, help="Levels of the flow.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Steps in each level.")] = 3,
    seed: Annotated[int, typer.Option(help="Of first weights and order.")] = 0,
    sentences: Annotated[
        int, typer.Option(min=64, help="Fit on at most so many distinct sentences.")
    ] = 100_000,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit BERT-flow on a frozen model's vectors of your text.

    A flow is no linear layer, so the folder has a form of its own: the model in encoder/, the flow
    beside it. `contrasent evaluate` reads it; sentence-transformers reads encoder/ only.
    """
    quieten(quiet)
    texts = distinct_sentences(corpus, sentences)
    check_target(output, overwrite)
    encoder = bare_encoder(model, pooler, max_tokens)
    from contrasent.postprocess.flow import Settings, fit
    from contrasent.postprocess.folder import write_flow

    losses: list[float] = []
    found = fit(
        encoder.encode(texts, batch=batch),
        Settings(levels=levels, steps=steps, lr=lr, epochs=epochs, seed=seed),
        report=lambda step, loss: losses.append(loss),
    )
    write_flow(output, found, encoder.save)
    tenth = max(1, len(losses) // 10)
    first, last = (sum(part) / len(part) for part in (losses[:tenth], losses[-tenth:]))
    remark(
        f"wrote {output}: {len(losses):,} steps on {len(texts):,} sentences, "
        f"{first:.3f} to {last:.3f} bits a dimension",
        quiet=quiet,
    )
