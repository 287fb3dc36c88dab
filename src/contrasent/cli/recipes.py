"""``contrasent recipes [--check]``."""

from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli.options import Json, emit


def recipes(
    check: Annotated[
        bool, typer.Option("--check", help="Read and check every recipe, and say how many.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="A folder of recipes, instead of the package's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the recipes of tables and figures; with --check, check all of them."""
    from contrasent.errors import OptionError
    from contrasent.reproduce.reading import HERE, all_recipes, recipe_files

    if folder is not None and not folder.is_dir():
        raise OptionError("--folder", str(folder), "no such folder")
    home = folder or HERE
    if not check:
        files = recipe_files(home)
        if as_json:
            emit({name: str(path) for name, path in files.items()})
        else:
            typer.echo("\n".join(f"{name}  {path}" for name, path in files.items()))
        return
    found = all_recipes(home)
    told = {
        "recipes": len(found),
        "rows": sum(len(r.rows) for r in found),
        "published values": sum(len(row.expected) for r in found for row in r.rows),
        "claims": sum(len(r.claims) for r in found),
    }
    if as_json:
        emit(told)
    else:
        typer.echo("checked " + ", ".join(f"{count:,} {name}" for name, count in told.items()))
