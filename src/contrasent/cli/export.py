"""``contrasent export MODEL --to onnx|openvino [--int8]``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model
from contrasent.errors import OptionError
from contrasent.files import check_writable

SENTENCES = 500  # texts that int8 is calibrated with, at most


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
    """Write a model as one graph that runs without torch, pooling, head and scaling inside.

    The graph's vectors are compared with torch's, and the difference is printed and written into
    the model's card. Use it with --runtime, or by its own folder.

    Options:
        to: Runtime: onnx or openvino.
        int8: Compute matrix products with 8-bit integers.
        calibrate: File with sentences like yours, for --int8; the documentation of the installed
            packages if not given.
        output: Folder to write; MODEL/onnx and so on if not given.
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
    notes: list[str] = []
    if made.sources:
        from contrasent.model.card import add_export

        if add_export(folder, made):
            notes.append(f"noted in {folder / 'README.md'}")
    line = (
        f"{target}: {made.name}; {made.compared} sentences differ from torch by at most "
        f"{made.difference:.1e} in a component, smallest cosine {made.cosine:.6f}"
    )
    return options.Output({"output": str(target), **asdict(made)}, line, notes)


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
