"""The report of an adaptation as one self-contained page: what was read, tried and proven."""

import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from contrasent.adapt.evidence import WRITTEN
from contrasent.files import atomic_file
from contrasent.pages import document
from contrasent.search.index import Index
from contrasent.search.plane import plane

POINTS = 1500
"""Passages on the map."""
WIDTH, HEIGHT = 640, 300
SHORT = 160
OWN_STYLE = """
.verdict { border-left: .35rem solid; padding: .4rem 1rem; margin: 1rem 0; }
.yes { border-color: #2f9e6e; } .no { border-color: #d9822b; }
circle { fill: #3d7edb; fill-opacity: .75; } circle.words { fill: #d9822b; }
circle.chosen { fill: none; stroke: currentColor; stroke-width: 2; }
polyline { fill: none; stroke: #2f9e6e; stroke-width: 1.5; }
text { fill: currentColor; font: 11px system-ui, sans-serif; } line { stroke: var(--line); }
pre { background: var(--band); padding: .6rem 1rem; overflow-x: auto; }
.found { font-size: 14px; margin: .2rem 0 1rem; } .found p { margin: .2rem 0; }
"""


def write_page(target: Path, facts: dict[str, Any], index: Index) -> None:
    """Write the page, atomically.

    Args:
        target: the file.
        facts: as ``report.json`` has them.
        index: of what was shipped, for the map.

    Raises:
        OutputError: the file cannot be written.
    """
    parts = [
        _verdict(facts, target.parent),
        _kinds(facts["verdict"]["kinds"]),
        "<h2>What was tried</h2>",
        _curve(facts),
        _trials(facts),
        "<h2>Queries that changed most</h2>",
        _changes(facts["changes"]),
        "<h2>Quality elsewhere</h2>",
        _elsewhere(facts["verdict"]["general"]),
        "<h2>A map of the collection</h2>",
        _map(index),
        "<h2>What was read</h2>",
        "<ul>" + "".join(f"<li>{escape(line)}" for line in facts["reading"]["lines"]) + "</ul>",
    ]
    title = f"Adaptation of {Path(facts['base']).name}"
    text = document(f"contrasent: {title}", title, parts, style=OWN_STYLE)
    with atomic_file(target) as stream:
        stream.write(text)


def _verdict(facts: dict[str, Any], folder: Path) -> str:
    verdict, yes = facts["verdict"], facts["improved"]
    head = f"Shipped: {facts['shipped']['name']}" if yes else "Shipped: the base, unchanged"
    name = shlex.quote(str(folder))
    commands = f'contrasent search {name}/index "your question"\n'
    commands += f"contrasent serve {name} --index {name}/index"
    advice = "".join(f"<li>{escape(line)}" for line in facts["advice"])
    return (
        f"<div class='verdict {'yes' if yes else 'no'}'><p><strong>{escape(head)}</strong></p>"
        f"<p>{escape(verdict['reason'])}.</p></div><ul>{advice}</ul>"
        f"<p>What to type next:</p><pre>{escape(commands)}</pre>"
    )


def _elsewhere(general: dict[str, Any] | None) -> str:
    """What the chosen model still knows of everyday text."""
    if general is None:
        return "<p>The model's weights are the base's: it has forgotten nothing.</p>"
    return (
        f"<p>{escape(general['task'])}: {general['before']:.3f} before, {general['after']:.3f} "
        f"after. A fall of more than {general['margin']} would be a no.</p>"
    )


def _kinds(kinds: dict[str, Any]) -> str:
    about = (
        "The queries are people's."
        if set(kinds) <= {"real", "click"}
        else "Queries made of the text show how well passages are told apart, not which words your "
        "users will use. Half of the words that a query shares with its answer were taken out."
    )
    if written := [kind for kind in kinds if kind in WRITTEN]:
        about += f" People wrote these, and they are whole: {', '.join(written)}."
    rows = "".join(
        f"<tr><td>{escape(kind)}<td>{one['queries']}<td>{one['before']:.3f}<td>{one['after']:.3f}"
        f"<td>{_change(one)}"
        for kind, one in kinds.items()
    )
    return (
        f"<h2>Before and after, on the sealed part</h2>\n<p class=faint>nDCG@10. {about}</p>\n"
        "<div class=wide>"
        "<table><thead><tr><th>queries<th>count<th>base<th>chosen<th>change, 95 % interval</thead>"
        f"{rows}</table></div>"
    )


def _change(one: dict[str, Any]) -> str:
    """The difference, with its interval where there is one."""
    found = one["difference"]
    if found is None:
        return f"{one['after'] - one['before']:+.3f}"
    return f"{found['value']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"


def _trials(facts: dict[str, Any]) -> str:
    ranked = sorted(facts["trials"], key=lambda one: -one["score"])
    rows = "".join(
        f"<tr><td>{escape(one['candidate']['name'])}<td>{one['score']:+.3f}"
        f"<td>{one['kinds']['all']:.3f}<td>{one['base']:.3f}<td>{one['cost']:.0f}"
        for one in ranked
    )
    return (
        "<div class=wide><table><thead><tr><th>candidate<th>mean log ratio to the base<th>nDCG@10"
        f"<th>the base's, same queries<th>seconds</thead>{rows}</table></div>"
    )


def _curve(facts: dict[str, Any]) -> str:
    """Score of each candidate against the time at which it was measured."""
    trials = facts["trials"]
    seconds = [one["seconds"] for one in trials]
    scores = [one["score"] for one in trials]
    low, high = min(scores), max(*scores, min(scores) + 1e-6)
    most = max(*seconds, 1.0)

    def place(second: float, score: float) -> tuple[float, float]:
        x = 40 + (WIDTH - 60) * second / most
        return x, 20 + (HEIGHT - 60) * (high - score) / (high - low)

    marks = []
    for one in trials:
        x, y = place(one["seconds"], one["score"])
        words = one["candidate"]["fusion"] or not one["candidate"]["model"]
        name = escape(f"{one['candidate']['name']}: {one['score']:+.3f}", quote=True)
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"{" class=words" if words else ""}>'
            f"<title>{name}</title></circle>"
        )
        if one["candidate"] == facts["chosen"]:
            marks.append(f'<circle class=chosen cx="{x:.1f}" cy="{y:.1f}" r="8"/>')
    steps: list[tuple[float, float]] = []
    best = low
    for one in sorted(trials, key=lambda one: float(one["seconds"])):
        if one["candidate"]["model"] and (not steps or one["score"] > best):
            steps += [(one["seconds"], best)] if steps else []
            best = one["score"]
            steps.append((one["seconds"], best))
    points = [place(*step) for step in (*steps, (most, best))]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    _, base = place(0, 0.0)
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Score against time">'
        f'<line x1="40" x2="{WIDTH - 20}" y1="{base:.1f}" y2="{base:.1f}"/>'
        f'<text x="44" y="{base - 4:.1f}">base</text><polyline points="{path}"/>'
        f'<text x="2" y="24">{high:+.2f}</text><text x="2" y="{HEIGHT - 36}">{low:+.2f}</text>'
        f"{''.join(marks)}"
        f'<text x="40" y="{HEIGHT - 12}">0 s</text>'
        f'<text x="{WIDTH - 20}" y="{HEIGHT - 12}" text-anchor="end">{most:.0f} s</text></svg>'
        "<figcaption class=faint>Quality on the selection part against time (mean log ratio "
        "of nDCG@10 to the base's), and the best so far. Blue: vectors; orange: with words; "
        "ringed: chosen.</figcaption></figure>"
    )


def _changes(changes: Sequence[dict[str, Any]]) -> str:
    if not changes:
        return "<p class=faint>None: the base was chosen, or no query's ranking changed.</p>"
    gained = [one for one in changes if one["after"] > one["before"]]
    lost = [one for one in changes if one["after"] < one["before"]]
    return "".join(
        f"<h3>{head}</h3>{''.join(map(_query, some)) or '<p class=faint>None.</p>'}"
        for head, some in (("Gained", gained), ("Lost", lost))
    )


def _query(one: dict[str, Any]) -> str:
    """A query with what each of the two finds; right answers are marked."""
    found = "".join(
        f"<p><em>{label}</em> {'✓ ' if hit['right'] else ''}{escape(_short(hit['text']))}</p>"
        for label, hits in (("base finds", one["base"]), ("chosen finds", one["chosen"]))
        for hit in hits
    )
    return (
        f"<details class=found><summary>{one['before']:.2f} → {one['after']:.2f} · "
        f"{escape(_short(one['query']))} <small>({escape(one['kind'])})</small></summary>"
        f"<p><em>should find</em> {escape(_short(one['answer']))}</p>{found}</details>"
    )


def _map(index: Index) -> str:
    flat = plane(index, limit=POINTS, method="pca")
    dots = []
    for row, (x, y) in zip(flat.rows, flat.points, strict=True):
        text = escape(_short(index.named(int(row))["text"]), quote=True)
        dots.append(
            f'<circle cx="{300 + 290 * float(x):.1f}" cy="{300 - 290 * float(y):.1f}" r="3">'
            f"<title>{text}</title></circle>"
        )
    return (
        f'<figure><svg viewBox="0 0 600 600" role="img" aria-label="Passages on a plane">'
        f"{''.join(dots)}</svg><figcaption class=faint>{len(dots):,} passages on the plane in "
        "which their vectors vary most; a dot's title is its text.</figcaption></figure>"
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"
