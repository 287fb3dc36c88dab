"""Shared options of the commands, and how they run and print."""

import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand

from contrasent import progress
from contrasent.errors import OptionError, OutputError
from contrasent.files import check_file, check_writable

if TYPE_CHECKING:
    from contrasent.model.base import TaskEncoder

ModelName = Annotated[str, typer.Argument(help="Model folder or name.")]
Column = Annotated[
    str | None, typer.Option(help="Column with the text, by name or position from 0.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", exists=True, file_okay=False, help="Data folder. [default: CONTRASENT_DATA]"
    ),
]
StsForm = Annotated[
    str, typer.Option("--form", help="STS text: senteval (tokenized, lower-cased) or raw.")
]
StsTask = Annotated[
    list[str] | None, typer.Option("--task", help="STS set, such as STSB; can be repeated.")
]
StsSplit = Annotated[str, typer.Option("--split", help="STS split: test, dev or train.")]
NewModel = Annotated[Path, typer.Option("--output", "-o", help="Model folder to create.")]
WordWeight = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Weight of BM25 where BM25 and vectors are equally clear.",
    ),
]
VectorsOnly = Annotated[bool, typer.Option("--vectors-only", help="Search with vectors only.")]


TEXTS = ("query", "first", "second", "remove", "prompt", "name")
"""Arguments that are texts or ids, which must be decodable and may be empty; paths may have any
bytes, and an empty one would be this folder."""


class Output(NamedTuple):
    """The output of a command."""

    data: Any
    text: str = ""
    notes: Sequence[str] = ()  # for standard error, after all else
    status: int = 0
    styled: bool = False  # the text has colors, and all that came from outside is printable


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is opened; a command shows those fields as options that its annotation names."""

    pooling: Annotated[
        str | None,
        typer.Option(help="Pooling of an encoder that does not define one: cls, mean, max, ..."),
    ] = None
    max_seq_length: Annotated[
        int | None,
        typer.Option(help="Truncate texts to this many tokens. [default: the model's]"),
    ] = None
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences per forward pass.")] = 64
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Runtime: torch, numpy, onnx, onnx-int8, openvino or openvino-int8 (see "
            "'contrasent export')."
        ),
    ] = None
    batch_invariant: Annotated[
        bool,
        typer.Option(
            "--batch-invariant",
            help="Same bits for any batch and order of texts; slower (see docs).",
        ),
    ] = False


def open_model(
    name: str | Path, loading: Loading | None = None, *, light: bool = False
) -> "TaskEncoder":
    """Open a model as the options of a command say; ``light``: see ``open_encoder``."""
    from contrasent.model.base import TaskEncoder
    from contrasent.model.opening import find_model, open_encoder

    settings = loading or Loading()
    encoder = open_encoder(
        find_model(name),
        runtime=settings.runtime,
        pooling=settings.pooling,
        max_seq_length=settings.max_seq_length,
        light=light,
    )
    return TaskEncoder(
        encoder, batch_size=settings.batch_size, batch_invariant=settings.batch_invariant
    )


Reading = Annotated[Loading, "pooling", "max_seq_length"]
Encoding = Annotated[Loading, "pooling", "max_seq_length", "batch_size"]
Running = Annotated[Loading, "pooling", "max_seq_length", "batch_size", "runtime"]


def command(function: Callable[..., Output | None]) -> Callable[..., None]:
    """A command for typer, with ``--quiet``, and ``--json`` if it gives an :class:`Output`.

    The help of its options is the part "Options:" of its docstring. ``loading`` becomes those
    options that its annotation names.
    """
    signature = inspect.signature(function)
    about, _, stated = inspect.cleandoc(function.__doc__ or "").partition("\n\nOptions:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", stated, re.MULTILINE)
    help_of = {name: " ".join(text.split()) for name, text in entries}
    shown: list[inspect.Parameter] = []
    parts: tuple[str, ...] = ()
    for name, given in signature.parameters.items():
        if name == "loading":
            parts = given.annotation.__metadata__
            known = {field.name: field for field in fields(Loading)}
            shown += [_parameter(part, known[part].type, known[part].default) for part in parts]
        elif given.annotation is typer.Context:
            shown.append(given)
        elif name != "as_json":
            shown.append(_parameter(name, given.annotation, given.default, help_of.get(name)))
    if Output in (signature.return_annotation, *get_args(signature.return_annotation)):
        shown.append(_parameter("as_json", Json, False))
    shown.append(_parameter("quiet", Quiet, False))

    @wraps(function)
    def run(**given: Any) -> None:
        progress.show("silent" if given.pop("quiet") else "auto")
        as_json = given.get("as_json", False)
        if "as_json" not in signature.parameters:
            given.pop("as_json", None)
        if parts:
            given["loading"] = Loading(**{part: given.pop(part) for part in parts})
        try:
            output = function(**given)
        except KeyboardInterrupt as stop:
            typer.echo("contrasent: interrupted", err=True)
            raise typer.Exit(130) from stop
        if output is not None:
            _print(output, as_json=as_json)

    run.__doc__ = escaped(about)
    vars(run)["__signature__"] = signature.replace(parameters=shown, return_annotation=None)
    return run


class Command(TyperCommand):
    """A command that rejects what is empty or has other bytes than text, before it is converted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See typer."""
        given = self.make_parser(ctx).parse_args(args=[*args])[0]
        for parameter in self.params:
            value, is_text = given.get(str(parameter.name)), parameter.name in TEXTS
            for one in value if isinstance(value, list | tuple) else [value]:
                if one == "" and not is_text:  # as of a variable of the shell that is not set
                    raise OptionError(named(parameter), "", "is empty")
                if is_text and re.search("[\udc80-\udcff]", str(one)):  # bytes as they were
                    encoding = sys.getfilesystemencoding().upper()
                    problem = f"is not {encoding}; convert it, or set LC_ALL"
                    raise OptionError(named(parameter), os.fsencode(str(one)), problem)
        return super().parse_args(ctx, args)


def _parameter(name: str, annotation: Any, default: Any, text: str | None = None) -> Any:
    """A parameter as typer takes it; an argument where it has no default."""
    stated: Any = typer.Argument()
    if get_origin(annotation) is Annotated:
        annotation, stated = annotation.__origin__, copy(annotation.__metadata__[0])
    elif default is not inspect.Parameter.empty:
        # The name of a flag keeps typer from adding its opposite.
        stated = typer.Option(*[f"--{name.replace('_', '-')}"] * (annotation is bool))
    stated.help = escaped(text or stated.help or "")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=Annotated[annotation, stated])


def named(parameter: Any) -> str:
    """A parameter of the parser as users write it."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).strip('".[]')
    return "/".join(parameter.opts)


def _given(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_used(context: typer.Context, lacking: Mapping[str, str]) -> None:
    """Reject options that were given and would change nothing, each with what it needs."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in lacking and _given(context, name):
            problem = f"needs {lacking[name]}"
            raise OptionError(named(parameter), str(context.params[name]), problem)


def check_alone(context: typer.Context, change: str, *allowed: str) -> None:
    """Reject options that were given and are neither the change nor ``allowed`` with it."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if not _given(context, name) or name in (*allowed, "as_json", "quiet"):
            continue
        problem = f"cannot be combined with {change}; see '{context.command_path} --help'"
        raise OptionError(named(parameter), str(context.params[name]), problem)


def escaped(text: str) -> str:
    """A help text whose brackets rich shows instead of taking them for markup."""
    return text.replace("[", "\\[")


def _print(output: Output, *, as_json: bool) -> None:
    text = output.text
    if as_json:
        # Where the locale lacks letters, by JSON's own escapes.
        plain = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
        text = json.dumps(output.data, ensure_ascii=plain, indent=2, allow_nan=False)
    if text:
        show = typer.echo if output.styled and not as_json else echo
        show(text)
        sys.stdout.flush()
    for line in output.notes:
        note(line)
    if output.status:
        raise typer.Exit(output.status)


def echo(text: str) -> None:
    """Print a text that may come from outside."""
    typer.echo(progress.printable(text))


def note(text: str) -> None:
    """Print a line on standard error, unless the command is quiet."""
    if not progress.silent():
        typer.echo(progress.printable(text).replace("\n", "\\u000a"), err=True)


class LineFormatter(logging.Formatter):
    """Messages of a log as they can be printed."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        return progress.printable(super().format(record))


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """After Ctrl-C, print what is kept and how the work is continued."""
    try:
        yield
    except KeyboardInterrupt as stop:
        note(f"contrasent: {'; '.join(['stopped', *map(str, stop.args), how])}")
        raise typer.Exit(130) from stop


def parse_budget(text: str) -> float:
    """Seconds of a time such as "90", "90s", "30m", "1h30m" or "2d"."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    plain = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd]?)", plain)
    if not parts or re.sub(r"\s", "", plain) != "".join(n + u for n, u in parts):
        raise OptionError("--budget", text, "write a time such as 90s, 30m or 1h30m")
    return sum(float(number) * units[unit or "s"] for number, unit in parts)


def check_new(output: Path, replace: bool, what: str = "file") -> None:
    """Reject, before any work, a target that must not be replaced or cannot be written."""
    if what == "file":
        check_file(output)
    elif output.is_dir() and not any(output.iterdir()):
        replace = True
    if output.exists() and not replace:
        raise OutputError(f"{output}: already exists; choose another {what} or add --overwrite")
    check_writable(output.absolute().parent)


def listed(text: str | None) -> list[str]:
    """The parts of a list such as "title,text"."""
    return [part.strip() for part in text.split(",")] if text else []


def column_list(names: str | list[str | int] | None) -> list[str | int] | None:
    """Columns by name or position, from "text,2" or a recipe's list."""
    if names is None:
        return None
    from contrasent.text.tables import column

    parts = listed(names) if isinstance(names, str) else map(str, names)
    return [column(part) for part in parts]


def chosen_weight(bm25_weight: float | None, vectors_only: bool) -> float | None:
    """The weight of BM25 that a command's options choose; None for the index's own."""
    if vectors_only and bm25_weight:
        raise OptionError("--bm25-weight", bm25_weight, "cannot be combined with --vectors-only")
    return 0.0 if vectors_only else bm25_weight
