"""``contrasent index SOURCE -o INDEX``, and with --sync, --model or --remove an INDEX changed."""

import time
from dataclasses import asdict
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import index_changes, options
from contrasent.errors import MissingExtraError, OptionError, UserError, check_choice

if TYPE_CHECKING:
    from contrasent.search.records import EncodedRecords, IndexRow


@options.command
def index(
    source: Annotated[str, typer.Argument(metavar="SOURCE|INDEX")],
    loading: options.Encoding,
    synced: Annotated[str | None, typer.Argument(metavar="SOURCE")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    model: str | None = None,
    sync: bool = False,
    watch: bool = False,
    max_file_text: Annotated[int, typer.Option(min=1, metavar="CHARACTERS")] = 5_000_000,
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
    """Make a folder of documents, a file or a table searchable, and keep the index up to date.

    contrasent index SOURCE -o INDEX reads documents (or the rows of a table) and encodes them; with
    --sync, --model or --remove, and no -o, an INDEX that exists is changed.

    Options:
        source: Folder, zip, document or table to index, - for lines on standard input; or the
            index to change.
        synced: With --sync: where the documents are now, if they have moved.
        output: Index folder to make.
        model: Model folder or name; without -o the model whose vectors the index gets, in place.
        sync: Follow the documents: encode what was added or changed, remove what was deleted.
        watch: Go on with --sync whenever documents change, until Ctrl-C.
        max_file_text: Leave out files with more text than so many characters.
        id_column: Column with the ids of a table's rows; row numbers if not given.
        metadata: Columns of a table to keep as metadata: a,b,c; * for all others.
        metric: cosine or dot.
        uri: Keep it in Milvus: http://HOST:19530, or a file NAME.db.
        collection: Name of the collection in Milvus.
        encoded: SOURCE is parquet with vectors in it, as encode writes it: nothing is encoded.
        add: Add the rows of a table to an index that exists.
        update: Replace rows of the same id, add the others.
        remove: Remove the row with this id from an index; can be repeated.
        remove_where: Remove rows whose metadata matches: year<2000, or a JSON filter.
    """
    building: dict[str, Any] = {"SOURCE": synced, "-o": output, "--add": add}
    if remove or remove_where:
        given = building | {"--model": model}
        return index_changes.remove_rows(Path(source), remove or [], remove_where or [], given)
    if sync or watch:
        given = {"-o": output, "--model": model, "--add": add}
        return index_changes.sync_index(Path(source), synced, loading, given, watch=watch)
    if output is None and model is not None:
        return index_changes.change_model(Path(source), model, loading, building)
    if output is None:
        raise UserError(
            "--output/-o (Index folder to make) is missing; see 'contrasent index --help'"
        )
    if synced is not None:
        problem = "is one too many: contrasent index SOURCE -o INDEX --model MODEL"
        raise OptionError("SOURCE", synced, problem)
    table = index_changes.TableOptions(column, id_column, metadata, encoded)
    weight = options.chosen_weight(word_weight, vectors_only)
    if add or update:
        given = {"--add": add and update, "--overwrite": overwrite, "--uri": uri}
        given |= {"--encoded": encoded, "--word-weight": weight is not None}
        return index_changes.change_rows(
            source, output, model, loading, table, given, update=update
        )
    from contrasent.documents.folder import DocumentSource, is_table
    from contrasent.indexing.models import open_base
    from contrasent.search.building import create
    from contrasent.search.folder import METRICS
    from contrasent.search.languages import SAMPLE
    from contrasent.search.ranking import Ranker
    from contrasent.search.records import Records
    from contrasent.search.store import Facts
    from contrasent.search.sync import document_rows, first_paragraphs

    check_choice("metric", metric, METRICS)
    _check_output(output, uri, overwrite)
    began = time.monotonic()
    rows: Records | EncodedRecords | list[IndexRow]
    if table.given or is_table(source):
        rows, documents = table.rows(source), None
        texts = [text for text, *_ in islice(rows, SAMPLE)] if isinstance(rows, Records) else []
    else:
        documents = DocumentSource(source, most=max_file_text)
        read = list(documents)
        texts = list(islice(first_paragraphs(read), SAMPLE))
    settings: dict[str, Any] = {"pooler": loading.pooler, "max_tokens": loading.max_tokens}
    base = open_base(texts, model, log=options.note, batch=loading.batch, **settings)
    encode, encoder = base.encode, base.encode.encoder
    remarks = list(base.remarks) if weight is None else []
    if documents:
        rows = document_rows(read, documents.files, encoder.count_tokens, encoder.max_tokens)
        remarks += documents.report.skipped_lines()
    facts = Facts(
        model=encoder.identity,
        source=base.source,
        metric=metric,
        ranker=Ranker(base.word_weight if weight is None else weight).to_json(),
        settings=settings | ({"uri": uri, "collection": collection} if uri else {}),
        origin=documents.origin if documents else {},
    )
    with options.resumable("the same command goes on with what is encoded"):
        files = documents.files if documents else None
        made = create(output, encode, rows, facts, overwrite=overwrite, documents=files)
    report = asdict(documents.report) if documents else None
    return index_changes.outcome(output, made, base.name, encode, rows, began, report, remarks)


def _check_output(output: Path, uri: str, overwrite: bool) -> None:
    """Reject, before any work, a target that cannot be written."""
    from contrasent.search.folder import check_target, in_milvus

    # A load into Milvus that was killed goes on.
    if overwrite or not (uri and in_milvus(output)):
        check_target(output, overwrite)
    if uri and find_spec("pymilvus") is None:
        raise MissingExtraError("pymilvus", "milvus", "--uri")
