"""Runs commands as a shell does, in this process, and what needs processes or disks of its own."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contrasent.cli.app import app


def invoke(*arguments, stdin=None):
    """The result of a command; raises what is more than an exit status."""
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


def script(path, *arguments, timeout=600):
    """The JSON that a script of these tests prints, run in a process of its own."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": paths.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def until(condition):
    """Wait until something holds, for as long as a machine may take that others use too."""
    end = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def collection(home, corpus, queries, judged):
    """A folder in BEIR's layout, of (id, text) or (id, text, title) and a table of judgments."""
    (home / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        rows = [dict(zip(("_id", "text", "title"), row, strict=False)) for row in rows]
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "qrels" / "test.tsv").write_text(judged)
    return home


@contextmanager
def mounted(folder, options):
    """A file system of its own, such as a small or a read-only one; chmod does not stop root."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def another_user(folder):
    """The rights of somebody else, in a folder that anybody may enter."""
    for place in (folder, *folder.parents):
        if str(place).startswith("/tmp/"):
            place.chmod(place.stat().st_mode | 0o055)
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
