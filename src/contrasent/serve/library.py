"""The index behind a server: searched in threads, opened anew when a writer has changed it."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from contrasent.errors import InputError, OutputError, UserError
from contrasent.indexing.remaining import RemainingRows
from contrasent.search.filters import facets
from contrasent.search.index import BaseIndex, Hit
from contrasent.search.opening import numbered_rows
from contrasent.types import EncodeFn, Vectors, for_task

log = logging.getLogger("contrasent.serve")

OpenModel = Callable[[BaseIndex], EncodeFn]  # loads the model that an index names

PATIENCE = 2.0  # seconds that an answer waits for a newer snapshot
SAMPLED = 5000  # rows that facets are found in
NICENESS = 10  # of the thread that encodes while others answer


@dataclass(eq=False)
class Snapshot:
    """An index as it was at a moment; ``encode`` is None where the model served is its own."""

    index: BaseIndex
    texts: int
    bm25_only: str
    encode: EncodeFn | None

    @cached_property
    def facets(self) -> dict[str, list[Any]]:
        """Metadata fields with few distinct values, and the values."""
        store = numbered_rows(self.index, SAMPLED)
        rows = store.numbers()
        return facets(row.metadata for row in store.rows(rows[:: -(-len(rows) // SAMPLED) or 1]))


class Library:
    """The newest snapshot of an index."""

    look_every = 1.0  # seconds

    def __init__(
        self,
        index: BaseIndex,
        identity: str,
        *,
        open_model: OpenModel | None = None,
        bm25_weight: float | None = None,
    ) -> None:
        self.identity, self._open_model, self._weight = identity, open_model, bm25_weight
        self._snapshot = self._take(index)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._opening = threading.Thread()
        self._encoding = threading.Lock()
        self._counting = threading.Lock()

    def _take(self, index: BaseIndex) -> Snapshot:
        encode = None
        if index.model != self.identity:
            if self._open_model is None:
                index.check_model(self.identity, "the model served")
            else:
                encode = for_task(self._open_model(index), "query")
        return Snapshot(index, len(index), index.bm25_only, encode)

    def newest(self, patience: float = PATIENCE) -> Snapshot:
        """The snapshot to use; looks for a newer one once a second at most, so many seconds."""
        # A newer one is opened in a thread, since its words may have to be counted and its model
        # loaded; after a moment's wait, answers come from the one before until it is there.
        opening = None
        with self._lock:
            if time.monotonic() - self._looked > self.look_every and not self._opening.is_alive():
                self._looked = time.monotonic()
                opening = self._opening = threading.Thread(target=self._refresh, daemon=True)
                opening.start()
        if opening is not None:
            opening.join(patience)
        with self._lock:
            return self._snapshot

    def _refresh(self) -> None:
        # If the folder is gone, mapped files stay valid; if it is locked, the next look sees it.
        with suppress(InputError, OutputError):
            newest = self._snapshot.index.refreshed()
            if newest is self._snapshot.index:
                return
            try:
                taken = self._take(newest)
            except UserError as error:
                problem = f"still searching the previous index: {error}"
                log.error("%s", json.dumps({"event": "index", "problem": problem}))
                return
            with self._lock:
                self._snapshot = taken

    def search(
        self,
        snapshot: Snapshot,
        queries: Sequence[str],
        vectors: Vectors | None,
        *,
        k: int,
        threshold: float | None = None,
        where: dict[str, Any] | None = None,
        documents: bool = False,
    ) -> list[list[Hit]]:
        """The hits of each query; ``vectors`` (q, d) unless the snapshot's own model encodes."""
        if vectors is None:
            if snapshot.encode is None:
                raise UserError("the queries have no vectors")
            with self._encoding:
                vectors = snapshot.encode(queries)
        ranker = snapshot.index.ranker.with_bm25(self._weight)
        search = snapshot.index.search_documents if documents else snapshot.index.search
        how: dict[str, Any] = {"threshold": threshold, "where": where, "ranker": ranker}
        return search(queries, vectors=vectors, k=k, **how)

    def facets(self) -> dict[str, list[Any]]:
        """The metadata that texts can be filtered by."""
        with self._counting:
            return self.newest().facets

    @contextmanager
    def encoding_on(self, encode: EncodeFn) -> Iterator[None]:
        """Encode what is left of an index in the background."""
        index, over = self._snapshot.index, threading.Event()
        if index.folder is not None and index.unfinished:
            arguments = (index.folder, encode, over)
            threading.Thread(target=self._encode_on, args=arguments, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _encode_on(self, folder: Path, encode: EncodeFn, over: threading.Event) -> None:
        with suppress(AttributeError, OSError):  # threads have a niceness of their own on Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        remaining, left = RemainingRows(folder, encode), 1
        try:
            while left and not over.is_set():
                left = remaining.turn()
                log.info("%s", json.dumps({"event": "encoding", "left": left}))
        except UserError as error:
            problem = f"encoding stopped: {error}"
            log.error("%s", json.dumps({"event": "index", "problem": problem}))
