"""``contrasent postprocess METHOD MODEL CORPUS -o MODEL2``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model
from contrasent.errors import OptionError, check_choice

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder

MIN_SENTENCES = {"whiten": 2, "flow": 64, "dimension-wise": 512}
"""Sentences that each method needs: more than one, or one batch."""


@options.command
def postprocess(
    method: str,
    model: options.ModelName,
    corpus: Path,
    output: Annotated[Path, typer.Option("--output", "-o")],
    loading: options.Encoding,
    dimensions: Annotated[int | None, typer.Option(min=1)] = None,
    assign: Annotated[list[str] | None, typer.Option("--set")] = None,
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
        assign: flow, dimension-wise: a setting, key=value, such as epochs=2; may be repeated.
        sentences: Fit on at most so many distinct sentences.
    """
    check_choice("METHOD", method, MIN_SENTENCES)
    if sentences < MIN_SENTENCES[method]:
        problem = f"{method} needs {MIN_SENTENCES[method]} or more"
        raise OptionError("--sentences", sentences, problem)
    if dimensions is not None and method != "whiten":
        raise OptionError("--dimensions", dimensions, "goes with whiten")
    chosen = _settings(method, assign or [])
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
        if method == "whiten":
            layer, summary = _whiten(encoder, texts, batch, dimensions)
        else:
            layer, summary = _dimension_wise(encoder, texts, batch, chosen)
        encoder.save(
            output, card=f"# {output.name}\n\n{model}, {layer} {fitted} of {corpus.name}.\n"
        )
        summary = f"{summary}, fitted on {fitted}"
    options.note(f"wrote {output}: {summary}")


def _settings(method: str, given: list[str]) -> Any:
    """The settings of a method, validated."""
    from contrasent.engine.parameters import parameters_of
    from contrasent.postprocess.dimension_wise import LayerSettings
    from contrasent.postprocess.flow import FlowSettings
    from contrasent.train.settings import assignments

    kind = {"flow": FlowSettings, "dimension-wise": LayerSettings}.get(method)
    known = parameters_of(kind) if kind else {}
    values = {}
    for name, value in assignments(given).items():
        if name not in known:
            raise OptionError("--set", name, f"no such setting of {method}", choices=known)
        values[name] = known[name].read(value)
        if isinstance(values[name], int) and values[name] < (name != "seed"):
            raise OptionError("--set", f"{name}={value}", "is too small")
    return kind(**values) if kind else None


def _whiten(
    encoder: "Encoder", texts: Sequence[str], batch: int, dimensions: int | None
) -> tuple[str, str]:
    """Add a whitening layer; texts for the card and for the terminal."""
    from contrasent.postprocess.whitening import fit

    found = fit(encoder.encode(texts, batch=batch), dimensions=dimensions)
    encoder.add_layer(found.matrix, found.bias)
    size = f"{found.matrix.shape[1]} dimensions"
    return f"whitened (Su et al., 2021) to {size} on", size


def _dimension_wise(
    encoder: "Encoder", texts: Sequence[str], batch: int, settings: Any
) -> tuple[str, str]:
    """Add a layer learnt by dimension-wise contrast; texts for the card and for the terminal."""
    from contrasent.model.base import dropout_view
    from contrasent.postprocess.dimension_wise import fit

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


def _flow(encoder: "Encoder", texts: Sequence[str], output: Path, batch: int, settings: Any) -> str:
    """Fit a flow and write its folder; a summary for the terminal."""
    from contrasent.postprocess.flow import fit
    from contrasent.postprocess.folder import write_flow

    losses: list[float] = []
    found = fit(
        encoder.encode(texts, batch=batch),
        settings,
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
