"""A model or an index, opened and served until the process is stopped."""

import errno
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contrasent.errors import ModelError, OptionError, OutputError, import_extra, see
from contrasent.indexing.models import find_index_model, model_settings, open_index_model
from contrasent.indexing.remaining import rest_encoder
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import find_model, open_encoder
from contrasent.processes import release_freed_memory
from contrasent.search.folder import is_any_index
from contrasent.search.index import Index
from contrasent.search.opening import open_index, resolve_index
from contrasent.types import Log, several

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def serve_model(
    model: str | Path,
    *,
    index: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    name: str | None = None,
    api_key: str = "",
    allow_hosts: Sequence[str] = (),
    cors: Sequence[str] = (),
    pooling: str | None = None,
    max_seq_length: int | None = None,
    bm25_weight: float | None = None,
    log: Log = print,
    **limits: Any,
) -> None:
    """Serve a model over HTTP until the process is stopped: embeddings, search and a page.

    An index that is not fully encoded is completed meanwhile, and is searched by BM25 until then.

    Args:
        model: folder or name of a model, or an index, which is served with its own model.
        index: folder of an index of the same model, to search.
        host: address to listen on; by default only this machine.
        port: port number; 0 chooses a free one.
        name: name of the model for clients; its folder's name by default.
        api_key: key that clients must send; no key by default.
        allow_hosts: further host names of this server.
        cors: origins of web pages that may call this server; none by default.
        pooling: pooling of a plain encoder, whose folder does not name one.
        max_seq_length: cut texts at this many tokens.
        bm25_weight: share of BM25 in a score; the index's own if None.
        log: called with the line that has the server's address.
        limits: fields of :class:`contrasent.serve.guard.ServerSettings`, such as ``timeout``.

    Raises:
        MissingExtraError: the packages of the extra "serve" are not installed.
        OptionError: an option has an invalid value.
        OutputError: the port is in use.
        ModelError: the model cannot be opened.
    """
    import_extra("contrasent.serve.app", "serve", "contrasent serve")
    from contrasent.serve.app import create_app, make_server
    from contrasent.serve.guard import ServerSettings

    hosts = _allowed_hosts(host, allow_hosts)
    settings = ServerSettings(api_key=api_key, hosts=hosts, origins=tuple(several(cors)), **limits)
    if index is None and is_any_index(resolve_index(model)):
        index = model
    library = None if index is None else open_index(index)
    try:
        folder = find_model(model)
    except ModelError:
        if library is None or str(index) != str(model):
            raise
        folder = find_index_model(library)
    if library is None and bm25_weight is not None:
        raise OptionError("--bm25-weight", bm25_weight, "needs --index INDEX")
    stored = {} if library is None else model_settings(library)
    opening: dict[str, Any] = {"pooling": pooling, "max_seq_length": max_seq_length}
    opening = {name: value or stored.get(name) for name, value in opening.items()}
    with _listen(host, port) as listener:  # before the model is loaded
        encoder = open_encoder(folder, **opening, light=True)
        release_freed_memory()
        shown, encode = name or Path(model).absolute().name, None
        if isinstance(library, Index) and library.unfinished:
            encode = rest_encoder(library, TaskEncoder(encoder))
        app = create_app(
            encoder,
            shown,
            index=library,
            open_model=lambda index: open_index_model(index).encoder,
            settings=settings,
            bm25_weight=bm25_weight,
            encode=encode,
        )
        address = f"http://{_in_url(host)}:{listener.getsockname()[1]}"
        log(f"{shown} at {address} (page), {address}/v1 (OpenAI's interface), {address}/docs")
        if not hosts:
            log(f"any Host header is accepted on {host}; --allow-host NAME limits it to names")
        make_server(app, settings).run(sockets=[listener])


def _allowed_hosts(host: str, more: Sequence[str]) -> tuple[str, ...]:
    """Names the Host header may have: a foreign web page cannot reach a loopback server."""
    local = host in ("127.0.0.1", "localhost", "::1")
    names = LOOPBACK if local else (*LOOPBACK, _in_url(host.lower()))
    return (*names, *(_in_url(name.lower()) for name in several(more))) if more or local else ()


def _in_url(host: str) -> str:
    """A host as it is in a URL, and in a Host header."""
    return f"[{host}]" if host.count(":") > 1 and host[0] != "[" else host


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before the model is loaded; who connects meanwhile waits."""
    if not host:  # as of a variable that is not set; the system takes it for all addresses
        raise OptionError("--host", host, "is empty; try 127.0.0.1, or 0.0.0.0 for a network")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # two servers may share a port until one does
    except OSError as error:
        listener.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            problem = f"is not an address of this machine; try 0.0.0.0{see('port-taken')}"
            raise OptionError("--host", host, problem) from error
        problem = f"cannot listen there ({error.strerror}); choose another --port"
        raise OutputError(f"{_in_url(host)}:{port}: {problem}{see('port-taken')}") from error
    return listener
