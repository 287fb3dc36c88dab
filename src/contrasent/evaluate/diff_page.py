"""A diff as one self-contained page: what changed, by how much, and for whom."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrasent.evaluate.diff import Diff
from contrasent.pages import render

SIDES = ("old", "new")


def page(found: Diff, about: Mapping[str, Mapping[str, Any]], on: str) -> str:
    """The page's text.

    ``about``: of "old" and "new" the name, runtime, dimension, parameters and bytes.
    """
    names = {
        side: Path(str(about[side]["name"])).name or str(about[side]["name"]) for side in SIDES
    }
    title = f"{names['old']} and {names['new']}"

    def millions(value: Any, unit: str) -> str:
        return "–" if value is None else f"{value / 1e6:,.1f} {unit}"

    return render(
        "diff.html",
        window=f" diff: {title}",
        heading=title,
        found=found,
        on=on,
        names=names,
        scores=[
            (kind, names[side], *(f"{value:.3f}" for value in sides[side]))
            for kind, sides in found.scores.items()
            for side in SIDES
        ],
        groups=[
            (f"{g.kind}: {g.name}", g.queries, f"{g.change:.3f}", f"{g.others:.3f}", f"{g.p:.3f}")
            for g in found.groups
        ],
        sizes=[
            (
                names[side],
                about[side]["runtime"],
                f"{found.speed[side]:,.0f}",
                about[side]["dimension"],
                millions(about[side]["parameters"], "million"),
                millions(about[side]["bytes"], "MB"),
            )
            for side in SIDES
        ],
        moved=[(one.text[:200], one.lost, one.gained) for one in found.moved],
    )
