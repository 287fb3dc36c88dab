"""The site builds without a warning and asks no other machine for anything."""

import re
import shlex
import subprocess
from contextlib import chdir

import pytest
from tools import examples, figures, site

from commands import run
from doc_pages import ROOT


def in_this_process(script, folder):
    """What ``examples.run`` prints of a script, without an interpreter for each of our commands."""
    printed = ""
    with chdir(folder):
        for line in script.replace("\\\n", " ").splitlines():
            if line.startswith("contrasent "):
                printed += run(*shlex.split(line)[1:])
            else:
                subprocess.run(["sh", "-ec", line], check=True)
    return printed


@pytest.mark.slow
def test_it_builds(capsys, monkeypatch):
    by_shell = examples.run
    index = "contrasent index examples/handbook -o demo-search"  # of the first page
    monkeypatch.setattr(
        examples,
        "run",
        lambda *given: (by_shell if given[0].startswith(index) else in_this_process)(*given),
    )
    site.main()
    assert "No issues found" in capsys.readouterr().out
    pages = sorted((ROOT / "build" / "site").rglob("*.html"))
    assert len(pages) >= 20
    kept = [page for page in pages if "<!-- reference:" in page.read_text("utf-8")]
    assert kept == []
    loads = r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(https?://[^"' >]+)|"""
    loads += r"""<link[^>]*rel=["']?stylesheet[^>]*href=["']?(https?://[^"' >]+)"""
    for page in pages:
        assert not re.findall(loads, page.read_text("utf-8")), page


def test_the_picture_of_the_rooms_refuses_an_import_that_goes_up(monkeypatch):
    assert figures.rooms().count("<rect") == len(figures.FLOOR)
    for name in ("rooms.svg", "batch.svg"):  # ARCHITECTURE.md shows them
        shown = (ROOT / "docs" / "assets" / name).read_text("utf-8")
        assert shown == figures.FIGURES[name](), f"python -m tools.figures docs/assets: {name}"
    monkeypatch.setattr(figures, "imports", lambda: {"text": {"model"}})
    with pytest.raises(ValueError, match="text imports model"):
        figures.rooms()
