"""The frame and the style of every HTML report; nothing is fetched by a page.

A page holds its style, and reads the same on any machine.
"""

from collections.abc import Iterable
from html import escape

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2127; --faint: #5f6b76;
  --line: #d5dae0; --band: #f4f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e4e8ec; --faint: #9aa5b1; --line: #353c44; --band: #1c2126; } }
body { background: var(--paper); color: var(--ink); margin: 0 auto; max-width: 62rem;
  padding: 1.5rem 1rem 4rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p, li { max-width: 46rem; } .faint { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
  background: var(--paper); }
thead th { min-width: 5.5rem; max-width: 15rem; overflow-wrap: anywhere; white-space: normal; }
tr.total td { font-weight: 600; background: var(--band); }
td small { display: block; color: var(--faint); font-weight: 400; }
.listing td { white-space: normal; min-width: 14rem; text-align: left; }
figure { margin: 0; overflow-x: auto; }
svg { width: 44rem; max-width: 100%; min-width: 30rem; height: auto; color: var(--ink); }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) minmax(50%, 1fr);
  gap: .2rem 1rem; font-size: 14px; }
summary { cursor: pointer; color: var(--faint); }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
"""


def document(title: str, heading: str, parts: Iterable[str], *, style: str = "") -> str:
    """A whole page in the style of all reports.

    Args:
        title: of the window, as text.
        heading: of the page, as text.
        parts: HTML, one below the other.
        style: further CSS.
    """
    return (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(heading)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )
