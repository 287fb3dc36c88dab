"""Connections: how long one may take to send the head of a request, and how a server ends.

Uvicorn's ``timeout_keep_alive`` begins after an answer and ends with the first byte of the next
request (Kludex/uvicorn, issue 157).
"""

import asyncio
import os
import threading
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from contrasent.processes import allow_files
from contrasent.serve.guard import ServerSettings

OTHERS = 64  # file descriptors that are not for connections
GRACE, END = 5, 8  # seconds after a signal: what is left gets 503, and the process ends


class Connection(H11Protocol):
    """A connection that is closed if the head of its request is late."""

    def __init__(self, *, head_timeout: float, **given: Any) -> None:
        super().__init__(**given)
        self.head_timeout = head_timeout
        self.timer: asyncio.TimerHandle | None = None  # while there is no request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; its head has a limit of time however it is cut up."""
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Report a malformed request; the app, if at work on it, can no longer answer it."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._forget()
        elif self.timer is None:
            self.timer = self.loop.call_later(self.head_timeout, self.transport.abort)

    def _forget(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Server(uvicorn.Server):
    """A server whose process ends in time after a signal, whatever its threads are doing."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish what was accepted, for some seconds."""
        end = threading.Timer(END, os._exit, [128 + sig])
        end.daemon = True
        end.start()
        super().handle_exit(sig, frame)


def make_server(app: Any, settings: ServerSettings, **options: Any) -> Server:
    """The process that serves an app; it prints nothing about connections or malformed requests."""
    files = allow_files(2 * settings.max_connections + OTHERS)
    most = max(1, min(settings.max_connections, (files - OTHERS) // 2))
    http: Any = partial(Connection, head_timeout=settings.head_timeout)
    quiet = {"access_log": False, "log_config": None, "log_level": "error"}
    fixed = {"http": http, "ws": "none", "lifespan": "on", "server_header": False}
    fixed |= {"limit_concurrency": most + 1, "timeout_graceful_shutdown": GRACE}
    return Server(uvicorn.Config(app, **{**quiet, **fixed, **options}))
