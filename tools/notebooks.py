"""Run the tutorials and keep what they print: docs/tutorials/*.ipynb.

    python -m tools.notebooks [NAME ...]

A notebook is run from a folder of its own with the repository's ``examples`` in it, so that it
leaves nothing behind. For the site each becomes a page with its outputs.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
SECONDS = 900  # of a cell, at most


def run(path: Path, quick: Mapping[str, str] | None = None) -> Any:
    """The notebook with today's outputs; a cell that fails raises ``CellExecutionError``.

    ``quick``: what stands in the place of which text of the cells, so that they take less time.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells if quick else ():
        for text, other in (quick or {}).items():
            cell.source = cell.source.replace(text, other)
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # a bar that nobody sees
    with TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            resources={"metadata": {"path": folder}},
            record_timing=False,
            coalesce_streams=True,  # a busy machine prints in more parts
        )
        client.execute()
    for cell in notebook.cells:  # the same file wherever it is run
        cell.metadata = {}
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def write_pages(target: Path) -> None:
    """Write each notebook as a page, with its pictures beside it."""
    import nbformat
    from nbconvert import MarkdownExporter

    for path in sorted((target / "tutorials").glob("*.ipynb")):
        text, resources = MarkdownExporter().from_notebook_node(nbformat.read(path, as_version=4))
        for name, data in resources["outputs"].items():
            picture = f"{path.stem}_{name}"
            (path.parent / picture).write_bytes(data)
            text = text.replace(f"]({name})", f"]({picture})")
        path.with_suffix(".md").write_text(text, "utf-8")
        path.unlink()


def main() -> None:
    """Run the notebooks that are named, or all, and write them back."""
    import nbformat

    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        nbformat.write(run(path), path)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
