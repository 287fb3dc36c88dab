"""``contrasent doctor MODEL [--url URL]``."""

import base64
import json
import logging
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np
import typer

from contrasent.cli.loading import find_model
from contrasent.cli.options import Json, MaxTokens, ModelName, Pooler, Quiet, emit, quieten
from contrasent.errors import ModelError, OptionError
from contrasent.types import Vectors

if TYPE_CHECKING:
    from contrasent.model.doctor import Finding
    from contrasent.model.golden import Golden

KEY = "CONTRASENT_API_KEY"
LARGEST = 256 * 1024 * 1024


def doctor(
    model: ModelName,
    url: Annotated[
        str | None,
        typer.Option(
            help="Check a running server instead: http://HOST:PORT/v1 (OpenAI's interface)."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the server calls the model; its first if not given.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Save golden vectors of the model as it is now.")
    ] = False,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check that a model, or a server that serves it, gives the vectors it was saved with.

    Says what is wrong: pooling, a missing head or scaling, tokenisation, truncation, precision.
    Exits with 0 if all is well and with 1 if not. A key for the server is read from
    CONTRASENT_API_KEY.
    """
    quieten(quiet)
    if url is not None and write:
        raise OptionError(
            "--write", True, "golden vectors are made from a folder, not from a --url"
        )
    if url is not None:
        check_url(url)
    folder = find_model(model)
    logging.getLogger("contrasent.model.encoder").setLevel(logging.ERROR)  # a probe is too long
    from contrasent.model import golden as golden_

    if write:
        from contrasent.model.encoder import Encoder

        encoder = Encoder.load(folder, pooler=pooler, max_tokens=max_tokens)
        golden_.write_golden(folder, encoder.golden())
        if as_json:
            emit({"model": model, "written": str(folder / golden_.NAME)})
        else:
            typer.echo(f"{folder / golden_.NAME}: {len(golden_.PROBES)} golden vectors")
        return
    golden = golden_.read_golden(folder)
    if url is None:
        from contrasent.model.doctor import examine_folder
        from contrasent.model.encoder import Encoder

        encoder = Encoder.load(folder, pooler=pooler, max_tokens=max_tokens)
        findings = examine_folder(encoder, golden)
    else:
        vectors = ask(url, name, golden)
        from contrasent.model.doctor import examine_vectors

        findings = examine_vectors(vectors, golden, folder)
    report(findings, model, url, as_json)


def report(findings: "list[Finding]", model: str, url: str | None, as_json: bool) -> None:
    """Print what was found; ends with 1 if something is wrong."""
    good = all(finding.good for finding in findings)
    if as_json:
        checks = [asdict(finding) for finding in findings]
        emit({"model": model, "url": url, "good": good, "findings": checks})
    else:
        for finding in findings:
            mark = "ok   " if finding.good else "WRONG"
            typer.echo(f"{mark}  {finding.check}: {finding.message}")
        typer.echo("all is well" if good else "not the model that was saved")
    if not good:
        raise typer.Exit(1)


def check_url(url: str) -> None:
    """Refuse what is no http address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError("--url", url, "is no http:// or https:// address")


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: the key goes to the named server alone."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        """Follow nothing."""
        return


def ask(url: str, name: str | None, golden: "Golden") -> Vectors:
    """The probes' vectors from a server with OpenAI's interface.

    Raises:
        ModelError: it does not answer, or not with vectors.
    """
    base = url.rstrip("/")
    base = base if base.endswith("/v1") else f"{base}/v1"
    called = name or str(_talk(f"{base}/models", None)["data"][0]["id"])
    body = {"model": called, "input": list(golden.texts), "encoding_format": "float"}
    answer = _talk(f"{base}/embeddings", body)
    try:
        rows = sorted(answer["data"], key=lambda item: item["index"])
        vectors = np.array([_vector(row["embedding"]) for row in rows], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{base}: did not answer with vectors ({error})") from error
    if vectors.ndim != 2 or len(vectors) != len(golden.texts) or not np.isfinite(vectors).all():
        raise ModelError(f"{base}: gave {vectors.shape} for {len(golden.texts)} texts")
    return vectors


def _vector(value: Any) -> Any:
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value), dtype="<f4")
    return value


def _talk(url: str, body: Any) -> dict[str, Any]:
    headers = {"Accept": "application/json"}
    key = os.environ.get(KEY, "").strip()
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    try:
        opener = build_opener(_NoRedirect)
        with opener.open(Request(url, data, headers), timeout=120) as answer:
            found = json.loads(answer.read(LARGEST))
    except HTTPError as error:
        with error:
            body = error.read(500).decode("utf-8", "replace")
        raise ModelError(f"{url}: answered {error.code}: {' '.join(body.split())}") from error
    except (URLError, OSError) as error:
        raise ModelError(f"{url}: does not answer ({getattr(error, 'reason', error)})") from error
    except ValueError as error:
        raise ModelError(f"{url}: did not answer with JSON") from error
    if not isinstance(found, dict):
        raise ModelError(f"{url}: did not answer with a JSON object")
    return found
