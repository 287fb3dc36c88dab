"""Making an index folder of a stream of rows."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from contrasent import progress
from contrasent.errors import UserError
from contrasent.files import atomic_folder
from contrasent.search.checks import check_metric, check_target, check_vectors
from contrasent.search.encoded import EncodedRecords
from contrasent.search.index import Index
from contrasent.search.store import LOCK, Facts, is_any_index
from contrasent.search.writer import ROWS_AT_ONCE, Block, IndexRow, Writer
from contrasent.types import EncodeFn, batched, for_task

IndexRows = Iterable[IndexRow] | EncodedRecords
"""Rows to encode, or rows with their vectors."""


def create(
    folder: str | Path,
    encode: EncodeFn,
    rows: IndexRows,
    facts: Facts,
    *,
    overwrite: bool = False,
    batch: int = ROWS_AT_ONCE,
) -> Index:
    """Make an index of rows, with memory for one batch of them; it appears when all is done.

    Raises:
        OutputError: the folder exists, or cannot be written.
        UserError: no rows, or ids that repeat.
    """
    target = Path(folder)
    check_metric(facts.metric)
    check_target(target, overwrite, is_index=is_any_index(target))
    with atomic_folder(target) as temporary:
        with (
            Writer(temporary, new=facts) as writer,
            progress.task("index", unit="texts") as advance,
        ):
            for block in blocks_of(rows, encode, facts.metric, batch):
                writer.add(block.texts, block.vectors, ids=block.ids, metadata=block.metadata)
                advance(len(block.texts))
            if not len(writer):
                raise UserError("there are no texts to index")
            writer.set(next_id=len(writer))
        (temporary / LOCK).unlink(missing_ok=True)
    return Index.open(target)


def blocks_of(
    rows: IndexRows, encode: EncodeFn, metric: str, batch: int = ROWS_AT_ONCE
) -> Iterator[Block]:
    """Rows with their vectors, a batch at a time; those without an id have their number."""
    if isinstance(rows, EncodedRecords):
        yield from rows.blocks(metric, batch)
        return
    first, dimension, read = 0, None, for_task(encode, "document")
    for part in batched(rows, batch):
        texts = [text for text, _, _ in part]
        vectors = check_vectors(read(texts), len(texts), dimension, metric)
        dimension = int(vectors.shape[1])
        names = [str(first + at) if name is None else name for at, (_, name, _) in enumerate(part)]
        yield Block(vectors, texts, names, [extra for _, _, extra in part])
        first += len(part)
