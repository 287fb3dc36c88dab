"""Several runs that differ in some settings, and the choice among them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from contrasent.engine.registry import parameters
from contrasent.report import Row, laid_out, shown
from contrasent.train.run import Run
from contrasent.train.settings import choose, run_settings


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One of the runs: its name, by which its folder is called, and what it was given."""

    name: str
    given: dict[str, Any]
    run: Run | None = None
    problem: str = ""  # why there is no run

    @property
    def evaluation(self) -> list[Row]:
        """The rows of the best step's evaluation."""
        run = self.run
        lines = [x for x in run.log if "evaluation" in x] if run is not None else []
        rows = [x["evaluation"] for x in lines if run is not None and x["step"] == run.best_step]
        return [Row(**row) for row in rows[-1]] if rows else []


def combinations(given: Mapping[str, Any], method: str) -> list[SweepRun]:
    """All combinations of the values of settings that have several, with commas between.

    A setting that is free text, such as ``weights``, has one value, commas or not.
    """
    known = run_settings() | parameters(method)
    several = {
        name: [part.strip() for part in value.split(",")]
        for name, value in given.items()
        if isinstance(value, str) and "," in value and name in known
        if known[name].choices or str not in known[name].kinds
    }
    return [
        SweepRun(
            "_".join(f"{name}={value}" for name, value in zip(several, values, strict=True)),
            {**given, **dict(zip(several, values, strict=True))},
        )
        for values in product(*several.values())
    ]


def best_run(runs: Sequence[SweepRun]) -> SweepRun | None:
    """The run with the highest held-out score, the first of equals; None if none has one."""
    scored = [(one.run.score, one) for one in runs if one.run and one.run.score is not None]
    return max(scored, key=lambda pair: pair[0], default=(0.0, None))[1]


def sweep_table(runs: Sequence[SweepRun]) -> list[str]:
    """A line for each run: its score by which to choose, and its gain on items that did not."""
    head: tuple[str, ...] = (
        "run",
        "step",
        "held out",
        "95 % interval",
        "gain on others",
        "95 % interval",
    )
    lines = [head]
    for one in runs:
        rows = one.evaluation
        gain = next((row for row in rows if row.metric.startswith("gain_")), None)
        cells = [cell for row in (rows[0] if rows else None, gain) for cell in _cells(row)]
        step = "" if one.run is None else str(one.run.best_step or "")
        lines.append((one.name, step, *(cells if not one.problem else [one.problem, "", "", ""])))
    return laid_out(lines, left=(0,))


def _cells(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    ends = [shown(row.metric, end) for end in (row.low, row.high) if end is not None]
    return shown(row.metric, row.value), " to ".join(ends)


def recipe_text(stated: Mapping[str, Any], method: str, given: Mapping[str, Any]) -> str:
    """A recipe in TOML: options, the method, and settings in their types."""
    of_run, of_method = choose(given, method)
    options = {**stated, "objective": method}
    options.pop("settings", None)
    settings = {name: v for name, v in (of_run | of_method).items() if v is not None}
    # Numbers, texts, lists and truth values are written in TOML as in JSON.
    lines = [[f"{name} = {json.dumps(value)}" for name, value in part.items()]
             for part in (options, settings)]  # fmt: skip
    return "\n".join([*lines[0], "", "[settings]", *lines[1], ""])
