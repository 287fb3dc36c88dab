"""Models made of models: ``contrasent export``, ``import`` and ``postprocess``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import OptionError, check_choice
from contrasent.files import check_writable

SENTENCES = 500  # texts that int8 is calibrated with, at most
MIN_SENTENCES = {"whiten": 2, "flow": 64}
"""Sentences that each method needs: more than one, or one batch."""


@options.command
def export(
    model: options.ModelName,
    to: Annotated[str, typer.Option()],
    loading: options.Reading,
    int8: bool = False,
    calibrate: str | None = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Export a model as one graph that runs without torch, including pooling, head and scaling.

    The graph's vectors are compared with torch's; the difference is printed and saved in
    export.json. Use the export with --runtime, or by its folder.

    Options:
        to: Runtime: onnx or openvino.
        int8: Compute matrix products with 8-bit integers.
        calibrate: File with typical sentences, for --int8. [default: the documentation of the
            installed packages]
        output: Folder to write. [default: MODEL/onnx and so on]
    """
    if calibrate is not None and not int8:
        raise OptionError("--calibrate", calibrate, "needs --int8")
    from contrasent.model.opening import find_model

    folder = find_model(model)
    if output is None and not Path(model).is_dir():
        raise OptionError("-o", None, f"{model} is not a local folder; name a folder to write")
    target = output or folder / (f"{to}-int8" if int8 else to)
    from contrasent.files import recover_folder
    from contrasent.model.runtime import check_engine, check_target

    recover_folder(target)
    check_writable(target.parent)
    check_engine(to)
    check_target(target, overwrite)
    texts = calibration(calibrate) if int8 else None
    from contrasent.encoder.export import export as write

    exported = write(
        folder,
        target,
        engine=to,
        calibration=texts,
        pooling=loading.pooling,
        max_seq_length=loading.max_seq_length,
        overwrite=overwrite,
    )
    line = (
        f"{target}: {exported.name}; {exported.compared} sentences differ from torch by at most "
        f"{exported.difference:.1e} in a component, smallest cosine {exported.cosine:.6f}"
    )
    return options.Output({"output": str(target), **asdict(exported)}, line)


def calibration(source: str | None) -> list[str]:
    """Sentences to calibrate with."""
    if source is None:
        from contrasent.documents.docstrings import documented, installed_sources
        from contrasent.model.golden import PROBES

        sources = installed_sources()
        summaries = [doc.summary for doc in documented(sources[:: len(sources) // 600 + 1])]
        texts = [*PROBES, *dict.fromkeys(summaries)]
    else:
        from contrasent.cli.encode import open_texts

        texts = list(dict.fromkeys(row[0] for row in open_texts(source, None)))
    # Spread over the source, so that its beginning is not all that counts.
    return texts[:: max(1, len(texts) // SENTENCES)][:SENTENCES]


@options.command
def import_(
    checkpoint: str,
    output: options.NewModel,
    loading: Annotated[options.Loading, "max_seq_length"],
    method: str | None = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Convert a released checkpoint of SimCSE, ESimCSE, DiffCSE or SimCSE++ to a model folder.

    The folder defines pooling and head as the paper evaluates them, so that every library computes
    the same vectors. Weights must be safetensors.

    Options:
        checkpoint: Folder of a released checkpoint, or its name@commit on the hub.
        method: unsup-simcse, sup-simcse, esimcse, diffcse or simcse++, if it cannot be detected.
    """
    from contrasent.model.description import check_replaceable
    from contrasent.model.pretrained import resolve

    options.check_new(output, overwrite, "folder")
    check_replaceable(output)
    folder = resolve(checkpoint)
    from contrasent.encoder.card import CardMetadata, card
    from contrasent.encoder.released import import_checkpoint

    encoder, detected = import_checkpoint(
        folder, method=method, max_seq_length=loading.max_seq_length
    )
    about = CardMetadata(base=checkpoint, objective={"name": detected})
    encoder.save(output, card=card(encoder, about))
    pooled = "[CLS]" if encoder.head is None else "[CLS] through the tanh head"
    facts = {
        "checkpoint": checkpoint,
        "model": str(output),
        "method": detected,
        "pooling": encoder.pooling,
        "head": encoder.head is not None,
        "dimension": encoder.dimension,
        "identity": encoder.identity,
    }
    return options.Output(facts, f"{output}: {detected}, {encoder.dimension} dimensions, {pooled}")


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
    """Fit a layer on a fixed model's vectors of your text, and save both as a new model.

    whiten (Su et al., 2021) adds a linear layer: the result is an ordinary model. flow (BERT-flow)
    is not linear; its folder has its own format, which `contrasent evaluate` reads.

    Options:
        method: whiten or flow.
        corpus: Text to fit on: a file or folder.
        output: Folder of the new model.
        dimensions: whiten: keep this many dimensions. [default: all]
        assign: flow: a setting, key=value, such as num_train_epochs=2; can be repeated.
        sentences: Maximum number of distinct sentences to fit on.
    """
    check_choice("METHOD", method, MIN_SENTENCES)
    if sentences < MIN_SENTENCES[method]:
        problem = f"{method} needs {MIN_SENTENCES[method]} or more"
        raise OptionError("--sentences", sentences, problem)
    if dimensions is not None and method != "whiten":
        raise OptionError("--dimensions", dimensions, "is for whiten only")
    settings = _settings(method, assign or [])
    from contrasent.text.corpus import open_corpus

    distinct: dict[str, None] = {}
    for row in open_corpus(corpus):
        distinct.update(dict.fromkeys(row))
        if len(distinct) >= sentences:
            break
    texts = list(distinct)[:sentences]
    options.check_new(output, overwrite, "folder")
    from contrasent.model.description import check_replaceable
    from contrasent.model.opening import find_model

    check_replaceable(output)
    folder = find_model(model)
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.postprocess import whiten

    encoder = TorchEncoder.load(
        folder, pooling=loading.pooling, max_seq_length=loading.max_seq_length, normalize=False
    )
    vectors = encoder.encode(texts, batch_size=loading.batch_size)
    fitted = f"{len(texts):,} sentences"
    if method == "flow":
        from contrasent.encoder.flow import fit, write_flow

        losses = list[float]()
        flow = fit(vectors, settings, report=lambda step, loss: losses.append(loss))
        write_flow(output, flow, encoder.save)
        tenth = max(1, len(losses) // 10)
        first, last = (sum(part) / len(part) for part in (losses[:tenth], losses[-tenth:]))
        change = f"{len(losses):,} steps, {first:.3f} to {last:.3f} bits per dimension"
        options.note(f"wrote {output}: {change}, on {fitted}")
        return
    layer = whiten(vectors, dimensions=dimensions)
    encoder.add_layer(layer.matrix, layer.bias)
    summary = f"{layer.matrix.shape[1]} dimensions"
    about = f"{model}, whitened (Su et al., 2021) to {summary} on {fitted} of {corpus.name}."
    encoder.save(output, card=f"# {output.name}\n\n{about}\n")
    options.note(f"wrote {output}: {summary}, fitted on {fitted}")


def _settings(method: str, given: list[str]) -> Any:
    """The settings of a method, validated."""
    from contrasent.encoder.flow import FlowSettings
    from contrasent.engine.parameters import parameters_of
    from contrasent.train.settings import assignments

    known = parameters_of(FlowSettings) if method == "flow" else {}
    values = {}
    for name, value in assignments(given).items():
        if name not in known:
            raise OptionError("--set", name, f"unknown setting of {method}", choices=known)
        values[name] = known[name].read(value)
        if isinstance(values[name], int) and values[name] < (name != "seed"):
            raise OptionError("--set", f"{name}={value}", "is too small")
    return FlowSettings(**values)
