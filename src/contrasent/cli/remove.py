"""``contrasent remove INDEX --id ID | --where CONDITION``."""

from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.errors import OptionError


@options.command
def remove(
    index: options.IndexFolder,
    ids: Annotated[list[str] | None, typer.Option("--id")] = None,
    where: list[str] | None = None,
    compact: bool = False,
) -> options.Output:
    """Remove rows from an index, by id or by metadata.

    Options:
        ids: Id of a row to remove.
        where: Remove rows whose metadata matches: year<2000, or a JSON filter.
        compact: Give the room of removed rows back now.
    """
    from contrasent.search.filters import parse_where
    from contrasent.search.opening import open_writer

    condition = parse_where(where or [])
    if not ids and condition is None and not compact:
        raise OptionError("--id", "", "name rows by --id or --where, or use --compact")
    with open_writer(index) as writer:
        count = writer.delete(ids) if ids else 0
        if condition is not None:
            count += writer.delete_where(condition)
        if compact:
            writer.compact()
    left = len(writer.index)
    return options.Output(
        {"index": str(index), "removed": count, "texts": left},
        f"{index}: {count:,} rows removed, {left:,} left",
    )
