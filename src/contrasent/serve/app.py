"""The server: OpenAI's embeddings interface, similarity, search, health, metrics and a page."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated

import numpy as np
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from contrasent.errors import InputError, UserError
from contrasent.search.exact import unit
from contrasent.search.opening import AnyIndex
from contrasent.serve import schemas
from contrasent.serve.batcher import Batcher
from contrasent.serve.comparing import add_compare, query_vectors
from contrasent.serve.embedding import Embedder, encoded, refuse_many, shortened
from contrasent.serve.guard import Guard, Refused, client_of, error_response
from contrasent.serve.library import Library, OpenModel
from contrasent.serve.metrics import Metrics
from contrasent.serve.openapi import describe
from contrasent.serve.pages import add_pages
from contrasent.serve.replies import REFUSALS, reply
from contrasent.serve.settings import Served, Settings

log = logging.getLogger("contrasent.serve")


def create_app(
    model: Served,
    *,
    index: AnyIndex | None = None,
    compare: AnyIndex | None = None,
    open_model: OpenModel | None = None,
    settings: Settings | None = None,
    hybrid: bool | None = None,
    lexical_weight: float | None = None,
) -> FastAPI:
    """The server as an ASGI application."""
    if index is not None:
        index.check_model(model.identity, f"the model {model.name}")
    limits = settings or Settings()
    metrics = Metrics()
    batcher = Batcher(
        model.embed,
        model.dimension,
        batch_tokens=limits.batch_tokens,
        queue_tokens=limits.queue_tokens,
        client_tokens=limits.client_tokens,
        observe=metrics.batch,
    )
    metrics.waiting.set_function(lambda: batcher.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.stop()

    app = FastAPI(
        title="contrasent",
        description=f"Sentence embeddings of the model {model.name}.",
        version="1",
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        docs_url=None,
        redoc_url=None,
    )
    embedder = Embedder(model, batcher, limits)
    opened = partial(Library, identity=model.identity, open_model=open_model, hybrid=hybrid)
    library = None if index is None else opened(index, lexical_weight=lexical_weight)
    beside = None if compare is None else opened(compare)
    _add_errors(app)
    _add_embeddings(app, model, embedder, metrics)
    _add_search(app, model, embedder, library, metrics, limits)
    if library is not None and beside is not None:
        add_compare(app, library, beside, embedder, limits)
    _add_status(app, model, library, beside, metrics, limits)
    add_pages(app)
    describe(app, model, limits)
    app.add_middleware(Guard, settings=limits, metrics=metrics)
    return app


def _log_facts(request: Request, metrics: Metrics, **facts: int) -> None:
    """Add numbers, never texts, to the log line of a request."""
    request.scope.setdefault("state", {})["facts"] = facts
    metrics.truncated.inc(facts.get("truncated", 0))


def _add_embeddings(app: FastAPI, model: Served, embedder: Embedder, metrics: Metrics) -> None:
    @app.post("/v1/embeddings", response_model=schemas.EmbeddingResponse, responses=REFUSALS)
    async def embeddings(request: Request, body: schemas.EmbeddingRequest) -> Response:
        """Vectors of texts or token ids, as OpenAI's interface gives them."""
        _check_name(body.model, model)
        given = [body.input] if isinstance(body.input, str) else body.input
        if not isinstance(given[0], int):
            refuse_many(len(given), embedder.settings.max_inputs)
        if isinstance(given[0], str):
            prompt = embedder.prompt(body.prompt_name)
            vectors, tokens, cut = await embedder.texts(given, client_of(request.scope), prompt)
        else:
            rows = [given] if isinstance(given[0], int) else given
            vectors, tokens, cut = await embedder.ids(rows, client_of(request.scope))
        vectors = shortened(vectors, body.dimensions, model.dimension)
        _log_facts(request, metrics, inputs=len(vectors), tokens=tokens, truncated=cut)
        data = [
            {"object": "embedding", "index": at, "embedding": encoded(row, body.encoding_format)}
            for at, row in enumerate(vectors)
        ]
        return reply(
            {
                "object": "list",
                "data": data,
                "model": model.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
                "truncated": cut,
            }
        )

    @app.post("/similarity", response_model=schemas.SimilarityResponse, responses=REFUSALS)
    async def similarity(request: Request, body: schemas.SimilarityRequest) -> Response:
        """Cosines of each of some texts with each of some others."""
        first = [body.a] if isinstance(body.a, str) else body.a
        second = first if body.b is None else [body.b] if isinstance(body.b, str) else body.b
        refuse_many(max(len(first), len(second)), embedder.settings.max_compared)
        both = first if body.b is None else [*first, *second]
        vectors, tokens, cut = await embedder.texts(both, client_of(request.scope))
        scaled = unit(vectors)
        scores = scaled[: len(first)] @ scaled[len(both) - len(second) :].T
        _log_facts(request, metrics, inputs=len(both), tokens=tokens, truncated=cut)
        return reply(
            {"scores": list(np.clip(scores, -1, 1)), "model": model.name, "truncated": cut}
        )


def _check_name(name: str | None, model: Served) -> None:
    if name is not None and name != model.name:
        raise Refused(
            404, f"there is no model {name!r} here, only {model.name!r}", "model_not_found"
        )


def _add_search(
    app: FastAPI,
    model: Served,
    embedder: Embedder,
    library: Library | None,
    metrics: Metrics,
    limits: Settings,
) -> None:
    none = Refused(404, "the server was started without --index", "no_index")

    @app.post("/search", response_model=schemas.SearchResponse, responses=REFUSALS)
    async def search(request: Request, body: schemas.SearchRequest) -> Response:
        """The texts of the index that are nearest to each query."""
        if library is None:
            raise none
        if body.k > limits.max_k:
            raise Refused(400, f"k is {body.k}; at most {limits.max_k} are given", "k")
        queries = [body.query] if isinstance(body.query, str) else body.query
        refuse_many(len(queries), limits.max_inputs)
        snapshot = await asyncio.to_thread(library.newest)
        vectors, tokens, cut = await query_vectors(snapshot, queries, embedder, request)
        began = time.perf_counter()
        found = await asyncio.to_thread(
            library.search, snapshot, queries, vectors, body.k, body.threshold, body.where
        )
        seconds = time.perf_counter() - began
        _log_facts(request, metrics, inputs=len(queries), tokens=tokens, truncated=cut)
        results = [
            {"query": query, "hits": [asdict(hit) for hit in hits]}
            for query, hits in zip(queries, found, strict=True)
        ]
        return reply({"results": results, "texts": snapshot.texts, "seconds": seconds})

    @app.get("/map", response_model=schemas.MapResponse, responses=REFUSALS)
    async def map_(limit: Annotated[int, Query(ge=1, le=5000)] = 1000) -> Response:
        """Texts of the index on the plane in which their vectors vary most."""
        if library is None:
            raise none
        return reply(await asyncio.to_thread(library.map, limit))


def _add_status(
    app: FastAPI,
    model: Served,
    library: Library | None,
    beside: Library | None,
    metrics: Metrics,
    limits: Settings,
) -> None:
    info = {
        "id": model.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "contrasent",
        "dimension": model.dimension,
        "max_tokens": model.max_tokens,
        "identity": model.identity,
        "prompts": dict(model.prompts),
        "nested_dimensions": list(model.nested),
    }

    @app.get("/v1/models", response_model=schemas.ModelList, responses=REFUSALS)
    async def models() -> Response:
        """The model served."""
        return reply({"object": "list", "data": [info]})

    @app.get("/v1/models/{name:path}", response_model=schemas.ModelInfo, responses=REFUSALS)
    async def one_model(name: str) -> Response:
        """One model."""
        _check_name(name, model)
        return reply(info)

    @app.get("/health", response_model=schemas.Health)
    async def health() -> Response:
        """Whether the server works."""
        now = None if library is None else await asyncio.to_thread(library.newest)
        return reply(
            {
                "status": "ok",
                "model": model.name,
                "dimension": model.dimension,
                "max_tokens": model.max_tokens,
                "texts": None if now is None else now.texts,
                "compare": None if beside is None else beside.name,
                "key_needed": bool(limits.api_key),
            }
        )

    @app.get("/metrics", response_class=Response, responses={401: REFUSALS[401]})
    async def show_metrics() -> Response:
        """Counters for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return error.response()

    @app.exception_handler(InputError)
    async def index_gone(_: Request, error: InputError) -> Response:
        # A request names no file: what cannot be read is the server's own. Paths are for its log.
        log.error("%s", json.dumps({"event": "index", "problem": str(error)}))
        message = "the index cannot be read now"
        return error_response(503, message, "index_unavailable", headers={"Retry-After": "5"})

    @app.exception_handler(UserError)
    async def user_error(_: Request, error: UserError) -> Response:
        return error_response(400, str(error), "invalid")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        # What was wrong and where; never the value, which may be text of the user's.
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:100]
        words = f"{where}: {first['msg']}" if where else str(first["msg"])
        param = where.encode("utf-8", "replace").decode()
        return error_response(400, words[:300], "invalid", param)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail), "http", headers=error.headers)
