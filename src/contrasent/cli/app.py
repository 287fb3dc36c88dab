"""The commands, put together."""

import logging
from importlib import import_module

import typer

from contrasent import __version__, progress
from contrasent.cli.usage import Commands

PANELS = {
    "Start": ("index", "search", "adapt", "serve", "demo", "doctor"),
    "Train and measure": ("train", "evaluate", "compare", "diff"),
    "Use": ("encode", "similarity", "dedupe", "export"),
    "Research": ("reproduce", "postprocess", "import"),
    # To be removed by those who remove the commands; the panel goes with the last of them.
    "Going": ("recipes",),
}
"""The commands by panel, as --help shows them. Each is the function of a module of its name."""

app = typer.Typer(
    name="contrasent",
    cls=Commands,
    help="Learn sentence embeddings by contrast, measure them honestly, and search with them.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contrasent {__version__}")
        raise typer.Exit


WELCOME = """\
contrasent: sentence embeddings learnt by contrast. Four things to try:

  contrasent demo -o demo-model            a search that is adapted and proven, on text you have
  contrasent adapt FOLDER -o my-search     the same for your own documents
  contrasent similarity all-MiniLM-L6-v2 "a small boat" "a little ship"
  contrasent doctor                        what is installed, and what each extra adds

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
    logging.basicConfig(format="contrasent: %(message)s", level=logging.WARNING)


for panel, names in PANELS.items():
    for name in names:
        # A command whose name is a keyword of Python has an underscore behind it in the code.
        module = "import_" if name == "import" else name.replace("-", "_")
        command = getattr(import_module(f"contrasent.cli.{module}"), module)
        app.command(name, rich_help_panel=panel)(command)
