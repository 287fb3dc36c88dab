"""The drawn figures of the documentation, from the code and the committed results.

python -m tools.figures build/docs/assets
"""

import ast
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

from contrasent.reproduce.results import stored_book

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "contrasent"
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#333}.t{font-weight:600}.s{font-size:11px}"
    "rect{fill:#f4f6fb;stroke:#7b8bb5}path{fill:none;stroke:#7b8bb5}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#262b3a}}</style>"
)

FLOORS = (
    {"cli": "one command a file"},
    {"serve": "HTTP server and page", "adapters": "other libraries' forms"},
    {"adapt": "documents to a proven search", "reproduce": "tables of papers"},
    {"indexing": "documents to an index", "train": "runs, steps, checkpoints"},
    {
        "evaluate": "reports with intervals",
        "postprocess": "whitening, flow",
        "search": "indexes, BM25, hybrid",
    },
    {"documents": "files to passages", "encoding": "texts to files, in shards"},
    {"objectives": "a method a file"},
    {"engine": "what methods are made of"},
    {"encoder": "torch: backbone, heads"},
    {"model": "without torch: numpy, exports"},
    {"datasets": "sets of the papers, BEIR"},
    {"text": "corpora, tokens, views"},
    {"stats": "intervals and tests"},
    {"losses": "the equations"},
)
"""Rooms and their words by floor, as import-linter holds them to it (pyproject.toml)."""

FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def imports() -> dict[str, set[str]]:
    """Which room imports which, read from the source."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0]
        if room not in FLOOR:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            parts = (module or "").split(".")
            if parts[0] == "contrasent" and len(parts) > 1 and parts[1] in FLOOR:
                found[room].add(parts[1])
        found[room].discard(room)
    return dict(found)


def rooms() -> str:
    """The architecture: a room a box; a ValueError if one imports a room that is not below it."""
    width, height, gap = 190, 46, 66
    parts = []
    for room, needed in imports().items():
        if above := sorted(other for other in needed if FLOOR[other] <= FLOOR[room]):
            raise ValueError(f"{room} imports {', '.join(above)}, which is no floor below it")
    for floor, names in enumerate(FLOORS):
        left = 410 - (len(names) * (width + 16) - 16) / 2
        y = 10 + floor * gap
        for at, (name, words) in enumerate(names.items()):
            x = left + at * (width + 16)
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width}" height="{height}" rx="6"/>'
                f'<text class="t" x="{x + 10:.0f}" y="{y + 19}">{name}/</text>'
                f'<text class="s" x="{x + 10:.0f}" y="{y + 36}">{escape(words)}</text>'
            )
        if floor + 1 < len(FLOORS):
            parts.append(
                f'<path marker-end="url(#a)" d="M410 {y + height + 1} v{gap - height - 4}"/>'
            )
    return _svg(820, 20 + len(FLOORS) * gap, parts, "Rooms of contrasent; imports go down only")


STEPS = (
    ("a line of text", "notes.txt:12", "text/tables.py"),
    ("token ids, once", "[101, 2019, 2214, 102]", "text/cache.py"),
    ("a row of the step", "seed, step: which rows", "text/batches.py"),
    ("views", "crop, repeat, dropout alone", "text/views.py"),
    ("packed rows", "no padding computed", "encoder/attention.py"),
    ("pooled, projected", "(rows, d)", "encoder/backbone.py"),
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


RESULTS = ROOT / "research" / "reproduction" / "results"


def forest(title: str, rows: list[tuple[str, float, float, float]], unit: str) -> str:
    """Differences (name, value, low, high), one a line; those that are no numbers head a group."""
    ends = [end for _, _, low, high in rows for end in (low, high) if end == end]
    least, most = min([*ends, 0.0]), max([*ends, 0.0])
    span = (most - least) or 1.0
    left, right, step = 330, 800, 20

    def x(value: float) -> float:
        return left + (right - left) * (value - least) / span

    height = 50 + step * len(rows)
    parts = [f'<text class="t" x="10" y="18">{escape(title)}</text>']
    parts.append(f'<path stroke-dasharray="3 3" d="M{x(0):.1f} 28 V{height - 22}"/>')
    for at, (name, value, low, high) in enumerate(rows):
        y = 42 + step * at
        head = value != value
        parts.append(
            f'<text class="{"t" if head else "s"}" x="10" y="{y + 4}">{escape(name[:52])}</text>'
        )
        if not head:
            sure = low > 0 or high < 0
            parts.append(f'<path d="M{x(low):.1f} {y} H{x(high):.1f}"/>')
            fill = "#3b5bdb" if sure else "#adb5bd"
            parts.append(f'<circle cx="{x(value):.1f}" cy="{y}" r="4" fill="{fill}"/>')
    for value in (least, 0.0, most):
        parts.append(
            f'<text class="s" text-anchor="middle" x="{x(value):.0f}" y="{height - 6}">'
            f"{value:+.2g} {escape(unit)}</text>"
        )
    return _svg(830, height, parts, title)


def reproduction() -> str:
    """Every row that was run, against its item's reference row, in the item's last column."""
    nothing = float("nan")
    rows: list[tuple[str, float, float, float]] = []
    for item in stored_book(RESULTS)["items"]:
        parts = [part for claim in item["claims"] for part in claim["parts"]]
        if not all(part["effect"]["points"] for part in parts if "effect" in part):
            continue
        column = item["columns"][-1]["name"]
        found = [
            (row["name"], gap["ours"], gap["low"], gap["high"])
            for row in item["rows"]
            if (gap := row["cells"].get(column, {}).get("difference")) and "low" in gap
        ]
        if found:
            title = f"{item['name']}, {item['columns'][-1]['title']}"
            rows += [(title, nothing, nothing, nothing), *found]
    return forest("Differences from the reference row, with 95 % intervals", rows, "points")


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


FIGURES = {
    "rooms.svg": rooms,
    "batch.svg": batch,
    "reproduction.svg": reproduction,
}


def write(folder: Path) -> list[Path]:
    """Write all figures to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (folder / name).write_text(draw(), "utf-8")
    return [folder / name for name in FIGURES]


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)
