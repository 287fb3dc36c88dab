"""The output that pages show, made by running their commands.

    python -m tools.examples README.md docs/quickstart.md

writes the output into the pages. A page's blocks of shell run from top to bottom in a folder that
holds ``examples/``; after the comment ``<!-- printed -->`` stands what the block before printed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "<!-- printed -->"
SKIPPED = ("<!-- not run", "<!-- parse only", "<!-- small")
BLOCK = re.compile(
    r"(?P<note><!-- [^\n]* -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


def run(script: str, folder: Path) -> str:
    """The standard output and error of a shell script."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise RuntimeError(f"{script}\n{done.stdout}")
    return done.stdout


def with_output(text: str) -> str:
    """A page with the output that its commands print today."""
    blocks = list(BLOCK.finditer(text))
    printed, parts, end = "", [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples", folder / "examples")
        (folder / "docs").symlink_to(ROOT / "docs")
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            note = (block["note"] or "").strip()
            shown = after is not None and (after["note"] or "").strip() == MARK
            skipped = note.startswith(SKIPPED) or "contrasent serve" in block["text"]
            if block["language"] == "sh" and (shown or not skipped):
                printed = run(block["text"], folder)
            if note == MARK:
                parts += [text[end : block.start("text")], printed.strip("\n"), "\n"]
                end = block.end("text")
    return "".join([*parts, text[end:]])


def refresh(pages: list[Path]) -> list[Path]:
    """Bring the pages among these that show output up to date; those that show none are left."""
    shown = [page for page in pages if MARK in page.read_text("utf-8")]
    for page in shown:
        page.write_text(with_output(page.read_text("utf-8")), "utf-8")
    return shown


if __name__ == "__main__":
    for page in refresh([Path(name) for name in sys.argv[1:]]):
        print(page)
