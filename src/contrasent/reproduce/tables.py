"""Items: tables and figures of documents, from TOML files that are read strictly.

Rows are expanded once, while they are read: what a template says, a row for each point of its axes,
and what holds at a scale.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, ConfigDict, Field, create_model, model_validator

from contrasent.engine.parameters import Count, GuideName, MaskedModelName, Positive, Size
from contrasent.engine.registry import check, described, parameters
from contrasent.errors import OptionError, UserError, suggestion
from contrasent.metrics import metric
from contrasent.reproduce.corpora import Built, NamedCorpus, read_corpora
from contrasent.reproduce.measures import MEASURES
from contrasent.reproduce.store import digest_of
from contrasent.reproduce.strict import (
    HERE,
    Names,
    Problem,
    Strict,
    Value,
    check_names,
    decode,
    read_toml,
    reading,
    shared_file,
)
from contrasent.train import settings as run_settings

Cost = Literal["none", "light", "medium", "heavy"]
Figure = Literal["", "plane", "trace", "curves", "spectrum", "densities", "sweep"]
RowKind = Literal["train", "encoder", "derived", "quote", "facts", "blocked"]
Relation = Literal["better", "no_worse", "no_better", "equal"]  # of a row to others, in a statement
ScaleName = Literal["lab", "paper"]
Selection = Literal["none", "stsb"]
"""Which model of a run is measured: the last one, or the best on STS-B's dev set."""

Settings = dict[str, Value]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)
BETTER, NO_WORSE, NO_BETTER, EQUAL = RELATIONS = get_args(Relation)
COSTS: dict[Cost, str] = {
    "none": "nothing is computed",
    "light": "encoders are evaluated, nothing is trained",
    "medium": "up to a dozen training runs per seed",
    "heavy": "more training runs, or longer ones",
}
BASE = "@base"  # stands for the encoder that a scale begins from
NEW = "@new"  # for the same with random weights
GLOVE = "glove"
TARGET = "target"  # stands for each task's own sentences, as the text to fit a transform to
MARGIN = 0.3  # negligible points, unless an item states its own
SELECTED = ("task", "split", "metric", "aggregate")  # keys by which a column chooses a report's row
SEEDS = "each run has a seed of its own; --seeds, or seeds of an item, says how many"
ANY = "simcse"  # an objective; the settings of a run are checked with its parameters


class Expected(Strict):
    """A published value."""

    value: float  # as printed in the document
    tolerance: float = 1.0  # how far ours may differ from it, at the document's own scale
    source: str = ""


class FittedTransform(Strict):
    """A transform of vectors that is fitted to text."""

    kind: Literal["whitening", "flow"]
    corpus: str  # the text, a name of the folder's corpora; "target" is each task's own sentences
    sentences: int | None = None  # rows of it; None for the scale's own number


class Changes(Strict):
    """Settings and sizes of runs: those of a scale, and what an item or a row changes of them."""

    set: Settings = Field(default_factory=dict)
    sentences: Size | None = None  # rows that a corpus is sampled to; 0 for all
    select: Selection | None = None
    evaluations: Names = ()  # those that are made; of a row all, unless it says which
    note: str = ""


class Row(Changes):
    """A row of the table: a method, a baseline, or somebody else's number."""

    name: str
    objective: str = ""
    base: str = BASE
    corpus: str = ""
    encoder: str = ""
    pooling: str = ""
    postprocess: FittedTransform | None = None  # the transform of its vectors
    fresh_samples: bool = False  # whether each seed draws sentences of its own
    scales: tuple[ScaleName, ...] = SCALES
    lab: Changes = Changes()  # what holds at a scale, the item's changes included
    paper: Changes = Changes()
    point: Settings = Field(default_factory=dict)  # values of the axes that made it
    quote: bool = False
    blocked: str = ""  # why nobody can compute the row
    facts: Settings = Field(default_factory=dict)
    tuned: Names = ()  # rows of which the best at the first seed is shown, by its other seeds
    front: Names = ()  # rows of which those are counted that no other beats in both columns
    expected: dict[str, Expected] = Field(default_factory=dict)
    source: str = ""
    group: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> "Row":
        kinds = (self.objective, self.encoder, self.tuned, self.front, self.quote or self.facts)
        if not self.blocked and sum(map(bool, kinds)) != 1:
            problem = "a row needs exactly one of: an objective (trained), an encoder (evaluated), "
            raise ValueError(problem + "tuned, front, quote = true, blocked or facts")
        if self.kind == "train" and not self.corpus:
            raise ValueError("corpus is missing: set what to train on")
        return self

    @property
    def kind(self) -> RowKind:
        """How its values come about."""
        if self.blocked:
            return "blocked"
        if self.quote or self.facts:
            return "quote" if self.quote else "facts"
        if self.tuned or self.front:
            return "derived"
        return "train" if self.objective else "encoder"

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        fit = self.postprocess
        if self.kind == "train" or fit is None:
            return self.kind == "train"
        return fit.kind == "flow" or (self.fresh_samples and fit.corpus != TARGET)

    def at(self, scale: ScaleName) -> Changes:
        """What holds of its runs at a scale."""
        return self.lab if scale == "lab" else self.paper


class TableColumn(Strict):
    """One [columns.NAME]: one row of an evaluation's report."""

    name: str = ""
    title: str = ""
    evaluation: str = ""  # whose report; "" for a column of quotations only
    task: str | None = None
    split: str | None = None
    metric: str | None = None
    aggregate: str | None = None
    front: Names = ()  # the columns of a count of rows on one Pareto front
    factor: float = 1.0  # converts a value to the document's units
    better: Literal["higher", "lower"] = "higher"
    # a negligible difference, in the document's units; None if unknown
    margin: Positive | None = None

    @property
    def select(self) -> dict[str, str]:
        """The fields of the report's row."""
        return {key: v for key in SELECTED if (v := getattr(self, key)) is not None}

    @property
    def sign(self) -> float:
        """1 where higher is better, else -1."""
        return 1.0 if self.better == "higher" else -1.0


class Claim(Strict):
    """One [[claims]]: a statement of the document that our runs can support or contradict."""

    name: str
    text: str
    # the columns it is about, or the one; it must hold in each
    column: Annotated[
        Names, BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ]
    better: str = ""
    no_worse: str = ""
    no_better: str = ""
    equal: str = ""
    than: Names = ()  # the rows that it is better than, or no worse, or no better, or equal to
    margin: Positive | None = None  # a negligible difference; None for the column's
    row: str = ""  # the row whose value has a sign
    sign: Literal["", "positive", "negative"] = ""
    beyond: float = 0.0  # the number that a value with a sign is compared with
    level: float = Field(0.05, gt=0, lt=1)  # p that it must reach
    chosen: str = ""  # why its rows were chosen for what it says: shown, not tested
    term: str = ""  # the term of the loss that it is about; it must act in some row

    @property
    def relation(self) -> Relation | Literal[""]:
        """Its relation of the subject to other rows; "" if none."""
        return next((key for key in RELATIONS if getattr(self, key)), "")

    @property
    def subject(self) -> str:
        """The row that is compared with others."""
        return getattr(self, self.relation) if self.relation else ""


class Evaluation(NamedTuple):
    """A measure of a model, and its options at each scale, as far as they are stated."""

    kind: str
    options: Mapping[ScaleName, Mapping[str, Value | Names]]


class ItemFile(Strict):
    """A file as it is written: rows and evaluations are completed later."""

    title: str
    source: str
    about: str
    cost: Cost
    needs: Names = ()  # needs beyond the data, checkpoints and packages that its rows name
    seeds: Count = 3
    first_seed: Size = 0
    fresh_samples: bool = False  # the runs of each seed draw sentences of their own
    encode_precision: Literal["fp32", "bf16"] = "fp32"  # in which its measurements encode
    reference: str = ""  # the row that others are compared with
    base: str = BASE  # the encoder that its rows begin from, if they name no other
    figure: Figure = ""
    sweep: str = ""  # the settings along the figure's axes, of a sweep
    tolerance: float = 1.0
    margin: Positive = MARGIN
    evaluations: Mapping[str, dict[str, Any]] = Field(default_factory=dict)
    columns: Mapping[str, TableColumn] = Field(default_factory=dict)
    templates: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    claims: tuple[Claim, ...] = ()
    scale: dict[ScaleName, Changes] = Field(default_factory=dict)


class Item(ItemFile):
    """One table or figure."""

    file: Path
    paper: str
    evaluations: Mapping[str, Evaluation]  # type: ignore[assignment]
    rows: tuple[Row, ...]  # type: ignore[assignment]

    @property
    def name(self) -> str:
        """The name on the command line, such as "simcse:table1"."""
        return f"{self.file.parent.name}:{self.file.stem}"

    def row(self, name: str) -> Row:
        """A row by name."""
        return next(row for row in self.rows if row.name == name)

    def options(self, evaluation: str, scale: ScaleName) -> Mapping[str, Value | Names]:
        """All options of an evaluation at a scale."""
        kind, options = self.evaluations[evaluation]
        return MEASURES[kind].complete(options[scale])


class _RowKeys(Strict):
    """The keys of a row in a file that are expanded, with any others."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str = ""
    source: str = ""
    axes: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(default_factory=dict)
    tuned: Names = ()
    facts: dict[str, Any] = Field(default_factory=dict)
    expected: dict[str, Any] = Field(default_factory=dict)
    lab: dict[str, Any] = Field(default_factory=dict)
    paper: dict[str, Any] = Field(default_factory=dict)


class Scale(Changes):
    """The size of the runs."""

    name: ScaleName
    base: str
    changed: Settings = Field(default_factory=dict)  # what the command line changed

    def with_changes(self, given: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences."""
        # A setting of an item or row still has precedence.
        known, foreign = run_settings.choose(given, ANY, option="--set")
        for name in foreign:
            raise OptionError("--set", name, "belongs to an objective; set it in the rows")
        if "seed" in known:
            raise OptionError("--set", "seed", SEEDS)
        whole = {**self.set, **known}
        run_settings.Settings(**run_settings.choose(whole, ANY)[0])
        update: dict[str, Any] = {"set": whole, "changed": known}
        if sentences is not None:
            update |= {"sentences": sentences, "changed": {**known, "sentences": sentences}}
        return self.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class Training:
    """The training run of a row; the plan adds its corpus and what is followed."""

    objective: str
    given: Mapping[str, object]
    known: Mapping[str, object]  # its name, the digest of a file of the user's, the defaults
    settings: Mapping[str, object]
    select: Selection
    sentences: int | None  # rows sampled from the corpus; None for all
    corpus: Built | None = None
    trace: Mapping[str, Value | Names] | None = None  # options of the measure that follows it
    models: Names = ()  # parameters that name one: "@base" is the base, others are checkpoints


def resolve_row(row: Row, scale: Scale, *, seed: int = 0) -> Training:
    """The training run of a row at a scale."""
    own = row.at(scale.name)
    values = {**scale.set, **own.set}
    if "seed" in values:
        raise OptionError("set", "seed", SEEDS)
    of_run, parts = run_settings.choose(values, row.objective, option="set")
    settings = asdict(run_settings.Settings(**of_run, seed=seed))
    check(row.objective, parts, models=False)
    known, marks = described(row.objective, {}), (MaskedModelName, GuideName)
    named = {k for k, p in parameters(row.objective).items() if any(map(p.mark, marks))}
    named.add("language_head")
    models = tuple(k for k, v in parts.items() if k in named and v and v != "new")
    select = own.select or scale.select or "none"
    sentences = scale.sentences if own.sentences is None else own.sentences
    return Training(row.objective, parts, known, settings, select, sentences, models=models)


def recipe_digest(item: Item, row: Row, scale: ScaleName) -> str:
    """A digest of all that an item says of how one of its rows is run and measured at a scale."""
    named = {"objective", "base", "corpus", "encoder", "pooling", "postprocess"}
    own = row.at(scale)
    measured = {name: item.evaluations[name] for name in own.evaluations}
    return digest_of(
        [
            row.model_dump(mode="json", include=named, exclude_defaults=True),
            own.model_dump(mode="json", exclude={"evaluations", "note"}),
            {name: [one.kind, one.options[scale]] for name, one in measured.items()},
            *([] if item.encode_precision == "fp32" else [item.encode_precision]),
        ]
    )


class ItemFolder:
    """A folder of items, PAPER/ITEM.toml, and what they share.

    Its ``papers.toml`` names the papers in order (without it they are sub-folders in order);
    ``scales.toml`` and ``corpora.toml`` replace the package's.
    """

    def __init__(self, home: Path = HERE) -> None:
        self.home = home

    @cached_property
    def papers(self) -> dict[str, str]:
        """Sub-folders and their documents, in order."""
        listed = self.home / "papers.toml"
        titles = read_toml(listed) if listed.is_file() else {}
        names = sorted(path.parent.name for path in self.home.glob("*/*.toml"))
        return titles | {name: name for name in names if name not in titles}

    @cached_property
    def scales(self) -> dict[ScaleName, Scale]:
        """The scales by name."""
        path = shared_file(self.home, "scales.toml")
        data = read_toml(path)
        with reading(path):
            check_names("scale", SCALES, *data)
            return {
                name: decode(Scale, {"name": name, **data.get(name, {})}, name) for name in SCALES
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

    def all(self, *, settings: bool = True) -> list[Item]:
        """Every item, checked."""
        return [self.read(path, settings=settings) for path in self.files().values()]

    def find(self, names: Sequence[str]) -> list[Item]:
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

    def read(self, path: Path, *, settings: bool = True) -> Item:
        """Read and check one item; with the settings of its rows, which imports torch."""
        with reading(path):
            item = self._item(path)
            for row in item.rows if settings else ():
                for scale in row.scales if row.kind == "train" else ():
                    # Chosen as in a run, so that a wrong one is found now.
                    try:
                        resolve_row(row, self.scales[scale])
                    except UserError as error:
                        raise Problem(f"rows.{row.name}: {error}") from error
        return item

    def _item(self, path: Path) -> Item:
        table = decode(ItemFile, read_toml(path))
        rows = tuple(
            decode(Row, own, f"rows.{own['name']}")
            for written in table.rows
            for own in _expanded(written, table)
        )
        columns = {name: _column(name, own, table) for name, own in table.columns.items()}
        completed = {
            "evaluations": {n: _evaluation(n, own) for n, own in table.evaluations.items()},
            "columns": columns,
            "rows": rows,
            "claims": tuple(_claim(claim, rows, columns) for claim in table.claims),
        }
        paper = self.papers.get(path.parent.name, path.parent.name)
        item = Item.model_construct(file=path, paper=paper, **{**dict(table), **completed})
        self._check(item)
        return item

    def _check(self, item: Item) -> None:
        names = [row.name for row in item.rows]
        check_names("reference", names, *filter(None, [item.reference]))
        if not names:
            raise Problem("rows: none")
        if item.figure == "sweep" and not item.sweep:
            raise Problem('figure: needs sweep = "SETTING", the axis of the figure')
        axes = sorted({name for row in item.rows for name in row.point})
        check_names("sweep", axes, *filter(None, item.sweep.split(",")))
        for place, row in enumerate(item.rows):
            where, fit = f"rows.{row.name}", row.postprocess
            if row.name in names[:place]:
                raise Problem(f"{where}: two rows are named {row.name!r}")
            check_names(f"{where}.tuned", names, *row.tuned)
            check_names(f"{where}.front", names, *row.front)
            check_names(f"{where}.corpus", self.corpora, *filter(None, [row.corpus]))
            if fit is not None:
                check_names(f"{where}.postprocess.corpus", (*self.corpora, TARGET), fit.corpus)
            for name in row.expected if row.kind in ("train", "encoder") else ():
                if not item.columns[name].evaluation:
                    problem = f"column {name!r} has no evaluation; only quotations have values"
                    raise Problem(f"{where}.expected: {problem}")
            for name in (*row.lab.evaluations, *row.paper.evaluations):
                check_names(f"{where}.evaluations", item.evaluations, name)
                kind = item.evaluations[name].kind
                if fit is not None and fit.corpus == TARGET and kind != "sts":
                    problem = f"a fit to {TARGET!r} belongs to STS sets; {name!r} measures {kind}"
                    raise Problem(f"{where}: {problem} (evaluations = [...] sets what is measured)")


def _order(path: Path) -> tuple[int, int, str]:
    """Tables before appendices before figures, by number."""
    digits = "".join(letter for letter in path.stem if letter.isdigit())
    group = 0 if path.stem.startswith("table") else 2 if path.stem.startswith("figure") else 1
    return group, 0 if group == 1 else int(digits or 0), path.stem


@cache
def _evaluation_table(kind: str) -> type[Strict]:
    """The keys of an evaluation of a kind."""
    options: dict[str, Any] = {
        key: (form, None) for key, (form, _) in MEASURES[kind].options.items()
    }
    keys: dict[str, Any] = dict.fromkeys(SCALES, (dict[str, Any], {}))
    return create_model(kind, __base__=Strict, kind=(str, kind), **keys, **options)


def _evaluation(name: str, data: dict[str, Any]) -> Evaluation:
    where, kind = f"evaluations.{name}", str(data.get("kind", ""))
    check_names(f"{where}.kind", MEASURES, kind)

    def stated(data: dict[str, Any], *place: str) -> dict[str, Any]:
        found = decode(_evaluation_table(kind), data, where, *place)
        for corpus in getattr(found, "corpora", None) or ():
            check_names(f"{where}.corpora", read_corpora(), corpus)
        return found.model_dump(exclude={"kind", *SCALES}, exclude_unset=True)

    own = stated(data)
    return Evaluation(kind, {s: own | stated(data.get(s, {}), s) for s in SCALES})


def _column(name: str, column: TableColumn, table: ItemFile) -> TableColumn:
    """A column with what follows from its metric."""
    where, stated, measured = f"columns.{name}", column.model_fields_set, column.metric or ""
    check_names(f"{where}.front", table.columns, *column.front)
    # A column without evaluation and metric has only quotations or facts.
    if column.evaluation or measured:
        check_names(f"{where}.evaluation", table.evaluations, column.evaluation)
        if not measured:
            raise Problem(f"{where}: metric is missing")
    completed: dict[str, Any] = {"name": name, "title": column.title or name}
    if "factor" not in stated:
        completed["factor"] = 100.0 if metric(measured).hundredths else 1.0
    if "better" not in stated:
        completed["better"] = metric(measured).better
    if "margin" not in stated and completed.get("factor", column.factor) == 100:
        # Correlations share a margin in points; for a time, say, the file must state one.
        completed["margin"] = table.margin
    return column.model_copy(update=completed)


def _expanded(written: dict[str, Any], table: ItemFile) -> Iterator[dict[str, Any]]:
    """The keys of the rows that one of a file stands for: one for each point of its axes."""
    where, own = f"rows.{written.get('name', '')}", dict(written)
    if template := own.pop("use", ""):
        check_names(f"{where}.use", table.templates, template)
        own = _over(table.templates[template], own)
    row = decode(_RowKeys, own, where)
    check_names(f"{where}.facts", table.columns, *row.facts)
    check_names(f"{where}.expected", table.columns, *row.expected)
    own = {"base": table.base, "fresh_samples": table.fresh_samples, **own}
    own["source"] = row.source or table.source
    stated = {key: own[key] for key in Changes.model_fields if key in own}
    points = [dict(zip(row.axes, point, strict=True)) for point in product(*row.axes.values())]
    cells = {c: v if isinstance(v, tuple) else (v,) for c, v in row.expected.items()}
    for column, values in cells.items():
        if len(values) != len(points):
            problem = f"{column} has {len(values)} values for {len(points)} rows"
            raise Problem(f"{where}.expected: {problem}")
    own.pop("axes", None)
    for i, point in enumerate(points):
        try:
            own["name"], *tuned = (text.format(**point) for text in (row.name, *row.tuned))
        except (KeyError, IndexError, ValueError) as error:
            problem = f"{{...}} of a name must be one of the axes ({error})"
            raise Problem(f"{where}: {problem}") from error
        own["tuned"], own["point"] = tuple(tuned), {} if tuned else point
        own["expected"] = {
            column: {
                "tolerance": table.tolerance,
                "source": own["source"],
                **(values[i] if isinstance(values[i], dict) else {"value": values[i]}),
            }
            for column, values in cells.items()
            if values[i] != ""  # not printed
        }
        # All evaluations, unless the item, the row, or the row at the scale says which.
        at: dict[str, Any] = {scale: {"evaluations": tuple(table.evaluations)} for scale in SCALES}
        for scale in SCALES:
            if scale in table.scale:
                at[scale] |= table.scale[scale].model_dump(exclude_unset=True)
            for more in (stated, getattr(row, scale), {"set": own["point"]}):
                at[scale] = _over(at[scale], more)
        yield own | at


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables: settings one by one, other keys as the second has them."""
    nested = {
        key: _over(below[key], above[key])
        for key in ("set", *SCALES)
        if isinstance(below.get(key), dict) and isinstance(above.get(key), dict)
    }
    return {**below, **above, **nested}


def _claim(claim: Claim, rows: Sequence[Row], columns: Mapping[str, TableColumn]) -> Claim:
    where, names = f"claims.{claim.name}", [row.name for row in rows]
    check_names(f"{where}.column", columns, *claim.column)
    count, signed = sum(bool(getattr(claim, key)) for key in RELATIONS), bool(claim.sign)
    if count + signed != 1 or signed != bool(claim.row) or bool(count) != bool(claim.than):
        problem = f"a claim has one of {', '.join(RELATIONS)} with than, or row and sign"
        raise Problem(f"{where}: {problem}")
    relation, than = claim.relation, claim.than
    if than == ("*",):
        # A quotation is never run, and would leave the statement open.
        than = tuple(r.name for r in rows if not r.quote and r.name != claim.subject)
    for key, some in ((relation, (claim.subject,)), ("than", than), ("row", (claim.row,))):
        check_names(f"{where}.{key}", names, *filter(None, some))
    for other in claim.column if relation not in ("", BETTER) else ():
        if claim.margin is None and columns[other].margin is None:
            problem = f"{relation} needs a margin, and column {other!r} has none"
            raise Problem(f"{where}: {problem} (margin = ..., of the claim or the column)")
    return claim.model_copy(update={"than": than})
