"""Checks before every request (host, key, size, time, number), and the log line after it.

Logs are one JSON object a line with method, route, status and time: never a text, a query, a
header or an address. Metrics are in Prometheus' format, and nothing is sent anywhere.
"""

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import prometheus_client as prometheus
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contrasent.errors import OptionError
from contrasent.progress import Deadline, limited

log = logging.getLogger("contrasent.serve")

OPEN = frozenset({"/", "/health", "/docs", "/openapi.json", "/page.js", "/page.css", "/docs.js"})
"""Routes that need no key: of the model and the index, /health shows the name and the size."""

PROBES = frozenset({"/health", "/metrics"})  # routes that answer however busy the server is

DRAINED = 4  # bodies up to this many times the limit are read to their end before they are rejected

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits of the server; a full queue, or too many requests at work, answers 429."""

    batch_tokens: int = 4096
    queue_tokens: int = 262_144
    max_requests: int = 512
    max_inputs: int = 2048
    max_compared: int = 512  # texts on each side of a comparison
    max_hits: int = 32_768  # k times the queries of a request
    max_text: int = 1 << 20  # bytes of all texts of a request
    max_body: int = 8 * 1024 * 1024
    max_connections: int = 1000  # at most what the limit of open files allows
    head_timeout: float = 10.0  # seconds for a request's method, path and headers
    timeout: float = 60.0  # seconds for a request's body, and for its answer
    api_key: str = ""
    hosts: tuple[str, ...] = ()  # that the Host header may have; empty allows any
    origins: tuple[str, ...] = ()  # of web pages that may call the server; "*" allows any
    root_path: str = ""  # where a proxy shows the server

    def __post_init__(self) -> None:
        origin = "is not an origin such as https://app.example or http://localhost:3000"
        host = "is not a host name such as search.example.org; omit the port and the path"
        root = "must start with a slash and not end with one, such as /embeddings"
        for option, values, form, problem in (
            ("--cors", self.origins, r"https?://[^/\s*@?#]+|\*", origin),
            ("--allow-host", self.hosts, r"[\w.-]+|\[[\w:.%]+\]", host),
            ("--root-path", [self.root_path], r"(/[\w.~-]+)*", root),
        ):
            for value in values:
                if not re.fullmatch(form, value):
                    raise OptionError(option, value, problem)


class ApiError(HTTPException):
    """A request that is answered by an error with a code, as OpenAI's clients expect it."""

    def __init__(
        self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code


def out_of_time(seconds: float) -> ApiError:
    """The error of a request that takes too long."""
    return ApiError(503, f"not done within {seconds:g} s", "timeout", {"Retry-After": "5"})


def error_response(error: HTTPException, param: str | None = None) -> Response:
    """The answer to a request that fails, in OpenAI's form."""
    problem = {
        "message": str(error.detail).encode("utf-8", "replace").decode(),
        "type": "invalid_request_error" if error.status_code < 500 else "server_error",
        "param": param,
        "code": getattr(error, "code", "http"),
    }
    body = json.dumps({"error": problem})
    return Response(body, error.status_code, error.headers, "application/json")


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        base: Any = {"namespace": "contrasent", "registry": self.registry}
        counter, gauge, histogram = prometheus.Counter, prometheus.Gauge, prometheus.Histogram
        labels = ("method", "route", "status")
        self.requests = counter("requests", "Requests answered.", labels, **base)
        about = "Time from the first byte of a request to the last of its answer."
        self.seconds = histogram("request_seconds", about, ["route"], buckets=SECONDS, **base)
        self.active = gauge("active_requests", "Requests in progress.", **base)
        self.waiting = gauge("queue_tokens", "Tokens waiting for a batch.", **base)
        self.tokens = counter("tokens", "Tokens encoded.", **base)
        self.inputs = counter("inputs", "Texts encoded.", **base)
        self.truncated = counter("truncated_inputs", "Truncated texts.", **base)
        about = "Time of a forward pass."
        self.batch_seconds = histogram("batch_seconds", about, buckets=SECONDS, **base)
        self.batch_rows = histogram("batch_rows", "Texts in a forward pass.", buckets=ROWS, **base)

    def batch(self, rows: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.inputs.inc(rows)
        self.tokens.inc(tokens)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """The answer of /metrics."""
        return prometheus.generate_latest(self.registry)


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.settings.root_path:
            scope["root_path"] = self.settings.root_path
        began = time.perf_counter()
        identity = uuid.uuid4().hex
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS | {"x-request-id": identity})
            await send(message)

        route = self._route(scope)
        counted = route not in PROBES
        self._count(counted)
        try:
            self._check(scope, route)
            body = await self._body(scope, receive)
            await self._run(scope, body, receive, sending)
        except ApiError as error:
            if not status:
                await error_response(error)(scope, receive, sending)
        except Exception:  # a fault of the server, which uvicorn logs
            if not status:
                failed = ApiError(500, "the server failed; its log says how", "internal")
                await error_response(failed)(scope, receive, sending)
            raise
        finally:
            self._count(-counted)
            self._record(scope, status or 499, time.perf_counter() - began, identity)

    def _route(self, scope: Scope) -> str:
        """The path within the server, whether a proxy leaves the one before it there or not."""
        path, root = str(scope["path"]), self.settings.root_path
        if root and f"{path}/".startswith(f"{root}/"):
            return path.removeprefix(root) or "/"
        return path

    def _count(self, change: int) -> None:
        self.active += change
        self.metrics.active.set(self.active)

    def _check(self, scope: Scope, route: str) -> None:
        headers, settings = Headers(scope=scope), self.settings
        if settings.hosts:
            host = headers.get("host", "")
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name.lower() not in settings.hosts:
                problem = "this Host is not allowed; allow it with --allow-host"
                raise ApiError(400, problem, "unknown_host")
        if settings.api_key and route not in OPEN:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(key.strip().encode("latin-1"), settings.api_key.encode())
            if not (same and scheme.lower() == "bearer"):
                problem = "an API key is required: Authorization: Bearer KEY"
                raise ApiError(401, problem, "invalid_api_key", {"WWW-Authenticate": "Bearer"})
        if route not in PROBES and self.active > settings.max_requests:
            problem = "too many requests in progress; try again"
            raise ApiError(429, problem, "too_many_requests", {"Retry-After": "1"})
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").split(";")[0].strip().lower()
            if kind != "application/json":
                problem = "the body must be application/json"
                raise ApiError(415, problem, "unsupported_media_type")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body; one that is too large is read on for a while, and dropped."""
        # Answered at once, a client that still sends would see a broken connection.
        limit, parts, size, more = self.settings.max_body, list[bytes](), 0, True
        try:
            async with asyncio.timeout(self.settings.timeout):
                while more and size <= DRAINED * limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "the client has disconnected", "disconnected")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > limit:
                        parts.clear()
        except TimeoutError as error:
            problem = f"the body did not arrive within {self.settings.timeout:g} s"
            raise ApiError(408, problem, "timeout", {"Connection": "close"}) from error
        if size > limit:
            problem = f"the body is larger than {limit:,} bytes"
            raise ApiError(413, problem, "body_too_large", {"Connection": "close"})
        return self._decoded(scope, b"".join(parts))

    def _decoded(self, scope: Scope, body: bytes) -> bytes:
        """A body as the client had it before compressing, which is limited like any other."""
        coding = Headers(scope=scope).get("content-encoding", "").strip().lower()
        if coding in ("", "identity") or not body:
            return body
        if coding not in ("gzip", "x-gzip"):
            problem = f"the body's Content-Encoding {coding[:40]!r} is not supported; use gzip"
            raise ApiError(415, problem, "unsupported_media_type", {"Accept-Encoding": "gzip"})
        unpacking, limit = zlib.decompressobj(wbits=31), self.settings.max_body
        try:
            plain = unpacking.decompress(body, limit + 1)
        except zlib.error as error:
            raise ApiError(
                400, "the body is not gzip, despite its Content-Encoding", "invalid"
            ) from error
        if len(plain) > limit:
            raise ApiError(413, f"the body is larger than {limit:,} bytes", "body_too_large")
        if not unpacking.eof or unpacking.unused_data:
            raise ApiError(400, "the body is not one complete gzip member", "invalid")
        return plain

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the app; it ends when its time is over, its client goes away or the server stops."""
        replayed, seconds = False, self.settings.timeout

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                await asyncio.Event().wait()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        deadline = Deadline(seconds)
        with limited(deadline):
            work = asyncio.ensure_future(self.app(scope, replay, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        gone.add_done_callback(lambda task: task.cancelled() or work.cancel())
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError as error:
            raise out_of_time(seconds) from error
        except asyncio.CancelledError as error:
            if not gone.done():
                problem = "the server is stopping"
                raise ApiError(503, problem, "stopping", {"Connection": "close"}) from error
        finally:
            deadline.cancel()  # for work still running in threads
            gone.cancel()

    def _record(self, scope: Scope, status: int, seconds: float, identity: str) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        about = {"event": "request", "id": identity, "method": method, "route": route}
        entry = {**about, "status": status, "ms": round(1000 * seconds, 2)}
        entry |= scope.get("state", {}).get("facts", {})
        log.info("%s", json.dumps(entry))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
