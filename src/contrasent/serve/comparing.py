"""/compare: what the server's index finds beside what another does, such as a new model's."""

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response

from contrasent.metrics import rank_biased_overlap
from contrasent.search.query import Hit
from contrasent.serve import schemas
from contrasent.serve.embedding import Embedder
from contrasent.serve.guard import Refused, client_of
from contrasent.serve.library import Library, Snapshot
from contrasent.serve.replies import REFUSALS, reply
from contrasent.serve.settings import Settings
from contrasent.types import Vectors

DEPTH = 100
"""Ranks to which a text of one list is looked for in the other."""


async def query_vectors(
    snapshot: Snapshot, queries: list[str], embedder: Embedder, request: Request
) -> tuple[Vectors | None, int, int]:
    """Vectors of queries by the served model, their tokens, and how many were cut."""
    if snapshot.encode is not None:
        return None, 0, 0
    return await embedder.texts(queries, client_of(request.scope), embedder.model.query_prompt)


def add_compare(
    app: FastAPI, library: Library, beside: Library, embedder: Embedder, limits: Settings
) -> None:
    """Add the route."""

    @app.post("/compare", response_model=schemas.CompareResponse, responses=REFUSALS)
    async def compare(request: Request, body: schemas.CompareRequest) -> Response:
        """What this index and the one beside it find, and where each text is in the other list."""
        if body.k > limits.max_k:
            raise Refused(400, f"k is {body.k}; at most {limits.max_k} are given", "k")
        found: list[list[Hit]] = []
        for one in (library, beside):
            snapshot = await asyncio.to_thread(one.newest)
            vectors, _, _ = await query_vectors(snapshot, [body.query], embedder, request)
            depth = max(DEPTH, body.k)
            hits = await asyncio.to_thread(
                one.search, snapshot, [body.query], vectors, depth, None, body.where
            )
            found += hits
        old, new = found
        return reply(
            {"old": _placed(old, new, body.k), "new": _placed(new, old, body.k)}
            | _agreement(old, new, body.k)
        )


def _placed(hits: list[Hit], others: list[Hit], k: int) -> list[dict[str, Any]]:
    ranks: dict[str, int] = {}
    for rank, hit in enumerate(others, 1):
        ranks.setdefault(hit.text, rank)
    return [{**asdict(hit), "other": ranks.get(hit.text)} for hit in hits[:k]]


def _agreement(old: list[Hit], new: list[Hit], k: int) -> dict[str, float]:
    """Of the first k and of all that was found; 1 for two empty lists."""
    number: dict[str, int] = {}
    lists = [[number.setdefault(hit.text, len(number)) for hit in hits] for hits in (old, new)]
    first = [set(rows[:k]) for rows in lists]
    most = max(map(len, first))
    lists = [list(dict.fromkeys(rows)) for rows in lists]  # a text counts once
    depth = min(map(len, lists))
    one, two = ([rows[:depth]] for rows in lists)
    biased = float(rank_biased_overlap(one, two)[0]) if depth else 1.0 - bool(most)
    return {
        "overlap": len(first[0] & first[1]) / most if most else 1.0,
        "rank_biased_overlap": biased,
    }
