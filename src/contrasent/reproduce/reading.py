"""Reads items from TOML files strictly: misspelt or impossible entries are rejected by name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from contrasent.engine.registry import check, parameters
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


class Scale(tables.Changes):
    """The size of the runs."""

    name: tables.ScaleName
    base: str
    changed: tables.Settings = Field(default_factory=dict)  # what the command line changed

    def with_changes(self, given: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences."""
        # A setting of an item or row still has precedence.
        known, foreign = run_settings.choose(given, ANY, option="--set")
        for name in foreign:
            raise OptionError("--set", name, "belongs to an objective; set it in the rows")
        whole = {**self.set, **known}
        run_settings.Settings(**run_settings.choose(whole, ANY)[0])
        update: dict[str, Any] = {"set": whole, "changed": known}
        if sentences is not None:
            update |= {"sentences": sentences, "changed": {**known, "sentences": sentences}}
        return self.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The training run of a row."""

    objective: str
    given: Mapping[str, object]
    defaults: Mapping[str, object]
    settings: Mapping[str, object]
    select: tables.Selection
    sentences: int | None  # rows sampled from the corpus; None for all


def resolve_row(item: tables.Item, row: tables.Row, scale: Scale, *, seed: int = 0) -> Resolved:
    """The training run of a row at a scale."""
    stated = changes_of(item, row, scale.name).over(scale)
    values = {**stated.set, "seed": seed}
    of_run, parts = run_settings.choose(values, row.objective, option="set")
    settings = run_settings.Settings(**of_run)
    check(row.objective, parts, models=False)
    defaults = {name: p.default for name, p in parameters(row.objective).items()}
    select = stated.select or "none"
    return Resolved(row.objective, parts, defaults, asdict(settings), select, stated.sentences)


def changes_of(item: tables.Item, row: tables.Row, scale: tables.ScaleName) -> tables.Changes:
    """What an item and its row say of a run at a scale."""
    return row.at(scale).over(item.scale[scale])


def evaluations_of(item: tables.Item, row: tables.Row, scale: tables.ScaleName) -> tables.Names:
    """The evaluations of a row at a scale."""
    named = changes_of(item, row, scale).evaluations
    return tuple(item.evaluations) if named is None else named


def recipe_digest(item: tables.Item, row: tables.Row, scale: tables.ScaleName) -> str:
    """A digest of all that an item says of how one of its rows is run and measured at a scale."""
    named = {"objective", "base", "corpus", "encoder", "pooling", "postprocess"}
    stated = changes_of(item, row, scale).model_dump(mode="json", exclude={"evaluations"})
    measured = {name: item.evaluations[name] for name in evaluations_of(item, row, scale)}
    return digest_of(
        [
            row.model_dump(mode="json", include=named, exclude_defaults=True),
            stated,
            {name: [one.kind, one.at(scale)] for name, one in measured.items()},
        ]
    )


def models_of(values: Mapping[str, object]) -> dict[str, str]:
    """The parameters that name a model, and the names."""
    return {k: str(v) for k, v in values.items() if k in MODELS and v and v != "new"}


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
                raise InputError(path, f"unknown scale {name!r}{suggestion(name, tables.SCALES)}")
        with tables.reading(path):
            return {
                name: tables.decode(Scale, {"name": name, **data.get(name, {})}, name)
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
                raise OptionError("ITEM", name, f"unknown table or figure{near} (--list shows all)")
            wanted.update(some)
        return [self.read(files[name]) for name in files if name in wanted]

    def read(self, path: Path, *, settings: bool = True) -> tables.Item:
        """Read and check one item; with the settings of its rows, which imports torch."""
        with tables.reading(path):
            item = self._item(path)
            _check_item(item)
            for row in item.rows if settings else ():
                for scale in row.scales if row.kind == "train" else ():
                    # Chosen as in a run, so that a wrong one is found now.
                    try:
                        resolve_row(item, row, self.scales[scale])
                    except UserError as error:
                        raise tables.Problem(f"rows.{row.name}: {error}") from error
        return item

    def _item(self, path: Path) -> tables.Item:
        table = tables.decode(tables.ItemTable, tables.read_toml(path))
        evaluations = {name: _evaluation(name, data) for name, data in table.evaluations.items()}
        columns = {name: _column(name, own, table) for name, own in table.columns.items()}
        rows = tuple(self._row(data, evaluations) for data in _expanded(table))
        return tables.Item.model_construct(
            file=path,
            paper=self.papers.get(path.parent.name, path.parent.name),
            evaluations=evaluations,
            columns=columns,
            rows=rows,
            claims=tuple(_claim(claim, rows, columns) for claim in table.claims),
            scale={name: table.scale.get(name, tables.ScaleChanges()) for name in tables.SCALES},
            **{key: getattr(table, key) for key in tables.ItemKeys.model_fields},
        )

    def _row(self, data: dict[str, Any], evaluations: Mapping[str, object]) -> tables.Row:
        where = f"rows.{data.get('name', '')}"
        row = tables.decode(tables.Row, data, where)
        if row.corpus:
            _check(f"{where}.corpus", self.corpora, row.corpus)
        if row.postprocess is not None:
            known = (*self.corpora, tables.TARGET)
            _check(f"{where}.postprocess.corpus", known, row.postprocess.corpus)
        for changes in (row, row.lab, row.paper):
            _check(f"{where}.evaluations", evaluations, *(changes.evaluations or ()))
        return row


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


def _check(where: str, known: Iterable[str], *names: str) -> None:
    """Reject an unknown name."""
    some = tuple(known)
    for name in names:
        if name not in some:
            raise tables.Problem(f"{where} {name!r}: unknown{suggestion(name, some)}")


def _evaluation(name: str, data: Mapping[str, Any]) -> tables.Evaluation:
    kind, where = str(data.get("kind") or ""), f"evaluations.{name}"
    _check(f"{where}.kind", MEASURES, kind)

    def options(data: Mapping[str, Any], *place: str) -> dict[str, Any]:
        table = tables.decode(_evaluation_table(kind), data, where, *place)
        return table.model_dump(exclude={"kind"}, exclude_unset=True)

    own = {key: value for key, value in data.items() if key not in tables.SCALES}
    for scale in tables.SCALES:
        if not isinstance(data.get(scale, {}), dict):
            raise tables.Problem(f"{where}.{scale}: {data[scale]!r}: must be a table of options")
    changes = {s: options({"kind": kind, **data[s]}, s) for s in tables.SCALES if s in data}
    return tables.Evaluation(kind, options(own), changes)


def _column(name: str, column: tables.TableColumn, table: tables.ItemTable) -> tables.TableColumn:
    """A column with what follows from its metric."""
    where, stated, measured = f"columns.{name}", column.model_fields_set, column.metric or ""
    _check(f"{where}.front", table.columns, *column.front)
    # A column without evaluation and metric has only quotations or facts.
    if column.evaluation or measured:
        _check(f"{where}.evaluation", table.evaluations, column.evaluation)
        if not measured:
            raise tables.Problem(f"{where}: metric is missing")
    completed: dict[str, Any] = {"name": name, "title": column.title or name}
    if "factor" not in stated:
        completed["factor"] = 100.0 if metric(measured).hundredths else 1.0
    if "better" not in stated:
        completed["better"] = metric(measured).better
    if "margin" not in stated and completed.get("factor", column.factor) == 100:
        # Correlations share a margin in points; for a time, say, the file must state one.
        completed["margin"] = table.margin
    return column.model_copy(update=completed)


def _expanded(table: tables.ItemTable) -> Iterator[dict[str, Any]]:
    """The keys of each row: its template's below its own, and a row of each point of its axes."""
    used = set()
    for written in table.rows:
        row, where = dict(written), f"rows.{written.get('name', '')}"
        if name := row.pop("use", ""):
            _check(f"{where}.use", table.templates, name)
            used.add(name)
            row = _over(table.templates[name], row)
        row = {"base": table.base, "fresh_samples": table.fresh_samples, **row}
        row["source"] = row.get("source") or table.source
        axes = row.pop("axes", {})
        for key, values in axes.items():
            if not isinstance(values, tuple) or not values:
                raise tables.Problem(f"{where}: axes.{key} has no values")
        points = [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]
        for key in ("expected", "facts"):
            _check(f"{where}.{key}", table.columns, *row.get(key, {}))
        for column, cells in row.get("expected", {}).items():
            if len(cells if isinstance(cells, tuple) else (cells,)) != len(points):
                count = len(cells) if isinstance(cells, tuple) else 1
                problem = f"{column} has {count} values for {len(points)} rows"
                raise tables.Problem(f"{where}.expected: {problem}")
        for i, point in enumerate(points):
            own = {**row, "point": {} if "tuned" in row else point}
            try:
                own["name"] = str(row.get("name", "")).format(**point)
                own["tuned"] = tuple(text.format(**point) for text in row.get("tuned", ()))
            except (KeyError, IndexError, ValueError) as error:
                problem = f"{{...}} of a name must be one of the axes ({error})"
                raise tables.Problem(f"{where}: {problem}") from error
            cells = {
                c: v[i] if isinstance(v, tuple) else v for c, v in row.get("expected", {}).items()
            }
            told = {"tolerance": table.tolerance, "source": row["source"]}
            own["expected"] = {
                column: {**told, **(cell if isinstance(cell, dict) else {"value": cell})}
                for column, cell in cells.items()
                if cell != ""  # not printed
            }
            yield own
    for name in table.templates:
        if name not in used:
            raise tables.Problem(f"templates.{name}: no row uses it")


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables: settings one by one, other keys as the second has them."""
    nested = {
        key: _over(below[key], above[key])
        for key in ("set", *tables.SCALES)
        if isinstance(below.get(key), dict) and isinstance(above.get(key), dict)
    }
    return {**below, **above, **nested}


def _claim(
    claim: tables.Claim, rows: Sequence[tables.Row], columns: Mapping[str, tables.TableColumn]
) -> tables.Claim:
    where, names = f"claims.{claim.name}", [row.name for row in rows]
    _check(f"{where}.column", columns, *claim.column)
    count, signed = sum(bool(getattr(claim, key)) for key in tables.RELATIONS), bool(claim.sign)
    if count + signed != 1 or signed != bool(claim.row) or bool(count) != bool(claim.than):
        problem = f"a claim has one of {', '.join(tables.RELATIONS)} with than, or row and sign"
        raise tables.Problem(f"{where}: {problem}")
    relation, than = claim.relation, claim.than
    if than == ("*",):
        # A quotation is never run, and would leave the statement open.
        than = tuple(r.name for r in rows if not r.quote and r.name != claim.subject)
    for key, some in ((relation, (claim.subject,)), ("than", than), ("row", (claim.row,))):
        _check(f"{where}.{key}", names, *filter(None, some))
    for other in claim.column if relation not in ("", tables.BETTER) else ():
        if claim.margin is None and columns[other].margin is None:
            problem = f"{relation} needs a margin, and column {other!r} has none"
            raise tables.Problem(f"{where}: {problem} (margin = ..., of the claim or the column)")
    return claim.model_copy(update={"than": than})


def _check_item(item: tables.Item) -> None:
    """What rows and figures say of others."""
    names = [row.name for row in item.rows]
    if not names:
        raise tables.Problem("[[rows]] are missing")
    if item.figure == "sweep" and not item.sweep:
        raise tables.Problem('figure: needs sweep = "SETTING", the axis of the figure')
    _check("reference", names, *filter(None, [item.reference]))
    axes = sorted({name for row in item.rows for name in row.point})
    _check("sweep", axes, *filter(None, item.sweep.split(",")))
    for place, row in enumerate(item.rows):
        where = f"rows.{row.name}"
        if row.name in names[:place]:
            raise tables.Problem(f"{where}: two rows are named {row.name!r}")
        _check(f"{where}.tuned", names, *row.tuned)
        _check(f"{where}.front", names, *row.front)
        for name in row.expected if row.kind in ("train", "encoder") else ():
            if not item.columns[name].evaluation:
                problem = f"column {name!r} has no evaluation; only quotations have values"
                raise tables.Problem(f"{where}.expected: {problem}")
        target = row.postprocess is not None and row.postprocess.corpus == tables.TARGET
        for scale in tables.SCALES if target else ():
            for name in evaluations_of(item, row, scale):
                if (kind := item.evaluations[name].kind) != "sts":
                    problem = f"a fit to {tables.TARGET!r} belongs to STS sets; {name!r} measures"
                    why = "(evaluations = [...] sets what is measured)"
                    raise tables.Problem(f"{where}: {problem} {kind} {why}")
