"""``contrasent serve MODEL [--index INDEX]``."""

import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.cli.loading import open_model
from contrasent.errors import (
    InputError,
    MissingExtraError,
    ModelError,
    OptionError,
    OutputError,
    see,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contrasent.model.base import Encoder
    from contrasent.serve.batching import Served
    from contrasent.types import Tokens

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
NEEDED = ("fastapi", "uvicorn", "orjson", "prometheus-client")


@options.command
def serve(
    model: options.ModelName,
    loading: options.Reading,
    index: Path | None = None,
    word_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8080,
    name: str | None = None,
    api_key_file: Path | None = None,
    allow_host: list[str] | None = None,
    batch_tokens: Annotated[int, typer.Option(min=64)] = 4096,
    queue_tokens: Annotated[int, typer.Option(min=1024)] = 262144,
    client_share: Annotated[float, typer.Option(min=0.001, max=1.0)] = 0.5,
    max_inputs: Annotated[int, typer.Option(min=1)] = 2048,
    max_body: Annotated[int, typer.Option(min=1024)] = 8 * 2**20,
    timeout: Annotated[float, typer.Option(min=0.1)] = 60.0,
) -> None:
    """Serve a model over HTTP: OpenAI's embeddings interface, search, metrics, and a page at /.

    MODEL may be an index, whose model is served with it.

    Listens on this machine only unless --host says otherwise. Ctrl-C finishes accepted requests.

    Options:
        index: Index folder, made by the same model, for /search; the one in MODEL if not given.
        host: Address to listen on.
        port: Port; 0 takes a free one.
        name: Name of the model for clients; its folder's name if not given.
        api_key_file: File with the key that clients must send; else $CONTRASENT_API_KEY, else
            none.
        allow_host: Host name that clients may use, besides loopback.
        batch_tokens: Tokens in one forward pass.
        queue_tokens: Tokens that may wait; then 429.
        client_share: Share of queue and requests for one client.
        max_inputs: Texts in one request.
        max_body: Bytes in one request.
        timeout: Seconds for one request.
    """
    for package in NEEDED:
        if find_spec(package.replace("-", "_")) is None:
            raise MissingExtraError(package, "serve", "contrasent serve")
    from contrasent.serve.guard import Settings

    settings = Settings(
        batch_tokens=batch_tokens,
        queue_tokens=queue_tokens,
        client_share=client_share,
        max_inputs=max_inputs,
        max_body=max_body,
        timeout=timeout,
        api_key=_read_key(api_key_file),
        hosts=_allowed_hosts(host, allow_host or []),
    )
    from contrasent.indexing.models import find_index_model, model_settings, open_index_model
    from contrasent.model.opening import find_model
    from contrasent.search.folder import is_any_index
    from contrasent.search.opening import index_folder, open_index

    if index is None and is_any_index(index_folder(model)):
        index = Path(model)
    library = None if index is None else open_index(index, private=True)
    try:
        folder = find_model(model)
    except ModelError:
        if library is None or index != Path(model):
            raise
        folder = find_index_model(library)
    weight = options.chosen_weight(word_weight, vectors_only)
    if library is None and weight is not None:
        raise OptionError("--word-weight", weight, "goes with --index INDEX")
    listener = _listen(host, port)
    stored = {} if library is None else model_settings(library)
    chosen = {key: getattr(loading, key) or value for key, value in stored.items()}
    try:
        encoder = open_model(folder, replace(loading, **chosen), light=True).encoder
    except BaseException:
        listener.close()
        raise
    from contrasent.processes import release_freed_memory
    from contrasent.serve.app import create_app
    from contrasent.serve.connections import make_server

    release_freed_memory()

    shown = name or Path(model).name or folder.name
    app = create_app(
        served(encoder, shown),
        index=library,
        open_model=open_index_model,
        settings=settings,
        word_weight=weight,
    )
    address = f"http://{host}:{listener.getsockname()[1]}"
    typer.echo(f"{shown} at {address} (page), {address}/v1 (OpenAI's interface), {address}/docs")
    # One JSON object a line on standard error.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("contrasent.serve")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING if progress.silent() else logging.INFO)
    make_server(app, settings).run(sockets=[listener])


def _read_key(path: Path | None) -> str:
    """The key: of a file, else of the environment, else none."""
    from contrasent.model.remote import KEY

    if path is None:
        return os.environ.get(KEY, "").strip()
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"cannot be read as a key ({error})") from error
    if not key or not key.isascii() or not key.isprintable():
        raise InputError(path, "must hold a key of printable ASCII characters")
    return key


def _allowed_hosts(host: str, more: Sequence[str]) -> tuple[str, ...]:
    """Names the Host header may have: a page of a stranger's cannot reach a loopback server."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return (*LOOPBACK, *(name.lower() for name in more))
    return (*LOOPBACK, host.lower(), *(name.lower() for name in more)) if more else ()


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before the model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except socket.gaierror as error:
        listener.close()
        raise OptionError(
            "--host", host, f"is no address of this machine ({error}){see('port-taken')}"
        ) from error
    except OSError as error:
        listener.close()
        raise OutputError(
            f"{host}:{port}: cannot listen there ({error.strerror}); choose another --port"
            f"{see('port-taken')}"
        ) from error
    return listener


def served(encoder: "Encoder", name: str) -> "Served":
    """An encoder as the server sees it."""
    import numpy as np

    from contrasent.serve.batching import Served
    from contrasent.types import Tokens

    before, after = (ids.tolist() for ids in encoder.tokenizer.frame)
    room = encoder.max_tokens - len(before) - len(after)

    def wrap(rows: Sequence[Sequence[int]]) -> "tuple[Tokens, NDArray[np.bool_]]":
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
        document_prompt=encoder.prompts.of_task("document"),
        nested=encoder.matryoshka_dims,
    )
