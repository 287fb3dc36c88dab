"""What a recipe must be as a whole; ``reading.py`` checks each value."""

from typing import Any

from contrasent.errors import OptionError, UserError, suggestion
from contrasent.reproduce.recipe import TARGET, Recipe, Row
from contrasent.reproduce.scale import Scale, chosen
from contrasent.reproduce.source import Table


def check_whole(recipe: Recipe, top: Table) -> None:
    """Refuse what does not fit together: names, rows and columns that others refer to.

    Raises:
        InputError: it does not; file and line are given.
    """
    names = [row.name for row in recipe.rows]
    for i in range(len(recipe.rows)):
        _check_row(recipe, i, top)
    if recipe.reference and recipe.reference not in names:
        near = suggestion(recipe.reference, names)
        top.refuse("reference", f"reference {recipe.reference!r}: no such row{near}")
    if recipe.seeds < 1:
        top.refuse("seeds", "seeds must be at least 1")
    if not recipe.rows and recipe.kind != "claims":
        top.source.refuse((), "there are no [[rows]]")
    if recipe.figure == "sweep" and not recipe.sweep:
        top.refuse("figure", 'a sweep needs sweep = "SETTING", the axis of the figure')
    axes = {name for row in recipe.rows for name in row.point}
    for axis in filter(None, recipe.sweep.split(",")):
        if axis not in axes:
            top.refuse("sweep", f"sweep {axis!r}: no such axis{suggestion(axis, axes)}")


def _check_row(recipe: Recipe, i: int, top: Table) -> None:
    row, evaluations = recipe.rows[i], recipe.evaluations
    if row.name in [other.name for other in recipe.rows[:i]]:
        top.source.refuse(("rows", row.place), f"two rows are named {row.name!r}")
    for name in row.expected if row.kind in ("train", "encoder") else ():
        if not recipe.columns[name].evaluation:
            problem = f"column {name!r} names no evaluation; only quotations have values in it"
            top.source.refuse(("rows", row.place, "expected"), problem)
    if row.also and not recipe.also_source:
        top.source.refuse(("rows", row.place, "also"), "also_source must say where from")
    target = row.fit is not None and row.fit.corpus == TARGET
    for name in {n for some in row.evaluations.values() for n in some} if target else ():
        if evaluations[name].kind != "sts":
            problem = f"{row.name}: a fit to {TARGET!r} belongs to STS sets; {name!r} measures "
            problem += f"{evaluations[name].kind} (evaluations = [...] says what is measured)"
            top.source.refuse(("rows", row.place), problem)


def check_settings(recipe: Recipe, scale: Scale, top: Table) -> None:
    """Choose the settings of every row as a run would, so that a wrong one is found now.

    Raises:
        InputError: a setting that cannot be; the line where it was written is given.
    """
    for row in recipe.rows:
        if row.kind != "train" or scale.name not in row.scales:
            continue
        try:
            chosen(recipe, row, scale)
        except OptionError as error:
            unknown = str(error.value) if error.option == "set" else error.option
            top.source.refuse(_place(top, recipe, row, unknown, scale.name), f"{row.name}: {error}")
        except UserError as error:
            top.source.refuse(("rows", row.place), f"{row.name}: {error}")


def _place(top: Table, recipe: Recipe, row: Row, name: str, scale: str) -> tuple[str | int, ...]:
    """Where a setting of a row was written: in the row, its template, or the recipe's scale."""
    import tomllib

    data = tomllib.loads(top.source.text)
    written = data["rows"][row.place]
    use = written.get("use", "")
    template = data.get("templates", {}).get(use, {})
    places = [(("rows", row.place), written), (("templates", use), template)]
    for at, table in places:
        for keys in (("axes",), (scale, "set"), ("set",)):
            inner: Any = table
            for key in keys:
                inner = inner.get(key, {})
            if name in inner:
                return (*at, *keys, name)
        if name in table:
            return (*at, name)
    if name in recipe.scale[scale].settings:
        return ("scale", scale, "set", name)
    if name == "--objective":
        at = places[0][0] if "objective" in written else places[1][0]
        return (*at, "objective")
    return ("rows", row.place)
