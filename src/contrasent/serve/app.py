"""The server: its answers, the application, and the process."""

import asyncio
import base64
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, fields
from functools import cached_property, partial
from importlib.resources import files
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from contrasent.errors import InputError, UserError
from contrasent.metrics import normalize
from contrasent.processes import usable_cores
from contrasent.search.answers import Candidates
from contrasent.search.filters import check_where
from contrasent.search.index import BaseIndex, Hit
from contrasent.serve import schemas
from contrasent.serve.batching import Batcher, Embedder, Served
from contrasent.serve.guard import (
    ApiError,
    Guard,
    Metrics,
    ServerSettings,
    error_response,
    out_of_time,
)
from contrasent.serve.library import Library, OpenModel
from contrasent.serve.schemas import reply
from contrasent.types import EncodeFn, Vectors

log = logging.getLogger("contrasent.serve")

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


TURN = 8  # queries that are searched before another request has its turn
MOST_TEXT = 1 << 25  # characters of all hits of a request
T = TypeVar("T")


def _record(hit: Hit) -> dict[str, Any]:
    """The fields of a hit; its metadata is not copied."""
    return {field.name: getattr(hit, field.name) for field in fields(Hit)}


@dataclass(frozen=True)
class Routes:
    """The answers of the routes; the first line of a docstring is the route's description."""

    model: Served
    embedder: Embedder
    library: Library | None
    metrics: Metrics
    settings: ServerSettings
    threads: ThreadPoolExecutor
    filtering: ThreadPoolExecutor  # a filter may take all the time it is given; others go on

    @cached_property
    def info(self) -> dict[str, Any]:
        """The model, as OpenAI's clients expect it, and more."""
        return {
            "id": self.model.name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "contrasent",
            "dimension": self.model.dimension,
            "max_seq_length": self.model.max_seq_length,
            "identity": self.model.identity,
            "prompts": dict(self.model.prompts),
            "nested_dimensions": list(self.model.nested),
        }

    async def _thread(self, function: Callable[..., T], *given: Any, filtered: bool = False) -> T:
        """Call a function in a thread for searches, with the deadline of the request."""
        run = partial(copy_context().run, function, *given)
        threads = self.filtering if filtered else self.threads
        return await asyncio.get_running_loop().run_in_executor(threads, run)

    def _log(self, request: Request, inputs: int, tokens: int, truncated: int) -> None:
        """Add numbers, never texts, to the log line of a request."""
        facts = {"inputs": inputs, "tokens": tokens, "truncated": truncated}
        request.scope.setdefault("state", {})["facts"] = facts
        self.metrics.truncated.inc(truncated)

    def _check_name(self, name: str | None) -> None:
        if name is not None and name != self.model.name:
            problem = f"unknown model {name!r}; this server has {self.model.name!r}"
            raise ApiError(404, problem, "model_not_found")

    def _prompt(self, name: str | None) -> str | None:
        if name is None:
            return None
        if name not in self.model.prompts:
            known = ", ".join(self.model.prompts) or "none"
            problem = f"the model has no prompt {name!r}; it has {known}"
            raise ApiError(404, problem, "prompt_not_found")
        return self.model.prompts[name]

    async def embeddings(self, request: Request, body: schemas.EmbeddingRequest) -> Response:
        """Vectors of texts or token ids, as OpenAI's interface gives them."""
        self._check_name(body.model)
        inputs: Any = [body.input] if isinstance(body.input, str) else body.input
        if isinstance(inputs[0], str):
            self.embedder.check_texts(inputs)
            prompt = self._prompt(body.prompt_name)
            vectors, tokens, cut = await self.embedder.texts(inputs, prompt)
        else:
            rows = [inputs] if isinstance(inputs[0], int) else inputs
            vectors, tokens, cut = await self.embedder.ids(rows)
        if body.dimensions is not None:
            if body.dimensions > self.model.dimension:
                most = self.model.dimension
                problem = f"the model has {most} dimensions, not {body.dimensions}"
                raise ApiError(400, problem, "dimensions")
            vectors = normalize(vectors[:, : body.dimensions])
        self._log(request, len(vectors), tokens, cut)
        rows = np.ascontiguousarray(vectors)
        if body.encoding_format == "base64":
            rows = [base64.b64encode(v.astype("<f4").tobytes()).decode("ascii") for v in vectors]
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        facts = {"object": "list", "data": data, "model": self.model.name, "usage": usage}
        return reply(facts | {"truncated": cut})

    async def similarity(self, request: Request, body: schemas.SimilarityRequest) -> Response:
        """Cosines of each of some texts with each of some others."""
        first = [body.a] if isinstance(body.a, str) else body.a
        second = first if body.b is None else [body.b] if isinstance(body.b, str) else body.b
        both = first if body.b is None else [*first, *second]
        most = self.settings.max_compared
        self.embedder.check_count(max(len(first), len(second)), most)
        self.embedder.check_texts(both, 2 * most)
        vectors, tokens, cut = await self.embedder.texts(both)
        scaled = normalize(vectors)
        scores = scaled[: len(first)] @ scaled[len(both) - len(second) :].T
        self._log(request, len(both), tokens, cut)
        return reply({"scores": np.clip(scores, -1, 1), "model": self.model.name, "truncated": cut})

    def _index(self) -> Library:
        if self.library is None:
            raise ApiError(404, "this server was started without --index", "no_index")
        return self.library

    async def search(self, request: Request, body: schemas.SearchRequest) -> Response:
        """The texts of the index that are nearest to each query."""
        began = time.perf_counter()
        library = self._index()
        queries = [body.query] if isinstance(body.query, str) else body.query
        self.embedder.check_texts(queries)
        most = self.settings.max_hits
        if len(queries) * body.k > most:
            wanted = f"{len(queries):,} queries with k = {body.k:,}"
            problem = f"{wanted} exceed the limit of {most:,} hits"
            raise ApiError(400, problem, "too_many_hits")
        if body.where is not None:
            check_where(body.where)
        snapshot = await asyncio.to_thread(library.newest)
        typed = queries
        if not body.exact:
            repair = snapshot.index.repaired
            queries = await self._thread(repair, queries, self.model.knows)
        vectors: Vectors | None = None
        tokens = cut = 0
        if snapshot.encode is None:
            prompt = self.model.query_prompt
            vectors, tokens, cut = await self.embedder.texts(queries, prompt)
        how: dict[str, Any] = {"k": body.k, "threshold": body.threshold, "where": body.where}
        search = partial(library.search, snapshot, **how, documents=body.documents)
        lists, size = list[list[Hit]](), 0
        for start in range(0, len(queries), TURN):
            part = slice(start, start + TURN)
            own = None if vectors is None else vectors[part]
            lists += await self._thread(search, queries[part], own, filtered=body.where is not None)
            size += sum(len(hit.text) for hits in lists[start:] for hit in hits)
            if size > MOST_TEXT:
                problem = f"the hits contain more than {MOST_TEXT:,} characters; request fewer"
                raise ApiError(400, problem, "too_much_text")
        rows = [[_record(hit) for hit in hits] for hits in lists]
        if body.answers:
            analyzer = snapshot.index.analyzer
            candidates = await self._thread(Candidates, queries, lists, analyzer)
            sentences = None
            if vectors is not None and candidates.texts:
                prompt = self.model.document_prompt
                sentences, more, _ = await self.embedder.texts(candidates.texts, prompt)
                tokens += more
            best = chain(*await self._thread(candidates.best, vectors, sentences))
            for row, hit, answer in zip(chain(*rows), chain(*lists), best, strict=True):
                row["answer"] = answer.to_json(hit)
        self._log(request, len(queries), tokens, cut)
        no_match = snapshot.index.nothing_matches
        results = [
            {"query": query, "searched": text, "no_match": no_match(hits), "hits": own}
            for query, text, hits, own in zip(typed, queries, lists, rows, strict=True)
        ]
        seconds = time.perf_counter() - began
        facts = {"results": results, "texts": snapshot.texts, "seconds": seconds}
        return reply(facts | {"bm25_only": snapshot.bm25_only})

    async def facets(self) -> Response:
        """Fields of the metadata that have few distinct values, and these."""
        return reply({"facets": await asyncio.to_thread(self._index().facets)})

    async def models(self) -> Response:
        """The model served."""
        return reply({"object": "list", "data": [self.info]})

    async def one_model(self, name: str) -> Response:
        """One model."""
        self._check_name(name)
        return reply(self.info)

    async def health(self) -> Response:
        """Whether the server works."""
        now = None if self.library is None else self.library.newest(patience=0.0)
        return reply(
            {
                "status": "ok",
                "model": self.model.name,
                "dimension": self.model.dimension,
                "max_seq_length": self.model.max_seq_length,
                "texts": None if now is None else now.texts,
                "key_needed": bool(self.settings.api_key),
            }
        )

    async def show_metrics(self) -> Response:
        """Counters for Prometheus."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self.metrics.text(), media_type=kind)


def create_app(
    model: Served,
    *,
    index: BaseIndex | None = None,
    open_model: OpenModel | None = None,
    settings: ServerSettings | None = None,
    bm25_weight: float | None = None,
    encode: EncodeFn | None = None,
) -> FastAPI:
    """The server as an ASGI application; ``encode``: goes on with an unfinished index."""
    if index is not None:
        index.check_model(model.identity, f"the model {model.name}")
    limits = settings or ServerSettings()
    metrics = Metrics()
    batcher = Batcher(model.embed, model.dimension, limits, metrics.batch)
    metrics.waiting.set_function(lambda: batcher.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        with ExitStack() as stack:
            if library is not None and encode is not None:
                stack.enter_context(library.encoding_on(encode))
            yield
        await batcher.stop()

    # The guard checks the key, before a body is read; FastAPI describes that there is one.
    key = [Depends(HTTPBearer(auto_error=False))] if limits.api_key else []
    app = FastAPI(
        title="contrasent",
        description=f"Sentence embeddings of the model {model.name}.",
        version="1",
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        docs_url=None,
        redoc_url=None,
        dependencies=key,
    )
    library = None
    if index is not None:
        library = Library(index, model.identity, open_model=open_model, bm25_weight=bm25_weight)
    embedder = Embedder(model, batcher, limits)
    most = max(2, usable_cores())
    threads, filtering = (ThreadPoolExecutor(most, name) for name in ("search", "filter"))
    _add_routes(app, Routes(model, embedder, library, metrics, limits, threads, filtering))
    _add_pages(app)
    _add_errors(app, limits)
    app.add_middleware(Guard, settings=limits, metrics=metrics)
    if limits.origins:  # outside the guard: a browser asks without the key whether it may ask
        app.add_middleware(
            CORSMiddleware,
            allow_origins=limits.origins,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["Authorization", "Content-Encoding", "Content-Type"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    return app


def _add_routes(app: FastAPI, routes: Routes) -> None:
    get = partial(app.get, responses=schemas.ERRORS)
    post = partial(app.post, responses=schemas.ERRORS)
    post("/v1/embeddings", response_model=schemas.EmbeddingResponse)(routes.embeddings)
    post("/similarity", response_model=schemas.SimilarityResponse)(routes.similarity)
    post("/search", response_model=schemas.SearchResponse)(routes.search)
    get("/facets", response_model=schemas.FacetsResponse)(routes.facets)
    get("/v1/models", response_model=schemas.ModelList)(routes.models)
    get("/v1/models/{name:path}", response_model=schemas.ModelInfo)(routes.one_model)
    get("/health", response_model=schemas.Health)(routes.health)
    get("/metrics", response_class=Response)(routes.show_metrics)
    app.head("/health", include_in_schema=False)(routes.health)
    app.head("/metrics", include_in_schema=False)(routes.show_metrics)
    app.head("/v1/models", include_in_schema=False)(routes.models)


def _add_pages(app: FastAPI) -> None:
    """Add the pages, which are read once and allow no foreign script."""
    for path, (name, kind) in PAGES.items():
        content = (files("contrasent.serve") / "page" / name).read_bytes()
        page: Any = Response(content, 200, {"Content-Security-Policy": POLICY}, kind)
        app.add_route(path, page, ["GET"], include_in_schema=False)


def _add_errors(app: FastAPI, settings: ServerSettings) -> None:
    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        return error_response(error)

    @app.exception_handler(InputError)
    async def index_gone(_: Request, error: InputError) -> Response:
        # A request names no file: an unreadable one is the server's own. Paths are for its log.
        log.error("%s", json.dumps({"event": "index", "problem": str(error)}))
        message = "the index cannot be read now"
        return error_response(ApiError(503, message, "index_unavailable", {"Retry-After": "5"}))

    @app.exception_handler(UserError)
    async def user_error(_: Request, error: UserError) -> Response:
        return error_response(ApiError(400, str(error), "invalid"))

    @app.exception_handler(TimeoutError)
    async def too_long(_: Request, error: TimeoutError) -> Response:
        return error_response(out_of_time(settings.timeout))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        problem, where = schemas.explain(error)
        param = where.encode("utf-8", "replace").decode() or None
        return error_response(ApiError(400, problem, "invalid"), param)
