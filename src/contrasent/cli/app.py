"""The commands, put together; usage errors are one line, where typer prints usage and a box."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperGroup

from contrasent import __version__, progress
from contrasent.cli.options import LineFormatter
from contrasent.errors import RENAMED, OptionError, UserError

PANELS = {
    "Start": ("index", "search", "adapt", "serve", "demo", "doctor"),
    "Train and measure": ("train", "evaluate", "compare", "diff"),
    "Use": ("encode", "similarity", "dedupe", "export"),
    "Research": ("reproduce", "postprocess", "import"),
}
"""The commands by panel, as --help shows them."""
MODULES = {
    "diff": "compare",
    **dict.fromkeys(("similarity", "dedupe"), "encode"),
    **dict.fromkeys(("export", "postprocess", "import"), "models"),
}
"""The modules of commands that have none of their own name."""


# Typer exports one of the errors of its parser; its base class is the base of all of them.
USAGE = cast(type[Exception], typer.BadParameter.__base__)
TYPES = {"int_parsing": "must be a whole number", "float_parsing": "must be a number"}
"""The problem of a value of another type, by pydantic's name for it."""
OPTIONS = {
    **{"delete": "--remove", "filter": "--where", "loss": "--objective", "model": "--base"},
    **{"output_dir": "--output", "top_k": "-k", "update": "--upsert"},
}
"""Options by the names that other programs give them."""


class Commands(TyperGroup):
    """Commands by name, whose usage errors are one line."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """See typer; the options before the command are parsed here."""
        with _one_line(None):
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        """See typer; the command's own options are parsed here."""
        try:
            with _one_line(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if not stop.args:  # nothing has been said
                typer.echo("contrasent: interrupted", err=True)
            raise


@contextmanager
def _one_line(parent: Any) -> Iterator[None]:
    try:
        yield
    except USAGE as error:
        raise _usage_error(error, parent) from error


def _usage_error(error: Any, parent: Any) -> UserError:
    """The parser's error in the words of this command line."""
    param, kind = getattr(error, "param", None), type(error).__name__
    if kind == "BadParameter" and param is not None:
        # The cause is pydantic's; of an older typer the message holds the value.
        details = getattr(error.__cause__, "errors", None)
        if details is None:
            return UserError(f"{_name(param)}: {error.message}")
        first = details()[0]
        words = TYPES.get(first["type"]) or str(first["msg"]).replace("Input should", "must")
        return OptionError(_name(param), first["input"], words)
    if kind == "NoSuchOption" and (better := _elsewhere(error)):
        return UserError(f"no such option: {error.option_name}; use {better}")
    command = "contrasent"
    if error.ctx is not None:
        command = str(error.ctx.command_path)
    elif parent is not None:
        command = " ".join(filter(None, (parent.command_path, parent.invoked_subcommand)))
    more = f"see '{command} --help'"
    if kind == "MissingParameter" and param is not None:
        about = str(getattr(param, "help", None) or "").rstrip(".").replace("\\[", "[")
        problem = f"{_name(param)} is missing{f' ({about})' if about else ''}"
    else:
        message = str(error.format_message()).rstrip(".")
        problem = message[:1].lower() + message[1:]
    return UserError(problem if problem.endswith("?") else f"{problem}; {more}")


def _elsewhere(error: Any) -> str:
    """What an option of an earlier version or of another library is here; "" if it is nothing."""
    known = {option for param in error.ctx.command.params for option in param.opts}
    old = error.option_name.strip("-").replace("-", "_")
    new = RENAMED.get(old, old)
    for option in (OPTIONS.get(old, ""), f"--{new.replace('_', '-')}"):
        if option in known:
            return str(option)
    if "--set" in known:
        from contrasent.train.settings import run_settings  # the engine's registry, slow to import

        return f"--set {new}=..." if new in run_settings() else ""
    return ""


def _name(param: Any) -> str:
    """A parameter as the user writes it."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return "/".join(param.opts)


app = typer.Typer(
    name="contrasent",
    cls=Commands,
    rich_markup_mode="markdown",
    help="Train sentence embeddings by contrast, evaluate them, and search with them.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contrasent {__version__}")
        raise typer.Exit


WELCOME = """\
contrasent: sentence embeddings learned by contrast. Four things to try:

  contrasent demo                           train and search, on text you already have
  contrasent adapt FOLDER -o my-search     the same for your own documents
  contrasent similarity all-MiniLM-L6-v2 "a small boat" "a little ship"
  contrasent doctor                        what is installed and what each extra adds

contrasent --help lists all commands."""


@app.callback()
def _every_command(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(WELCOME)
    progress.show("auto")
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("contrasent: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


for panel, names in PANELS.items():
    for name in names:
        found = import_module(f"contrasent.cli.{MODULES.get(name, name)}")
        kind = found.Command if name == "train" else None
        # A command whose name is a keyword of Python has an underscore behind it in the code.
        function = getattr(found, "import_" if name == "import" else name)
        app.command(name, cls=kind, rich_help_panel=panel)(function)
