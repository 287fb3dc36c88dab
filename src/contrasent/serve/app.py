"""The server as an application and as a process; :mod:`contrasent.serve.routes` answers."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from contrasent.errors import InputError, UserError
from contrasent.search.opening import AnyIndex
from contrasent.serve import schemas
from contrasent.serve.batching import Batcher, Embedder, Served
from contrasent.serve.guard import ApiError, Guard, Metrics, Settings, error_response
from contrasent.serve.library import Library, OpenModel
from contrasent.serve.routes import Routes

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
    opened = partial(Library, identity=model.identity, open_model=open_model, hybrid=hybrid)
    library = None if index is None else opened(index, lexical_weight=lexical_weight)
    second = None if compare is None else opened(compare)
    embedder = Embedder(model, batcher, limits)
    _add_routes(app, Routes(model, embedder, library, second, metrics, limits))
    _add_pages(app)
    _add_errors(app)
    app.add_middleware(Guard, settings=limits, metrics=metrics)
    return app


def _add_routes(app: FastAPI, routes: Routes) -> None:
    get = partial(app.get, responses=schemas.ERRORS)
    post = partial(app.post, responses=schemas.ERRORS)
    post("/v1/embeddings", response_model=schemas.EmbeddingResponse)(routes.embeddings)
    post("/similarity", response_model=schemas.SimilarityResponse)(routes.similarity)
    post("/search", response_model=schemas.SearchResponse)(routes.search)
    if routes.library is not None and routes.second is not None:
        post("/compare", response_model=schemas.CompareResponse)(routes.compare)
    get("/map", response_model=schemas.MapResponse)(routes.map)
    get("/v1/models", response_model=schemas.ModelList)(routes.models)
    get("/v1/models/{name:path}", response_model=schemas.ModelInfo)(routes.one_model)
    get("/health", response_model=schemas.Health)(routes.health)
    get("/metrics", response_class=Response)(routes.show_metrics)


def _add_pages(app: FastAPI) -> None:
    """Add the pages, which are read once and allow no foreign script."""

    def page(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
        content = (files("contrasent.serve") / "page" / name).read_bytes()

        async def show(_: Request) -> Response:
            return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY})

        return show

    for path, (name, kind) in PAGES.items():
        app.add_route(path, page(name, kind), include_in_schema=False)


def _add_errors(app: FastAPI) -> None:
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

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        # The problem and its place; never the value, which may be text of the user's.
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:100]
        words = f"{where}: {first['msg']}" if where else str(first["msg"])
        param = where.encode("utf-8", "replace").decode()
        return error_response(ApiError(400, words[:300], "invalid"), param)


class Server(uvicorn.Server):
    """Uvicorn, which closes idle connections once and then waits for those that came since."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the accepted requests, and close idle connections, whenever they came."""
        ending = asyncio.create_task(super().shutdown(sockets))
        while not (await asyncio.wait([ending], timeout=0.1))[0]:
            for connection in list(self.server_state.connections):
                connection.shutdown()
        await ending
