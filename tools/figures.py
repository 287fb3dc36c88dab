"""The drawn figures of the documentation, from the code and the committed results.

python -m tools.figures build/docs/assets
"""

import ast
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "contrasent"
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#333}.t{font-weight:600}.s{font-size:11px}"
    "rect{fill:#f4f6fb;stroke:#7b8bb5}path{fill:none;stroke:#7b8bb5}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#262b3a}}</style>"
)

FLOORS = (
    ("cli",),
    ("serve", "adapters"),
    ("adapt", "reproduce"),
    ("train", "evaluate", "postprocess", "search"),
    ("objectives",),
    ("engine",),
    ("model",),
    ("text",),
    ("losses",),
)
"""Rooms by floor, as import-linter holds them to it (pyproject.toml)."""

WORDS = {
    "cli": "one command a file",
    "serve": "HTTP server and page",
    "adapters": "other libraries' forms",
    "adapt": "documents to a proven search",
    "reproduce": "tables of papers",
    "train": "runs, steps, checkpoints",
    "evaluate": "reports with intervals",
    "postprocess": "whitening, flow",
    "search": "indexes, BM25, hybrid",
    "objectives": "a method a file",
    "engine": "what methods are made of",
    "model": "text to vectors",
    "text": "corpora, tokens, views",
    "losses": "the equations",
}


def imports() -> dict[str, set[str]]:
    """Which room imports which, read from the source."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0]
        if room not in WORDS:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            parts = (module or "").split(".")
            if parts[0] == "contrasent" and len(parts) > 1 and parts[1] in WORDS:
                found[room].add(parts[1])
        found[room].discard(room)
    return dict(found)


def rooms() -> str:
    """The architecture: a room a box; what a room imports lies on a floor below it.

    Raises:
        ValueError: a room imports one above it, so that the picture would be wrong.
    """
    width, height, gap = 190, 46, 66
    floors = {name: number for number, names in enumerate(FLOORS) for name in names}
    parts = []
    for room, needed in imports().items():
        if above := sorted(other for other in needed if floors[other] <= floors[room]):
            raise ValueError(f"{room} imports {', '.join(above)}, which is no floor below it")
    for floor, names in enumerate(FLOORS):
        left = 410 - (len(names) * (width + 16) - 16) / 2
        y = 10 + floor * gap
        for at, name in enumerate(names):
            x = left + at * (width + 16)
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width}" height="{height}" rx="6"/>'
                f'<text class="t" x="{x + 10:.0f}" y="{y + 19}">{name}/</text>'
                f'<text class="s" x="{x + 10:.0f}" y="{y + 36}">{escape(WORDS[name])}</text>'
            )
        if floor + 1 < len(FLOORS):
            parts.append(
                f'<path marker-end="url(#a)" d="M410 {y + height + 1} v{gap - height - 4}"/>'
            )
    return _svg(820, 20 + len(FLOORS) * gap, parts, "Rooms of contrasent; imports go down only")


STEPS = (
    ("a line of text", "notes.txt:12", "text/readers.py"),
    ("token ids, once", "[101, 2019, 2214, 102]", "text/cache.py"),
    ("a row of the step", "seed, step: which rows", "text/batches.py"),
    ("views", "crop, repeat, dropout alone", "text/views/"),
    ("packed layers", "no padding computed", "model/packed.py"),
    ("pooled, projected", "(rows, d)", "model/pooled.py"),
    ("cosines / temperature", "(rows, candidates)", "engine/contrast.py"),
    ("loss", "a number, and its gradient", "losses/contrastive.py"),
)
"""Stations of a batch. The files are checked to be there."""


def batch() -> str:
    """The way of a batch from text to the loss."""
    width, height = 190, 64
    parts = []
    for at, (title, example, file) in enumerate(STEPS):
        if not (SOURCE / file).exists():
            raise FileNotFoundError(SOURCE / file)
        row, column = divmod(at, 4)
        x, y = 10 + column * (width + 14), 10 + row * (height + 40)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
            f'<text class="t" x="{x + 10}" y="{y + 19}">{escape(title)}</text>'
            f'<text class="s" x="{x + 10}" y="{y + 37}">{escape(example)}</text>'
            f'<text class="s" x="{x + 10}" y="{y + 54}">{escape(file)}</text>'
        )
        if column < 3:
            parts.append(f'<path marker-end="url(#a)" d="M{x + width} {y + height / 2:.0f} h10"/>')
    turn = f"M{10 + 3 * 204 + 95} {10 + height} v20 H{10 + 95} v16"
    parts.append(f'<path marker-end="url(#a)" d="{turn}"/>')
    return _svg(830, 200, parts, "A training batch, from a line of text to the loss")


def _svg(width: int, height: int, parts: list[str], title: str) -> str:
    arrow = (
        '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="5" refY="3" orient="auto">'
        '<path d="M0 0 L6 3 L0 6 z" style="fill:#7b8bb5"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{STYLE}{arrow}'
        + "".join(parts)
        + "</svg>\n"
    )


def write(folder: Path) -> list[Path]:
    """Write all figures.

    Args:
        folder: where they go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (("rooms.svg", rooms), ("batch.svg", batch)):
        (folder / name).write_text(draw(), "utf-8")
    return [folder / "rooms.svg", folder / "batch.svg"]


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)
