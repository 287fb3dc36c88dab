"""``contrasent compare A B``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli import options
from contrasent.cli.loading import find_model, load_model
from contrasent.errors import InputError, OptionError

if TYPE_CHECKING:
    from contrasent.evaluate.compare import Comparison
    from contrasent.report import Report


@options.command
def compare(
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
    loading: options.Encoding,
    suite: list[str] | None = None,
    task: options.StsTask = None,
    form: options.StsForm = "senteval",
    split: options.StsSplit = "test",
    data: options.DataFolder = None,
    seed_sd: Annotated[float | None, typer.Option(min=0)] = None,
) -> options.Output:
    """Is B better than A, or is it chance? Differences with 95 % intervals and p values.

    Items are paired, and both items and seeds count as chance. With one run an arm a spread over
    seeds is assumed, and the interval for these two models alone is shown too.

    Options:
        before: Model, or its runs with several seeds: a,b,c; or their reports, written by evaluate
            --json.
        after: The model to compare with A, given in the same way.
        suite: Suites to measure models by, as in evaluate; sts if not given.
        seed_sd: Standard deviation over seeds, in points, of an arm with one run. By default the
            other arm's, or 1.2 where that has one run too; 0 for a model no seed would change.
    """
    arms = [_names(option, value) for option, value in (("A", before), ("B", after))]
    from contrasent.evaluate.compare import SEED_SD, SPREAD, compare_reports
    from contrasent.evaluate.suite import (
        Options,
        digest,
        evaluate,
        kept_or_measured,
        read_data,
        suite_names,
    )
    from contrasent.text.official import STS_TASKS

    suites = suite_names(suite or ["sts"])
    tasks = tuple(task) if task else STS_TASKS
    chosen = Options(form=form, tasks=tasks, split=split, resamples=0, folder=data)

    def measure(folder: Path, data: str) -> "Report":
        model = load_model(folder, loading)
        found, kept = kept_or_measured(
            model.stated, suites, chosen, data, lambda: evaluate(model, suites, chosen)
        )
        if kept:
            options.note(f"{folder}: measured before (CONTRASENT_CACHE= measures anew)")
        return found.select(metric="spearman") if suites == ("sts",) else found

    saved = {name: _saved(name) for arm in arms for name in arm if name.endswith(".json")}
    folders = {name: find_model(name) for arm in arms for name in arm if name not in saved}
    known = digest(read_data(suites, chosen)) if folders else ""
    saved |= {name: measure(folder, known) for name, folder in folders.items()}
    loaded = [[saved[name] for name in arm] for arm in arms]
    found = compare_reports(*loaded, names=[*arms[0], *arms[1]], seed_sd=seed_sd)
    width = max(len(c.name) for c in found)
    lines = [
        f"A: {', '.join(arms[0])}\nB: {', '.join(arms[1])}",
        f"{'':<{width}} {'A':>7} {'B':>7} {'B - A':>7}  [95 % interval]",
        *(one.line(width) for one in found),
        _claim(len(arms[0]), len(arms[1]), seed_sd, SEED_SD, found),
    ]
    if missing := _missing([report for arm in loaded for report in arm], found, SPREAD):
        lines.append(
            f"left out: {', '.join(missing)}: one run an arm shows no spread over seeds, and none "
            "is known of them: give several runs, or --seed-sd 0 if no seed changes either model"
        )
    facts = {"a": arms[0], "b": arms[1], "rows": [one.to_json() for one in found]}
    return options.Output(facts, "\n".join(lines))


def _missing(reports: "list[Report]", found: "list[Comparison]", spread: str) -> list[str]:
    """The metrics that all reports have and no comparison is of, other than spreads of seeds."""
    shared = set.intersection(*({row.metric for row in report} for report in reports))
    return sorted(m for m in shared - {c.metric for c in found} if not m.endswith(spread))


def _claim(
    before: int, after: int, seed_sd: float | None, default: float, found: "list[Comparison]"
) -> str:
    """The meaning of the intervals, in one line."""
    where = "on other items like these" if any(c.item_p is not None for c in found) else ""
    some = any(c.item_p is None for c in found)
    only = " (rows without items: on these items only)" if some and where else ""
    where = where or "on these items only: the reports hold none"
    if min(before, after) > 1:
        return f"the methods, with other seeds, {where}{only}"
    if seed_sd == 0:
        what = "these two models" if max(before, after) == 1 else "an arm that no seed changes"
        return f"{what}, {where}{only}"
    if max(before, after) > 1 and seed_sd is None:
        return f"the methods, {where}{only}; one run's spread is taken to be the other arm's"
    return (
        f"the methods, {where}{only}; of an arm with one run a standard deviation over seeds of "
        f"{default if seed_sd is None else seed_sd:g} points is assumed (--seed-sd): give several "
        "runs to measure it"
    )


def _names(option: str, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    if not names or len(set(names)) < len(names):
        raise OptionError(option, value, "name each run once, with commas between")
    return names


def _saved(name: str) -> "Report":
    from contrasent.report import read_reports

    models = read_reports(Path(name))
    if len(models) != 1:
        raise InputError(Path(name), f"reports of {len(models)} models; name files with one")
    return next(iter(models.values()))
