"""From TOML files to items, strictly: what is misspelt or impossible is refused with its line."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from contrasent.engine.parameters import Positive
from contrasent.errors import OptionError, UserError, suggestion
from contrasent.report import in_hundredths
from contrasent.reproduce import rows
from contrasent.reproduce.corpora import Corpus, read_corpora
from contrasent.reproduce.items import (
    BETTER,
    MARGIN,
    RELATIONS,
    SCALES,
    TARGET,
    Claim,
    Column,
    Evaluation,
    Item,
    ScaleChanges,
    ScaleName,
    TableRow,
)
from contrasent.reproduce.measures import FIELDS, LOWER, MEASURES
from contrasent.reproduce.scale import Scale, read_scales, resolve_row
from contrasent.reproduce.toml import HERE, Table, read


class ItemFolder:
    """A folder of items, PAPER/ITEM.toml, and what they share.

    Its ``papers.toml`` names the papers in order (without it they are sub-folders in order);
    ``scales.toml`` and ``corpora.toml`` stand instead of the package's.
    """

    def __init__(self, home: Path = HERE) -> None:
        self.home = home

    @cached_property
    def papers(self) -> dict[str, str]:
        """Sub-folders and the documents that they stand for, in order."""
        listed = self.home / "papers.toml"
        names = sorted(path.parent.name for path in self.home.glob("*/*.toml"))
        titles: dict[str, str] = {}
        if listed.is_file():
            top = read(listed)
            titles = {name: top.take(name, str) for name in list(top.data)}
        return titles | {name: name for name in names if name not in titles}

    @cached_property
    def scales(self) -> dict[ScaleName, Scale]:
        """The scales by name."""
        return read_scales(self.home)

    @cached_property
    def corpora(self) -> dict[str, Corpus]:
        """The corpora by name."""
        return read_corpora(self.home)

    def files(self) -> dict[str, Path]:
        """Files of items by name ("simcse:table1"), in order."""
        return {
            f"{paper}:{path.stem}": path
            for paper in self.papers
            for path in sorted((self.home / paper).glob("*.toml"), key=_order)
        }

    def all(self) -> list[Item]:
        """Every item, checked; also that claims rest on claims that exist."""
        items = [self.read(path) for path in self.files().values()]
        known = {f"{item.name}#{claim.name}" for item in items for claim in item.claims}
        for item in items:
            for i, claim in enumerate(item.claims):
                for other in claim.rests_on:
                    if other not in known:
                        problem = f"rests_on {other!r}: no such claim{suggestion(other, known)}"
                        read(item.file).source.refuse(("claims", i, "rests_on"), problem)
        return items

    def find(self, names: Sequence[str]) -> list[Item]:
        """Items by name: "all", a paper's folder, or "paper:item"; in the folder's order."""
        files = self.files()
        wanted: set[str] = set()
        for name in names:
            some = [n for n in files if name in ("all", n, n.split(":")[0])]
            if not some:
                near = suggestion(name, [*files, *self.papers, "all"]).split(" (one of")[0]
                raise OptionError("ITEM", name, f"no such table or figure{near} (--list shows all)")
            wanted.update(some)
        return [self.read(files[name]) for name in files if name in wanted]

    def read(self, path: Path) -> Item:
        """Read and check one item; its paper and name are those of its folder and file."""
        top = read(path)
        kind = top.data.get("kind")
        tolerance = float(top.take("tolerance", float, 1.0))
        margin = top.take("margin", Positive, MARGIN)
        source = top.take("source", str)
        evaluations = {n: _evaluation(n, t) for n, t in top.tables("evaluations").items()}
        measured = kind not in ("facts", "claims")
        columns = {
            name: _column(name, table, evaluations if measured else None, margin)
            for name, table in top.tables("columns").items()
        }
        context = rows.ItemContext(columns, evaluations, self.corpora, tolerance, source)
        changes = top.table("scale")
        scale = {name: changes.table(name).fill(ScaleChanges) for name in SCALES}
        changes.done()
        made = rows.read_rows(top, context)
        claims = tuple(_claim(t, columns, [r.name for r in made]) for t in top.several("claims"))
        item = top.fill(
            Item,
            file=path,
            paper=self.papers.get(path.parent.name, path.parent.name),
            source=source,
            evaluations=evaluations,
            columns=columns,
            rows=made,
            claims=claims,
            scale=scale,
        )
        _check_whole(item, top)
        for size in self.scales.values():
            _check_settings(item, size, top)
        return item


def _order(path: Path) -> tuple[int, int, str]:
    """Tables before appendices before figures, by number."""
    digits = "".join(letter for letter in path.stem if letter.isdigit())
    group = 0 if path.stem.startswith("table") else 2 if path.stem.startswith("figure") else 1
    return group, 0 if group == 1 else int(digits or 0), path.stem


def _evaluation(name: str, table: Table) -> Evaluation:
    kind = table.take("kind", str)
    table.check_known("kind", kind, MEASURES)
    options = {}
    for option, (form, _) in MEASURES[kind].options.items():
        value = table.take(option, form, None)
        if value is not None:
            options[option] = value
    table.done()
    return Evaluation(name, kind, options)


def _column(
    name: str, table: Table, evaluations: Mapping[str, Evaluation] | None, margin: float
) -> Column:
    """A column; of facts and statements (None) nothing is measured."""
    evaluation = table.take("evaluation", str, "")
    select = {key: value for key in FIELDS if (value := table.take(key, str, None)) is not None}
    metric = select.get("metric", "")
    # A column that names neither is of quotations alone.
    if evaluations is not None and (evaluation or metric):
        table.check_known("evaluation", evaluation, evaluations)
        if not metric:
            table.refuse("metric", "metric is missing")
    hundred = in_hundredths(metric)
    factor = table.take("factor", float, 100.0 if hundred else 1.0)
    lower = metric.startswith(LOWER)
    return table.fill(
        Column,
        name=name,
        title=table.take("title", str, name),
        evaluation=evaluation,
        select=select,
        better=table.take("better", Literal["higher", "lower"], "lower" if lower else "higher"),
        factor=factor,
        # Points of a correlation are alike; what does not matter of a time, a file must say.
        margin=table.take("margin", Positive, margin if factor == 100 else None),
    )


def _claim(table: Table, columns: Mapping[str, Column], names: Sequence[str]) -> Claim:
    column = table.take("column", str, "")
    given = {key: value for key in RELATIONS if (value := table.take(key, str, ""))}
    ((relation, subject),) = list(given.items())[:1] or [("", "")]
    claim = table.fill(Claim, relation=relation, subject=subject)
    if claim.rests_on:
        return claim
    if bool(column) == bool(claim.columns):
        table.source.refuse(table.at, "a claim has a column, or columns, or rests_on")
    about = claim.columns or (column,)
    for other in about:
        table.check_known("columns" if claim.columns else "column", other, columns)
    signed = bool(claim.sign)
    if len(given) + signed != 1 or signed != bool(claim.row) or bool(given) != bool(claim.than):
        problem = f"a claim has one of {', '.join(RELATIONS)} with than, or row and sign"
        table.source.refuse(table.at, f"{problem}, or rests_on")
    than = claim.than
    if than == ("*",):
        than = tuple(name for name in names if name != subject)
    for key, wanted in ((relation, (subject,)), ("than", than), ("row", (claim.row,))):
        for other in filter(None, wanted):
            if other not in names:
                table.refuse(key, f"{key} {other!r}: no such row{suggestion(other, names)}")
    for other in about if relation not in ("", BETTER) else ():
        if claim.margin is None and columns[other].margin is None:
            problem = f"{relation} needs a margin: none is known of the column {other!r}"
            table.refuse(relation, f"{problem} (margin = ..., of the claim or the column)")
    return replace(claim, columns=about, than=than)


def _check_whole(item: Item, top: Table) -> None:
    """Refuse what does not fit together: names, rows and columns that others refer to."""
    names = [row.name for row in item.rows]
    for i, row in enumerate(item.rows):
        _check_row(item, row, names[:i], top)
    if item.reference:
        top.check_known("reference", item.reference, names)
    if not item.rows and item.kind != "claims":
        top.source.refuse((), "there are no [[rows]]")
    axes = {name for row in item.rows for name in row.point}
    for axis in filter(None, item.sweep.split(",")):
        top.check_known("sweep", axis, axes)


def _check_row(item: Item, row: TableRow, before: Sequence[str], top: Table) -> None:
    def refuse(problem: str, *keys: str) -> None:
        top.source.refuse(("rows", row.place, *keys), problem)

    if row.name in before:
        refuse(f"two rows are named {row.name!r}")
    for name in row.expected if row.kind in ("train", "encoder") else ():
        if not item.columns[name].evaluation:
            refuse(f"column {name!r} names no evaluation; only quotations have values", "expected")
    if row.also and not item.also_source:
        refuse("also_source must say where from", "also")
    target = row.fit is not None and row.fit.corpus == TARGET
    for name in {n for some in row.evaluations.values() for n in some} if target else ():
        kind = item.evaluations[name].kind
        if kind != "sts":
            problem = f"{row.name}: a fit to {TARGET!r} belongs to STS sets; {name!r} measures "
            refuse(f"{problem}{kind} (evaluations = [...] says what is measured)")


def _check_settings(item: Item, scale: Scale, top: Table) -> None:
    """Choose the settings of every row as a run would, so that a wrong one is found now."""
    for row in item.rows:
        if row.kind != "train" or scale.name not in row.scales:
            continue
        try:
            resolve_row(item, row, scale)
        except OptionError as error:
            name = str(error.value) if error.option == "set" else error.option
            top.source.refuse(_written(top, row, name, scale.name), f"{row.name}: {error}")
        except UserError as error:
            top.source.refuse(("rows", row.place), f"{row.name}: {error}")


def _written(top: Table, row: TableRow, name: str, scale: str) -> tuple[str | int, ...]:
    """Where a setting of a row was written: in the row, its template, or the item's scale."""
    name = name.removeprefix("--")
    own: tuple[str | int, ...] = ("rows", row.place)
    use = top.data["rows"][row.place].get("use", "")
    for at in (own, ("templates", use), ("scale", scale)):
        if top.source.holds(at, name):
            return (*at, name)
    return own
