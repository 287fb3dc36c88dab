"""``contrasent pretrain CORPUS -o BASE``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.cli.adapt import Resume


@options.command
def pretrain(
    corpus: str,
    output: Annotated[Path, typer.Option("--output", "-o")],
    layers: int = 4,
    hidden: int = 256,
    heads: int = 0,
    vocabulary: int = 16000,
    cased: bool = False,
    columns: str | None = None,
    assign: Annotated[list[str] | None, typer.Option("--set")] = None,
    seed: int | None = None,
    resume: Resume = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Train a small language model from random weights, as a base for `contrasent train`.

    Learns a vocabulary of word pieces and a BERT encoder by masked language modelling on your text.
    May be stopped at any time; --resume goes on.

    Options:
        corpus: txt, csv, tsv, jsonl, parquet, a folder, or -.
        output: Folder for the model.
        layers: Layers of the encoder.
        hidden: Size of its vectors.
        heads: Attention heads. [default: one for every 64 of --hidden]
        vocabulary: Entries of the vocabulary, at most.
        cased: Keep capital letters and accents.
        columns: Column of a table with the text, by name or position.
        assign: A setting of the run, key=value, such as steps=20000; may be repeated.
        seed: Seed of everything random.
    """
    from contrasent.text.corpus import open_corpus
    from contrasent.train.shape import Shape, pretraining_settings

    shape = Shape(
        layers=layers, hidden=hidden, heads=heads, vocabulary=vocabulary, lower_case=not cased
    )
    settings = pretraining_settings(assign or [], seed)
    source = open_corpus(corpus, columns=options.column_list(columns))
    with options.resumable(f"--resume goes on with {output}"):
        from contrasent.train.pretrain import pretrain

        found = pretrain(source, output, shape, settings, resume=resume, overwrite=overwrite)
    summary = (
        f"{output}: {found.steps} steps, {found.parameters / 1e6:.1f} M weights, "
        f"{found.vocabulary:,} entries; masked-LM loss {found.loss:.2f} at the end, "
        f"{found.sentences_per_second:,.0f} sentences/s"
    )
    return options.Output(asdict(found), summary)
