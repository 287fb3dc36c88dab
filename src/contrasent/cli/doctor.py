"""``contrasent doctor MODEL [--url URL]``."""

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder


@options.command
def doctor(
    loading: options.Reading,
    model: Annotated[
        str | None, typer.Argument(help="Model folder or name; none to look at this machine.")
    ] = None,
    url: str | None = None,
    name: str | None = None,
    write: bool = False,
) -> options.Output:
    """Check that a model, or a server that serves it, gives the vectors it was saved with.

    Without a model: what is installed, what is missing for what, and what computes. With one:
    what is wrong, such as pooling, a missing head or scaling, tokenisation, truncation,
    precision. Exits with 0 if all is well and with 1 if not. A key for the server is read from
    CONTRASENT_API_KEY.

    Options:
        url: Check a running server instead: http://HOST:PORT/v1 (OpenAI's interface).
        name: What the server calls the model; its first if not given.
        write: Save golden vectors of the model as it is now.
    """
    if model is None:
        if url is not None or write:
            raise OptionError("MODEL", None, "name the model that is checked")
        from contrasent.cli import environment

        found = environment.look()
        return options.Output(asdict(found), "\n".join(environment.lines(found)))
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

    def encoder() -> "Encoder":
        from contrasent.model.encoder import Encoder

        return Encoder.load(
            folder, pooler=loading.pooler, max_tokens=loading.max_tokens, check=False
        )

    if write:
        golden_.write_golden(folder, encoder().golden())
        written = folder / golden_.NAME
        return options.Output(
            {"model": model, "written": str(written)},
            f"{written}: {len(golden_.PROBES)} golden vectors",
        )
    golden = golden_.read_golden(folder)
    if url is None:
        from contrasent.model.doctor import Finding, examine_folder

        findings = examine_folder(encoder(), golden)
        findings += [
            Finding("files", False, f"{path} is not as it was saved")
            for path in golden_.changed_weights(folder)
        ]
    else:
        # Before torch is loaded.
        vectors = RemoteModel(url, name, batch=len(golden.texts))(golden.texts)
        from contrasent.model.doctor import examine_vectors

        findings = examine_vectors(vectors, golden, folder)
    good = all(finding.good for finding in findings)
    lines = [
        f"{'ok   ' if finding.good else 'WRONG'}  {finding.check}: {finding.message}"
        for finding in findings
    ]
    lines.append("all is well" if good else "not the model that was saved")
    checks = [asdict(finding) for finding in findings]
    return options.Output(
        {"model": model, "url": url, "good": good, "findings": checks},
        "\n".join(lines),
        status=0 if good else 1,
    )
