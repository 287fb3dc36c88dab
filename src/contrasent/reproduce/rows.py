"""The rows of an item: templates, axes, and the values that the document prints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from contrasent.engine.parameters import Size
from contrasent.errors import suggestion
from contrasent.reproduce.corpora import Corpus
from contrasent.reproduce.items import (
    BASE,
    SCALES,
    TARGET,
    Column,
    Evaluation,
    Expected,
    Fit,
    RowKind,
    ScaleName,
    Settings,
    TableRow,
)
from contrasent.reproduce.toml import Table


@dataclass(frozen=True, slots=True)
class ItemContext:
    """What the rows of an item refer to: columns, evaluations and corpora by name, and defaults."""

    columns: Mapping[str, Column]
    evaluations: Mapping[str, Evaluation]
    corpora: Mapping[str, Corpus]
    tolerance: float
    source: str


@dataclass(frozen=True, slots=True)
class AtScale:
    """What a row or template says of one scale; None where it says nothing."""

    set: Settings = field(default_factory=dict)
    evaluations: tuple[str, ...] | None = None
    sentences: Size | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """Keys that several rows share, and that a row has as well; None where it says nothing."""

    objective: str | None = None
    base: str | None = None
    corpus: str | None = None
    encoder: str | None = None
    pooler: str | None = None
    group: str | None = None
    note: str | None = None
    set: Settings = field(default_factory=dict)
    lab: AtScale = AtScale()
    paper: AtScale = AtScale()
    sentences: Size | None = None
    postprocess: Fit | None = None
    scales: tuple[ScaleName, ...] | None = None
    evaluations: tuple[str, ...] | None = None

    def at(self, scale: ScaleName) -> AtScale:
        """What holds at one scale."""
        own = self.lab if scale == "lab" else self.paper
        found: AtScale = _over(AtScale(self.set, self.evaluations, self.sentences), own)
        return found


def _over(below: Any, above: Any) -> Any:
    """What ``above`` says, else what ``below`` says; settings one by one."""
    found = {}
    for name in (f.name for f in fields(above)):
        one, two = getattr(below, name), getattr(above, name)
        if isinstance(two, AtScale):
            found[name] = _over(one, two)
        elif isinstance(two, dict):
            found[name] = one | two
        else:
            found[name] = one if two is None else two
    return replace(above, **found)


def read_rows(top: Table, context: ItemContext) -> tuple[TableRow, ...]:
    """The rows of an item's file, in order."""
    tables = top.tables("templates")
    templates = {name: _template(table, context) for name, table in tables.items()}
    used: set[str] = set()
    rows: list[TableRow] = []
    for i, table in enumerate(top.several("rows")):
        rows += _rows(i, table, templates, used, context)
    for name, table in tables.items():
        if name not in used:
            table.source.refuse(table.at, f"no row uses {name!r}")
    return tuple(rows)


def _template(table: Table, context: ItemContext) -> Template:
    found = table.fill(Template)
    if found.corpus is not None:
        table.check_known("corpus", found.corpus, context.corpora)
    if found.postprocess is not None:
        known = (*context.corpora, TARGET)
        table.check_known("postprocess", found.postprocess.corpus, known, "corpus")
    for key, names in (
        ("evaluations", found.evaluations),
        ("lab", found.lab.evaluations),
        ("paper", found.paper.evaluations),
    ):
        for name in names or ():
            table.check_known(key, name, context.evaluations, name)
    return found


def _rows(
    place: int,
    table: Table,
    templates: Mapping[str, Template],
    used: set[str],
    context: ItemContext,
) -> Iterator[TableRow]:
    """The rows that one [[rows]] stands for: one, or one for each point of its axes."""
    name, use = table.take("name", str), table.take("use", str, "")
    if use and use not in templates:
        table.refuse("use", f"use {use!r}: no such template{suggestion(use, templates)}")
    used.add(use)
    quote, blocked = table.take("quote", bool, False), table.take("blocked", str, "")
    facts = table.take("facts", Settings, {})
    for key in facts:
        table.check_known("facts", key, context.columns, key)
    source = table.take("source", str, context.source)
    axes = table.take("axes", dict, {})
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            table.refuse("axes", f"axes.{key} must be a list of values, it is {values!r}", key)
    points = [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]
    expected = _expected(table, "expected", context, source, len(points))
    also = _expected(table, "also", context, source, len(points))
    row = _over(templates.get(use, Template()), _template(table, context))
    kind = _kind(table, row, quote=quote, blocked=blocked, facts=bool(facts))
    if kind == "train" and not row.corpus:
        table.refuse("corpus", "corpus is missing: what is trained on?")
    every = tuple(context.evaluations)
    at = {scale: row.at(scale) for scale in SCALES}
    for i, point in enumerate(points):
        yield TableRow(
            name=_named(table, name, point),
            group=row.group or "",
            place=place,
            kind=kind,
            objective=row.objective or "",
            base=row.base or BASE,
            corpus=row.corpus or "",
            settings={s: at[s].set | point for s in SCALES} if kind == "train" else {},
            sentences={s: at[s].sentences for s in SCALES},
            encoder=row.encoder or "",
            pooler=row.pooler or "",
            fit=row.postprocess,
            evaluations={s: every if (e := at[s].evaluations) is None else e for s in SCALES},
            expected={c: v for c, values in expected.items() if (v := values[i]) is not None},
            also={c: v.value for c, values in also.items() if (v := values[i]) is not None},
            facts={k: str(v) for k, v in facts.items()},
            source=source,
            blocked=blocked,
            scales=SCALES if row.scales is None else row.scales,
            note=row.note or "",
            point=point,
        )


def _kind(table: Table, row: Template, *, quote: bool, blocked: str, facts: bool) -> RowKind:
    made = [key for key in ("objective", "encoder") if getattr(row, key)]
    if blocked:
        return "blocked"
    if quote or facts:
        if made:
            table.refuse(made[0], f"{made[0]} does not belong to a row of quotations or facts")
        return "quote" if quote else "facts"
    if len(made) != 1:
        problem = "a row has an objective (it is trained), an encoder (it is measured), "
        table.source.refuse(table.at, problem + "quote = true, blocked, or facts; exactly one")
    return "train" if made == ["objective"] else "encoder"


def _named(table: Table, name: str, point: Settings) -> str:
    try:
        return name.format(**point)
    except (KeyError, IndexError, ValueError) as error:
        table.refuse("name", f"name {name!r}: {{...}} must be one of the axes ({error})")


def _expected(
    table: Table, key: str, context: ItemContext, source: str, count: int
) -> dict[str, list[Expected | None]]:
    """Published values of each column, one a row that ``table`` stands for."""
    found: dict[str, list[Expected | None]] = {}
    for column, value in table.take(key, dict, {}).items():
        table.check_known(key, column, context.columns, column)
        values = value if isinstance(value, list) else [value]
        if len(values) != count:
            problem = f"{key}.{column} has {len(values)} values for {count} rows"
            table.refuse(key, problem, column)
        found[column] = [_value(table, (key, column), v, context.tolerance, source) for v in values]
    return found


def _value(
    table: Table, at: tuple[str, str], value: Any, tolerance: float, source: str
) -> Expected | None:
    if value == "":
        return None
    if isinstance(value, dict):
        inner = Table(table.source, value, (*table.at, *at))
        return inner.fill(
            Expected,
            tolerance=inner.take("tolerance", float, tolerance),
            source=inner.take("source", str, source),
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        problem = f'must be a number, or "" where none is published; it is {value!r}'
        table.refuse(at[0], f"{'.'.join(at)} {problem}", at[1])
    return Expected(float(value), tolerance, source)
