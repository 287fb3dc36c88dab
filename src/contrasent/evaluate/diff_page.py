"""A diff as one self-contained page: what changed, by how much, and for whom."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from contrasent.evaluate.diff import Change, Diff, Found
from contrasent.files import atomic_file
from contrasent.pages import document

SIDES = ("old", "new")
STYLE = """
.lists { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; font-size: 14px; }
.lists ol { margin: .2rem 0; padding-left: 1.4rem; } .lists h4 { margin: .4rem 0 0; }
.lists small { color: var(--faint); }
.fresh { border-left: 3px solid #d9822b; padding-left: .4rem; }
.bar { fill: #3d7edb; } .track { fill: var(--band); }
@media (max-width: 40rem) { .lists { grid-template-columns: 1fr; } }
"""


def write_page(target: Path, found: Diff, about: Mapping[str, Mapping[str, Any]], on: str) -> None:
    """Write the page, atomically.

    Args:
        target: the file.
        found: what changed.
        about: of "old" and "new" the name, runtime, dimension, parameters and bytes.
        on: what was searched.

    Raises:
        OutputError: the file cannot be written.
    """
    names = {
        side: Path(str(about[side]["name"])).name or str(about[side]["name"]) for side in SIDES
    }
    kind = "documents as queries, each without itself" if found.own else "queries"
    sampled = f", a sample of {found.of:,}" if found.of > found.documents else ""
    parts = [
        f"<p>{found.queries:,} {kind}; {found.documents:,} documents{sampled}, of {escape(on)}. "
        "Numbers in brackets are 95 % intervals.</p>",
        "<h2>How much is still found</h2>",
        _measures(found),
        "<h2>Scores</h2>",
        _scores(found, names),
        "<h2>Groups</h2>",
        _groups(found),
        "<h2>Speed and size</h2>",
        _sizes(found, about, names),
        "<h2>Queries that changed most</h2>",
        "".join(_change(one, names) for one in found.changed) or "<p>None changed.</p>",
        "<h2>Documents that moved most</h2>",
        _moved(found),
    ]
    title = f"{names['old']} and {names['new']}"
    with atomic_file(target) as stream:
        stream.write(document(f"contrasent diff: {title}", title, parts, style=STYLE))


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    top = "".join(f"<th>{escape(cell)}" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}" for c in row) for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</thead>{body}</table></div>"


def _measures(found: Diff) -> str:
    bars = []
    for at, one in enumerate(found.measures):
        y, x, width = 26 * at, 190, 340
        bars.append(
            f"<text x=0 y={y + 15} fill=currentColor>{escape(one.name)}</text>"
            f"<rect class=track x={x} y={y} width={width} height=18 />"
            f"<rect class=bar x={x} y={y} width={width * one.value:.1f} height=18 />"
            f"<line x1={x + width * one.low:.1f} x2={x + width * one.high:.1f} y1={y + 9} "
            f"y2={y + 9} stroke=currentColor stroke-width=3 />"
            f"<text x={x + width + 8} y={y + 15} fill=currentColor>{one.value:.3f} "
            f"[{one.low:.3f}, {one.high:.3f}]</text>"
        )
    high = 26 * len(found.measures)
    return f'<figure><svg viewBox="0 0 720 {high}" font-size=14>{"".join(bars)}</svg></figure>'


def _scores(found: Diff, names: Mapping[str, str]) -> str:
    rows = [
        (kind, names[side], *(f"{value:.3f}" for value in sides[side]))
        for kind, sides in found.scores.items()
        for side in SIDES
    ]
    text = _table(("scores", "model", "5 %", "25 %", "median", "75 %", "95 %"), rows)
    one = found.threshold
    if one is not None and one.new is not None:
        what = "the same share of hits" if one.kept == "share" else "the same precision of pairs"
        text += (
            f"<p>The threshold {one.old:.4f} must move to <strong>{one.new:.4f}</strong> "
            f"[{one.low:.4f}, {one.high:.4f}] to have {what} above it ({one.at:.1%}).</p>"
        )
    return text


def _groups(found: Diff) -> str:
    rows = [
        (f"{g.kind}: {g.name}", g.queries, f"{g.change:.3f}", f"{g.others:.3f}", f"{g.p:.3f}")
        for g in found.groups
    ]
    if not rows:
        return "<p>No group has enough queries.</p>"
    head = ("queries", "count", "changed", "all others", "p that it is not more (corrected)")
    return _table(head, rows)


def _sizes(found: Diff, about: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> str:
    def shown(value: Any, scale: float, unit: str) -> str:
        return "–" if value is None else f"{value / scale:,.1f} {unit}"

    rows = [
        (
            names[side],
            about[side]["runtime"],
            f"{found.speed[side]:,.0f}",
            about[side]["dimension"],
            shown(about[side]["parameters"], 1e6, "million"),
            shown(about[side]["bytes"], 1e6, "MB"),
        )
        for side in SIDES
    ]
    return _table(("model", "runtime", "texts a second", "dimensions", "parameters", "disk"), rows)


def _change(one: Change, names: Mapping[str, str]) -> str:
    def listed(found: tuple[Found, ...], other: str) -> str:
        lines = []
        for hit in found:
            where = f"{other}: {hit.other}" if hit.other else f"not among 100 of {other}"
            fresh = "" if hit.other and hit.other <= 10 else " class=fresh"
            small = f"<small>{hit.score:.3f} · {escape(where)}</small>"
            lines.append(f"<li{fresh}>{escape(hit.text[:300])} {small}")
        return f"<ol>{''.join(lines)}</ol>"

    return (
        f"<h3>{escape(one.query[:300])}</h3><p class=faint>{one.overlap:.0%} of the first ten in "
        f"common</p><div class=lists><div><h4>{escape(names['old'])}</h4>"
        f"{listed(one.old, names['new'])}</div><div><h4>{escape(names['new'])}</h4>"
        f"{listed(one.new, names['old'])}</div></div>"
    )


def _moved(found: Diff) -> str:
    rows = [(one.text[:200], one.lost, one.gained) for one in found.moved]
    if not rows:
        return "<p>None moved.</p>"
    return _table(("document", "queries that lost it", "queries that find it now"), rows)
