"""Build the documentation: docs/ with what its commands print, a reference and figures.

    python -m tools.site

The result is build/site. Nothing is fetched, here or by the pages; their search needs a server,
such as ``python -m http.server -d build/site``, since browsers give files no workers.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import examples, figures, notebooks, reference

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"


def prepare(target: Path) -> None:
    """Put together what the generator reads.

    Args:
        target: folder to make.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target)
    for results in (target / "reproduction").rglob("results"):
        shutil.rmtree(results)
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")
    (target / "changelog.md").write_text(changes, "utf-8")
    reference.write(target / "reference", target / "schemas")
    figures.write(target / "assets")
    notebooks.write_pages(target)
    for page in target.rglob("*.md"):
        text = page.read_text("utf-8")
        page.write_text(re.sub(r"(\]\([\w./-]+)\.ipynb\)", r"\1.md)", text), "utf-8")
    examples.refresh(sorted(target.rglob("*.md")))


def main() -> None:
    """Build; any warning of the generator is an error."""
    prepare(BUILD / "docs")
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [zensical, "build", "--clean"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    print(printed, end="")
    if done.returncode or "warning" in printed.lower():
        sys.exit(done.returncode or 1)
    print(f"{BUILD / 'site' / 'index.html'}, or with search: python -m http.server -d build/site")


if __name__ == "__main__":
    main()
