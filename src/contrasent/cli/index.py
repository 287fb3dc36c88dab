"""``contrasent index MODEL CORPUS -o INDEX``, ``index INDEX --model NEW`` and ``--remove ID``."""

import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from contrasent.cli import options
from contrasent.cli.adapt import DEFAULT_BASE
from contrasent.cli.index_changes import (
    Mapping,
    change,
    change_model,
    check_change,
    remove_rows,
)
from contrasent.cli.loading import find_model, lasting_name, open_model
from contrasent.errors import MissingExtraError, OptionError, UserError

if TYPE_CHECKING:
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.index import Index
    from contrasent.search.records import Records
    from contrasent.search.store import Facts
    from contrasent.text.tokens import Tokenizer
    from contrasent.types import EncodeFn


@options.command
def index(
    model: str,
    loading: options.Encoding,
    corpus: Annotated[str | None, typer.Argument()] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    new_model: Annotated[str | None, typer.Option("--model", metavar="NEW")] = None,
    mapped: Annotated[bool, typer.Option("--map")] = False,
    map_limit: Annotated[float, typer.Option(min=0, max=1)] = 0.1,
    sample: Annotated[int, typer.Option(min=300)] = 5000,
    column: options.Column = None,
    id_column: Annotated[str | None, typer.Option("--id")] = None,
    metadata: str | None = None,
    metric: str = "cosine",
    uri: str = "",
    collection: str = "contrasent",
    encoded: bool = False,
    word_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    add: bool = False,
    update: bool = False,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="ID")] = None,
    remove_where: Annotated[
        list[str] | None, typer.Option("--remove-where", metavar="CONDITION")
    ] = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Encode a corpus once and keep vectors, texts, ids and metadata in a folder to search.

    Options:
        model: Model folder or name (left out: the default base, or the index's own with --add and
            --update); with --model or --remove the index that changes.
        corpus: File, folder, or - for standard input.
        output: Index folder to make.
        new_model: Give the index the vectors of this model, in place: a run that was killed goes
            on, and the old vectors answer until all are there.
        mapped: With --model: map the vectors linearly instead of encoding.
        map_limit: With --map: stop if more than this share of the ten nearest may be lost.
        sample: With --map: texts to encode, to fit and to measure the map.
        id_column: Column with the ids; row numbers if not given.
        metadata: Columns to keep as metadata: a,b,c; * for all others.
        metric: cosine or dot.
        uri: Keep it in Milvus: http://HOST:19530, or a file NAME.db.
        collection: Name of the collection in Milvus.
        encoded: CORPUS is parquet with vectors in it, as encode writes it: nothing is encoded.
        add: Add to an index that exists.
        update: Replace rows of the same id, add the others.
        remove: Remove the row with this id from an index; can be repeated.
        remove_where: Remove rows whose metadata matches: year<2000, or a JSON filter.
    """
    building = {"CORPUS": corpus, "-o": output, "--add": add or None}
    mapping = Mapping(map_limit, sample) if mapped else None
    if remove or remove_where:
        given = building | {"--model": new_model, "--map": mapped or None}
        return remove_rows(Path(model), remove or [], remove_where or [], given)
    if new_model is not None or mapping is not None:
        return change_model(Path(model), new_model, loading, mapping, building)
    if output is None:
        raise UserError(
            "--output/-o (Index folder to make) is missing; see 'contrasent index --help'"
        )
    from contrasent.search.building import create
    from contrasent.search.checks import check_metric, check_target
    from contrasent.search.opening import in_milvus, index_folder, open_index
    from contrasent.search.ranking import Ranker
    from contrasent.search.store import Facts, is_any_index

    check_metric(metric)
    changing = add or update
    if changing:
        output = index_folder(output)
        others = {"--overwrite": overwrite, "--uri": uri, "--encoded": encoded}
        check_change(others, add=add, update=update, id_column=id_column)
    else:
        if overwrite or not (uri and in_milvus(output)):  # else a load that was killed goes on
            check_target(output, overwrite, is_index=is_any_index(output))
        if uri and find_spec("pymilvus") is None:
            raise MissingExtraError("pymilvus", "milvus", "--uri")
    if corpus is None:
        model, corpus = (open_index(output).facts.source if changing else ""), model
    weight = options.chosen_weight(word_weight, vectors_only)
    if changing and weight is not None:
        raise OptionError("--word-weight", weight, "is chosen when an index is built, or searched")
    rows = _rows(corpus, column, id_column, metadata, encoded=encoded)
    remarks: list[str] = []
    model, usual = _base(model, rows)
    encode = open_model(find_model(model), loading, light=True)
    rows.check(encode.encoder.identity, model)
    began = time.monotonic()
    made: Index
    if changing:
        made = change(output, encode, cast("Records", rows), update=update)
    else:
        if (weight := usual if weight is None else weight) is None:
            weight = _usual(rows, encode.encoder.tokenizer, remarks)
        about = Facts(
            model=encode.encoder.identity,
            source=lasting_name(model),
            metric=metric,
            ranker=Ranker(weight).to_json(),
            settings={"pooler": loading.pooler, "max_tokens": loading.max_tokens},
        )
        if uri:
            made = _in_milvus(output, encode, rows, about, uri, collection)
        else:
            made = create(output, encode, rows, about, overwrite=overwrite)
    seconds = time.monotonic() - began
    facts = {
        "index": str(output),
        "texts": len(made),
        "dimension": made.dimension,
        "metric": made.metric,
        "model": model,
        "identity": made.model,
        "word_weight": made.ranker.word_weight,
        "blank_lines": rows.skipped,
        "truncated": encode.truncated,
        "seconds": round(seconds, 3),
    }
    return options.Output(
        facts,
        f"{output}: {len(made):,} texts, {made.dimension} dimensions, {seconds:.1f} s\n"
        f'search it: contrasent search {output} "..."',
        [*remarks, *options.blank_lines(rows.skipped), *encode.notes],
    )


def _base(model: str, rows: "Records | EncodedRecords") -> tuple[str, float | None]:
    """The model that was named, or the installed base for the texts and the weight of words."""
    from contrasent.model.pretrained import installed_bases
    from contrasent.search.languages import choose_base
    from contrasent.search.ranking import KNOWN_WEIGHT
    from contrasent.search.records import Records

    if model:
        return model, None
    if not isinstance(rows, Records):
        return DEFAULT_BASE, KNOWN_WEIGHT
    chosen = choose_base((text for text, *_ in rows), installed_bases())
    options.note(f"base: {chosen.name}; {chosen.reason}")
    return chosen.name, chosen.fit.word_weight


def _usual(rows: "Records | EncodedRecords", tokenizer: "Tokenizer", remarks: list[str]) -> float:
    """The weight of words: larger where the model does not know the language of the texts."""
    from contrasent.search.languages import fit
    from contrasent.search.ranking import KNOWN_WEIGHT
    from contrasent.search.records import Records

    if not isinstance(rows, Records):
        return KNOWN_WEIGHT
    found = fit((text for text, *_ in rows), tokenizer)
    if not found.known:
        remarks.append(
            f"the model's vocabulary is of another language than the texts ({found.pieces:.1f} "
            f"tokens a word): words count for {found.word_weight:g} of a score (--word-weight)"
        )
    return found.word_weight


def _rows(
    corpus: str, column: str | None, id_column: str | None, metadata: str | None, *, encoded: bool
) -> "Records | EncodedRecords":
    """The rows to index: of any file, or of parquet with their vectors."""
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.records import Records
    from contrasent.text.tables import column as position

    names = [name.strip() for name in metadata.split(",")] if metadata else []
    if encoded:
        return EncodedRecords(corpus, text=column, identity=id_column, metadata=names)
    return Records(
        corpus,
        text=position(column),
        identity=position(id_column),
        metadata=[position(name) for name in names],
    )


def _in_milvus(
    output: Path,
    encode: "EncodeFn",
    rows: "Records | EncodedRecords",
    facts: "Facts",
    uri: str,
    collection: str,
) -> "Index":
    """Load rows into a collection of Milvus."""
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.opening import milvus_index
    from contrasent.search.ranking import Ranker

    given: Iterable[tuple[Any, ...]] = (
        (
            (text, name, extra, vector)
            for block in rows.blocks(facts.metric, 1024)
            for vector, text, name, extra in zip(*block, strict=True)
        )
        if isinstance(rows, EncodedRecords)
        else rows
    )
    made: Index = milvus_index().build(
        output,
        encode,
        given,
        uri=uri,
        collection=collection,
        ranker=Ranker.from_json(facts.ranker),
        model=facts.model,
        source=facts.source,
        metric=facts.metric,
        settings=facts.settings,
    )
    return made
