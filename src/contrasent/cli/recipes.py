"""``contrasent recipes [FOLDER] [--check]``."""

from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.errors import OptionError


@options.command
def recipes(
    folder: Annotated[Path | None, typer.Argument()] = None,
    check: bool = False,
    old_folder: Annotated[Path | None, typer.Option("--folder", hidden=True)] = None,
) -> options.Output:
    """List the files of tables and figures that reproduce makes; --check reads all of them.

    Options:
        folder: A folder of items. [default: the package's own]
        check: Read and check every item, and say how many.
    """
    from contrasent.reproduce.reading import ItemFolder
    from contrasent.reproduce.toml import HERE

    home = folder or old_folder or HERE
    if not home.is_dir():
        raise OptionError("FOLDER", str(home), "no such folder")
    if not check:
        files = {name: str(path) for name, path in ItemFolder(home).files().items()}
        return options.Output(files, "\n".join(f"{name}  {path}" for name, path in files.items()))
    found = ItemFolder(home).all()
    counts = {
        "items": len(found),
        "rows": sum(len(item.rows) for item in found),
        "published values": sum(len(row.expected) for item in found for row in item.rows),
        "claims": sum(len(item.claims) for item in found),
    }
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return options.Output(counts, f"checked {listed}")
