"""Changes of an existing index: rows that are added, updated or removed, or another model."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.cli.loading import open_model
from contrasent.errors import MissingExtraError, OptionError, OutputError, UserError

if TYPE_CHECKING:
    from contrasent.model.base import TaskEncoder
    from contrasent.search.index import Index
    from contrasent.search.records import EncodedRecords, Records


def change_model(
    folder: Path, model: str, loading: options.Loading, others: dict[str, Any]
) -> options.Output:
    """Re-embed an index in place; ``others``: options of other changes."""
    _check_alone("--model", others)
    from contrasent.model.opening import absolute_name
    from contrasent.search.building import reembed
    from contrasent.search.index import Index

    folder = _own_vectors(folder)
    former = Index.open(folder).model
    encode = open_model(model, loading, light=True)
    began = time.monotonic()
    made = reembed(
        folder,
        encode,
        model=encode.encoder.identity,
        source=absolute_name(model),
        settings={"pooler": loading.pooler, "max_tokens": loading.max_tokens},
    )
    seconds = time.monotonic() - began
    facts = {"index": str(folder), "texts": len(made), "dimension": made.dimension}
    facts |= {"model": model, "identity": made.model, "former": former}
    facts |= {"truncated": encode.truncated, "seconds": round(seconds, 3)}
    line = f"{folder}: {len(made):,} texts encoded anew by {model}, {seconds:.1f} s"
    return options.Output(facts, line, encode.notes)


def _own_vectors(folder: Path) -> Path:
    """The folder of an index whose vectors are in it."""
    from contrasent.search.folder import in_milvus
    from contrasent.search.opening import index_folder

    folder = index_folder(folder)
    if in_milvus(folder):
        raise OutputError(f"{folder}: is in Milvus; build it anew with 'contrasent index'")
    return folder


def _check_alone(change: str, others: dict[str, Any]) -> None:
    """Reject options that do not go with a change of an index in place."""
    for option, value in others.items():
        if value:
            problem = f"does not go with {change}; see 'contrasent index --help'"
            raise OptionError(option, str(value), problem)


def remove_rows(
    folder: Path, ids: list[str], where: list[str], others: dict[str, Any]
) -> options.Output:
    """Remove rows by id or by metadata, in one commit; ``others``: options of other changes."""
    _check_alone("--remove", others)
    from contrasent.search.filters import parse_where
    from contrasent.search.opening import open_writer

    condition = parse_where(where)
    with open_writer(folder) as writer:
        count = writer.delete(ids) if ids else 0
        if condition is not None:
            count += writer.delete_where(condition)
        left = len(writer)
    return options.Output(
        {"index": str(folder), "removed": count, "texts": left},
        f"{folder}: {count:,} rows removed, {left:,} left",
    )


def sync_index(
    folder: Path,
    source: str | None,
    loading: options.Loading,
    others: dict[str, Any],
    *,
    watch: bool,
) -> options.Output:
    """Make an index true to its documents, once or until Ctrl-C."""
    _check_alone("--watch" if watch else "--sync", others)
    follow = _Following(_own_vectors(folder), source, loading)
    if watch:
        follow.watch()
    return follow.sync()


class _Following:
    """An index that follows its documents; the model is loaded when something is to be encoded."""

    def __init__(self, folder: Path, source: str | None, loading: options.Loading) -> None:
        self.folder, self.source, self.loading = folder, source, loading
        self.encode: TaskEncoder | None = None

    def sync(self) -> options.Output:
        """Apply what was added, changed or deleted, in one transaction."""
        from contrasent.indexing.models import open_index_model
        from contrasent.search.index import Index
        from contrasent.search.sync import Outcome, compare, find_source, synchronise

        began = time.monotonic()
        with closing(Index.open(self.folder)) as index:
            source = find_source(index.facts.origin, self.folder, self.source)
            changes = compare(index.files(), source)
            outcome = Outcome(0, 0, 0, changes.unchanged, len(index))
            busy = not changes.none or index.facts.origin != source.origin
            if busy and self.encode is None:
                self.encode = open_index_model(index, batch=self.loading.batch)
        if busy and (encode := self.encode) is not None:
            most, model = encode.encoder.max_tokens, encode.encoder.identity
            with options.resumable("the same command goes on with what is encoded"):
                outcome = synchronise(
                    self.folder,
                    source,
                    encode,
                    encode.encoder.count_tokens,
                    max_tokens=most,
                    model=model,
                )
        facts = outcome._asdict() | {
            "index": str(self.folder),
            "skipped": asdict(source.report)["skipped"],
            "seconds": round(time.monotonic() - began, 3),
        }
        notes = source.report.skipped_lines() if busy else []
        return options.Output(facts, f"{self.folder}: {outcome}", notes)

    def watch(self) -> None:
        """Go on as documents change, until Ctrl-C."""
        from contrasent.search.index import Index
        from contrasent.search.sync import find_source

        if find_spec("watchfiles") is None:
            raise MissingExtraError("watchfiles", "documents", "--watch")
        from watchfiles import watch

        with closing(Index.open(self.folder)) as index:
            path = find_source(index.facts.origin, self.folder, self.source).source.resolve()
        own = self.folder.resolve()

        def counts(_: object, changed: str) -> bool:
            place = Path(changed)
            if not place.is_relative_to(path) or place.is_relative_to(own):
                return False
            return not any(part.startswith(".") for part in place.relative_to(path).parts)

        first = True
        # The first wait ends at once, with the watcher at work: no change falls between.
        for changes in watch(path, watch_filter=counts, rust_timeout=1000, yield_on_timeout=True):
            if changes or first:
                first = False
                try:
                    outcome = self.sync()
                except UserError as error:  # the documents may come back
                    options.note(f"contrasent: {error}")
                    continue
                typer.echo(f"{time.strftime('%H:%M:%S')} {outcome.text}")
                for line in outcome.notes:
                    options.note(line)


class TableOptions(NamedTuple):
    """Options that are for tables alone."""

    column: str | None
    identity: str | None
    metadata: str | None
    encoded: bool

    @property
    def given(self) -> bool:
        """Whether any of them is given: then a folder's tables are read, not its documents."""
        return self != TableOptions(None, None, None, False)

    def rows(self, source: str) -> "Records | EncodedRecords":
        """The rows of any table, or of parquet with their vectors."""
        from contrasent.search.records import EncodedRecords, Records
        from contrasent.text.tables import column

        names = [name.strip() for name in self.metadata.split(",")] if self.metadata else []
        if self.encoded:
            return EncodedRecords(source, text=self.column, identity=self.identity, metadata=names)
        text, identity = column(self.column), column(self.identity)
        return Records(
            source, text=text, identity=identity, metadata=[column(one) for one in names]
        )


def change_rows(
    source: str,
    output: Path,
    model: str | None,
    loading: options.Loading,
    table: TableOptions,
    others: dict[str, Any],
    *,
    update: bool,
) -> options.Output:
    """Add the rows of a table, or replace those of the same ids; in one commit, but for Milvus.

    ``others``: options of other changes, and of a new index.
    """
    _check_alone("--update" if update else "--add", others)
    if update and table.identity is None:
        raise OptionError("--update", True, "needs --id COLUMN, to know which rows to replace")
    from contrasent.search.opening import index_folder, open_index, open_writer
    from contrasent.search.records import blocks
    from contrasent.search.store import ROWS_AT_ONCE

    output = index_folder(output)
    before = open_index(output)
    name, rows = model or before.facts.source, table.rows(source)
    encode = open_model(name, loading, light=True)
    began = time.monotonic()
    before.check_model(encode.encoder.identity, "the model")
    with open_writer(output) as writer, progress.task("index", unit="texts") as advance:
        for texts, ids, metadata, _ in blocks(rows, ROWS_AT_ONCE):
            if update:
                writer.update(texts, encode, ids=ids, metadata=metadata)
            else:
                numbered = table.identity is None
                writer.add(texts, encode, ids=None if numbered else ids, metadata=metadata)
            advance(len(texts))
    return outcome(output, open_index(output), name, encode, rows, began)


def outcome(
    output: Path,
    made: "Index",
    model: str,
    encode: "TaskEncoder",
    rows: Any,
    began: float,
    documents: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> options.Output:
    """The output of a command that made an index of rows, or has added some."""
    blank, seconds = getattr(rows, "skipped", 0), time.monotonic() - began
    facts = {
        "index": str(output),
        "texts": len(made),
        "dimension": made.dimension,
        "metric": made.metric,
        "model": model,
        "identity": made.model,
        "word_weight": made.ranker.word_weight,
        "blank_lines": blank,
        "truncated": encode.truncated,
        "documents": documents,
        "seconds": round(seconds, 3),
    }
    what = f"passages of {documents['documents']:,} documents" if documents else "texts"
    line = f"{output}: {len(made):,} {what}, {made.dimension} dimensions, {seconds:.1f} s"
    line += f'\nsearch it: contrasent search {output} "..."'
    return options.Output(facts, line, [*notes, *options.blank_lines(blank), *encode.notes])
