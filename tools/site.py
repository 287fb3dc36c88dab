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
from functools import partial
from pathlib import Path

from tools import examples, figures, notebooks, reference

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
FORGE = "https://github.com/contrasent/contrasent/blob/main"
FOLDERS = ("assets", "schemas", "tutorials")
INSERTED = {"settings": "methods.md", "formats": "formats.md"}
"""Generated pages that become a part of a written one."""
PART = re.compile(r"<!-- reference: (\w+) -->\n.*?<!-- end -->\n", re.S)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def prepare(target: Path) -> None:
    """Put together what the generator reads."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, target)
    for folder in FOLDERS:
        shutil.copytree(ROOT / "docs" / folder, target / folder)
    reference.write(target / "reference", target / "schemas")
    figures.write(target / "assets")
    notebooks.write_pages(target)
    for page in target.rglob("*.md"):
        here = partial(_placed, page=page, target=target)
        page.write_text(LINK.sub(here, page.read_text("utf-8")), "utf-8")
    for page in target.glob("*.md"):
        here = partial(_generated, target=target)
        page.write_text(PART.sub(here, page.read_text("utf-8")), "utf-8")
    for name in INSERTED:
        (target / "reference" / f"{name}.md").unlink()
    examples.refresh(sorted(target.rglob("*.md")))


def _placed(link: re.Match[str], page: Path, target: Path) -> str:
    """A link to a notebook, to an inserted page or out of the documentation, as the site has it."""
    to = Path(os.path.normpath(page.parent / link[1]))
    if not to.is_relative_to(target):
        return f"]({FORGE}/{to.relative_to(target.parent)}"
    if to.suffix == ".ipynb":
        to = to.with_suffix(".md")
    if to.parent == target / "reference":
        to = target / INSERTED.get(to.stem, to.relative_to(target))
    here = page.parent
    if here == target / "reference" and page.stem in INSERTED:
        here = target
    return f"]({Path(os.path.relpath(to, here)).as_posix()}"


def _generated(part: re.Match[str], target: Path) -> str:
    """A generated page without its title, each heading a level lower."""
    text = (target / "reference" / f"{part[1]}.md").read_text("utf-8").partition("\n")[2]
    return re.sub(r"^#", "##", text.lstrip("\n"), flags=re.M)


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
