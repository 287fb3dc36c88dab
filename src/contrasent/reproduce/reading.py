"""From TOML files to recipes, strictly: what is misspelt or impossible is refused with its line."""

from pathlib import Path
from typing import Any

from contrasent.errors import OptionError, suggestion
from contrasent.report import HUNDREDTHS
from contrasent.reproduce import kinds
from contrasent.reproduce.checking import check_settings, check_whole
from contrasent.reproduce.recipe import (
    BETTER,
    COSTS,
    FIGURES,
    KINDS,
    MARGIN,
    PAPERS,
    RELATIONS,
    SCALES,
    Claim,
    Column,
    Evaluation,
    Recipe,
    Row,
    ScaleChanges,
)
from contrasent.reproduce.rows import Template, Told, rows_of
from contrasent.reproduce.scale import SELECTIONS, Scale
from contrasent.reproduce.source import Table, read

HERE = Path(__file__).parent / "recipes"


def recipe_files(folder: Path = HERE) -> dict[str, Path]:
    """Files of recipes by name ("simcse:table1"), in the order of the book."""
    found = {}
    for paper in PAPERS:
        for path in sorted((folder / paper).glob("*.toml"), key=_order):
            found[f"{paper}:{path.stem}"] = path
    return found


def _order(path: Path) -> tuple[int, int, str]:
    """Tables before appendices before figures, by number."""
    digits = "".join(letter for letter in path.stem if letter.isdigit())
    group = 0 if path.stem.startswith("table") else 2 if path.stem.startswith("figure") else 1
    return group, 0 if group == 1 else int(digits or 0), path.stem


def all_recipes(folder: Path = HERE) -> list[Recipe]:
    """Every recipe, checked; also that claims rest on claims that exist.

    Raises:
        InputError: one cannot be read.
    """
    recipes = [read_recipe(path) for path in recipe_files(folder).values()]
    known = {f"{r.name}#{claim.name}": r for r in recipes for claim in r.claims}
    for recipe in recipes:
        for i, claim in enumerate(recipe.claims):
            for other in claim.rests_on:
                if other not in known:
                    source = read(Path(recipe.file)).source
                    problem = f"rests_on {other!r}: no such claim{suggestion(other, known)}"
                    source.refuse(("claims", i, "rests_on"), problem)
    return recipes


def find_recipes(names: list[str], folder: Path = HERE) -> list[Recipe]:
    """Recipes by name; "all", a paper's name, or "paper:item".

    Raises:
        OptionError: no such item; the nearest is named.
        InputError: a recipe cannot be read.
    """
    files = recipe_files(folder)
    wanted: dict[str, None] = {}
    for name in names:
        some = [n for n in files if name in ("all", n, n.split(":")[0])]
        if not some:
            choices = [*files, *PAPERS, "all"]
            near = suggestion(name, choices).split(" (one of")[0]
            raise OptionError("ITEM", name, f"no such table or figure{near} (--list shows all)")
        wanted.update(dict.fromkeys(some))
    return [read_recipe(files[name]) for name in files if name in wanted]


def scales(folder: Path = HERE) -> dict[str, Scale]:
    """The scales of a folder of recipes: of its ``scales.toml``, or the package's if it has none.

    Raises:
        InputError: the file cannot be read.
    """
    own = folder / "scales.toml"
    top = read(own if own.is_file() else HERE / own.name)
    found = {}
    for name in SCALES:
        table = top.table(name)
        found[name] = Scale(
            name,
            table.take("title", "text"),
            table.take("base", "text"),
            table.values("set"),
            table.take("sentences", "count", None),
            table.choice("select", SELECTIONS),
        )
        table.done()
    top.done()
    return found


def read_recipe(path: Path) -> Recipe:
    """Read and check one recipe; its paper and name are those of its folder and file.

    Raises:
        InputError: a key is misspelt or missing, a value of another type or impossible; file, line
            and the nearest name are given.
    """
    top = read(path)
    kind = top.choice("kind", KINDS)
    tolerance = float(top.take("tolerance", "number", 1.0))
    margin = float(top.take("margin", "number", MARGIN))
    source = top.take("source", "text")
    evaluations = {name: _evaluation(name, t) for name, t in top.named("evaluations").items()}
    columns = {n: _column(n, t, evaluations, kind, margin) for n, t in top.named("columns").items()}
    templates = {name: table for name, table in top.named("templates").items()}
    changes = {name: _changes(top.table("scale"), name) for name in SCALES}
    told = Told(columns, evaluations, tolerance, source)
    rows: list[Row] = []
    merged = {name: Template(name, table) for name, table in templates.items()}
    for i, table in enumerate(top.several("rows")):
        rows += rows_of(i, table, merged, told)
    for template in merged.values():
        if not template.used:
            template.table.source.refuse(template.table.at, f"no row uses {template.name!r}")
    recipe = Recipe(
        paper=path.parent.name,
        item=path.stem,
        title=top.take("title", "text"),
        source=source,
        kind=kind,
        about=top.take("about", "text"),
        cost=top.choice("cost", COSTS),
        needs=top.texts("needs"),
        seeds=top.take("seeds", "count", 3),
        reference=top.take("reference", "text", ""),
        figure=top.choice("figure", FIGURES, ""),
        sweep=top.take("sweep", "text", ""),
        evaluations=evaluations,
        columns=columns,
        rows=tuple(rows),
        claims=tuple(_claim(t, columns, rows) for t in top.several("claims")),
        scale=changes,
        also_source=top.take("also_source", "text", ""),
        file=str(path),
    )
    check_whole(recipe, top)
    top.done()
    for scale in scales(recipe.folder).values():
        check_settings(recipe, scale, top)
    return recipe


def _evaluation(name: str, table: Table) -> Evaluation:
    kind = table.choice("kind", kinds.MEASURES)
    options: dict[str, Any] = {}
    for option, (type_, allowed) in kinds.MEASURES[kind].items():
        if option not in table:
            table.take(option, "list", None)
            continue
        value: Any = table.texts(option) if type_ == "texts" else table.take(option, type_)
        for item in value if type_ == "texts" else (value,):
            if allowed and item not in allowed:
                table.refuse(option, f"{option} {item!r}: unknown{suggestion(item, allowed)}")
        if type_ == "count" and value < 0:
            table.refuse(option, f"{option} must be 0 or more, it is {value}")
        options[option] = value
    table.done()
    return Evaluation(name, kind, options)


def _column(
    name: str, table: Table, evaluations: dict[str, Evaluation], kind: str, margin: float
) -> Column:
    measured = kind not in ("facts", "claims")
    evaluation = table.take("evaluation", "text", "")
    select = {f: table.take(f, "text", None) for f in kinds.FIELDS}
    metric = select["metric"] or ""
    # A column that names neither is of quotations alone.
    measured = measured and bool(evaluation or metric)
    if measured and evaluation not in evaluations:
        known = suggestion(evaluation, evaluations)
        table.refuse("evaluation", f"evaluation {evaluation!r}: none of that name{known}")
    if measured and not metric:
        table.refuse("metric", "metric is missing")
    lower = metric.startswith(kinds.LOWER)
    hundred = metric.split("@")[0].split("_")[0] in HUNDREDTHS
    factor = float(table.take("factor", "number", 100.0 if hundred else 1.0))
    # Points of a correlation or rate are alike; what does not matter of a time, a recipe must say.
    own = _margin(table, margin if factor == 100 else None)
    column = Column(
        name,
        table.take("title", "text", name),
        evaluation,
        {f: v for f, v in select.items() if v is not None},
        table.choice("better", ("higher", "lower"), "lower" if lower else "higher"),
        factor,
        own,
    )
    table.done()
    return column


def _changes(table: Table, name: str) -> ScaleChanges:
    for key in list(table._left):
        if key not in SCALES:
            table.refuse(key, f"no such key {key!r}{suggestion(key, SCALES)}")
    own = table.table(name)
    found = ScaleChanges(
        own.values("set"),
        own.take("sentences", "count", None),
        own.choice("select", SELECTIONS, ""),
        own.take("note", "text", ""),
    )
    own.done()
    return found


def _margin(table: Table, default: float | None) -> float | None:
    """A difference that does not matter."""
    margin: float | None = table.take("margin", "number", default)
    if margin is not None and margin <= 0:
        table.refuse("margin", f"margin must be positive, it is {margin:g}")
    return None if margin is None else float(margin)


def _claim(table: Table, columns: dict[str, Column], rows: list[Row]) -> Claim:
    names = [row.name for row in rows]
    name, text = table.take("name", "text"), table.take("text", "text")
    rests_on = table.texts("rests_on")
    column = table.take("column", "text", "")
    several = table.texts("columns")
    subjects = {key: table.take(key, "text", "") for key in RELATIONS}
    than, margin = table.texts("than"), _margin(table, None)
    row, sign = table.take("row", "text", ""), table.take("sign", "text", "")
    table.done()
    if rests_on:
        return Claim(name, text, rests_on=rests_on)
    if bool(column) == bool(several):
        table.source.refuse(table.at, "a claim has a column, or columns, or rests_on")
    about = several or (column,)
    for other in about:
        if other not in columns:
            key = "columns" if several else "column"
            table.refuse(key, f"{key} {other!r}: unknown{suggestion(other, columns)}")
    if sign and sign not in ("positive", "negative"):
        table.refuse("sign", f'sign must be "positive" or "negative", it is {sign!r}')
    given = {key: subject for key, subject in subjects.items() if subject}
    if len(given) + bool(sign) != 1 or bool(sign) != bool(row) or bool(given) != bool(than):
        problem = f"a claim has one of {', '.join(RELATIONS)} with than, or row and sign"
        table.source.refuse(table.at, f"{problem}, or rests_on")
    ((relation, subject),) = given.items() or [("", "")]
    if than == ("*",):
        than = tuple(n for n in names if n != subject)
    claim = Claim(name, text, about, relation, subject, than, margin, row, sign)
    _check_claim(claim, table, columns, names)
    return claim


def _check_claim(claim: Claim, table: Table, columns: dict[str, Column], names: list[str]) -> None:
    """Refuse rows that are not there, and a comparison that needs a margin and has none."""
    places = ((claim.relation, (claim.subject,)), ("than", claim.than), ("row", (claim.row,)))
    for key, wanted in places:
        for other in filter(None, wanted):
            if other not in names:
                table.refuse(key, f"{key} {other!r}: no such row{suggestion(other, names)}")
    for other in claim.columns if claim.relation not in ("", BETTER) else ():
        if claim.margin is None and columns[other].margin is None:
            problem = f"{claim.relation} needs a margin: none is known of the column {other!r}"
            table.refuse(claim.relation, f"{problem} (margin = ..., of the claim or the column)")
