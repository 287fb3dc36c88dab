"""``contrasent serve MODEL [--index INDEX]``."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.errors import InputError


@options.command
def serve(
    model: options.ModelName,
    loading: options.Reading,
    index: Path | None = None,
    bm25_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8080,
    name: str | None = None,
    api_key_file: Path | None = None,
    allow_host: list[str] | None = None,
    cors: list[str] | None = None,
    root_path: str = "",
    batch_tokens: Annotated[int, typer.Option(min=64)] = 4096,
    queue_tokens: Annotated[int, typer.Option(min=1024)] = 262144,
    max_inputs: Annotated[int, typer.Option(min=1)] = 2048,
    max_text: Annotated[int, typer.Option(min=1024)] = 2**20,
    max_body: Annotated[int, typer.Option(min=1024)] = 8 * 2**20,
    timeout: Annotated[float, typer.Option(min=0.1)] = 60.0,
) -> None:
    """Serve a model over HTTP: OpenAI's embeddings interface, search, metrics, and a page at /.

    MODEL may be an index, which is served with its model. Rows that are not encoded yet are encoded
    in the background.

    Listens only on this machine unless --host says otherwise. Ctrl-C finishes accepted requests.

    Options:
        index: Index folder, made by the same model, for /search. [default: the index in MODEL]
        host: Address to listen on.
        port: Port; 0 takes a free one.
        name: Name of the model for clients. [default: its folder's name]
        api_key_file: File with the key that clients must send. [default: $CONTRASENT_API_KEY, if
            set]
        allow_host: Host name that clients may use, in addition to loopback.
        cors: Origin of web pages that may call the server, such as https://app.example, or '*' for
            any. [default: none]
        root_path: Path under which a proxy shows the server, such as /embeddings.
        batch_tokens: Tokens in one forward pass.
        queue_tokens: Tokens that may wait; beyond that the answer is 429.
        max_inputs: Texts in one request.
        max_text: Bytes of all texts in one request.
        max_body: Bytes in one request.
        timeout: Seconds for one request.
    """
    from contrasent.model.remote import KEY, check_key
    from contrasent.serve.run import serve_model

    # The key: of a file, else of the environment, else none.
    given = os.environ.get(KEY)
    if api_key_file is not None:
        try:
            given = api_key_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(api_key_file, f"cannot be read as a key ({error})") from error
    key = "" if given is None else check_key(given, api_key_file or KEY)
    # One JSON object a line on standard error.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(options.LineFormatter("%(message)s"))
    logger = logging.getLogger("contrasent.serve")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING if progress.silent() else logging.INFO)
    progress.show("silent")
    serve_model(
        model,
        index=index,
        host=host,
        port=port,
        name=name,
        api_key=key,
        allow_hosts=allow_host or [],
        cors=cors or [],
        root_path=root_path,
        pooling=loading.pooling,
        max_seq_length=loading.max_seq_length,
        bm25_weight=options.chosen_weight(bm25_weight, vectors_only),
        log=options.echo,
        batch_tokens=batch_tokens,
        queue_tokens=queue_tokens,
        max_inputs=max_inputs,
        max_text=max_text,
        max_body=max_body,
        timeout=timeout,
    )
