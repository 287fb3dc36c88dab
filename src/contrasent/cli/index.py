"""``contrasent index SOURCE -o INDEX``, and with --sync, --model or --remove an INDEX changed."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import OptionError, UserError, import_extra

if TYPE_CHECKING:
    from contrasent.indexing.build import IndexResult


@options.command
def index(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE|INDEX")],
    loading: options.Encoding,
    synced: Annotated[str | None, typer.Argument(metavar="SOURCE")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    model: str | None = None,
    sync: bool = False,
    watch: bool = False,
    checksum: bool = False,
    max_file_text: Annotated[int, typer.Option(min=1, metavar="CHARACTERS")] = 5_000_000,
    column: options.Column = None,
    columns: str | None = None,
    as_text: Annotated[list[str] | None, typer.Option("--as-text", metavar="PATTERN")] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", metavar="PATTERN")] = None,
    include: Annotated[list[str] | None, typer.Option("--include", metavar="PATTERN")] = None,
    no_ignore: bool = False,
    encoding: str = "",
    id_column: Annotated[str | None, typer.Option("--id")] = None,
    metadata: str | None = None,
    metric: str | None = None,
    milvus_uri: str = "",
    milvus_collection: str = "contrasent",
    encoded: bool = False,
    bm25_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    add: bool = False,
    upsert: bool = False,
    listing: Annotated[bool, typer.Option("--list")] = False,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="ID|DOCUMENT")] = None,
    remove_where: Annotated[
        list[str] | None, typer.Option("--remove-where", metavar="CONDITION")
    ] = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Make a folder of documents, a file or a table searchable, and keep the index up to date.

    contrasent index SOURCE -o INDEX reads documents (or the rows of a table) and encodes them.
    Without -o, --sync, --model and --remove change an existing INDEX, and --list [PATTERN] lists
    its documents.

    If encoding takes more than about a minute, BM25 searches the index meanwhile. After Ctrl-C the
    same command, --sync or contrasent serve continues.

    Options:
        source: Folder, zip, document or table to index, - for lines on standard input; or the index
            to change.
        synced: With --sync: where the documents are now, if they moved. With --list: the documents
            to list, such as 'notes/*.md'.
        output: Index folder to create.
        model: Model folder or name; without -o, encode the index again with this model.
        sync: Follow the documents: encode what was added or changed, remove what was deleted.
        checksum: With --sync: compare the contents of all files instead of size and time.
        watch: Repeat --sync whenever documents change, until Ctrl-C; with -o index first.
        max_file_text: Skip files with more text than this many characters.
        columns: Columns of tables to read, separated by commas; title first.
        as_text: Read files with such names, '*.xyz', as plain text; can be repeated.
        exclude: Skip such files or folders, 'drafts/' or '*.log', in .gitignore syntax; can be
            repeated.
        include: Read only files or folders with such names; can be repeated.
        no_ignore: Also read what .gitignore files exclude.
        encoding: Encoding of text that is not UTF-8 and does not declare it. [default: guessed]
        id_column: Column with the ids of a table's rows. [default: row numbers]
        metadata: Columns of a table to store as metadata: a,b,c; * for all others.
        metric: cosine or dot. [default: the model's]
        milvus_uri: Store the index in Milvus: http://HOST:19530, or a file NAME.db.
        milvus_collection: Name of the collection in Milvus.
        encoded: SOURCE is parquet with vectors, as written by encode.
        add: Add the rows of a table to an existing index.
        upsert: Replace rows with the same id, and add the others.
        listing: List the documents of an index with their number of passages.
        remove: Remove the row with this id, or a document; can be repeated.
        remove_where: Remove rows whose metadata matches: year<2000, or a JSON filter.
    """
    folder = Path(source)
    if watch:
        _check_watch(context, source)
    if remove or remove_where:
        options.check_alone(context, "--remove", "source", "remove", "remove_where")
        return _remove_rows(folder, remove or [], remove_where or [])
    if listing:
        options.check_alone(context, "--list", "source", "synced", "listing")
        return _list(folder, synced or "*")
    if sync or (watch and output is None):
        change, other = ("--watch", "watch") if watch else ("--sync", "checksum")
        options.check_alone(context, change, "source", "synced", "sync", "batch_size", other)
        return _sync(folder, synced, loading.batch_size, watch=watch, checksum=checksum)
    lacking = {"checksum": "--sync"} | ({} if milvus_uri else {"milvus_collection": "--milvus-uri"})
    options.check_used(context, lacking)
    if output is None and model is not None:
        changed = ("source", "model", "pooling", "max_seq_length", "batch_size")
        options.check_alone(context, "--model", *changed)
        return _change_model(folder, model, loading)
    if output is None:
        raise UserError(
            "--output/-o (Index folder to make) is missing; see 'contrasent index --help'"
        )
    if synced is not None:
        problem = "is one argument too many; use contrasent index SOURCE -o INDEX --model MODEL"
        raise OptionError("SOURCE", synced, problem)
    weight = options.chosen_weight(bm25_weight, vectors_only)
    common: dict[str, Any] = {"model": model, "column": column, "id_column": id_column}
    common["batch_size"] = loading.batch_size
    common["metadata"], common["columns"] = map(options.listed, (metadata, columns))
    if column is not None and columns:
        raise OptionError("--column", column, "cannot be combined with --columns; list it there")
    if add or upsert:
        change = "upsert" if upsert else "add"
        columns_of = ("column", "columns", "id_column", "metadata")
        allowed = (change, "source", "output", "model", "batch_size", *columns_of)
        options.check_alone(context, f"--{change}", *allowed)
        from contrasent.indexing.changes import add_rows

        return _outcome(output, add_rows(output, source, update=upsert, **common))
    from contrasent.indexing.build import index_folder

    with options.resumable("the same command continues from here"):
        result = index_folder(
            source,
            output,
            max_file_text=max_file_text,
            as_text=as_text or (),
            exclude=exclude or (),
            include=include or (),
            gitignore=not no_ignore,
            encoding=encoding,
            encoded=encoded,
            metric=metric,
            bm25_weight=weight,
            uri=milvus_uri,
            collection=milvus_collection,
            overwrite=overwrite,
            pooling=loading.pooling,
            max_seq_length=loading.max_seq_length,
            log=options.note,
            **common,
        )
    if not watch:
        return _outcome(output, result)
    options.echo(_outcome(output, result).text)
    for line in result.notes:
        options.note(line)
    return _sync(output, None, loading.batch_size, watch=True, checksum=False)


def _check_watch(context: typer.Context, source: str) -> None:
    """Reject, before anything is indexed, what cannot be watched."""
    from contrasent.indexing.build import is_lines

    if context.params["as_json"]:
        raise OptionError("--json", True, "cannot be combined with --watch, which does not end")
    import_extra("watchfiles", "documents", "--watch")
    of_rows = ("encoded", "milvus_uri", "id_column", "column", "metadata")
    if any(context.params[name] for name in of_rows) or is_lines(source):
        raise OptionError("--watch", True, "follows documents, not lines, rows or Milvus")


def _outcome(output: Path, made: "IndexResult") -> options.Output:
    """The output for an index that was made of rows, or has some added."""
    documents = None if made.documents is None else asdict(made.documents)
    facts = {
        "index": str(output),
        "texts": len(made.index),
        "dimension": made.index.dimension,
        "metric": made.index.metric,
        "model": made.model,
        "identity": made.index.model,
        "bm25_weight": made.index.ranker.bm25_weight,
        "blank_lines": made.blank_lines,
        "truncated": made.truncated,
        "documents": documents,
        "seconds": round(made.seconds, 3),
    }
    rows = f"passages of {documents['documents']:,} documents" if documents else "texts"
    size, seconds = f"{made.index.dimension} dimensions", f"{made.seconds:.1f} s"
    line = f"{output}: {len(made.index):,} {rows}, {size}, {seconds}"
    line += f'\nsearch it: contrasent search {output} "..."'
    return options.Output(facts, line, made.notes)


def _change_model(folder: Path, model: str, loading: options.Loading) -> options.Output:
    """Encode the texts of an index again."""
    from contrasent.indexing.changes import change_model
    from contrasent.indexing.following import own_folder
    from contrasent.search.index import Index

    with closing(Index.open(own_folder(folder))) as index:
        former = index.model
    new = change_model(
        folder,
        model,
        pooling=loading.pooling,
        max_seq_length=loading.max_seq_length,
        batch_size=loading.batch_size,
    )
    facts = {"index": str(new.folder), "texts": len(new.index)}
    facts |= {"dimension": new.index.dimension, "model": model, "identity": new.index.model}
    facts |= {"former": former, "truncated": new.truncated, "seconds": round(new.seconds, 3)}
    line = f"{new.folder}: {len(new.index):,} texts encoded again with {model}, {new.seconds:.1f} s"
    return options.Output(facts, line, new.notes)


def _remove_rows(folder: Path, ids: list[str], where: list[str]) -> options.Output:
    """Remove rows by id or by metadata."""
    from contrasent.indexing.changes import remove_rows
    from contrasent.search.filters import parse_where

    removed, left, files = remove_rows(folder, ids, parse_where(where))
    line = f"{folder}: {removed:,} rows removed, {left:,} left"
    if files:
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        line += f"; --sync skips them until {', '.join(files[:3])}{more} changes"
    facts = {"index": str(folder), "removed": removed, "texts": left, "files": list(files)}
    return options.Output(facts, line)


def _list(folder: Path, pattern: str) -> options.Output:
    """The documents of an index, one per line."""
    from contrasent.indexing.contents import list_documents

    documents = list_documents(folder, pattern)
    lines = [f"{entry['rows']:6,}  {entry['document']}" for entry in documents]
    total = sum(entry["rows"] for entry in documents)
    lines.append(f"{len(documents):,} documents, {total:,} rows")
    return options.Output({"index": str(folder), "documents": documents}, "\n".join(lines))


def _sync(
    folder: Path,
    source: str | None,
    batch_size: int,
    *,
    watch: bool,
    checksum: bool,
) -> options.Output:
    """Make an index true to its documents, once or until Ctrl-C."""
    from contrasent.indexing.following import own_folder, sync_index, watch_index

    folder = own_folder(folder)
    began = time.monotonic()
    if watch:
        warn = lambda line: _tell(options.note, f"contrasent: {line}")  # noqa: E731
        for outcome in watch_index(folder, source, batch_size=batch_size, log=warn):
            _tell(options.echo, f"{time.strftime('%H:%M:%S')} {folder}: {outcome}")
            for line in outcome.notes:
                _tell(options.note, line)
    with options.resumable("the same command continues from here"):
        outcome = sync_index(folder, source, batch_size=batch_size, checksum=checksum)
    facts = asdict(outcome)
    facts["skipped"] = facts.pop("report")["skipped"]
    del facts["notes"]
    facts |= {"index": str(folder), "seconds": round(time.monotonic() - began, 3)}
    return options.Output(facts, f"{folder}: {outcome}", outcome.notes)


def _tell(say: Callable[[str], None], line: str) -> None:
    """Print a line of a watch, which a log on a full disk does not end."""
    try:
        say(line)
    except BrokenPipeError:  # nobody reads on
        raise
    except OSError:
        pass
