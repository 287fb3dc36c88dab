"""Connections: how many there may be, and how long one may take to send the head of a request.

Uvicorn limits neither: its ``limit_concurrency`` answers 503 to those who ask while others keep
their sockets, and its ``timeout_keep_alive`` begins after an answer (Kludex/uvicorn, issue 157).
"""

import asyncio
import os
import socket
import threading
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from contrasent.processes import allow_files
from contrasent.serve.guard import ServerSettings

BACKLOG = 128  # connections that asyncio takes in one turn of its loop
QUEUE = 2048  # connections that the system keeps meanwhile; others retry after a second
TURNS = 5  # turns until excess connections are closed
OTHERS = 64  # file descriptors that are not for connections
GRACE, END = 5, 8  # seconds after a signal: what is left gets 503, and the process ends


class Connection(H11Protocol):
    """A connection that is closed if the head of its request is late, or to make room.

    ``waiting``: connections without a request, the longest waiting first, with their timers.
    """

    def __init__(
        self,
        *,
        most: int,
        head_timeout: float,
        waiting: dict["Connection", asyncio.TimerHandle],
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self.most, self.head_timeout, self.waiting = most, head_timeout, waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most:
            oldest = next(iter(self.waiting))  # this one, where all others are at work
            oldest._give_up()

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
        elif self not in self.waiting:
            self.waiting[self] = self.loop.call_later(self.head_timeout, self._give_up)

    def _forget(self) -> None:
        if self in self.waiting:
            self.waiting.pop(self).cancel()

    def _give_up(self) -> None:
        self._forget()
        self.connections.discard(self)
        self.transport.abort()


class Server(uvicorn.Server):
    """A server whose process ends in time after a signal, whatever its threads are doing."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; asyncio has one number for its turns and for the system's queue."""
        await super().startup(sockets=sockets)
        for listener in sockets or ():
            listener.listen(QUEUE)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish what was accepted, for some seconds."""
        end = threading.Timer(END, os._exit, [128 + sig])
        end.daemon = True
        end.start()
        super().handle_exit(sig, frame)


def make_server(app: Any, settings: ServerSettings, **options: Any) -> Server:
    """The process that serves an app; it prints nothing about connections or malformed requests."""
    files = allow_files(settings.max_connections + TURNS * BACKLOG + OTHERS)
    backlog = max(1, min(BACKLOG, files // 16))
    most = max(1, min(settings.max_connections, files - TURNS * backlog - OTHERS))
    http: Any = partial(Connection, most=most, head_timeout=settings.head_timeout, waiting={})
    quiet = {"access_log": False, "log_config": None, "log_level": "error", "server_header": False}
    fixed = {"http": http, "ws": "none", "lifespan": "on", "backlog": backlog}
    fixed["timeout_graceful_shutdown"] = GRACE
    return Server(uvicorn.Config(app, **{**quiet, **fixed, **options}))
