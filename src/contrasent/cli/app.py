"""The commands, put together."""

import logging

import typer

from contrasent import __version__, progress
from contrasent.cli.adapt import adapt
from contrasent.cli.check_objective import check_objective
from contrasent.cli.cluster import cluster
from contrasent.cli.compare import compare
from contrasent.cli.data import data
from contrasent.cli.dedupe import dedupe
from contrasent.cli.demo import demo
from contrasent.cli.diff import diff
from contrasent.cli.doctor import doctor
from contrasent.cli.encode import encode
from contrasent.cli.evaluate import evaluate
from contrasent.cli.export import export
from contrasent.cli.import_ import import_
from contrasent.cli.index import index
from contrasent.cli.mine import mine
from contrasent.cli.postprocess import postprocess
from contrasent.cli.pull import pull
from contrasent.cli.push import push
from contrasent.cli.recipes import recipes
from contrasent.cli.remove import remove
from contrasent.cli.reproduce import reproduce
from contrasent.cli.search import search
from contrasent.cli.serve import serve
from contrasent.cli.similarity import similarity
from contrasent.cli.threshold import threshold
from contrasent.cli.train import train
from contrasent.cli.usage import Commands
from contrasent.cli.watch import watch

app = typer.Typer(
    name="contrasent",
    cls=Commands,
    help="Learn sentence embeddings by contrast, measure them honestly, and search with them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contrasent {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    progress.show("auto")
    logging.basicConfig(format="contrasent: %(message)s", level=logging.WARNING)


PANELS = {
    "Start": (adapt, demo, doctor),
    "Use": (encode, similarity, index, search, serve, export),
    "Measure": (evaluate, compare, diff, watch),
    "Train": (train, postprocess),
    "Collections": (cluster, dedupe, mine, remove, threshold),
    "Research": (reproduce, recipes, check_objective),
    "Models": (import_, push, pull),
}
"""The commands as --help shows them, a person's path from top to bottom; 28 at most."""

for panel, commands in PANELS.items():
    for command in commands:
        name = command.__name__.rstrip("_").replace("_", "-")
        app.command(name, rich_help_panel=panel)(command)
app.add_typer(data, rich_help_panel="Research")
