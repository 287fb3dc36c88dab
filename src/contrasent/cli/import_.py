"""``contrasent import CHECKPOINT -o MODEL``."""

from typing import Annotated

from contrasent.cli import options


@options.command
def import_(
    checkpoint: str,
    output: options.NewModel,
    loading: Annotated[options.Loading, "max_tokens"],
    method: str | None = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Make a model folder of a checkpoint of SimCSE, ESimCSE, DiffCSE or SimCSE++.

    The folder says how its vectors are pooled and whether the head belongs to them, as the paper
    evaluates it, so that every reader gives the same vectors. Weights must be safetensors.

    Options:
        checkpoint: Folder of a released checkpoint, or its name@commit on the hub.
        method: unsup-simcse, sup-simcse, esimcse, diffcse or simcse++, if unknown.
    """
    from contrasent.model.pretrained import resolve

    options.check_new(output, overwrite and (output / "modules.json").is_file(), "target")
    folder = resolve(checkpoint)
    from contrasent.model.card import CardMetadata, card
    from contrasent.model.released import import_checkpoint

    encoder, found = import_checkpoint(folder, method=method, max_tokens=loading.max_tokens)
    encoder.save(
        output, card=card(encoder, CardMetadata(base=checkpoint, objective={"name": found}))
    )
    pooled = "[CLS]" if encoder.head is None else "[CLS] through the tanh head"
    facts = {
        "checkpoint": checkpoint,
        "model": str(output),
        "method": found,
        "pooling": encoder.pooling,
        "head": encoder.head is not None,
        "dimension": encoder.dimension,
        "identity": encoder.identity,
    }
    return options.Output(facts, f"{output}: {found}, {encoder.dimension} dimensions, {pooled}")
