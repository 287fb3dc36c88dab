"""Documents or a table and a model in, an index out."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from contrasent.documents.folder import Documents, DocumentSource, ReadReport
from contrasent.documents.parsers import TEXT_LIMIT
from contrasent.documents.sections import Document
from contrasent.errors import InputError, OptionError, check_choice, import_extra
from contrasent.indexing import remaining
from contrasent.indexing.following import FileFacts, document_rows, resume_index
from contrasent.indexing.models import LONGEST, SAMPLE, open_base, sampled
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import absolute_name
from contrasent.progress import duration
from contrasent.search.folder import METRICS, check_target, in_milvus
from contrasent.search.index import BaseIndex, Index
from contrasent.search.opening import create
from contrasent.search.ranking import Ranker
from contrasent.search.records import ALL, EncodedRecords, IndexRow, Records, TableColumns
from contrasent.search.store import Facts
from contrasent.search.words import language_of
from contrasent.text.sources import find, form_of
from contrasent.types import Log, several


@dataclass(frozen=True, slots=True)
class IndexInput:
    """Rows to index, the model that encodes them, and the description of their index."""

    rows: Records | EncodedRecords | list[IndexRow]
    model: str
    encode: TaskEncoder
    facts: Facts
    files: dict[str, FileFacts] = field(default_factory=dict)  # for following them later
    report: ReadReport | None = None  # of documents
    notes: tuple[str, ...] = ()  # lines about the model and about skipped files

    def write(
        self,
        output: str | Path,
        *,
        overwrite: bool = False,
        asked: Mapping[str, Any] | None = None,
    ) -> BaseIndex:
        """Encode the rows and write the index; what a killed call encoded is kept.

        With what was asked for nothing is encoded yet, and only BM25 searches the index.
        """
        facts, how = self.facts, dict[str, Any](overwrite=overwrite, asked=asked)
        if asked is not None:
            facts = replace(facts, dimension=self.encode.encoder.dimension)
        return create(output, self.encode, self.rows, facts, documents=self.files, **how)


def read_input(
    source: Documents | Records | EncodedRecords,
    model: str | None = None,
    *,
    pooling: str | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 64,
    metric: str | None = None,
    bm25_weight: float | None = None,
    settings: Mapping[str, Any] | None = None,
    log: Log = lambda line: None,
) -> IndexInput:
    """Read documents or a table, open the model or the base for their language, cut documents."""
    documents = [] if isinstance(source, Records | EncodedRecords) else list(source)
    texts, firsts = document_texts(documents)
    if isinstance(source, Records):
        texts = (text for text, *_ in source)
    opening: dict[str, Any] = {"pooling": pooling, "max_seq_length": max_seq_length}
    sample = sampled(texts, SAMPLE)
    base = open_base(sample, model, firsts=firsts, log=log, batch_size=batch_size, **opening)
    encode, encoder = base.encode, base.encode.encoder
    weight = base.bm25_weight if bm25_weight is None else bm25_weight
    notes = base.remarks if bm25_weight is None else ()
    facts = Facts(
        model=encoder.identity,
        source=absolute_name(base.name),
        metric=metric or encoder.prompts.similarity,
        language=language_of(sample) if sample else "",
        ranker=Ranker(weight).to_json(),
        settings=opening | dict(settings or {}),
    )
    if isinstance(source, Records | EncodedRecords):
        notes = (*notes, *(source.roles if isinstance(source, Records) else ()))
        return IndexInput(source, base.name, encode, facts, notes=notes)
    rows = document_rows(documents, source.files, encoder.count_tokens, encoder.max_seq_length)
    if not rows:
        raise InputError(str(source), "contains no text")
    facts = replace(facts, language=language_of([text for text, *_ in rows]))
    if source.origin is not None:
        facts = replace(facts, origin=source.origin.to_json())
    notes = (*notes, *source.report.column_lines(), *source.report.skipped_lines())
    return IndexInput(rows, base.name, encode, facts, source.files, source.report, notes)


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The outcome of making or changing an index.

    Attributes:
        folder: folder of the index.
        index: the index, opened.
        model: name of its model.
        truncated: number of texts cut at the model's length limit.
        seconds: seconds taken.
        blank_lines: number of rows left out because they have no text.
        documents: what was read and what was skipped; None for a table.
        notes: lines about the model, skipped files and cut texts.
    """

    folder: Path
    index: BaseIndex
    model: str
    truncated: int
    seconds: float
    blank_lines: int = 0
    documents: ReadReport | None = None
    notes: tuple[str, ...] = ()


def index_folder(
    source: str | Path,
    output: str | Path,
    *,
    model: str | Path | None = None,
    pooling: str | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 64,
    max_file_text: int = TEXT_LIMIT,
    column: str | None = None,
    columns: Sequence[str] = (),
    as_text: Sequence[str] = (),
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    gitignore: bool = True,
    encoding: str = "",
    id_column: str | None = None,
    metadata: Sequence[str] = (),
    encoded: bool = False,
    metric: str | None = None,
    bm25_weight: float | None = None,
    uri: str = "",
    collection: str = "contrasent",
    overwrite: bool = False,
    log: Log = lambda line: None,
) -> IndexResult:
    """Make documents or a table searchable, as ``contrasent index SOURCE -o OUTPUT`` does.

    If encoding takes over a minute, the index can be searched by BM25 until it is encoded. A call
    that was stopped resumes where it was when it is repeated. ``contrasent.progress.show("auto")``
    shows the progress of this and all other long work.

    Args:
        source: a folder, an archive or a document; a table or a file of lines, with one text per
            row; "-" for lines on standard input.
        output: the index to make.
        model: folder or name of the model; by default the installed one that suits the language.
        pooling: pooling of a plain encoder, whose folder does not name one.
        max_seq_length: cut texts at this many tokens; the model's own limit if None.
        batch_size: sentences in a forward pass.
        max_file_text: skip documents with more characters.
        column: column of a table's texts, by name or position; by default title and text are found.
        columns: several columns instead, the title first.
        as_text: name patterns of files to read as plain text, such as ``["*.xyz"]``.
        exclude: patterns of files and folders to leave out, as in a .gitignore.
        include: patterns of the only files to read.
        gitignore: leave out what the folder's .gitignore files name.
        encoding: encoding of text that is not UTF-8 and declares none; guessed if empty.
        id_column: column of the ids; row numbers if None.
        metadata: columns to keep as metadata; ``["*"]`` for all others.
        encoded: the source is a parquet file with vectors, as ``contrasent encode`` writes.
        metric: "cosine" or "dot"; the model's own if None.
        bm25_weight: share of BM25 in a score, from 0 to 1; chosen for the language if None.
        uri: keep the rows in Milvus: ``http://HOST:19530``, or a file ``NAME.db``.
        collection: name of the collection in Milvus.
        overwrite: replace an existing index.
        log: called with a line about the choice of the model, and when the index can be searched.

    Raises:
        InputError: the source has no text, or a line of it cannot be read.
        OptionError: an option has an invalid value.
        ModelError: the model cannot be opened, or is not the one of the given vectors.
        OutputError: the output exists or cannot be written.
        MissingExtraError: the package for Milvus or for a file format is not installed.

    Examples:
        >>> from contrasent import index_folder
        >>> made = index_folder("examples/handbook", "my-index")
        >>> made.model, len(made.index)
        ('all-MiniLM-L6-v2', 42)
        >>> made.index.search("who pays for a broken drill?", k=1)[0][0].metadata["document"]
        'tools/damage.md'
    """
    began, target = time.monotonic(), Path(output)
    columns, metadata = several(columns), several(metadata)
    uri = uri if not uri or "://" in uri else str(Path(uri).absolute())
    if metric is not None:
        check_choice("metric", metric, METRICS)
    place = "-" if str(source) == "-" else str(Path(source).absolute())
    settings: dict[str, Any] = {"pooling": pooling, "max_seq_length": max_seq_length}
    name = None if model is None else str(model)
    of_documents: dict[str, Any] = {
        "as_text": several(as_text),
        "exclude": several(exclude),
        "include": several(include),
        "encoding": encoding,
        "gitignore": gitignore,
        "max_file_text": max_file_text,
    }
    of_table = {"column": column, "columns": columns, "id": id_column, "metadata": metadata}
    asked = {"source": place, **settings, **of_documents, **of_table, "encoded": encoded}
    asked |= {"uri": uri, "metric": metric, "bm25_weight": bm25_weight}
    if not overwrite:
        resumed = resume_index(target, name, asked, batch_size=batch_size, log=log)
        if resumed is not None:
            opened, seconds = Index.open(target), time.monotonic() - began
            return IndexResult(target, opened, opened.facts.source, resumed.truncated, seconds)
    if overwrite or not (uri and in_milvus(target)):  # a killed load resumes
        check_target(target, overwrite)
    if uri:
        import_extra("pymilvus", "milvus", "--milvus-uri")
    table = TableColumns(column, tuple(columns), id_column, tuple(metadata), encoded)
    kept: dict[str, Any] = {"uri": uri, "collection": collection} if uri else {}
    given = _open_source(source, table, of_documents)
    if table._replace(encoded=False) != TableColumns():  # for rows that are added later
        kept["table"] = of_table
        if metadata == [ALL] and not isinstance(given, DocumentSource):
            kept["table"] = {**of_table, "all": given.metadata}
    inputs = read_input(
        given,
        name,
        **settings,
        batch_size=batch_size,
        metric=metric,
        bm25_weight=bm25_weight,
        settings=kept,
        log=log,
    )
    seconds = 0.0
    if not isinstance(inputs.rows, EncodedRecords) and not uri and inputs.facts.metric == "cosine":
        encode, seconds = remaining.estimate(inputs.rows, inputs.encode)
        inputs = replace(inputs, encode=encode)
    encode = inputs.encode
    if seconds > remaining.LONG:
        index = inputs.write(target, overwrite=overwrite, asked=asked)
        rest = f"{len(index):,} passages left to encode, about {duration(seconds)}"
        log(f"{target}: BM25 search works now; {rest}; Ctrl-C saves what is encoded")
        index.close()
        remaining.finish(target, encode)
        index = Index.open(target)
    else:
        index = inputs.write(target, overwrite=overwrite)
    skipped = inputs.rows.notes() if isinstance(inputs.rows, Records) else ()
    return IndexResult(
        target,
        index,
        inputs.model,
        encode.truncated,
        time.monotonic() - began,
        getattr(inputs.rows, "skipped", 0),
        inputs.report,
        (*inputs.notes, *encode.notes, *skipped),
    )


def _open_source(
    source: str | Path, table: TableColumns, of_documents: Mapping[str, Any]
) -> DocumentSource | Records | EncodedRecords:
    """Rows of lines, or of a table whose columns are named; of anything else the documents."""
    if table._replace(columns=()) == TableColumns() and not is_lines(source):
        return DocumentSource(source, columns=table.columns or None, **of_documents)
    for name in ("as_text", "exclude", "include", "encoding"):
        if value := of_documents[name]:
            problem = "is for documents; here rows of lines or of a table are read"
            raise OptionError(f"--{name.replace('_', '-')}", value, problem)
    return table.read(str(source))


def is_lines(source: str | Path) -> bool:
    """True if a source has one text per line: documents have blank lines between paragraphs."""
    path = Path(source)
    if str(source) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        return True
    if path.is_file() and form_of(path) == ".txt":
        with suppress(InputError):
            (file,) = find(path)
            lines = [line.isspace() for _, line in islice(file.lines(), 1000)]
            return sum(lines) < len(lines) / 10
    return False


def document_texts(documents: Sequence[Document]) -> tuple[Iterator[str], list[str]]:
    """Texts that show the language of each document, and one text of each of a thousand files."""
    of_files = {document.id.partition("#")[0]: document for document in reversed(documents)}
    return map(_opening, documents), [_opening(one) for one in sampled(of_files.values(), SAMPLE)]


def _opening(document: Document) -> str:
    texts = (text for section in document.sections[:5] for text in section.paragraphs[:5])
    return "\n".join(texts)[:LONGEST]
