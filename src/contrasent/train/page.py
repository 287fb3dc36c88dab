"""A training run as one HTML page, ``report.html``: curves, neighbors, settings, data and time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from contrasent import pictures
from contrasent.errors import MissingExtraError
from contrasent.files import render
from contrasent.train.run import Run, numbers

if TYPE_CHECKING:
    from contrasent.encoder.card import CardMetadata

MOST_POINTS = 400  # of a curve
SHOWN = 6  # texts whose neighbors are listed
TERMS, HELD_OUT, SHARES = "loss and its terms", "held out, with 95 % CI", "share of each term"

Lines = Mapping[str, Sequence[pictures.Point]]


def run_page(
    run: Run,
    facts: "CardMetadata",
    texts: Sequence[str],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
) -> str:
    """The page; ``before`` and ``after`` are each text's nearest by the base and the last model."""
    try:
        drawn, note = pictures.panels(curves(run.log)), ""
    except MissingExtraError as error:
        drawn, note = None, f"Curves are missing: {error}"
    evaluations = [line for line in run.log if "evaluation" in line]
    places = [i * len(texts) // SHOWN for i in range(SHOWN)] if len(before) else []
    return render(
        "training.html",
        window=f": {run.folder.name}",
        heading=f"Training of {run.folder.name}",
        run=run,
        drawn=drawn,
        note=note,
        shares=run.shares,
        evaluations=[(line["step"], line["evaluation"]) for line in evaluations],
        neighbors=[
            (
                texts[i],
                [(texts[j], j not in after[i]) for j in before[i]],
                [(texts[j], j not in before[i]) for j in after[i]],
            )
            for i in places
        ],
        method=facts.objective,
        settings=facts.settings,
        data=facts.data | {"base": facts.base or "not stated"},
        outcome={k: v for k, v in asdict(run).items() if isinstance(v, (int, float, str))},
    )


def curves(log: Sequence[Mapping[str, Any]]) -> dict[str, Lines]:
    """Panels of curves from the lines of a run's log: by title, then by name."""
    panels: dict[str, dict[str, list[pictures.Point]]] = {}
    for line in log:
        step = line["step"]
        for name, value in numbers(line).items():
            kind, _, label = name.rpartition("/")
            title = {"": TERMS, "shares": SHARES}.get(kind, name)
            if name in ("learning_rate", "norm") or (kind == "" and "cosine" in name):
                title = "cosines" if "cosine" in name else name.replace("_", " ")
            if kind in ("", "shares"):
                points = panels.setdefault(title, {}).setdefault(label, [])
                points.append((step, value, value, value))
        for row in line.get("evaluation", ())[:1]:
            ends = [row["value"] if row[end] is None else row[end] for end in ("low", "high")]
            name = f"{row['task']} {row['metric']}"
            held_out = panels.setdefault(HELD_OUT, {}).setdefault(name, [])
            held_out.append((step, row["value"], *ends))
    thinned = {
        title: {name: points[:: -(-len(points) // MOST_POINTS)] for name, points in lines.items()}
        for title, lines in panels.items()
    }
    first = [title for title in (TERMS, HELD_OUT, "learning rate") if title in thinned]
    return {title: thinned[title] for title in (*first, *(t for t in thinned if t not in first))}
