"""The index behind a server: searched in threads, opened anew when a writer has changed it."""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from contrasent.errors import InputError, UserError
from contrasent.search.filters import facets
from contrasent.search.index import BaseIndex, Hit
from contrasent.search.opening import numbered_rows
from contrasent.types import EncodeFn, Vectors, for_task

log = logging.getLogger("contrasent.serve")

OpenModel = Callable[[BaseIndex], EncodeFn]  # loads the model that an index names

LOOK_EVERY = 1.0
PATIENCE = 2.0  # seconds that an answer waits for a newer snapshot
SAMPLED = 5000  # rows that facets are found in


@dataclass(eq=False)
class Snapshot:
    """An index as it was at a moment; ``encode`` is None where the model served is its own."""

    index: BaseIndex
    texts: int
    encode: EncodeFn | None

    @cached_property
    def facets(self) -> dict[str, list[Any]]:
        """Fields of the metadata that have few distinct values, and these."""
        held = numbered_rows(self.index, SAMPLED)
        rows = held.numbers()
        return facets(row.metadata for row in held.rows(rows[:: -(-len(rows) // SAMPLED) or 1]))


class Library:
    """The newest snapshot of an index."""

    def __init__(
        self,
        index: BaseIndex,
        identity: str,
        *,
        open_model: OpenModel | None = None,
        word_weight: float | None = None,
    ) -> None:
        self.identity, self._open_model, self._weight = identity, open_model, word_weight
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
        return Snapshot(index, len(index), encode)

    def newest(self, patience: float = PATIENCE) -> Snapshot:
        """The snapshot to use; looks for a newer one once a second at most, so many seconds."""
        # A newer one is opened in a thread, since its words may have to be counted and its model
        # loaded; after a moment's wait, answers come from the one before until it is there.
        opening = None
        with self._lock:
            if time.monotonic() - self._looked > LOOK_EVERY and not self._opening.is_alive():
                self._looked = time.monotonic()
                opening = self._opening = threading.Thread(target=self._refresh, daemon=True)
                opening.start()
        if opening is not None:
            opening.join(patience)
        with self._lock:
            return self._snapshot

    def _refresh(self) -> None:
        with suppress(InputError):  # where the folder has gone, what is mapped stays good
            newest = self._snapshot.index.refreshed()
            if newest is self._snapshot.index:
                return
            try:
                taken = self._take(newest)
            except UserError as error:
                problem = f"the index as it was still answers: {error}"
                log.error("%s", json.dumps({"event": "index", "problem": problem}))
                return
            with self._lock:
                self._snapshot = taken

    def search(
        self,
        snapshot: Snapshot,
        queries: Sequence[str],
        vectors: Vectors | None,
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
        ranker = snapshot.index.ranker.with_words(self._weight)
        search = snapshot.index.search_documents if documents else snapshot.index.search
        how: dict[str, Any] = {"threshold": threshold, "where": where, "ranker": ranker}
        return search(queries, vectors=vectors, k=k, **how)

    def facets(self) -> dict[str, list[Any]]:
        """The facts that texts can be filtered by."""
        with self._counting:
            return self.newest().facets
