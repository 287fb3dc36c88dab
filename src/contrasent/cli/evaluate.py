"""``contrasent evaluate MODEL...`` and ``contrasent evaluate --list``."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import OptionError, UserError, check_choice

if TYPE_CHECKING:
    from contrasent.evaluate.suite import Options
    from contrasent.report import Report
    from contrasent.types import EncodeFn
SUITE_OF = {
    **dict.fromkeys(("task", "split", "aggregate", "subsets"), "sts"),
    "protocol": "protocols",
    "seeds": "transfer",
    "captions": "retrieval",
}
"""The options of a single suite."""
UserEvaluation = Callable[["EncodeFn", int], "Report"]
"""A user's own data, read and checked: measures a model on them with this many resamples."""


@options.command
def evaluate(
    context: typer.Context,
    loading: options.Running,
    models: Annotated[list[str] | None, typer.Argument(metavar="MODEL|INDEX...")] = None,
    suite: list[str] | None = None,
    data: options.DataFolder = None,
    form: options.StsForm = "senteval",
    task: options.StsTask = None,
    split: options.StsSplit = "test",
    aggregate: list[str] | None = None,
    protocol: list[str] | None = None,
    subsets: bool = False,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    captions: Annotated[int, typer.Option(min=0)] = 5000,
    pairs: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,SCORE")] = None,
    collection: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    own_ids: bool = False,
    bm25_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    stop_words: bool = False,
    resamples: Annotated[int, typer.Option(min=0)] = 1000,
    json_file: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    report_file: Annotated[Path | None, typer.Option("--report", metavar="FILE")] = None,
    list_: Annotated[bool, typer.Option("--list")] = False,
) -> None:
    """Evaluate models: similarity, transfer, geometry, retrieval and bias, with 95 % intervals.

    Options:
        models: Model folders or names, GloVe text files, or indexes to search (--collection).
        suite: sts, protocols, transfer, geometry, retrieval, bias, paraphrase, triplets,
            clustering, few-shot or all; can be repeated.
        aggregate: all, mean or wmean; can be repeated.
        protocol: For --suite protocols: a protocol by name, such as senteval; can be repeated.
        subsets: Add a row for each STS subset.
        seeds: Runs of the transfer classifier, each with different folds.
        captions: Flickr30k captions to search, from the end; 0 for all.
        pairs: Your own labeled pairs: csv, tsv, jsonl or parquet; can be repeated.
        columns: For --pairs: two texts and a number by name, or by position from 0 without a
            header.
        collection: Your own retrieval set, in BEIR's layout; for an index, the answers are its
            rows, or the documents named in their metadata.
        own_ids: For --collection: also rank a document with the query's own id.
        stop_words: Also average GloVe's vectors of stop words.
        resamples: Bootstrap resamples of the 95 % intervals; 0 for none.
        json_file: Write the report as JSON; a second file has the scores of the items, for compare.
        report_file: Write a page with pictures.
        list_: List the named datasets, where each is or belongs, and the suites that can run here.
    """
    from contrasent.datasets.official import STS_TASKS
    from contrasent.evaluate.protocols import PROTOCOLS
    from contrasent.evaluate.suite import Options, evaluate_model, suite_names
    from contrasent.evaluate.vectors import Cached
    from contrasent.indexing.searching import evaluate_index
    from contrasent.report import Report, write_reports

    if list_:
        _show_data(data, form, json_file)
        return
    if not models:
        raise UserError(
            "MODEL is missing (model folders, names, GloVe text files or indexes); see "
            "'contrasent evaluate --help'"
        )
    suites = suite_names(suite or ["sts"]) if suite or not (pairs or collection) else ()
    chosen = Options(
        form=form,
        tasks=tuple(task or STS_TASKS),
        aggregate=tuple(aggregate or ["all"]),
        split=split,
        protocols=tuple(protocol or PROTOCOLS),
        subsets=subsets,
        seeds=tuple(range(1111, 1111 + seeds)),
        captions=captions,
        resamples=resamples,
        folder=data,
    )
    weight = options.chosen_weight(bm25_weight, vectors_only)
    indexes = _check_indexes(models, weight, collection, bool(suites or pairs))
    others = [model for model in models if model not in indexes]
    lacking = {name: f"--suite {one}" for name, one in SUITE_OF.items() if one not in suites}
    if collection is None:
        lacking["own_ids"] = "--collection"
    if not any(Path(model).is_file() for model in others):
        lacking["stop_words"] = "a text file of GloVe"
    if not others:
        lacking |= dict.fromkeys(("pooling", "max_seq_length"), "a model; an index has its own")
    options.check_used(context, lacking)
    user_evaluations = [
        *labeled_evaluations(pairs or [], columns),
        *judged_evaluations(collection, own_ids, others),
    ]
    _check_before(models, others, suites, chosen, report_file, json_file)
    reports_of: dict[str, Report] = {}
    for model in models:
        notes, more = list[str](), dict[str, Any]()
        if model in indexes and collection is not None:
            reports_of[model] = evaluate_index(
                model,
                collection,
                bm25_weight=weight,
                own_ids=own_ids,
                runtime=loading.runtime,
                batch_size=loading.batch_size,
                resamples=resamples,
            )
            notes += [line for name, line in reports_of[model].notes.items() if name == "cut"]
        else:
            encode, tokens = _load(model, loading, stop_words)
            settings, cached = replace(chosen, tokens=tokens), Cached(encode)
            reports = [evaluate_model(cached, suites, settings)] if suites else []
            reports += [measure(encode, resamples) for measure in user_evaluations]
            reports_of[model] = Report.join(reports)
            notes = getattr(encode, "notes", [])
            if report_file is not None:
                more = _for_page(model, cached, suites, chosen)
        options.echo(f"{model}\n{reports_of[model].table()}\n")
        for line in notes:
            options.note(line)
        reports_of[model] = replace(reports_of[model], notes={**reports_of[model].notes, **more})
        if json_file is not None:  # what an error of the next model does not lose
            write_reports(json_file, reports_of)
    if report_file is not None:
        from contrasent.evaluate.page import page
        from contrasent.files import write_text

        write_text(report_file, page(reports_of))
        options.note(f"wrote {report_file}")


def _show_data(folder: Path | None, form: str, json_file: Path | None) -> None:
    """Print, or write as JSON, the named data sets and the suites that lack some of them."""
    from contrasent.datasets.official import FORMS, data_sets
    from contrasent.evaluate.suite import SUITES, missing_data
    from contrasent.files import write_json

    check_choice("--form", form, FORMS)
    located = [(data_set, data_set.locate(folder)) for data_set in data_sets()]
    missing = missing_data(folder, form)
    if json_file is not None:
        data = [
            {"name": o.name, "kind": o.kind, "rows": o.rows, "hub": o.hub, "places": places}
            for o, places in located
        ]
        suites = [
            {"name": name, "data": SUITES[name].data, "missing": lacking}
            for name, lacking in missing.items()
        ]
        write_json(json_file, {"data": data, "form": form, "suites": suites})
        options.note(f"wrote {json_file}")
        return
    for data_set, places in located:
        rows = ", ".join(f"{split} {count:,}" for split, count in data_set.rows.items())
        options.echo(f"{data_set.name:10}  {data_set.kind:10}  {rows}".rstrip())
        for its, place in places.items():
            absent = f"missing; put it at {data_set.places[its][0]} in the folder CONTRASENT_DATA"
            options.echo(f"{'':12}{its + ': ' if its else ''}{place or absent}")
    for name, lacking in missing.items():
        options.echo(f"--suite {name}: {'missing ' + ', '.join(lacking) if lacking else 'ready'}")


def _check_before(
    models: list[str],
    others: list[str],
    suites: tuple[str, ...],
    chosen: "Options",
    report_file: Path | None,
    json_file: Path | None,
) -> None:
    """Everything cheap that can go wrong, before a model is loaded."""
    from contrasent.datasets.official import FORMS
    from contrasent.evaluate.protocols import PROTOCOLS
    from contrasent.evaluate.sts import AGGREGATES
    from contrasent.evaluate.suite import read_data
    from contrasent.files import check_file
    from contrasent.model.opening import find_model

    if len(set(models)) < len(models):
        raise OptionError("MODEL", " ".join(models), "names a model twice")
    check_choice("--form", chosen.form, FORMS)
    for name in chosen.aggregate:
        check_choice("--aggregate", name, AGGREGATES)
    for name in chosen.protocols:
        check_choice("--protocol", name, PROTOCOLS)
    for target in (report_file, json_file):
        if target is not None:
            check_file(target)
    if report_file is not None:
        from contrasent.pictures import check_matplotlib

        check_matplotlib()
    for model in others:
        if not Path(model).is_file():
            find_model(model)
    read_data(suites, chosen)


def _check_indexes(
    models: list[str], weight: float | None, collection: Path | None, others: bool
) -> list[str]:
    """The indexes among what is measured; they are searched."""
    from contrasent.search.folder import is_any_index
    from contrasent.search.opening import resolve_index

    # The folder that adapt writes is a model with an index in it: here it is a model.
    indexes = [
        model
        for model in models
        if is_any_index(resolve_index(model)) and not (Path(model) / "modules.json").is_file()
    ]
    if indexes and collection is None:
        raise UserError(f"{indexes[0]}: to evaluate an index, add --collection FOLDER")
    if indexes and others:
        raise UserError(f"{indexes[0]}: is an index; --suite and --pairs evaluate models")
    if weight is not None and not indexes:
        raise OptionError("--bm25-weight", weight, "applies only to an index")
    return indexes


def _load(
    model: str, loading: options.Loading, stop_words: bool
) -> tuple["EncodeFn", Callable[[str], int] | None]:
    """A model of any kind, and what counts its tokens; None for word vectors."""
    if Path(model).is_file():
        from contrasent.postprocess import Glove

        return Glove.load(Path(model), stop_words=stop_words), None
    opened = options.open_model(model, loading)
    marks = sum(map(len, opened.encoder.tokenizer.frame))  # at both ends, which are not counted

    @cache
    def count(sentence: str) -> int:
        return int(opened.encoder.tokenize([sentence])[0].lengths[0]) - marks

    return opened, count


def labeled_evaluations(files: list[Path], columns: str | None) -> Iterator[UserEvaluation]:
    """The evaluation on the user's own labeled pairs, if there are any."""
    if columns is not None and not files:
        raise OptionError("--columns", columns, "needs --pairs")
    if len({path.stem for path in files}) < len(files):
        names = " ".join(map(str, files))
        raise OptionError("--pairs", names, "file names without their endings must be distinct")
    if not files:
        return
    from contrasent.evaluate.sts import check_pairs, several_pairs
    from contrasent.text.corpus import read_labeled_pairs

    labeled = {}
    for path in files:
        read = read_labeled_pairs(path, columns=options.column_list(columns))
        labeled[path.stem] = check_pairs(read.first, read.second, read.scores, path.stem)
    yield lambda encode, number: several_pairs(encode, labeled, resamples=number)


def judged_evaluations(
    folder: Path | None, own_ids: bool, models: list[str]
) -> Iterator[UserEvaluation]:
    """The evaluation on the user's own collection, if there is one and a model to measure."""
    if folder is None or not models:
        return
    from contrasent.datasets.beir import read_collection
    from contrasent.evaluate.retrieval import folder_retrieval

    collection = read_collection(folder)
    yield lambda encode, number: folder_retrieval(
        encode, folder, own_ids=own_ids, found=collection, resamples=number
    )


def _for_page(
    model: str, encode: "EncodeFn", suites: tuple[str, ...], chosen: "Options"
) -> dict[str, Any]:
    """Notes for the page alone: nearest captions to a few, and the geometry during training."""
    notes: dict[str, Any] = {}
    if "retrieval" in suites:
        from contrasent.datasets.labeled import flickr30k
        from contrasent.evaluate.retrieval import nearest_documents

        captions = flickr30k(folder=chosen.folder).last(chosen.captions).texts
        queries = captions[:: max(1, len(captions) // 5)][:5]
        notes["listing"] = [list(pair) for pair in nearest_documents(encode, queries, captions)]
    if "geometry" in suites:
        from contrasent.train.run import trajectory

        if path := trajectory(Path(model)):
            notes["trajectory"] = path
    return notes
