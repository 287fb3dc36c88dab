"""The notebook runs from top to bottom."""

import json
import re

import pytest

from doc_pages import ROOT


@pytest.mark.slow
def test_it_runs(tmp_path, monkeypatch, capsys):
    (path,) = (ROOT / "docs" / "notebooks").glob("*.ipynb")
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert len(cells) == 6
    assert not any(cell["outputs"] for cell in cells), "kept without outputs"
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{path.name}:{number}", "exec"), names)
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"before \d\.\d\d, after \d\.\d\d, 16 queries", last)
