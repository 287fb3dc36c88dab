"""Runs commands as a shell does, in this process."""

import json

from typer.testing import CliRunner

from contrasent.cli.app import app


def invoke(*arguments, stdin=None):
    """What a command came to; raises what is more than an exit status."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run(*arguments, code=0, stdin=None):
    """The standard output of a command that ends with a status."""
    result = invoke(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    return result.stdout


def printed(*arguments):
    """The JSON that a command prints."""
    return json.loads(invoke(*arguments, "--json", "--quiet").stdout)
