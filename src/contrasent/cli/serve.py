"""``contrasent serve MODEL [--index INDEX]``."""

import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from contrasent.cli.loading import Model, find_model, open_model
from contrasent.cli.options import (
    Hybrid,
    LexicalWeight,
    MaxTokens,
    ModelName,
    Pooler,
    Quiet,
    quieten,
)
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError
from contrasent.serve.client import KEY
from contrasent.types import Tokens

if TYPE_CHECKING:
    from contrasent.serve.settings import Served

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
NEEDED = {"fastapi": "fastapi", "uvicorn": "uvicorn", "orjson": "orjson"}


def serve(
    model: ModelName,
    index: Annotated[
        Path | None, typer.Option(help="Index folder, made by the same model, for /search.")
    ] = None,
    hybrid: Hybrid = None,
    lexical_weight: LexicalWeight = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    name: Annotated[
        str | None,
        typer.Option(help="What clients call the model; its folder's name if not given."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help=f"File with the key that clients must send; else ${KEY}, else none."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name that clients may use, besides loopback.")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens in one forward pass.")] = 4096,
    queue_tokens: Annotated[
        int, typer.Option(min=1024, help="Tokens that may wait; then 429.")
    ] = 262_144,
    client_share: Annotated[
        float,
        typer.Option(min=0.001, max=1.0, help="Share of queue and requests for one client."),
    ] = 0.5,
    max_inputs: Annotated[int, typer.Option(min=1, help="Texts in one request.")] = 2048,
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes in one request.")] = 8 * 2**20,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one request.")] = 60.0,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    quiet: Quiet = False,
) -> None:
    """Serve a model over HTTP: OpenAI's embeddings interface, search, metrics, and a page at /.

    Listens on this machine only unless --host says otherwise. Ctrl-C finishes what was accepted.
    """
    quieten(quiet)
    need_server()
    from contrasent.serve.settings import Settings

    settings = Settings(
        batch_tokens=batch_tokens,
        queue_tokens=queue_tokens,
        client_share=client_share,
        max_inputs=max_inputs,
        max_body=max_body,
        timeout=timeout,
        api_key=read_key(api_key_file),
        hosts=allowed_hosts(host, allow_host or []),
    )
    folder = find_model(model)
    from contrasent.search.opening import open_index

    library = None if index is None else open_index(index)
    if library is None and (hybrid or lexical_weight is not None):
        raise OptionError("--hybrid", True, "goes with --index INDEX")
    listener = listen(host, port)
    stored = {} if library is None else library.manifest.settings
    encode = open_model(
        folder,
        pooler=pooler or stored.get("pooler"),
        max_tokens=max_tokens or stored.get("max_tokens"),
    )
    import uvicorn

    from contrasent.memory import release_freed_memory
    from contrasent.serve.app import create_app

    release_freed_memory()

    shown = name or Path(model).name or folder.name
    app = create_app(
        served(encode.encoder, shown),
        index=library,
        settings=settings,
        hybrid=hybrid,
        lexical_weight=lexical_weight,
    )
    address = f"http://{host}:{listener.getsockname()[1]}"
    typer.echo(f"{shown} at {address} (page), {address}/v1 (OpenAI's interface), {address}/docs")
    log_lines(quiet)
    config = uvicorn.Config(app, access_log=False, log_config=None, server_header=False)
    uvicorn.Server(config).run(sockets=[listener])


def need_server() -> None:
    """Refuse to go on without the extra."""
    from importlib.util import find_spec

    for module, package in {**NEEDED, "prometheus_client": "prometheus-client"}.items():
        if find_spec(module) is None:
            raise MissingExtraError(package, "serve", "contrasent serve")


def read_key(path: Path | None) -> str:
    """The key: of a file, else of the environment, else none."""
    if path is None:
        return os.environ.get(KEY, "").strip()
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"cannot be read as a key ({error})") from error
    if not key or not key.isascii() or not key.isprintable():
        raise InputError(path, "must hold a key of printable ASCII characters")
    return key


def allowed_hosts(host: str, more: Sequence[str]) -> tuple[str, ...]:
    """Names the Host header may have: a page of a stranger's cannot reach a loopback server."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return (*LOOPBACK, *(name.lower() for name in more))
    return (*LOOPBACK, host.lower(), *(name.lower() for name in more)) if more else ()


def listen(host: str, port: int) -> socket.socket:
    """Take the port before the model is loaded.

    Raises:
        OutputError: it is taken, or the address is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except socket.gaierror as error:
        listener.close()
        raise OptionError("--host", host, f"is no address of this machine ({error})") from error
    except OSError as error:
        listener.close()
        raise OutputError(
            f"{host}:{port}: cannot listen there ({error.strerror}); choose another --port"
        ) from error
    return listener


def log_lines(quiet: bool) -> None:
    """One JSON object a line on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("contrasent.serve")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


def served(encoder: Model, name: str) -> "Served":
    """An encoder as the server sees it."""
    from contrasent.serve.settings import Served

    before, after = (ids.tolist() for ids in encoder.tokenizer.frame)
    room = encoder.max_tokens - len(before) - len(after)

    def wrap(rows: Sequence[Sequence[int]]) -> tuple[Tokens, NDArray[np.bool_]]:
        framed = Tokens.from_rows([[*before, *row[:room], *after] for row in rows])
        return framed, np.array([len(row) > room for row in rows], dtype=bool)

    return Served(
        name=name,
        identity=encoder.identity,
        dimension=encoder.dimension,
        max_tokens=encoder.max_tokens,
        vocabulary=encoder.tokenizer.size,
        tokenise=encoder.tokenise,
        wrap=wrap,
        embed=encoder.embed,
        prompts=dict(encoder.prompts.texts),
        default_prompt=encoder.prompts.text(),
        query_prompt=encoder.prompts.of_task("query"),
        nested=getattr(encoder, "nested", ()),
    )
