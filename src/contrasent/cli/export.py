"""``contrasent export MODEL --to onnx|openvino [--int8]``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model
from contrasent.errors import ModelError, OptionError
from contrasent.files import check_writable

if TYPE_CHECKING:
    from contrasent.model.runtime import Export

SENTENCES = 500  # texts that int8 is calibrated with, at most


@options.command
def export(
    model: options.ModelName,
    to: Annotated[str, typer.Option()],
    loading: options.Reading,
    int8: bool = False,
    calibrate: str | None = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    measure: bool = False,
    data: options.DataFolder = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Write a model as one graph that runs without torch, pooling, head and scaling inside.

    The graph's vectors are compared with torch's, and the difference is printed and written into
    the model's card. Use it with --runtime, or by its own folder.

    Options:
        to: Runtime: onnx or openvino.
        int8: Compute matrix products with 8-bit integers.
        calibrate: File with sentences like yours, for --int8; the documentation of the installed
            packages if not given.
        output: Folder to write; MODEL/onnx and so on if not given.
        measure: Also measure STS and speed against torch (needs the STS data).
    """
    if calibrate is not None and not int8:
        raise OptionError("--calibrate", calibrate, "is for --int8 alone")
    name = f"{to}-int8" if int8 else to
    folder = find_model(model)
    if output is None and not Path(model).is_dir():
        raise OptionError("-o", None, f"{model} is no folder of yours; name a folder to write")
    target = output if output is not None else folder / name
    from contrasent.files import recover_folder

    recover_folder(target)
    check_writable(target.parent)
    from contrasent.model.runtime import check_engine, check_target

    check_engine(to)
    check_target(target, overwrite)
    if measure:
        from contrasent.text.datasets import sts_pairs

        sts_pairs("STSB", folder=data)  # missing data are an error before any work
    texts = calibration(calibrate) if int8 else None
    from contrasent.model.export import export as write

    made = write(
        folder,
        target,
        engine=to,
        calibration=texts,
        pooler=loading.pooler,
        max_tokens=loading.max_tokens,
        overwrite=overwrite,
    )
    measured = _measured_against_torch(folder, target, made, data) if measure else {}
    notes: list[str] = []
    if made.sources:
        from contrasent.model.card import add_export

        if add_export(folder, made, measured):
            notes.append(f"noted in {folder / 'README.md'}")
    lines = [
        f"{target}: {made.name}; {made.compared} sentences differ from torch by at most "
        f"{made.difference:.1e} in a component, smallest cosine {made.cosine:.6f}",
        *(f"{what.replace('_', ' ')}: {value:.2f}" for what, value in measured.items()),
    ]
    return options.Output(
        {"output": str(target), **asdict(made), **measured}, "\n".join(lines), notes
    )


def calibration(source: str | None) -> list[str]:
    """Sentences to calibrate with."""
    if source is None:
        from contrasent.documents.docstrings import read_documentation
        from contrasent.model.golden import PROBES

        found = [entry.summary for entry in read_documentation(limit_files=600).documented]
        found = [*PROBES, *dict.fromkeys(found)]
    else:
        from contrasent.cli.encode import open_texts

        found = list(dict.fromkeys(row[0] for row in open_texts(source, None)))
    # Spread over the source, so that its beginning is not all that counts.
    return found if len(found) <= SENTENCES else found[:: len(found) // SENTENCES][:SENTENCES]


def _measured_against_torch(
    folder: Path, target: Path, made: "Export", data: Path | None
) -> dict[str, float]:
    """STS averages of torch and of the export, and how many times faster the export is."""
    import statistics
    import time

    from contrasent.cli.loading import open_model
    from contrasent.evaluate.sts import sts
    from contrasent.text.datasets import sts_pairs

    fixed = made.facts
    models = {
        "torch": open_model(folder, options.Loading(fixed.pooling, fixed.max_tokens)),
        made.name: open_model(target),
    }
    if models["torch"].encoder.identity != fixed.identity:
        raise ModelError(f"{folder}: has changed since it was exported")
    found: dict[str, float] = {}
    for name, encode in models.items():
        (mean,) = [row for row in sts(encode, folder=data, resamples=0) if row.task == "STS7"]
        found[f"STS_average_of_{name}"] = mean.value
    pairs = sts_pairs("STSB", folder=data)
    texts = list(dict.fromkeys(text for part in pairs for text in part.first))[:256]
    taken: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(5):
        for name, encode in models.items():
            began = time.perf_counter()
            encode.encoder.encode(texts)
            taken[name].append(time.perf_counter() - began)
    ratios = [a / b for a, b in zip(taken["torch"][1:], taken[made.name][1:], strict=True)]
    found[f"times_as_fast_as_torch_here_on_{len(texts)}_STSB_sentences"] = statistics.median(ratios)
    return found
