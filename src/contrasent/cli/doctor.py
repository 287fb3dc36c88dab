"""``contrasent doctor MODEL [--url URL]``."""

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli.loading import find_model
from contrasent.cli.options import Json, MaxTokens, ModelName, Pooler, Quiet, emit, quieten
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.model.doctor import Finding


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
        from contrasent.serve.client import RemoteModel, check_address

        check_address(url, "--url")
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
        vectors = RemoteModel(url, name, batch=len(golden.texts))(golden.texts)
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
