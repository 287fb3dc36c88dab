"""The index behind a server: searched in threads, opened again when a writer has changed it."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contrasent.errors import UserError, brief
from contrasent.indexing.remaining import RemainingRows
from contrasent.model.base import Encoder
from contrasent.search.filters import facets
from contrasent.search.index import BaseIndex, Hit, Index
from contrasent.search.opening import numbered_rows
from contrasent.serve.guard import ApiError
from contrasent.types import EncodeFn, Vectors

log = logging.getLogger("contrasent.serve")

OpenModel = Callable[[BaseIndex], Encoder]  # loads the model that an index names
Turn = Callable[[], float | None]  # does some work; returns the pause after it, None after the last

LOOK_EVERY = 1.0  # seconds between two looks at the folder of the index
LOOK_AT_LEAST_EVERY = 60.0  # while what is there cannot be opened, as each look opens it again
SAMPLED = 5000  # rows that facets are found in
NICENESS = 10  # of the thread that encodes while others answer
AT_ONCE = 8  # queries that are searched together, which bounds the memory of their scores
MOST_TEXT = 1 << 25  # characters of all hits of a request


@dataclass(eq=False)
class Snapshot:
    """An index as it was at a moment, and the model that made its vectors."""

    index: BaseIndex
    encoder: Encoder
    texts: int  # as of the last look; counting may be a request to Milvus
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _facets: tuple[int, dict[str, list[Any]]] = (-1, {})  # of so many rows

    def facets(self) -> dict[str, list[Any]]:
        """Metadata fields with few distinct values, and the values."""
        with self._lock:
            if self._facets[0] != (count := self.texts):
                some = numbered_rows(self.index, SAMPLED)
                rows = some.numbers()[:: -(-len(some) // SAMPLED) or 1]
                self._facets = count, facets(row.metadata for row in some.rows(rows))
            return self._facets[1]


class Library:
    """The newest snapshot of an index."""

    def __init__(
        self,
        index: BaseIndex,
        encoder: Encoder,
        *,
        open_model: OpenModel | None = None,
        bm25_weight: float | None = None,
    ) -> None:
        self._open_model, self._weight = open_model, bm25_weight
        self.newest = self._take(index, encoder)

    def _take(self, index: BaseIndex, encoder: Encoder) -> Snapshot:
        if isinstance(index, Index) and index.folder:  # else the log of writers would grow
            index.store.detach()
        return Snapshot(index, encoder, index.count)

    def _encoder(self, index: BaseIndex) -> Encoder:
        """The model of an index, which is loaded if it is not that of the newest snapshot."""
        before = self.newest
        if index.model == before.index.model:
            return before.encoder
        if self._open_model is None:
            index.check_model(before.index.model, "the model served")
            return before.encoder
        encoder = self._open_model(index)
        log.info("%s", json.dumps({"event": "index", "model": index.model}))
        return encoder

    def refresh(self) -> None:
        """Take what was written since the last look; answers come from the snapshot before.

        They still do after an error: mapped files stay valid if the folder is gone.
        """
        index = self.newest.index.refreshed()
        if index is self.newest.index:
            self.newest.texts = index.count  # Milvus is live
            return
        try:
            self.newest = self._take(index, self._encoder(index))
        except BaseException:
            index.close()
            raise

    def search(
        self,
        snapshot: Snapshot,
        queries: Sequence[str],
        vectors: Vectors,
        *,
        documents: bool = False,
        **how: Any,
    ) -> list[list[Hit]]:
        """The hits of each query, of ``vectors`` (q, d) of the snapshot's model."""
        ranker = snapshot.index.ranker.with_bm25(self._weight)
        only = snapshot.index.bm25_only
        if only and (how.get("threshold") is not None or not ranker.uses_bm25):
            problem = f"{only}; a threshold, or vectors alone, need all rows encoded"
            raise ApiError(503, problem, "not_encoded", {"Retry-After": "30"})
        search = snapshot.index.search_documents if documents else snapshot.index.search
        found, size = list[list[Hit]](), 0
        for start in range(0, len(queries), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found += search(queries[part], vectors=vectors[part], ranker=ranker, **how)
            size += sum(len(hit.text) for hits in found[part] for hit in hits)
            if size > MOST_TEXT:
                problem = f"the hits contain more than {MOST_TEXT:,} characters; request fewer"
                raise ApiError(400, problem, "too_much_text")
        return found

    @contextmanager
    def followed(self, encode: EncodeFn | None) -> Iterator[None]:
        """Follow the writers of the index, and encode what is left of it, for the block."""
        over, index = threading.Event(), self.newest.index
        turns: list[tuple[Turn, str]] = [(self._look, "still searching the previous index")]
        if encode is not None and index.folder is not None and index.unfinished:
            remaining = RemainingRows(index.folder, encode)
            turns.append((partial(_encode_some, remaining), "encoding will be tried again"))
        for turn, failed in turns:
            threading.Thread(target=_repeat, args=(turn, over, failed), daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _look(self) -> float:
        self.refresh()
        return LOOK_EVERY


def _encode_some(remaining: RemainingRows) -> float | None:
    with suppress(AttributeError, OSError):  # threads have a niceness of their own on Linux
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    left = remaining.turn()
    log.info("%s", json.dumps({"event": "encoding", "left": left}))
    return 0.0 if left else None


def _repeat(turn: Turn, over: threading.Event, failed: str) -> None:
    """Take turns with their pauses, and longer ones after errors, until the last or ``over``."""
    pause, said = 0.0, ""
    while not over.wait(pause):
        try:
            if (after := turn()) is None:
                return
            pause, said = after, ""
        except Exception as error:  # whatever it is, a later turn may find it gone
            problem = f"{failed}: {error if isinstance(error, UserError) else brief(error)}"
            if problem != said:  # not at each turn
                log.error("%s", json.dumps({"event": "index", "problem": problem}))
            pause, said = min(max(2 * pause, LOOK_EVERY), LOOK_AT_LEAST_EVERY), problem
