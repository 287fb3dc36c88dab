"""The notebook runs from top to bottom."""

import re
import shutil

import pytest

from doc_pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's client, not of ours
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    copy = shutil.copy(path, tmp_path)
    notebook = nbformat.read(copy, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 6
    assert not any(cell.outputs for cell in cells), "kept without outputs"
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}})
    client.execute()
    last = cells[-1].outputs[-1]["text"]
    assert re.match(r"before \d\.\d\d, after \d\.\d\d, 16 queries", last)


def test_there_is_one():
    assert len(NOTEBOOKS) == 1
