"""``contrasent postprocess METHOD MODEL CORPUS -o MODEL2``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder

OPTIONS = {
    "whiten": ("dimensions",),
    "flow": ("epochs", "lr", "levels", "steps", "seed"),
    "dimension-wise": ("temperature", "epochs", "lr", "seed"),
}
"""The methods, and what can be set of each."""

MIN_SENTENCES = {"whiten": 2, "flow": 64, "dimension-wise": 512}
"""Sentences that each needs: more than one, or one batch."""


@options.command
def postprocess(
    method: str,
    model: options.ModelName,
    corpus: Path,
    output: Annotated[Path, typer.Option("--output", "-o")],
    loading: options.Encoding,
    dimensions: Annotated[int | None, typer.Option(min=1)] = None,
    temperature: float | None = None,
    levels: Annotated[int | None, typer.Option(min=1)] = None,
    steps: Annotated[int | None, typer.Option(min=1)] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    lr: float | None = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    sentences: Annotated[int, typer.Option(min=2)] = 100000,
    overwrite: options.Overwrite = False,
) -> None:
    """Fit a layer on a fixed model's vectors of your text; save both as a new model.

    whiten (Su et al., 2021) and dimension-wise (the contrast of SimCSE++) add a linear layer: the
    result is an ordinary model. flow (BERT-flow) is no linear layer, so its folder has a form of
    its own, which `contrasent evaluate` reads: the model in encoder/, with the flow.
    To train the encoder itself: `contrasent train --objective dimension_wise`.

    Options:
        method: whiten, flow or dimension-wise.
        corpus: Text to fit on: a file or folder.
        output: Folder of the new model.
        dimensions: whiten: keep so many dimensions; all by default.
        temperature: dimension-wise: of the loss. [default: 0.05]
        levels: flow: levels. [default: 3]
        steps: flow: steps in each level. [default: 3]
        epochs: flow, dimension-wise: passes over the vectors. [default: 1]
        lr: flow, dimension-wise: learning rate. [default: 0.001]
        seed: flow, dimension-wise: of weights, views and order. [default: 0]
        sentences: Fit on at most so many distinct sentences.
    """
    chosen = _settings(
        method,
        sentences,
        dimensions=dimensions,
        temperature=temperature,
        levels=levels,
        steps=steps,
        epochs=epochs,
        lr=lr,
        seed=seed,
    )
    texts = _distinct_sentences(corpus, sentences)
    empty = output.is_dir() and not any(output.iterdir())
    options.check_new(output, overwrite or empty, "folder")
    folder, batch = find_model(model), loading.batch
    from contrasent.model.encoder import Encoder

    encoder = Encoder.load(
        folder, pooler=loading.pooler, max_tokens=loading.max_tokens, normalise=False
    )
    fitted = f"{len(texts):,} sentences"
    if method == "flow":
        summary = f"{_flow(encoder, texts, output, batch, chosen)} on {fitted}"
    else:
        fit = _whiten if method == "whiten" else _dimension_wise
        layer, summary = fit(encoder, texts, batch, chosen)
        encoder.save(
            output, card=f"# {output.name}\n\n{model}, {layer} {fitted} of {corpus.name}.\n"
        )
        summary = f"{summary}, fitted on {fitted}"
    options.note(f"wrote {output}: {summary}")


def _settings(method: str, sentences: int, **given: Any) -> dict[str, Any]:
    """The given options, validated: a known method, and options of that method only."""
    if method not in OPTIONS:
        raise OptionError("METHOD", method, "is no method", choices=OPTIONS)
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        if name not in OPTIONS[method]:
            known = ", ".join(f"--{one}" for one in OPTIONS[method])
            raise OptionError(f"--{name}", value, f"is no option of {method}, which has {known}")
    if sentences < MIN_SENTENCES[method]:
        raise OptionError(
            "--sentences", sentences, f"{method} needs {MIN_SENTENCES[method]} or more"
        )
    return chosen


def _whiten(
    encoder: "Encoder", texts: Sequence[str], batch: int, chosen: dict[str, Any]
) -> tuple[str, str]:
    """Add a whitening layer; texts for the card and for the terminal."""
    from contrasent.postprocess.whitening import fit

    found = fit(encoder.encode(texts, batch=batch), **chosen)
    encoder.add_layer(found.matrix, found.bias)
    size = f"{found.matrix.shape[1]} dimensions"
    return f"whitened (Su et al., 2021) to {size} on", size


def _dimension_wise(
    encoder: "Encoder", texts: Sequence[str], batch: int, chosen: dict[str, Any]
) -> tuple[str, str]:
    """Add a layer learnt by dimension-wise contrast; texts for the card and for the terminal."""
    from contrasent.model.calls import dropout_view
    from contrasent.postprocess.dimension_wise import LayerSettings, fit

    settings = LayerSettings(**chosen)
    first, second = (
        dropout_view(encoder, texts, seed=2 * settings.seed + view, batch=batch) for view in (0, 1)
    )
    losses: list[float] = []
    layer = fit(first, second, settings, report=lambda step, loss: losses.append(loss))
    encoder.add_layer(layer.matrix, layer.bias)
    return (
        "with one more layer, learnt by dimension-wise contrast (Xu et al., 2023) on two dropout "
        "views of",
        f"{len(losses):,} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}",
    )


def _flow(
    encoder: "Encoder", texts: Sequence[str], output: Path, batch: int, chosen: dict[str, Any]
) -> str:
    """Fit a flow and write its folder; a summary for the terminal."""
    from contrasent.postprocess.flow import FlowSettings, fit
    from contrasent.postprocess.folder import write_flow

    losses: list[float] = []
    found = fit(
        encoder.encode(texts, batch=batch),
        FlowSettings(**chosen),
        report=lambda step, loss: losses.append(loss),
    )
    write_flow(output, found, encoder.save)
    tenth = max(1, len(losses) // 10)
    first, last = (sum(part) / len(part) for part in (losses[:tenth], losses[-tenth:]))
    return f"{len(losses):,} steps, {first:.3f} to {last:.3f} bits a dimension,"


def _distinct_sentences(corpus: Path, most: int) -> list[str]:
    """Every distinct text of a corpus, all columns, the first ones up to a number."""
    from contrasent.text.corpus import open_corpus

    found: dict[str, None] = {}
    for row in open_corpus(corpus):
        found.update(dict.fromkeys(row))
        if len(found) >= most:
            break
    return list(found)[:most]
