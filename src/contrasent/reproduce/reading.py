"""Reads items from TOML files strictly: misspelt or impossible entries are rejected by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, Never, TypeVar

from pydantic import Field, create_model

from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import InputError, OptionError, UserError, suggestion
from contrasent.metrics import metric
from contrasent.reproduce import tables
from contrasent.reproduce.corpora import NamedCorpus, read_corpora
from contrasent.reproduce.measures import MEASURES
from contrasent.reproduce.store import digest_of
from contrasent.train import settings as run_settings

MODELS = ("generator", "filler", "copy_filler", "language_head")
"""Parameters that name a model: "@base" is the base, other names are checkpoints."""

ANY = "simcse"  # an objective; the settings of a run are checked with its parameters


class Scale(tables.Strict):
    """The size of the runs."""

    name: tables.ScaleName
    title: str
    base: str
    select: tables.Selection  # which model of a run is measured
    set: tables.Settings = Field(default_factory=dict)  # settings of a run, for all items
    sentences: int | None = None  # rows sampled from a corpus; None for all
    changes: tables.Settings = Field(default_factory=dict)
    # settings and parameters of the runs of one objective, by its name; see ``of``
    own: dict[str, tables.Settings] = Field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences."""
        # A setting of an item or row still has precedence.
        nested: dict[str, tables.Settings] = {}
        for name in [name for name in settings if "." in name]:
            objective, _, inner = name.partition(".")
            for part in run_settings.choose({inner: settings[name]}, objective, option="--set"):
                nested.setdefault(objective, {}).update(part)
        of_all = {name: value for name, value in settings.items() if "." not in name}
        known, foreign = run_settings.choose(of_all, ANY, option="--set")
        for name in foreign:
            problem = "belongs to an objective; the rows say what theirs are, or OBJECTIVE.NAME"
            raise OptionError("--set", name, problem)
        whole = {**self.set, **known}
        run_settings.Settings(**run_settings.choose(whole, ANY)[0])
        for objective, values in nested.items():
            run_settings.Settings(**run_settings.choose({**whole, **values}, objective)[0])
        changes = dict(known) | ({} if sentences is None else {"sentences": sentences})
        changes |= {f"{name}.{k}": v for name, values in nested.items() for k, v in values.items()}
        count = self.sentences if sentences is None else sentences or None
        changed = {**self.set, **known}
        update = {"set": changed, "sentences": count, "changes": changes, "own": nested}
        return self.model_copy(update=update)

    def of(self, objective: str) -> tables.Settings:
        """The settings for an objective; for a combination, those for its parts as well."""
        # Its own settings override those of its parts, an earlier part's those of a later one.
        names = [*reversed([method.name for method in methods(objective)]), objective]
        return {k: v for name in names for k, v in self.own.get(name, {}).items()}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The training run of a row."""

    objective: str
    given: Mapping[str, object]
    defaults: Mapping[str, object]
    settings: Mapping[str, object]
    select: tables.Selection
    sentences: int | None  # rows sampled from the corpus; None for all


def resolve_row(
    item: tables.Item, row: tables.TableRow, scale: Scale, *, seed: int = 0
) -> Resolved:
    """The settings of a row at a scale: the scale's, its objective's, the item's, the row's own."""
    changes = item.scale[scale.name]
    of_objective = scale.of(row.objective)
    values = {**scale.set, **of_objective, **changes.set, **row.settings[scale.name], "seed": seed}
    of_run, parts = run_settings.choose(values, row.objective, option="set")
    settings = run_settings.Settings(**of_run)
    check(row.objective, parts, models=False)
    defaults = {name: p.default for name, p in parameters(row.objective).items()}
    counts = (row.sentences.get(scale.name), changes.sentences, scale.sentences)
    return Resolved(
        row.objective,
        parts,
        defaults,
        asdict(settings),
        changes.select or scale.select,
        next((n for n in counts if n is not None), None),
    )


def recipe_digest(item: tables.Item, row: tables.TableRow, scale: tables.ScaleName) -> str:
    """A digest of all that an item says of how one of its rows is run and measured at a scale."""
    named = {"objective", "base", "corpus", "encoder", "pooler", "fit"}
    measured = {name: item.evaluations[name] for name in row.evaluations[scale]}
    return digest_of(
        [
            row.model_dump(mode="json", include=named, exclude_defaults=True),
            item.scale[scale].model_dump(mode="json", exclude={"note"}, exclude_defaults=True),
            [row.settings.get(scale), row.sentences.get(scale)],
            {name: [one.kind, one.at(scale)] for name, one in measured.items()},
        ]
    )


def models_of(values: Mapping[str, object]) -> dict[str, str]:
    """The parameters that name a model, and the names."""
    return {k: str(v) for k, v in values.items() if k in MODELS and v and v != "new"}


Table = TypeVar("Table", bound=tables.Strict)


class ItemFolder:
    """A folder of items, PAPER/ITEM.toml, and what they share.

    Its ``papers.toml`` names the papers in order (without it they are sub-folders in order);
    ``scales.toml`` and ``corpora.toml`` replace the package's.
    """

    def __init__(self, home: Path = tables.HERE) -> None:
        self.home = home

    @cached_property
    def papers(self) -> dict[str, str]:
        """Sub-folders and their documents, in order."""
        listed = self.home / "papers.toml"
        titles = tables.read_toml(listed) if listed.is_file() else {}
        for name, title in titles.items():
            if not isinstance(title, str):
                raise InputError(listed, f"{name} must be a text, it is {title!r}")
        names = sorted(path.parent.name for path in self.home.glob("*/*.toml"))
        return titles | {name: name for name in names if name not in titles}

    @cached_property
    def scales(self) -> dict[tables.ScaleName, Scale]:
        """The scales by name: those of its ``scales.toml``, or the package's if it has none."""
        path = tables.shared(self.home, "scales.toml")
        data = tables.read_toml(path)
        for name in data:
            if name not in tables.SCALES:
                raise InputError(path, f"no such scale {name!r}{suggestion(name, tables.SCALES)}")
        return {
            name: tables.decode(Scale, {"name": name, **data.get(name, {})}, path, name)
            for name in tables.SCALES
        }

    @cached_property
    def corpora(self) -> dict[str, NamedCorpus]:
        """The corpora by name."""
        return read_corpora(self.home)

    def files(self) -> dict[str, Path]:
        """Files of items by name ("simcse:table1"), in order."""
        return {
            f"{paper}:{path.stem}": path
            for paper in self.papers
            for path in sorted((self.home / paper).glob("*.toml"), key=_order)
        }

    def all(self, *, settings: bool = True) -> list[tables.Item]:
        """Every item, checked."""
        return [self.read(path, settings=settings) for path in self.files().values()]

    def find(self, names: Sequence[str]) -> list[tables.Item]:
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

    def read(self, path: Path, *, settings: bool = True) -> tables.Item:
        """Read and check one item; with the settings of its rows, which imports torch."""
        paper = self.papers.get(path.parent.name, path.parent.name)
        return _ItemReader(path, self).item(paper, settings=settings)


def _order(path: Path) -> tuple[int, int, str]:
    """Tables before appendices before figures, by number."""
    digits = "".join(letter for letter in path.stem if letter.isdigit())
    group = 0 if path.stem.startswith("table") else 2 if path.stem.startswith("figure") else 1
    return group, 0 if group == 1 else int(digits or 0), path.stem


@cache
def _evaluation_table(kind: str) -> type[tables.Strict]:
    """The keys of an evaluation of a kind."""
    options: dict[str, Any] = {k: (form, None) for k, (form, _) in MEASURES[kind].options.items()}
    return create_model(kind, __base__=tables.Strict, kind=(str, ...), **options)


class _ItemReader:
    """Reads a file as an item."""

    def __init__(self, path: Path, folder: ItemFolder) -> None:
        self.path, self.folder = path, folder
        self.table = tables.decode(tables.ItemTable, tables.read_toml(path), path)
        self.evaluations = {n: self._evaluation(n, t) for n, t in self.table.evaluations.items()}
        self.columns = {name: self._column(name, t) for name, t in self.table.columns.items()}

    def fail(self, where: str, problem: str) -> Never:
        raise InputError(self.path, f"{where}{': ' if where else ''}{problem}")

    def check(self, where: str, known: Sequence[str] | Mapping[str, Any], *names: str) -> None:
        """Reject an unknown name."""
        for name in names:
            if name not in known:
                self.fail("", f"{where} {name!r}: unknown{suggestion(name, known)}")

    def item(self, paper: str, *, settings: bool) -> tables.Item:
        """The item, checked as a whole."""
        table, rows = self.table, tuple(self._every_row())
        names = [row.name for row in rows]
        kinds = {row.name: row.kind for row in rows}
        claims = tuple(self._claim(claim, kinds) for claim in table.claims)
        if table.figure == "sweep" and not table.sweep:
            self.fail("figure", 'needs sweep = "SETTING", the axis of the figure')
        if table.reference:
            self.check("reference", names, table.reference)
        if not rows:
            self.fail("", "there are no [[rows]]")
        axes = sorted({name for row in rows for name in row.point})
        self.check("sweep", axes, *filter(None, table.sweep.split(",")))
        item = tables.Item.model_construct(
            file=self.path,
            paper=paper,
            evaluations=self.evaluations,
            columns=self.columns,
            rows=rows,
            claims=claims,
            scale={"lab": table.scale.lab, "paper": table.scale.paper},
            **{key: getattr(table, key) for key in tables.ItemKeys.model_fields},
        )
        for place, row in enumerate(rows):
            self._check_row(row, names[:place])
            for key in ("tuned", "front"):
                self.check(f"rows.{row.name}.{key}", names, *getattr(row, key))
            for scale in self.folder.scales.values() if settings and row.kind == "train" else ():
                # Chosen as in a run, so that a wrong one is found now.
                try:
                    _ = scale.name in row.scales and resolve_row(item, row, scale)
                except UserError as error:
                    self.fail(f"rows.{row.name}", str(error))
        return item

    def _evaluation(self, name: str, data: Mapping[str, Any]) -> tables.Evaluation:
        kind, where = str(data.get("kind") or ""), f"evaluations.{name}"
        self.check(f"{where}.kind", MEASURES, kind)

        def options(data: Mapping[str, Any], *place: str) -> dict[str, Any]:
            table = tables.decode(_evaluation_table(kind), data, self.path, where, *place)
            return table.model_dump(exclude={"kind"}, exclude_unset=True)

        own = {key: value for key, value in data.items() if key not in tables.SCALES}
        for scale in tables.SCALES:
            if not isinstance(data.get(scale, {}), dict):
                self.fail(f"{where}.{scale}", f"{data[scale]!r}: must be a table of options")
        changes = {s: options({"kind": kind, **data[s]}, s) for s in tables.SCALES if s in data}
        return tables.Evaluation(kind, options(own), changes)

    def _column(self, name: str, column: tables.TableColumn) -> tables.TableColumn:
        """A column; nothing is measured for facts and statements."""
        where, stated, measured = f"columns.{name}", column.model_fields_set, column.metric or ""
        self.check(f"{where}.front", self.table.columns, *column.front)
        # A column without evaluation and metric has only quotations.
        named = column.evaluation or measured
        if self.table.kind != "facts" and named:
            self.check(f"{where}.evaluation", self.evaluations, column.evaluation)
            if not measured:
                self.fail(where, "metric is missing")
        completed: dict[str, Any] = {"name": name, "title": column.title or name}
        if "factor" not in stated:
            completed["factor"] = 100.0 if metric(measured).hundredths else 1.0
        if "better" not in stated:
            completed["better"] = metric(measured).better
        if "margin" not in stated and completed.get("factor", column.factor) == 100:
            # Correlations share a margin in points; for a time, say, the file must state one.
            completed["margin"] = self.table.margin
        return column.model_copy(update=completed)

    def _every_row(self) -> Iterator[tables.TableRow]:
        templates = self.table.templates
        for name, template in templates.items():
            self._check_names(template, f"templates.{name}")
            if all(row.use != name for row in self.table.rows):
                self.fail(f"templates.{name}", "no row uses it")
        for row in self.table.rows:
            where = f"rows.{row.name}"
            self._check_names(row, where)
            if row.use:
                self.check(f"{where}.use", templates, row.use)
            yield from self._rows(_over(templates[row.use], row) if row.use else row, where)

    def _check_names(self, row: tables.Template, where: str) -> None:
        """Check that the corpora and evaluations of a row or template exist."""
        if row.corpus:
            self.check(f"{where}.corpus", self.folder.corpora, row.corpus)
        if row.postprocess is not None:
            known = (*self.folder.corpora, tables.TARGET)
            self.check(f"{where}.postprocess.corpus", known, row.postprocess.corpus)
        for table in (row, row.lab, row.paper):
            self.check(f"{where}.evaluations", self.evaluations, *(table.evaluations or ()))

    def _rows(self, row: tables.RowTable, where: str) -> Iterator[tables.TableRow]:
        """The rows of one [[rows]]: one, or one for each point of its axes."""
        self.check(f"{where}.facts", self.columns, *row.facts)
        for key, values in row.axes.items():
            if not values:
                self.fail(where, f"axes.{key} has no values")
        points = [dict(zip(row.axes, point, strict=True)) for point in product(*row.axes.values())]
        source = row.source or self.table.source
        expected = self._expected(f"{where}.expected", row.expected, source, len(points))
        kind = self._kind(row, where)
        if kind == "train" and not row.corpus:
            self.fail(where, "corpus is missing: what is trained on?")
        scales: dict[tables.ScaleName, tables.AtScale] = {"lab": row.lab, "paper": row.paper}
        evaluations = tuple(self.evaluations) if row.evaluations is None else row.evaluations
        for i, point in enumerate(points):
            try:
                name, *tuned = (text.format(**point) for text in (row.name, *row.tuned))
            except (KeyError, IndexError, ValueError) as error:
                self.fail(where, f"{{...}} of a name must be one of the axes ({error})")
            settings = {s: {**row.set, **scales[s].set, **point} for s in tables.SCALES}
            yield tables.TableRow.model_construct(
                **{key: getattr(row, key) for key in tables.RowKeys.model_fields},
                name=name,
                kind=kind,
                source=source,
                blocked=row.blocked,
                tuned=tuple(tuned),
                front=row.front,
                settings=settings if kind == "train" else {},
                sentences={s: _first(scales[s].sentences, row.sentences) for s in tables.SCALES},
                evaluations={s: _first(scales[s].evaluations, evaluations) for s in tables.SCALES},
                fit=row.postprocess,
                fresh=self.table.fresh_samples,
                expected={c: v for c, values in expected.items() if (v := values[i]) is not None},
                facts={k: str(v) for k, v in row.facts.items()},
                point={} if kind == "derived" else point,
            )

    def _kind(self, row: tables.RowTable, where: str) -> tables.RowKind:
        keys = [key for key in ("objective", "encoder") if getattr(row, key)]
        if row.blocked:
            return "blocked"
        if row.quote or row.facts:
            if keys:
                self.fail(where, f"{keys[0]} does not belong to a row of quotations or facts")
            return "quote" if row.quote else "facts"
        if row.tuned or row.front:
            if keys or (row.tuned and row.front):
                self.fail(
                    where, "a row of other rows has tuned or front, and no objective or encoder"
                )
            return "derived"
        if len(keys) != 1:
            problem = "a row has an objective (it is trained), an encoder (it is measured), "
            self.fail(where, problem + "tuned, front, quote = true, blocked, or facts; exactly one")
        return "train" if keys == ["objective"] else "encoder"

    def _expected(
        self, where: str, given: Mapping[str, Any], source: str, count: int
    ) -> dict[str, list[tables.Expected | None]]:
        """Published values of each column, one for each row; "" is none."""
        published: dict[str, list[tables.Expected | None]] = {}
        for column, value in given.items():
            self.check(where, self.columns, column)
            values = value if isinstance(value, tuple) else (value,)
            if len(values) != count:
                self.fail(where, f"{column} has {len(values)} values for {count} rows")
            published[column] = []
            for cell in values:
                data = {"tolerance": self.table.tolerance, "source": source}
                data |= cell if isinstance(cell, dict) else {"value": cell}
                kind, place = tables.Expected, f"{where}.{column}"
                read = None if cell == "" else tables.decode(kind, data, self.path, place)
                published[column].append(read)
        return published

    def _claim(self, claim: tables.Claim, names: Mapping[str, str]) -> tables.Claim:
        where = f"claims.{claim.name}"
        if bool(claim.column) == bool(claim.columns):
            self.fail(where, "a claim has a column, or columns")
        about = claim.columns or (claim.column,)
        self.check(f"{where}.{'columns' if claim.columns else 'column'}", self.columns, *about)
        count = sum(bool(getattr(claim, key)) for key in tables.RELATIONS)
        signed = bool(claim.sign)
        if count + signed != 1 or signed != bool(claim.row) or bool(count) != bool(claim.than):
            problem = f"a claim has one of {', '.join(tables.RELATIONS)} with than, or row and sign"
            self.fail(where, problem)
        relation, than = claim.relation, claim.than
        if than == ("*",):
            # A quotation is never run, and would leave the statement open.
            than = tuple(n for n, kind in names.items() if kind != "quote" and n != claim.subject)
        for key, rows in ((relation, (claim.subject,)), ("than", than), ("row", (claim.row,))):
            self.check(f"{where}.{key}", names, *filter(None, rows))
        for other in about if relation not in ("", tables.BETTER) else ():
            if claim.margin is None and self.columns[other].margin is None:
                problem = f"{relation} needs a margin: none is known of the column {other!r}"
                self.fail(where, f"{problem} (margin = ..., of the claim or the column)")
        return claim.model_copy(update={"columns": about, "than": than})

    def _check_row(self, row: tables.TableRow, before: Sequence[str]) -> None:
        where = f"rows.{row.name}"
        if row.name in before:
            self.fail(where, f"two rows are named {row.name!r}")
        for name in row.expected if row.kind in ("train", "encoder") else ():
            if not self.columns[name].evaluation:
                problem = f"column {name!r} names no evaluation; only quotations have values"
                self.fail(f"{where}.expected", problem)
        target = row.fit is not None and row.fit.corpus == tables.TARGET
        for name in {n for some in row.evaluations.values() for n in some} if target else ():
            kind = self.evaluations[name].kind
            if kind != "sts":
                problem = (
                    f"a fit to {tables.TARGET!r} belongs to STS sets; {name!r} measures {kind}"
                )
                self.fail(where, f"{problem} (evaluations = [...] says what is measured)")


def _over(below: tables.Strict, above: Table) -> Table:
    """Merge a row into its template: settings one by one, other keys as the row has them."""
    merged: dict[str, Any] = {}
    for name in below.model_fields_set:
        default, value = getattr(below, name), getattr(above, name)
        if isinstance(default, tables.AtScale):
            merged[name] = _over(default, value)
        elif isinstance(default, dict):
            merged[name] = {**default, **value}
        elif name not in above.model_fields_set:
            merged[name] = default
    return above.model_copy(update=merged)


def _first(one: Any, two: Any) -> Any:
    return two if one is None else one
