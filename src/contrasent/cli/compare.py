"""``contrasent compare A B``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli.options import BatchSize, Json, MaxTokens, Pooler, Quiet, emit, quieten
from contrasent.errors import InputError, OptionError

if TYPE_CHECKING:
    from contrasent.evaluate.compare import Comparison
    from contrasent.report import Report
    from contrasent.types import EncodeFn, Vectors


def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A", help="Model, or its runs with several seeds: a,b,c; or saved reports."
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="What A is compared with, likewise.")],
    task: Annotated[
        list[str] | None, typer.Option(help="STS set, such as STSB; can be repeated.")
    ] = None,
    form: Annotated[
        str, typer.Option(help="STS text: senteval (tokenised, lower-cased) or raw.")
    ] = "senteval",
    split: Annotated[str, typer.Option(help="STS split: test, dev or train.")] = "test",
    data: Annotated[
        Path | None, typer.Option(help="Data folder, instead of CONTRASENT_DATA's.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2000,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Is B better than A, or is it chance? Differences with 95 % intervals and p values."""
    quieten(quiet)
    arms = [_names(option, value) for option, value in (("A", before), ("B", after))]
    found = (
        _by_reports(arms)
        if all(name.endswith(".json") for arm in arms for name in arm)
        else _by_models(arms, task, form, split, data, resamples, pooler, max_tokens, batch)
    )
    if as_json:
        emit({"a": arms[0], "b": arms[1], "rows": [c.to_json() for c in found]})
        return
    typer.echo(f"A: {', '.join(arms[0])}\nB: {', '.join(arms[1])}")
    typer.echo(f"{'task':<10} {'A':>7} {'B':>7} {'B - A':>7}  [95 % interval]")
    for comparison in found:
        typer.echo(comparison.line())
    if len(arms[0]) == len(arms[1]) == 1:
        typer.echo("one run each: this is about these two models; give several seeds for methods")


def _names(option: str, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    if not names or len(set(names)) < len(names):
        raise OptionError(option, value, "name each run once, with commas between")
    return names


def _by_reports(arms: list[list[str]]) -> "list[Comparison]":
    from contrasent.evaluate.compare import compare_reports

    before, after = ([_report(Path(name)) for name in arm] for arm in arms)
    return compare_reports(before, after)


def _report(path: Path) -> "Report":
    from contrasent.report import Report

    try:
        return Report.from_json(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            path, "not the report of one model; write it with evaluate --json"
        ) from error


def _by_models(
    arms: list[list[str]],
    task: list[str] | None,
    form: str,
    split: str,
    data: Path | None,
    resamples: int,
    pooler: str | None,
    max_tokens: int | None,
    batch: int,
) -> "list[Comparison]":
    from contrasent.cli.loading import find_model
    from contrasent.evaluate.compare import compare_sts
    from contrasent.text.datasets import sts_pairs
    from contrasent.text.official import STS_TASKS

    tasks = tuple(task) if task else STS_TASKS
    for name in tasks:
        sts_pairs(name, split=split, form=form, folder=data)
    folders = [[find_model(name) for name in arm] for arm in arms]

    def late(folder: Path) -> "EncodeFn":
        """A model that is loaded when it is first asked, and let go afterwards."""

        def encode(sentences: "list[str]") -> "Vectors":
            from contrasent.cli.loading import load_model

            return load_model(folder, batch=batch, pooler=pooler, max_tokens=max_tokens)(sentences)

        loaded: Callable[..., Vectors] = encode
        return loaded

    before, after = ([late(folder) for folder in arm] for arm in folders)
    return compare_sts(
        before, after, tasks=tasks, form=form, split=split, resamples=resamples, folder=data
    )
