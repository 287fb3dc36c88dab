"""``contrasent compare A B`` and ``contrasent diff OLD NEW --on INDEX|CORPUS``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.evaluate import UserEvaluation, judged_evaluations, labeled_evaluations
from contrasent.errors import DataError, InputError, OptionError

if TYPE_CHECKING:
    from contrasent.model.base import TaskEncoder
    from contrasent.model.remote import RemoteModel
    from contrasent.report import Report
    from contrasent.search.index import BaseIndex
    from contrasent.types import Vectors

OTHERWISE = "--pairs FILE, --collection FOLDER or --on CORPUS with your own data"
CHANGED = 3  # exit code of --fail-over, as of --require-improvement
ASIDE = ("run", "onnx", "onnx-int8", "openvino", "openvino-int8", "golden", "index")
"""Folders that may lie in a model's folder and are not the model."""


@options.command
def compare(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
    loading: options.Encoding,
    suite: list[str] | None = None,
    task: options.StsTask = None,
    form: options.StsForm = "senteval",
    split: options.StsSplit = "test",
    data: options.DataFolder = None,
    pairs: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,SCORE")] = None,
    collection: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    on: str | None = None,
    seed_sd: Annotated[float | None, typer.Option(min=0)] = None,
) -> options.Output:
    """Is B better than A? Differences with 95 % intervals and p values.

    Items are paired. Intervals cover both items and seeds. For a model with a single run, a spread
    over seeds is assumed, and a second interval ignores seeds.

    Options:
        before: Model, or its runs with several seeds: a,b,c; or their reports from evaluate
            --json-file.
        after: The model to compare with A, given in the same way.
        suite: Suites to evaluate, as in evaluate. [default: sts]
        pairs: Your own labeled pairs: csv, tsv, jsonl or parquet; can be repeated.
        columns: For --pairs two texts and a number, for --on the columns of the pairs: by name, or
            by position from 0.
        collection: Your own retrieval set, in BEIR's layout.
        on: A corpus of pairs: those that all models' trainings held out, and that chose no step.
        seed_sd: Standard deviation over seeds, in points, of a model with one run; 0 for a model
            that no seed changes. [default: the other model's, else 1.2]
    """
    arms = [_names(option, value) for option, value in (("A", before), ("B", after))]
    if both := {Path(name).resolve() for name in arms[0]} & {Path(n).resolve() for n in arms[1]}:
        raise OptionError("B", after, f"{both.pop().name} is one of A's runs; nothing to compare")
    from contrasent.datasets.official import STS_TASKS
    from contrasent.evaluate.compare import compare_reports, comparison_table
    from contrasent.evaluate.suite import Options, evaluate_model, read_data, suite_names
    from contrasent.model.opening import find_model
    from contrasent.report import Report

    suites = suite_names(suite or ["sts"]) if suite or not (pairs or collection or on) else ()
    tasks = tuple(task or STS_TASKS)
    chosen = Options(form=form, tasks=tasks, split=split, resamples=0, folder=data)

    evaluations = [
        *labeled_evaluations(pairs or [], columns if pairs or on is None else None),
        *judged_evaluations(collection, False, [before]),
    ]

    def measure(folder: Path) -> "Report":
        model = options.open_model(folder, loading)
        report = evaluate_model(model, suites, chosen) if suites else Report(())
        report = report.select(metric="spearman") if suites == ("sts",) else report
        return Report.join([report, *(measured(model, 0) for measured in evaluations)])

    saved = {name: _saved(name) for arm in arms for name in arm if name.endswith(".json")}
    folders = {name: find_model(name) for arm in arms for name in arm if name not in saved}
    measured: tuple[str, ...] = ("suite", "task", "split", "form", "data", "pairs", "collection")
    measured += ("on", "pooling", "max_seq_length", "batch_size")
    lacking = dict.fromkeys(() if folders else measured, "a model; rows of reports are compared")
    if "sts" not in suites:
        lacking |= dict.fromkeys(("task", "split"), "--suite sts")
    options.check_used(context, lacking)
    for option, arm in zip("AB", arms, strict=True):
        _check_seeds(option, {name: folders[name] for name in arm if name in folders})
    evaluations += [_held_out(on, columns, folders)] if on else []
    if folders:
        try:
            read_data(suites, chosen)  # before a model is loaded
        except DataError as error:
            form = "" if form == "raw" else "--form raw, "
            raise DataError(f"{error}; or compare by {form}{OTHERWISE}") from error
    saved |= {name: measure(folder) for name, folder in folders.items()}
    loaded = [[saved[name] for name in arm] for arm in arms]
    comparisons = compare_reports(*loaded, names=[*arms[0], *arms[1]], seed_sd=seed_sd)
    facts = {"a": arms[0], "b": arms[1], "rows": [row.to_json() for row in comparisons]}
    return options.Output(
        facts, comparison_table(arms[0], arms[1], list(saved.values()), comparisons, seed_sd)
    )


def _held_out(on: str, columns: str | None, models: dict[str, Path]) -> UserEvaluation:
    """Whether one text of a held-out pair finds the other."""
    from contrasent.evaluate.retrieval import retrieval
    from contrasent.text.corpus import open_corpus
    from contrasent.train.plan import unseen_pairs

    corpus = open_corpus(on, columns=options.column_list(columns))
    for line in corpus.roles:
        options.note(line)
    if corpus.width < 2:
        raise OptionError("--on", on, "needs pairs: two columns of texts that match")
    items = unseen_pairs(models, corpus)
    return lambda encode, number: retrieval(
        encode, *items, task=Path(on).stem, split="heldout", resamples=number
    )


def _names(option: str, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    if not names or len({Path(name).resolve() for name in names}) < len(names):
        raise OptionError(option, value, "name each run once, separated by commas")
    return names


def _check_seeds(option: str, models: dict[str, Path]) -> None:
    """Reject runs of one seed, which show no spread over seeds."""
    from contrasent.train.plan import run_of

    known: dict[int, str] = {}
    for name, folder in models.items():
        if run := run_of(folder):
            other = known.setdefault(run["settings"]["seed"], name)
            if other != name:
                problem = f"{other} was trained with the same seed; name runs of different seeds"
                raise OptionError(option, name, problem)


def _saved(name: str) -> "Report":
    from contrasent.report import read_reports

    models = read_reports(Path(name))
    if len(models) != 1:
        raise InputError(
            Path(name), f"reports on {len(models)} models; each file must report on one"
        )
    return next(iter(models.values()))


@options.command
def diff(
    old: str,
    new: str,
    loading: Annotated[options.Loading, "batch_size"],
    on: str = "",
    query_file: Path | None = None,
    sample: int = 1000,
    documents: Annotated[int, typer.Option(min=200)] = 20000,
    threshold: float | None = None,
    column: options.Column = None,
    report: Path | None = None,
    fail_over: Annotated[float | None, typer.Option(min=0, max=1)] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> options.Output:
    """Will a search find the same documents with a different model, version or runtime?

    Both models rank the same documents for the same queries; relevance judgments are not needed.
    The stored vectors of an index are used for OLD if it made them. The API key of a server is read
    from CONTRASENT_API_KEY.

    Options:
        old: The current model: folder, name, export, or a server's http://HOST:PORT/v1#MODEL.
        new: The replacement, given in the same way.
        on: Index folder, or a corpus: a file or folder.
        query_file: File with one query per line. [default: documents are the queries]
        sample: Maximum number of queries, drawn at random; at least 20.
        documents: Maximum number of documents, drawn at random.
        threshold: Score of OLD to convert to NEW.
        report: Write a full report: FILE.html.
        fail_over: Exit with status 3 if the share of the ten nearest that changed may exceed this
            (upper end of its interval).
        seed: Random seed of the samples.
    """
    if not on:
        raise OptionError("--on", on, "name the index or the texts that both models search")
    from contrasent.cli.search import read_queries
    from contrasent.evaluate.diff import diff_models
    from contrasent.files import check_file

    if report is not None:
        check_file(report)
    wanted = None if query_file is None else read_queries(query_file)
    if wanted == []:
        raise InputError(query_file or "", "contains no query")
    searched = open_searched(on, documents, column, seed)
    names = {"old": old, "new": new}
    models = {side: _open_side(name, side, loading, searched) for side, name in names.items()}
    known = searched.vectors_by(models["old"])
    change = diff_models(
        models["old"],
        models["new"],
        searched.texts,
        wanted,
        sample=sample,
        of=searched.of,
        old_vectors=known,
        metric="cosine" if searched.index is None else searched.index.metric,
        threshold=threshold,
        seed=seed,
    )
    about = {side: _described(name, models[side]) for side, name in names.items()}
    passed = fail_over is None or change.change["high"] <= fail_over
    facts = {**about, "on": on, "stored_vectors": known is not None, **change.to_json()}
    facts |= {"change": change.change, "fail_over": fail_over, "passed": passed, "seed": seed}
    if report is not None:
        from contrasent.evaluate.diff import diff_page
        from contrasent.files import write_text

        write_text(report, diff_page(change, about, on))
    lines = change.lines(about)
    if fail_over is not None:
        lines.append(f"{'within' if passed else 'over'} --fail-over {fail_over:g}")
    return options.Output(facts, "\n".join(lines), status=0 if passed else CHANGED)


@dataclass(frozen=True, slots=True)
class Searched:
    """The documents, and the index that they are from, with its vectors of them."""

    texts: list[str]
    of: int
    index: "BaseIndex | None" = None
    vectors: "Vectors | None" = None

    def vectors_by(self, model: "TaskEncoder | RemoteModel") -> "Vectors | None":
        """The stored vectors, if this model made them; a quantized copy has its own."""
        from contrasent.model.remote import RemoteModel
        from contrasent.model.runtime import NAME, read_export

        index = self.index
        if index is None:
            return None
        if isinstance(model, RemoteModel):
            return self.vectors if model.identity == index.model != "" else None
        source = Path(index.facts.source)
        maker = read_export(source).name if (source / NAME).is_file() else "torch"
        exact = ("int8" in model.encoder.runtime) == ("int8" in maker)
        return self.vectors if model.encoder.identity == index.model and exact else None


def open_searched(on: str, most: int, column: str | None, seed: int) -> Searched:
    """Read the documents of an index or a corpus."""
    import numpy as np

    from contrasent.search.folder import is_any_index
    from contrasent.search.opening import numbered_rows, open_index, resolve_index
    from contrasent.search.records import Records, TableColumns

    random = np.random.default_rng(seed)
    place = resolve_index(on)
    if not is_any_index(place):
        texts = [text for text, _, _ in Records(on, TableColumns(column))]
        if len(texts) <= most:
            return Searched(texts, len(texts))
        chosen = np.sort(random.choice(len(texts), most, replace=False)).tolist()
        return Searched([texts[i] for i in chosen], len(texts))
    if column is not None:
        raise OptionError("--column", column, f"{on} is an index, which has one text per row")
    opened = open_index(place)
    opened.check_finished("compare")
    numbered = numbered_rows(opened, most)
    numbers = numbered.numbers()
    if len(numbers) > most:
        numbers = np.sort(random.choice(numbers, most, replace=False))
    texts = [row.text for row in numbered.rows(numbers)]
    return Searched(texts, len(opened), opened, np.asarray(numbered.vectors[numbers]))


def _open_side(
    name: str, side: str, loading: options.Loading, searched: "Searched"
) -> "TaskEncoder | RemoteModel":
    """A model, an export or a server; the index's own model as the index was made."""
    from contrasent.indexing.models import model_settings
    from contrasent.model.opening import absolute_name
    from contrasent.model.remote import RemoteModel, is_address

    if is_address(name):
        return RemoteModel(name, batch_size=loading.batch_size, option=side.upper())
    index = searched.index
    if index is not None and index.facts.source == absolute_name(name):
        loading = replace(loading, **model_settings(index))
    return options.open_model(name, loading)


def _described(name: str, model: "TaskEncoder | RemoteModel") -> dict[str, Any]:
    """Name, runtime and size of a model; None for what a server does not say."""
    from contrasent.model.opening import find_model
    from contrasent.model.remote import RemoteModel

    if isinstance(model, RemoteModel):
        size = {"dimension": model.dimension, "parameters": None, "bytes": None}
        return {"name": name, "runtime": "server", **size}
    folder = find_model(name)
    inside = (path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in ASIDE)
    weights = getattr(model.encoder, "parameters", None)
    return {
        "name": name,
        "runtime": model.encoder.runtime,
        "dimension": model.encoder.dimension,
        "parameters": None if weights is None else sum(weight.numel() for weight in weights()),
        "bytes": sum(path.stat().st_size for path in inside if path.is_file()),
    }
