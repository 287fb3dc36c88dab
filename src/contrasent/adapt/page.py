"""The report of an adaptation as one self-contained page: what was read, tried and proven."""

import shlex
from pathlib import Path
from typing import Any

from contrasent.adapt.evidence import WRITTEN
from contrasent.pages import render
from contrasent.search.index import Index
from contrasent.search.plane import plane

POINTS = 1500
"""Passages on the map."""
WIDTH, HEIGHT = 640, 300


def page(facts: dict[str, Any], folder: Path, index: Index) -> str:
    """The page's text."""
    kinds, changes = facts["verdict"]["kinds"], facts["changes"]
    flat = plane(index, limit=POINTS)
    title = f"Adaptation of {Path(facts['base']).name}"
    return render(
        "adaptation.html",
        **facts,
        window=f": {title}",
        heading=title,
        folder=shlex.quote(str(folder)),
        of_people=set(kinds) <= {"real", "click"},
        written=[kind for kind in kinds if kind in WRITTEN],
        curve=_curve(facts),
        gained=[one for one in changes if one["after"] > one["before"]],
        lost=[one for one in changes if one["after"] < one["before"]],
        dots=[
            (float(x), float(y), row.text)
            for row, (x, y) in zip(index.rows(flat.rows), flat.points, strict=True)
        ],
    )


def _curve(facts: dict[str, Any]) -> dict[str, Any]:
    """Where the score of each candidate stands against the time at which it was measured."""
    trials = facts["trials"]
    scores = [one["score"] for one in trials]
    low, high = min(scores), max(*scores, min(scores) + 1e-6)
    most = max(*(one["seconds"] for one in trials), 1.0)

    def place(second: float, score: float) -> tuple[float, float]:
        x = 40 + (WIDTH - 60) * second / most
        return round(x, 1), round(20 + (HEIGHT - 60) * (high - score) / (high - low), 1)

    marks = []
    for one in trials:
        x, y = place(one["seconds"], one["score"])
        candidate = one["candidate"]
        marks.append(
            {
                "x": x,
                "y": y,
                "name": f"{candidate['name']}: {one['score']:+.3f}",
                "words": candidate["fusion"] or not candidate["model"],
                "chosen": candidate == facts["chosen"],
            }
        )
    steps: list[tuple[float, float]] = []
    best = low
    for one in sorted(trials, key=lambda one: float(one["seconds"])):
        if one["candidate"]["model"] and (not steps or one["score"] > best):
            steps += [(one["seconds"], best)] if steps else []
            best = one["score"]
            steps.append((one["seconds"], best))
    points = [place(*step) for step in (*steps, (most, best))]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "low": low,
        "high": high,
        "seconds": most,
        "base": place(0, 0.0)[1],
        "marks": marks,
        "path": " ".join(f"{x},{y}" for x, y in points),
    }
