"""The commands, put together; usage errors are one line, where typer prints usage and a box."""

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import typer

from contrasent import __version__, progress
from contrasent.cli import options
from contrasent.errors import OptionError, UserError

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


def run(words: Sequence[str]) -> int:
    """Run a command line, and return its exit code."""
    try:
        return int(app(words, prog_name="contrasent", standalone_mode=False) or 0)
    except USAGE as error:
        raise _usage_error(error, words) from error


def _usage_error(error: Any, words: Sequence[str]) -> UserError:
    """The parser's error in the words of this command line."""
    param, kind = getattr(error, "param", None), type(error).__name__
    if kind == "BadParameter" and param is not None:
        # The cause is pydantic's; of an older typer the message holds the value.
        details = getattr(error.__cause__, "errors", None)
        if details is None:
            return UserError(f"{options.named(param)}: {error.message}")
        first = details()[0]
        message = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
        problem = TYPES.get(first["type"]) or message.replace("Input should", "must")
        return OptionError(options.named(param), first["input"], problem)
    if kind == "NoSuchOption" and (better := _elsewhere(error)):
        return UserError(f"no such option: {error.option_name}; {better}")
    command = " ".join(["contrasent", *(word for word in words[:1] if word[:1] != "-")])
    if error.ctx is not None:
        command = str(error.ctx.command_path)
    more = f"see '{command} --help'"
    if kind == "MissingParameter" and param is not None:
        about = str(getattr(param, "help", None) or "").rstrip(".").replace("\\[", "[")
        problem = f"{options.named(param)} is missing{f' ({about})' if about else ''}"
    else:
        message = str(error.format_message()).rstrip(".")
        problem = message[:1].lower() + message[1:]
    return UserError(problem if problem.endswith("?") else f"{problem}; {more}")


def _elsewhere(error: Any) -> str:
    """What to use instead of an option of another library; "" if it is none."""
    from contrasent.elsewhere import ABSENT, OPTIONS, RENAMED, SETTINGS

    known = {option for param in error.ctx.command.params for option in param.opts}
    name = error.option_name.strip("-").replace("-", "_")
    setting = RENAMED.get(name, name)
    for option in (OPTIONS.get(name, ""), f"--{setting.replace('_', '-')}"):
        if option in known:
            return f"use {option}"
    if "--set" not in known:
        return ""
    if name in ABSENT:
        return ABSENT[name]
    from contrasent.train.settings import run_settings  # the engine's registry, slow to import

    there = name in RENAMED or setting in {*SETTINGS, *run_settings()}
    return f"use --set {setting}=..." if there else ""


app = typer.Typer(
    name="contrasent",
    rich_markup_mode="markdown",
    help="Train sentence embeddings by contrastive learning, evaluate them, and search.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contrasent {__version__}")
        raise typer.Exit


WELCOME = """\
contrasent: sentence embeddings by contrastive learning. Four things to try:

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
    handler.setFormatter(options.LineFormatter("contrasent: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


for panel, names in PANELS.items():
    for name in names:
        found = import_module(f"contrasent.cli.{MODULES.get(name, name)}")
        kind = getattr(found, "Command", options.Command)
        # A command whose name is a keyword of Python has an underscore behind it in the code.
        function = getattr(found, "import_" if name == "import" else name)
        app.command(name, cls=kind, rich_help_panel=panel)(function)
