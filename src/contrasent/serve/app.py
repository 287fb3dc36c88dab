"""The server: its answers, the application, its connections and the process."""

import asyncio
import base64
import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.resources import files
from itertools import chain
from types import FrameType
from typing import Any

import h11
import numpy as np
import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from contrasent.errors import InputError, UserError
from contrasent.metrics import normalize
from contrasent.model.base import Encoder
from contrasent.processes import allow_files, threads
from contrasent.search.answers import Candidates
from contrasent.search.filters import check_where
from contrasent.search.index import BaseIndex, Hit
from contrasent.serve import schemas
from contrasent.serve.batching import Batcher
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
from contrasent.types import EncodeFn

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

FILTERS = max(2, threads())  # searches with a filter at the same time
OTHERS = 64  # file descriptors that are not for connections
GRACE, END = 5, 8  # seconds after a signal: what is left gets 503, and the process ends


def _listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _record(hit: Hit) -> dict[str, Any]:
    """The fields of a hit; its metadata is not copied."""
    return {one.name: getattr(hit, one.name) for one in fields(Hit)}


@dataclass(frozen=True)
class Routes:
    """The answers of the routes; the first line of a docstring is the route's description."""

    first: Encoder  # the model that the server began with
    name: str
    identity: str  # of that model, a hash of all its weights
    batcher: Batcher
    library: Library | None
    metrics: Metrics
    settings: ServerSettings
    filtering: ThreadPoolExecutor  # a filter may take all its time; others continue
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def served(self) -> tuple[Encoder, str]:
        """The model of the index as it is now, or of a server without one, and its identity."""
        if self.library is None:
            return self.first, self.identity
        newest = self.library.newest
        return newest.encoder, newest.index.model

    def _info(self) -> dict[str, Any]:
        """The model, as OpenAI's clients expect it, and more."""
        encoder, identity = self.served
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "contrasent",
            "dimension": encoder.dimension,
            "max_seq_length": encoder.max_seq_length,
            "identity": identity,
            "prompts": dict(encoder.prompts.texts),
            "nested_dimensions": list(encoder.matryoshka_dims),
        }

    def _log(self, request: Request, inputs: int, tokens: int, truncated: int) -> None:
        """Add numbers, never texts, to the log line of a request."""
        facts = {"inputs": inputs, "tokens": tokens, "truncated": truncated}
        request.scope.setdefault("state", {})["facts"] = facts
        self.metrics.truncated.inc(truncated)

    def _check_name(self, name: str | None) -> None:
        if name is not None and name != self.name:
            problem = f"unknown model {name!r}; this server has {self.name!r}"
            raise ApiError(404, problem, "model_not_found")

    def _check_count(self, count: int, most: int) -> None:
        if count > most:
            problem = f"{count:,} inputs in one list; the limit is {most:,}"
            raise ApiError(400, problem, "too_many_inputs")

    def _check_texts(self, texts: Sequence[str], most: int) -> None:
        self._check_count(len(texts), most)
        size, largest = sum(len(text.encode()) for text in texts), self.settings.max_text
        if size > largest:
            problem = f"the texts hold {size:,} bytes; the limit per request is {largest:,}"
            raise ApiError(413, problem, "too_much_text")

    def _prompt(self, encoder: Encoder, name: str | None) -> str | None:
        if name is None:
            return None
        prompts = encoder.prompts.texts
        if name not in prompts:
            known = ", ".join(prompts) or "none"
            problem = f"the model has no prompt {name!r}; it has {known}"
            raise ApiError(404, problem, "prompt_not_found")
        return prompts[name]

    async def embeddings(self, request: Request, body: schemas.EmbeddingRequest) -> Response:
        """Vectors of texts or token ids, as OpenAI's interface gives them."""
        self._check_name(body.model)
        encoder, _ = self.served
        inputs: Any = [body.input] if isinstance(body.input, str) else body.input
        if isinstance(inputs[0], str):
            self._check_texts(inputs, self.settings.max_inputs)
            prompt = self._prompt(encoder, body.prompt_name)
            vectors, tokens, cut = await self.batcher.texts(encoder, inputs, prompt)
        else:
            rows = [inputs] if isinstance(inputs[0], int) else inputs
            self._check_count(len(rows), self.settings.max_inputs)
            vectors, tokens, cut = await self.batcher.ids(encoder, rows)
        if body.dimensions is not None:
            most = encoder.dimension
            if body.dimensions > most:
                problem = f"the model has {most} dimensions, not {body.dimensions}"
                raise ApiError(400, problem, "dimensions")
            vectors = normalize(vectors[:, : body.dimensions])
        self._log(request, len(vectors), tokens, cut)
        rows = np.ascontiguousarray(vectors)
        if body.encoding_format == "base64":
            rows = [base64.b64encode(v.astype("<f4").tobytes()).decode("ascii") for v in vectors]
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        facts = {"object": "list", "data": data, "model": self.name, "usage": usage}
        return reply(facts | {"truncated": cut})

    async def similarity(self, request: Request, body: schemas.SimilarityRequest) -> Response:
        """Cosines of each of some texts with each of some others."""
        first = _listed(body.a)
        second = first if body.b is None else _listed(body.b)
        both = first if body.b is None else [*first, *second]
        most = self.settings.max_compared
        self._check_count(max(len(first), len(second)), most)
        self._check_texts(both, 2 * most)
        vectors, tokens, cut = await self.batcher.texts(self.served[0], both)
        scaled = normalize(vectors)
        scores = scaled[: len(first)] @ scaled[len(both) - len(second) :].T
        self._log(request, len(both), tokens, cut)
        return reply({"scores": np.clip(scores, -1, 1), "model": self.name, "truncated": cut})

    def _index(self) -> Library:
        if self.library is None:
            raise ApiError(404, "this server was started without --index", "no_index")
        return self.library

    async def search(self, request: Request, body: schemas.SearchRequest) -> Response:
        """The texts of the index that are nearest to each query."""
        began = time.perf_counter()
        library = self._index()
        snapshot = library.newest
        encoder = snapshot.encoder
        typed = queries = _listed(body.query)
        self._check_texts(queries, self.settings.max_inputs)
        most = self.settings.max_hits
        if len(queries) * body.k > most:
            wanted = f"{len(queries):,} queries with k = {body.k:,}"
            problem = f"{wanted} exceed the limit of {most:,} hits"
            raise ApiError(400, problem, "too_many_hits")
        if body.where is not None:
            check_where(body.where)
        if not body.exact:
            knows = encoder.tokenizer.knows
            queries = await asyncio.to_thread(snapshot.index.repaired, queries, knows)
        prompts, batcher = encoder.prompts, self.batcher
        vectors, tokens, cut = await batcher.texts(encoder, queries, prompts.of_task("query"))
        how: dict[str, Any] = {"k": body.k, "threshold": body.threshold, "where": body.where}
        search = partial(library.search, documents=body.documents, **how)
        # A thread gets the deadline of the request, which is in its context.
        run = partial(copy_context().run, search, snapshot, queries, vectors)
        pool = None if body.where is None else self.filtering  # None: that of asyncio
        lists = await asyncio.get_running_loop().run_in_executor(pool, run)
        rows = [[_record(hit) for hit in hits] for hits in lists]
        if body.answers:
            analyzer = snapshot.index.analyzer
            candidates = await asyncio.to_thread(Candidates, queries, lists, analyzer)
            sentences = None
            if candidates.texts:
                prompt = prompts.of_task("document")
                sentences, more, _ = await batcher.texts(encoder, candidates.texts, prompt)
                tokens += more
            best = chain(*await asyncio.to_thread(candidates.best, vectors, sentences))
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
        return reply(facts | {"bm25_only": snapshot.index.bm25_only})

    async def facets(self) -> Response:
        """Fields of the metadata that have few distinct values, and these."""
        return reply({"facets": await asyncio.to_thread(self._index().newest.facets)})

    async def models(self) -> Response:
        """The model served."""
        return reply({"object": "list", "data": [self._info()]})

    async def one_model(self, name: str) -> Response:
        """One model."""
        self._check_name(name)
        return reply(self._info())

    async def health(self) -> Response:
        """Whether the server works."""
        encoder, _ = self.served
        return reply(
            {
                "status": "ok",
                "model": self.name,
                "dimension": encoder.dimension,
                "max_seq_length": encoder.max_seq_length,
                "texts": None if self.library is None else self.library.newest.texts,
                "key_needed": bool(self.settings.api_key),
            }
        )

    async def show_metrics(self) -> Response:
        """Counters for Prometheus."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self.metrics.text(), media_type=kind)


def create_app(
    encoder: Encoder,
    name: str,
    *,
    index: BaseIndex | None = None,
    open_model: OpenModel | None = None,
    settings: ServerSettings | None = None,
    bm25_weight: float | None = None,
    encode: EncodeFn | None = None,
) -> FastAPI:
    """The server as an ASGI application; ``encode`` finishes an index that is not all encoded."""
    library, identity = None, encoder.identity
    if index is not None:
        index.check_model(identity, f"the model {name}")
        library = Library(index, encoder, open_model=open_model, bm25_weight=bm25_weight)
    limits, metrics = settings or ServerSettings(), Metrics()
    batcher = Batcher(limits, metrics.batch)
    metrics.waiting.set_function(lambda: batcher.waiting)
    filtering = ThreadPoolExecutor(FILTERS, thread_name_prefix="filter")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        with ExitStack() as stack:
            if library is not None:
                stack.enter_context(library.followed(encode))
            yield
        await batcher.stop()
        filtering.shutdown(wait=False, cancel_futures=True)

    # The guard checks the key, before a body is read; FastAPI describes that there is one.
    key = [Depends(HTTPBearer(auto_error=False))] if limits.api_key else []
    app = FastAPI(
        title="contrasent",
        description=f"Sentence embeddings of the model {name}.",
        version="1",
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        docs_url=None,
        redoc_url=None,
        dependencies=key,
    )
    _add_routes(app, Routes(encoder, name, identity, batcher, library, metrics, limits, filtering))
    _add_errors(app, limits)
    app.add_middleware(Guard, settings=limits, metrics=metrics)
    if limits.origins:  # outside the guard: a browser asks without the key whether it may ask
        app.add_middleware(
            CORSMiddleware,
            allow_origins=limits.origins,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],  # clients add their own, such as OpenAI's x-stainless-os
            allow_private_network=True,  # Chromium asks, of a page elsewhere for this machine
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


class _Connection(H11Protocol):
    """A connection that is closed if the head of its request is late.

    Uvicorn's ``timeout_keep_alive`` begins after an answer and ends with the first byte of the next
    request (Kludex/uvicorn, issue 157).
    """

    def __init__(self, *, head_timeout: float, **given: Any) -> None:
        super().__init__(**given)
        self.head_timeout = head_timeout
        self.timer: asyncio.TimerHandle | None = None  # while there is no request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # a part of a head, however it is cut up
        self._watch()

    def send_400_response(self, msg: str) -> None:
        # The app, if it is at work on this malformed request, can no longer answer it.
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        # After an answer it is the client's turn, even while it sends the body of that request.
        if self.conn.our_state not in (h11.IDLE, h11.DONE) or self.transport.is_closing():
            self._forget()
        elif self.timer is None:
            self.timer = self.loop.call_later(self.head_timeout, self._late)

    def _late(self, before: float = math.inf) -> None:
        """End the connection, unless its client still reads what is left of the last answer."""
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < before:
            self.timer = self.loop.call_later(self.head_timeout, self._late, unsent)
        else:
            self.transport.abort()

    def _forget(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Server(uvicorn.Server):
    """A server whose process ends in time after a signal, even if its threads are busy."""

    end: threading.Timer | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal; a program that continues afterwards is not ended."""
        try:
            super().run(sockets)
        finally:
            if self.end is not None:
                self.end.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish what was accepted, for some seconds."""
        if self.end is None:
            self.end = threading.Timer(END, os._exit, [128 + sig])
            self.end.daemon = True
            self.end.start()
        super().handle_exit(sig, frame)


def make_server(app: Any, settings: ServerSettings, **options: Any) -> Server:
    """The process that serves an app; it prints nothing about connections or malformed requests."""
    allowed = allow_files(2 * settings.max_connections + OTHERS)
    most = max(1, min(settings.max_connections, (allowed - OTHERS) // 2))
    http: Any = partial(_Connection, head_timeout=settings.head_timeout)
    quiet = {"access_log": False, "log_config": None, "log_level": "error"}
    fixed = {"http": http, "ws": "none", "lifespan": "on", "server_header": False}
    fixed |= {"limit_concurrency": most + 1, "timeout_graceful_shutdown": GRACE}
    return Server(uvicorn.Config(app, **{**quiet, **fixed, **options}))
