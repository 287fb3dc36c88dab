"""``contrasent index SOURCE -o INDEX``, and with --sync, --model or --remove an INDEX changed."""

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import index_changes, options
from contrasent.cli.adapt import DEFAULT_BASE
from contrasent.cli.loading import find_model, lasting_name, open_model
from contrasent.errors import MissingExtraError, OptionError, UserError, check_choice

if TYPE_CHECKING:
    from contrasent.cli.loading import Counting
    from contrasent.documents.folder import DocumentSource
    from contrasent.documents.sections import Document
    from contrasent.model.prompts import Model
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.index import Index
    from contrasent.search.records import IndexRow, Records
    from contrasent.search.store import Facts

    Rows = Records | EncodedRecords | list[IndexRow]


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
    building = {"SOURCE": synced, "-o": output, "--add": add or None}
    if remove or remove_where:
        given = building | {"--model": model}
        return index_changes.remove_rows(Path(source), remove or [], remove_where or [], given)
    if sync or watch:
        given = {"-o": output, "--model": model, "--add": add or None}
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
        others = {"--overwrite": overwrite, "--uri": uri, "--encoded": encoded}
        others["--word-weight"] = weight is not None
        index_changes.check_change(others, add=add, update=update, id_column=id_column)
        return index_changes.change_rows(source, output, model, loading, table, update=update)
    place = _Place(output, uri, collection, overwrite)
    return _Build(place, model, loading, table, metric, weight).run(source, max_file_text)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an index is made."""

    output: Path
    uri: str
    collection: str
    overwrite: bool

    def check(self) -> None:
        """Reject, before any work, a target that cannot be written."""
        from contrasent.search.checks import check_target
        from contrasent.search.folder import in_milvus, is_any_index

        # A load into Milvus that was killed goes on.
        if self.overwrite or not (self.uri and in_milvus(self.output)):
            check_target(self.output, self.overwrite, is_index=is_any_index(self.output))
        if self.uri and find_spec("pymilvus") is None:
            raise MissingExtraError("pymilvus", "milvus", "--uri")


@dataclass(frozen=True, slots=True)
class _Build:
    """A new index."""

    place: _Place
    model: str | None
    loading: options.Loading
    table: index_changes.TableOptions
    metric: str
    weight: float | None

    def run(self, source: str, max_file_text: int) -> options.Output:
        """Read, encode and write."""
        from contrasent.documents.folder import is_table, open_documents
        from contrasent.search.checks import METRICS

        check_choice("metric", self.metric, METRICS)
        self.place.check()
        if self.table.given or is_table(source):
            return self._of_table(self.table.rows(source))
        return self._of_documents(open_documents(source, most=max_file_text))

    def _of_table(self, rows: "Records | EncodedRecords") -> options.Output:
        from contrasent.search.records import Records

        began = time.monotonic()
        texts = (text for text, *_ in rows) if isinstance(rows, Records) else None
        name, encode, weight, remarks = self._open(texts)
        rows.check(encode.encoder.identity, name)
        made = self._make(rows, name, encode, weight)
        outcome = self._outcome(made, "texts", name, encode, rows.skipped, None, began)
        remarks += [*options.blank_lines(rows.skipped), *encode.notes]
        return outcome._replace(notes=remarks)

    def _of_documents(self, source: "DocumentSource") -> options.Output:
        from contrasent.search.sync import document_rows

        began = time.monotonic()
        documents = list(source)
        name, encode, weight, remarks = self._open(_first_paragraphs(documents))
        limit = encode.encoder.max_tokens
        rows = document_rows(documents, source.files, index_changes.token_counter(encode), limit)
        made = self._make(rows, name, encode, weight, source)
        what = f"passages of {source.report.documents:,} documents"
        outcome = self._outcome(made, what, name, encode, 0, asdict(source.report), began)
        remarks += [*source.report.skipped_lines(), *encode.notes]
        return outcome._replace(notes=remarks)

    def _open(
        self, texts: "Iterable[str] | None"
    ) -> "tuple[str, Counting[Model], float, list[str]]":
        """The model that was named, or the installed base for the texts; the weight of words."""
        from contrasent.model.pretrained import installed_bases
        from contrasent.search.languages import choose_base, fit
        from contrasent.search.ranking import KNOWN_WEIGHT

        name, weight, remarks = self.model, self.weight, list[str]()
        if name is None and texts is not None:
            chosen = choose_base(texts, installed_bases())
            name, weight = chosen.name, chosen.fit.word_weight if weight is None else weight
            options.note(f"base: {name}; {chosen.reason}")
        name = name or DEFAULT_BASE
        encode = open_model(find_model(name), self.loading, light=True)
        if weight is None and texts is not None:
            found = fit(texts, encode.encoder.tokenizer)
            weight = found.word_weight
            if not found.known:
                remarks.append(
                    "the model's vocabulary is of another language than the texts "
                    f"({found.pieces:.1f} tokens a word): words count for {weight:g} of a score "
                    "(--word-weight)"
                )
        return name, encode, KNOWN_WEIGHT if weight is None else weight, remarks

    def _make(
        self,
        rows: "Rows",
        name: str,
        encode: "Counting[Model]",
        weight: float,
        documents: "DocumentSource | None" = None,
    ) -> "Index":
        from contrasent.search.building import create
        from contrasent.search.ranking import Ranker
        from contrasent.search.store import Facts

        place, loading = self.place, self.loading
        facts = Facts(
            model=encode.encoder.identity,
            source=lasting_name(name),
            metric=self.metric,
            ranker=Ranker(weight).to_json(),
            settings={"pooler": loading.pooler, "max_tokens": loading.max_tokens},
            origin=documents.origin if documents else {},
        )
        if place.uri:
            return _in_milvus(place, encode, rows, facts)
        with options.resumable("the same command goes on with what is encoded"):
            return create(
                place.output,
                encode,
                rows,
                facts,
                overwrite=place.overwrite,
                total=len(rows) if isinstance(rows, list) else None,
                stated=None if self.table.encoded else encode.stated,
                documents=documents.files if documents else None,
            )

    def _outcome(
        self,
        made: "Index",
        what: str,
        name: str,
        encode: "Counting[Model]",
        skipped: int,
        documents: dict[str, Any] | None,
        began: float,
    ) -> options.Output:
        output, seconds = self.place.output, time.monotonic() - began
        return options.Output(
            index_changes.built_facts(output, made, name, encode, skipped, documents, seconds),
            f"{output}: {len(made):,} {what}, {made.dimension} dimensions, {seconds:.1f} s\n"
            f'search it: contrasent search {output} "..."',
        )


def _first_paragraphs(documents: "Sequence[Document]") -> Iterable[str]:
    """Some text of each document, by which its language is known, first of one in each file."""
    seen = Counter[str]()
    numbered: list[tuple[int, Document]] = []
    for document in documents:
        file = document.id.partition("#")[0]
        numbered.append((seen[file], document))
        seen[file] += 1
    random.Random(0).shuffle(numbered)  # a folder in another language is not all there is
    for _, document in sorted(numbered, key=itemgetter(0)):
        for section in document.sections[:2]:
            yield from section.paragraphs[:2]


def _in_milvus(place: _Place, encode: "Counting[Model]", rows: "Rows", facts: "Facts") -> "Index":
    """Load rows into a collection of Milvus."""
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.opening import milvus_index
    from contrasent.search.ranking import Ranker

    given: Iterable[tuple[Any, ...]] = (
        (
            (text, name, extra, vector)
            for block in rows.blocks(1024)
            for vector, text, name, extra in zip(*block, strict=True)
        )
        if isinstance(rows, EncodedRecords)
        else rows
    )
    made: Index = milvus_index().build(
        place.output,
        encode,
        given,
        uri=place.uri,
        collection=place.collection,
        ranker=Ranker.from_json(facts.ranker),
        model=facts.model,
        source=facts.source,
        metric=facts.metric,
        settings=facts.settings,
    )
    return made
