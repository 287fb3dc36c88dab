"""The server's own pages: a search box and a map at /, the interface at /docs."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Response

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_pages(app: FastAPI) -> None:
    """Add the pages, which are read once and allow no foreign script."""

    def page(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
        content = (files("contrasent.serve") / "page" / name).read_bytes()

        async def show() -> Response:
            return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY})

        return show

    for path, (name, kind) in PAGES.items():
        app.add_api_route(path, page(name, kind), methods=["GET"], include_in_schema=False)
