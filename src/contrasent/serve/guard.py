"""What stands before every request: host, key, size, time, number; and what is logged after it.

Logs are one JSON object a line with method, route, status and time: never a text, a query, a
header or an address.
"""

import asyncio
import hmac
import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import ip_address, ip_network
from typing import Any

from starlette.responses import Response

from contrasent.serve.metrics import Metrics
from contrasent.serve.settings import Settings

log = logging.getLogger("contrasent.serve")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = frozenset({"/", "/health", "/docs", "/openapi.json", "/page.js", "/page.css", "/docs.js"})
"""Routes that need no key: they hold nothing of the model's or the index's."""

PROBES = frozenset({"/health", "/metrics"})
"""Routes that answer however busy the server is."""

DRAINED = 4
"""Bodies up to so many times the limit are read to their end before they are refused."""

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def client_of(scope: MutableMapping[str, Any]) -> str:
    """Whose request it is: an IPv4 address, or the network of an IPv6 one (a /64 is one client's).

    Used for its share of the server alone, and never logged.
    """
    address = str((scope.get("client") or ("",))[0])
    try:
        known = ip_address(address)
    except ValueError:
        return address
    return address if known.version == 4 else str(ip_network(f"{known}/64", strict=False))


class Refused(Exception):
    """A request that is answered by an error."""

    def __init__(
        self, status: int, message: str, code: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.headers = headers or {}

    def response(self) -> Response:
        """The answer."""
        return error_response(self.status, self.message, self.code, headers=self.headers)


def error_response(
    status: int,
    message: str,
    code: str,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error as OpenAI's clients expect it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    clean = message.encode("utf-8", "replace").decode()
    error = {"message": clean, "type": kind, "param": param, "code": code}
    return Response(json.dumps({"error": error}), status, headers, "application/json")


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.active = 0
        self.of_client: Counter[str] = Counter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        identity = uuid.uuid4().hex
        status = 0
        started = False

        async def sending(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                own = [*HEADERS, (b"x-request-id", identity.encode())]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        counted = scope["path"] not in PROBES
        client = client_of(scope)
        self._count(client, counted)
        try:
            try:
                self._check(scope, counted)
                body = await self._body(scope, receive)
                await self._run(scope, body, receive, sending)
            except Refused as refused:
                if not started:
                    await refused.response()(scope, receive, sending)
        except asyncio.CancelledError:
            status = status or 499
            raise
        finally:
            self._count(client, -counted)
            self._record(scope, status or 499, time.perf_counter() - began, identity)

    def _count(self, client: str, change: int) -> None:
        self.active += change
        self.of_client[client] += change
        if not self.of_client[client]:
            del self.of_client[client]
        self.metrics.active.set(self.active)

    def _check(self, scope: MutableMapping[str, Any], counted: bool) -> None:
        headers = dict(scope["headers"])
        if self.settings.hosts:
            host = headers.get(b"host", b"").decode("latin-1")
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name.lower() not in self.settings.hosts:
                raise Refused(
                    400,
                    "this server does not answer to that Host; allow it with --allow-host",
                    "unknown_host",
                )
        if self.settings.api_key and scope["path"] not in OPEN:
            wanted = f"Bearer {self.settings.api_key}".encode()
            if not hmac.compare_digest(headers.get(b"authorization", b""), wanted):
                raise Refused(
                    401,
                    "a key is needed: Authorization: Bearer KEY",
                    "invalid_api_key",
                    {"WWW-Authenticate": "Bearer"},
                )
        own = self.of_client[client_of(scope)]
        busy = self.active > self.settings.max_requests
        if counted and (busy or own > self.settings.client_requests):
            raise Refused(
                429,
                f"too many requests at work{'' if busy else ' for one client'}; try again",
                "too_many_requests",
                {"Retry-After": "1"},
            )
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != b"application/json":
                raise Refused(415, "the body must be application/json", "unsupported_media_type")

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        """The whole body; one that is too large is read on for a while, unkept.

        A client that is still sending when the answer comes would see a broken connection and
        not the answer.
        """
        limit = self.settings.max_body
        length = dict(scope["headers"]).get(b"content-length", b"0")
        declared = int(length) if length.isdigit() and len(length) < 20 else 0
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.settings.timeout):
                while declared <= DRAINED * limit and size <= DRAINED * limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the client has gone", "disconnected")
                    part = message.get("body", b"")
                    size += len(part)
                    if size <= limit:
                        parts.append(part)
                    else:
                        parts.clear()
                    if not message.get("more_body", False):
                        break
        except TimeoutError as error:
            raise Refused(
                408,
                f"the body did not arrive within {self.settings.timeout:g} s",
                "timeout",
                {"Connection": "close"},
            ) from error
        if max(declared, size) > limit:
            raise Refused(
                413,
                f"the body is larger than {limit:,} bytes",
                "body_too_large",
                {"Connection": "close"},
            )
        return b"".join(parts)

    async def _run(
        self, scope: MutableMapping[str, Any], body: bytes, receive: Receive, send: Send
    ) -> None:
        """Run the app, and stop it when the client goes away."""
        given = False
        never = asyncio.Event()

        async def replay() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await never.wait()
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(self.app(scope, replay, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                return
            await work
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _record(
        self, scope: MutableMapping[str, Any], status: int, seconds: float, identity: str
    ) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        entry = {
            "event": "request",
            "id": identity,
            "method": method,
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 2),
            **scope.get("state", {}).get("facts", {}),
        }
        log.info("%s", json.dumps(entry))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
