"""HTML reports: templates upon one base page with the style; a page fetches nothing."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("contrasent"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(minus=minus, short=short)
    return made


def minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen; a lone hyphen stays."""
    return text if text == "-" else text.replace("-", "\N{MINUS SIGN}")


def short(text: str, most: int = 160) -> str:
    """A text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def render(template: str, **facts: Any) -> str:
    """A page's text."""
    return _templates().get_template(template).render(**facts)
