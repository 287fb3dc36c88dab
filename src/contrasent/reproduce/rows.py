"""The rows of a recipe: templates, axes, and the values that the document prints."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from contrasent.errors import suggestion
from contrasent.reproduce.corpora import CORPORA
from contrasent.reproduce.recipe import (
    BASE,
    FITTED,
    SCALES,
    TARGET,
    Column,
    Evaluation,
    Expected,
    Fit,
    Row,
)
from contrasent.reproduce.source import Table


class Template:
    """Keys that several rows share."""

    def __init__(self, name: str, table: Table) -> None:
        self.name, self.table, self.used = name, table, False
        self.shared = _shared(table)
        table.done()


class Told:
    """What the rows refer to."""

    def __init__(
        self,
        columns: dict[str, Column],
        evaluations: dict[str, Evaluation],
        tolerance: float,
        source: str,
    ) -> None:
        self.columns, self.evaluations = columns, evaluations
        self.tolerance, self.source = tolerance, source


def _shared(table: Table) -> dict[str, Any]:
    """The keys that a template may have as well as a row; those that are there."""
    found: dict[str, Any] = {}
    for key in ("objective", "base", "corpus", "encoder", "pooler", "group", "note"):
        if key in table:
            found[key] = table.take(key, "text")
        else:
            table.take(key, "text", "")
    sets = {"both": table.values("set")}
    for scale in SCALES:
        own = table.table(scale)
        sets[scale] = own.values("set")
        if "evaluations" in own:
            found[f"{scale} evaluations"] = own.texts("evaluations")
        else:
            own.texts("evaluations")
        _sentences(own, f"{scale} sentences", found)
        own.done()
    _sentences(table, "sentences", found)
    found["sets"] = sets
    if "postprocess" in table:
        found["fit"] = _fit(table.table("postprocess"))
    else:
        table.take("postprocess", "table", {})
    for key, known in (("scales", SCALES), ("evaluations", ())):
        if key in table:
            found[key] = table.texts(key)
            for name in found[key]:
                if known and name not in known:
                    table.refuse(key, f"{key} {name!r}: unknown{suggestion(name, known)}")
        else:
            table.texts(key)
    if "corpus" in found and found["corpus"] not in CORPORA:
        name = found["corpus"]
        table.refuse("corpus", f"corpus {name!r}: unknown{suggestion(name, CORPORA)}")
    return found


def _sentences(table: Table, name: str, found: dict[str, Any]) -> None:
    """The number of rows that a corpus is sampled to; 0 stands for all of it."""
    count = table.take("sentences", "count", None)
    if count is None:
        return
    if count < 0:
        table.refuse("sentences", f"sentences must be 0 (all) or more, it is {count}")
    found[name] = count


def _fit(table: Table) -> Fit:
    kind = table.choice("kind", FITTED)
    corpus = table.choice("corpus", (*CORPORA, TARGET))
    options: dict[str, Any] = {"sentences": table.take("sentences", "count", None)}
    if kind == "whitening":
        options["dimensions"] = table.take("dimensions", "count", None)
    else:
        options["epochs"] = table.take("epochs", "count", None)
    table.done()
    return Fit(kind, corpus, {k: v for k, v in options.items() if v is not None})


def rows_of(place: int, table: Table, templates: dict[str, Template], told: Told) -> Iterator[Row]:
    """The rows that one [[rows]] stands for: one, or one for each point of its axes."""
    name = table.take("name", "text")
    shared: dict[str, Any] = {"sets": {}}
    use = table.take("use", "text", "")
    if use:
        if use not in templates:
            table.refuse("use", f"use {use!r}: no such template{suggestion(use, templates)}")
        templates[use].used = True
        shared = templates[use].shared
    own = _shared(table)
    sets = {k: {**shared["sets"].get(k, {}), **own["sets"][k]} for k in own["sets"]}
    both = {**shared, **own}
    quote = table.take("quote", "flag", False)
    blocked = table.take("blocked", "text", "")
    facts = table.values("facts")
    source = table.take("source", "text", told.source)
    axes = table.take("axes", "table", {})
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            table.refuse("axes", f"axes.{key} must be a list of values, it is {values!r}", key)
    points = [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]
    expected = _expected(table, "expected", told, source, len(points))
    also = _expected(table, "also", told, source, len(points))
    made = [k for k in ("objective", "encoder") if both.get(k)]
    kind = _kind(table, made, quote=quote, blocked=blocked, facts=bool(facts))
    if kind == "train" and not both.get("corpus"):
        table.refuse("corpus", "corpus is missing: what is trained on?")
    for key in facts:
        _known(table, "facts", key, told.columns)
    measured = {}
    for scale in SCALES:
        default = both.get("evaluations", tuple(told.evaluations))
        measured[scale] = tuple(both.get(f"{scale} evaluations", default))
        said = scale if f"{scale} evaluations" in both else "evaluations"
        for key in measured[scale]:
            _known(table, said, key, told.evaluations)
    table.done()
    for i, point in enumerate(points):
        scaled = {s: {**sets["both"], **sets[s], **point} for s in SCALES}
        yield Row(
            name=_named(table, name, point),
            group=both.get("group", ""),
            place=place,
            kind=kind,
            objective=both.get("objective", ""),
            base=both.get("base", BASE),
            corpus=both.get("corpus", ""),
            settings=scaled if kind == "train" else {},
            sentences={s: both.get(f"{s} sentences", both.get("sentences")) for s in SCALES},
            encoder=both.get("encoder", ""),
            pooler=both.get("pooler", ""),
            fit=both.get("fit"),
            evaluations=measured,
            expected={c: v for c, values in expected.items() if (v := values[i]) is not None},
            also={c: v.value for c, values in also.items() if (v := values[i]) is not None},
            facts={k: str(v) for k, v in facts.items()},
            source=source,
            blocked=blocked,
            scales=tuple(both.get("scales", SCALES)),
            note=both.get("note", ""),
            point=point,
        )


def _kind(table: Table, made: list[str], *, quote: bool, blocked: str, facts: bool) -> str:
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


def _named(table: Table, name: str, point: dict[str, Any]) -> str:
    try:
        return name.format(**point)
    except (KeyError, IndexError, ValueError) as error:
        table.refuse("name", f"name {name!r}: {{...}} must be one of the axes ({error})")


def _known(table: Table, key: str, name: str, known: dict[str, Any]) -> None:
    if name not in known:
        table.refuse(key, f"{key} {name!r}: unknown{suggestion(name, known)}", name)


def _expected(
    table: Table, key: str, told: Told, source: str, count: int
) -> dict[str, list[Expected | None]]:
    found: dict[str, list[Expected | None]] = {}
    for column, value in table.take(key, "table", {}).items():
        _known(table, key, column, told.columns)
        values = value if isinstance(value, list) else [value]
        if len(values) != count:
            problem = f"{key}.{column} has {len(values)} values for {count} rows"
            table.refuse(key, problem, column)
        found[column] = [_one(table, key, column, v, told.tolerance, source) for v in values]
    return found


def _one(
    table: Table, key: str, column: str, value: Any, tolerance: float, source: str
) -> Expected | None:
    if isinstance(value, str) and not value:
        return None
    if isinstance(value, dict):
        inner = Table(table.source, value, (*table.at, key, column))
        expected = Expected(
            float(inner.take("value", "number")),
            float(inner.take("tolerance", "number", tolerance)),
            inner.take("source", "text", source),
            inner.take("sd", "number", None),
            inner.take("seeds", "count", 1),
        )
        for name, least in (("sd", expected.deviation), ("seeds", expected.seeds - 1)):
            if least is not None and least < 0:
                inner.refuse(name, f"{name} must be {'0' if name == 'sd' else '1'} or more")
        inner.done()
        return expected
    if isinstance(value, bool) or not isinstance(value, int | float):
        problem = f'{key}.{column} must be a number, or "" where none is published; it is {value!r}'
        table.refuse(key, problem, column)
    return Expected(float(value), tolerance, source)
