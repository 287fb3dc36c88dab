"""``contrasent check-objective METHOD``."""

import os
from dataclasses import asdict
from typing import Annotated

import typer

from contrasent import progress
from contrasent.cli.options import Json, Quiet, emit

SIGNS = {True: "ok", False: "FAILED", None: "-"}


def check_objective(
    method: Annotated[str, typer.Argument(help="A file (my_method.py), a name, or module:Class.")],
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter, key=value; may be repeated. Where a masked language model or a "
            "guide is wanted, 'small' is that of the check.",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check a training method of your own on a small encoder, in float64, without a download.

    One step, its randomness, the gradient by differences, cached gradients, a resume, two
    processes, and its combination with SimCSE. Exits with 1 if a check fails.
    """
    progress.show("silent")
    # Of two processes torch would say that all parameters are used, as they should be.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from contrasent.train.settings import assignments, choose

    given = choose(assignments(assign or []), method).objective
    from contrasent.train.method_checks import check_objective as findings

    found = []
    for finding in findings(method, given):
        found.append(finding)
        if not as_json and not (quiet and finding.passed):
            typer.echo(f"{SIGNS[finding.passed]:>6}  {finding.check}: {finding.detail}")
    if as_json:
        emit({"method": method, "checks": [asdict(finding) for finding in found]})
    if any(finding.passed is False for finding in found):
        raise typer.Exit(1)
