"""Pictures of pages in a browser; they need Playwright and a Chromium.

python -m tools.pictures search INDEX "a query" docs/assets/search.png
python -m tools.pictures page build/report.html docs/assets/report.png
python -m tools.pictures site FOLDER     every page of build/site, at three widths, light and dark
"""

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WIDTHS = (390, 768, 1280)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


def search(index: str, query: str, target: str) -> None:
    """The search page with the answers to a query."""
    contrasent = str(Path(sys.executable).with_name("contrasent"))
    command = [contrasent, "serve", index, "--port", "8459"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    try:
        with browser() as opened:
            page = opened.new_page(viewport={"width": 900, "height": 620}, color_scheme="light")
            page.goto("http://127.0.0.1:8459")
            page.fill("#query", query)
            page.press("#query", "Enter")
            page.locator("#results li").first.wait_for()
            page.screenshot(path=target)
    finally:
        server.terminate()
        server.wait()


def page(source: str, target: str) -> None:
    """The top of an HTML file."""
    with browser() as opened:
        shown = opened.new_page(viewport={"width": 900, "height": 760}, color_scheme="light")
        shown.goto(Path(source).resolve().as_uri())
        shown.screenshot(path=target)


def site(folder: str) -> None:
    """Every page of the site; what is wider than the window is named."""
    built, target = ROOT / "build" / "site", Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(built))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with browser() as opened:
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                shown = opened.new_page(
                    viewport={"width": width, "height": 900}, color_scheme=scheme
                )
                for path in sorted(built.rglob("*.html")):
                    name = path.relative_to(built).with_suffix("").as_posix()
                    shown.goto(f"{address}/{name}.html")
                    wide = shown.evaluate("document.documentElement.scrollWidth") - width
                    if wide > 0:
                        print(f"{name} at {width}: {wide} pixels too wide")
                    file = f"{name.replace('/', '-')}-{width}-{scheme}.png"
                    shown.screenshot(path=target / file, full_page=True)
                shown.close()
    server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, format: str, *values: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"search": search, "page": page, "site": site}
    commands[sys.argv[1]](*sys.argv[2:])
