"""``contrasent train CORPUS -o MODEL``."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.cli.adapt import DEFAULT_BASE, Resume
from contrasent.errors import InputError, OptionError, check_choice, see, suggestion
from contrasent.files import read_toml

if TYPE_CHECKING:
    from contrasent.text.corpus import Corpus
    from contrasent.train.run import Run
    from contrasent.train.settings import Defaults

RECIPE_KEYS: dict[str, tuple[type, ...]] = {
    "objective": (str,),
    "base": (str,),
    "columns": (str, list),
    "score": (str, int),
    "documents": (bool,),
    "evaluate": (str,),
    "keep": (str,),
    "require_improvement": (bool,),
    "settings": (dict,),
}
TOML = {str: "a text", int: "a number", list: "a list", bool: "true or false", dict: "a table"}
SIGNS = {True: "ok", False: "FAILED", None: "-"}


class Command(options.Command):
    """The command with a list of methods and settings below its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See typer."""
        self.epilog = listing()
        super().format_help(ctx, formatter)


def listing() -> str:
    """Methods and settings with their defaults, in Markdown; nothing here imports torch."""
    from contrasent.engine.registry import METHODS, recipes
    from contrasent.train.settings import run_settings

    lines = ["Methods (`--objective`); their own settings: docs/methods.md#settings", ""]
    lines += [f"- {name}: {about}" for name, about in METHODS.items()]
    lines += ["", "Configs of the papers' models (`--config`): " + ", ".join(recipes()) + "."]
    lines += ["", "Settings (`--set`) and their defaults, unless base or method set others:"]
    defaults = (f"{name}={setting.default}" for name, setting in run_settings().items())
    return "\n".join([*lines, "", ", ".join(defaults)])


@options.command
def train(
    corpus: list[str],
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    base: Annotated[
        str | None, typer.Option(help=f"Model to start from. [default: {DEFAULT_BASE}]")
    ] = None,
    objective: str | None = None,
    columns: str | None = None,
    score: str | None = None,
    documents: bool = False,
    evaluate: str | None = None,
    keep: str | None = None,
    require_improvement: bool = False,
    config: str | None = None,
    assign: Annotated[list[str] | None, typer.Option("--set")] = None,
    seed: int | None = None,
    resume: Resume = False,
    overwrite: options.Overwrite = False,
    check: bool = False,
    tensorboard: bool = False,
    as_json: options.Json = False,
) -> options.Output | None:
    """Train a model on your own text.

    The corpus has one column of sentences (no labels), pairs, pairs with hard negatives (three
    columns or more), or pairs with scores.

    Options:
        corpus: txt, csv, tsv, jsonl, json, parquet, a folder, the hub's owner/name@commit (with
            #split or #config/split), or -. With several corpora, each batch uses one (--set
            weights=2,1).
        output: Folder for the model.
        objective: Method: a name, names joined by +, your own file (my_method.py), or
            package.module:Class. [default: simcse for sentences, simcse_supervised for pairs,
            cosent for pairs with scores]
        columns: Columns of a table, by name or position, separated by commas.
        score: Column with the score of each pair, for methods that learn from ratings. [default:
            score, similarity, rating, ...]
        documents: Text is in document order, with a blank line between documents.
        evaluate: What selects the model: heldout (pairs of the corpus), documents (held out: the
            first sentence finds the rest), neighbors (share of the base's neighbors unchanged), a
            file with labeled pairs, stsb (needs CONTRASENT_DATA), or none. [default: heldout for
            pairs, documents with --documents, else neighbors]
        keep: Model to save. proven: the best step if proven better than the base, else the base.
            unharmed: the last step if enough of the base's neighbors are unchanged, else the base.
            trained: the best step. last: the last step. [default: proven; unharmed with --evaluate
            neighbors]
        require_improvement: Write everything, then exit with status 3 unless the gain is proven.
        config: TOML file with any of these options and [settings], or a config of the papers such
            as simcse/roberta-large-unsup.
        assign: A setting, key=value; can be repeated.
        seed: Random seed.
        tensorboard: Also write the curves to run/tensorboard during training.
        check: Check settings, corpus and method on a small encoder without training; exit with
            status 1 if a check fails.
    """
    # Options take the place of what the recipe has under their names.
    overrides = {k: v for k, v in locals().items() if k in RECIPE_KEYS and v not in (None, False)}
    leads = os.environ.get("RANK", "0") == "0"
    if not leads:  # of several processes one speaks
        progress.show("silent")
    stated = (_config(config) if config else {}) | overrides
    from contrasent.train.plan import default_method, make_plan, open_corpora
    from contrasent.train.run import Keep, RunFolder
    from contrasent.train.settings import assignments, choose

    keep = stated.get("keep")
    if keep is not None:
        check_choice("--keep", keep, get_args(Keep))
    require_improvement = stated.get("require_improvement", False)
    _check_visible(require_improvement, stated.get("evaluate"))
    objective = stated.get("objective")
    source = open_corpora(
        *corpus,
        columns=options.column_list(stated.get("columns")),
        score=_score_column(stated.get("score"), objective),
        documents=stated.get("documents", False),
    )
    name = objective or default_method(source)
    settings: dict[str, Any] = stated.get("settings", {})
    choose(settings, name, option=f"{config}:")
    settings |= assignments(assign or []) | ({} if seed is None else {"seed": seed})
    if check:
        return _check(source, name, settings, as_json=as_json)
    if output is None:
        raise OptionError("--output", "", "name a folder for the model")
    stored = RunFolder(output).defaults() if resume else None
    chosen: dict[str, Any] = {"evaluate": stated.get("evaluate"), "keep": keep, "stored": stored}
    plan = make_plan(source, settings, method=name, base=stated.get("base"), **chosen)
    _check_visible(require_improvement, plan.validation)
    line = plan.defaults.line(name) if plan.defaults is not None and not as_json else ""

    def say() -> None:
        for text in (*plan.notices(), *[line] * bool(line)):
            options.note(text)

    with options.resumable(f"--resume continues {output}"):
        run = plan.finished(output) if resume else None  # before torch is imported
        if run is None:
            from contrasent.train.fit import fit_plan

            run = fit_plan(
                plan,
                output,
                resume=resume,
                overwrite=overwrite,
                on_start=say,
                tensorboard=tensorboard,
            )
    if not leads:
        return None
    result = _summary(run, str(plan.validation), plan.defaults)
    return result._replace(status=3 if require_improvement and not run.proven else 0)


def _check(
    source: "Corpus", objective: str, given: dict[str, Any], *, as_json: bool
) -> options.Output:
    """Check the values of a run, its corpus, and its method on a small encoder."""
    # With two processes torch would warn that all parameters are used, as they should be.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from contrasent.train.settings import Settings, choose

    of_run, of_objective = choose(given, objective)
    Settings(**of_run)  # their texts are checked too, such as that of buckets
    from contrasent.train.method_checks import check_objective

    findings = []
    for line in source.roles:
        options.note(line)
    progress.show("silent")
    for finding in check_objective(objective, of_objective, source):
        findings.append(finding)
        if not as_json:
            options.echo(f"{SIGNS[finding.passed]:>6}  {finding.check}: {finding.detail}")
    failed = any(finding.passed is False for finding in findings)
    facts = {"method": objective, "checks": [asdict(finding) for finding in findings]}
    return options.Output(facts, status=int(failed))


def _check_visible(required: bool, evaluator: str | None) -> None:
    from contrasent.evaluate.validation import BETTER

    if required and evaluator in ("none", "neighbors"):
        problem = f"improvement cannot be measured; {BETTER}"
        raise OptionError("--require-improvement", evaluator, problem)


def _score_column(stated: str | int | None, objective: str | None) -> str | int | bool | None:
    """The column of the scores: found by name where the method learns from them, or may."""
    from contrasent.engine.registry import needs_scores

    needed = objective is not None and needs_scores(objective)
    if stated is None:
        return None if objective is None else needed
    if objective is not None and not needed:
        problem = f"{objective} does not learn from scores; cosent, angle and cosine_regression do"
        raise OptionError("--score", stated, problem)
    columns = options.column_list(str(stated))
    return columns[0] if columns else None


def _config(name: str) -> dict[str, Any]:
    from contrasent.engine.registry import recipes

    path, known = Path(name), recipes()
    if name in known:
        return {k: v for k, v in known[name].items() if k in RECIPE_KEYS}
    if not path.exists() and path.suffix != ".toml":
        problem = "neither a file nor a config of the papers"
        raise OptionError("--config", name, problem, choices=known)
    stated = read_toml(path)
    for key, value in stated.items():
        kinds = RECIPE_KEYS.get(key, ())
        if isinstance(value, kinds):
            continue
        lines = path.read_text("utf-8").splitlines()
        line = next((i for i, t in enumerate(lines, 1) if t.lstrip("[ ").startswith(key)), None)
        problem = f"{key} must be {' or '.join(TOML[kind] for kind in kinds)}, it is {value!r}"
        if not kinds:
            problem = f"unknown key {key!r}{suggestion(key, RECIPE_KEYS)}"
        raise InputError(path, problem, line=line)
    return stated


def _summary(run: "Run", evaluator: str, defaults: "Defaults | None") -> options.Output:
    """The outcome of a run, for programs and for people."""
    from contrasent.evaluate.validation import BETTER, BLIND

    facts = {**asdict(run), "folder": str(run.folder), "evaluate": evaluator}
    if evaluator in BLIND:
        facts |= {"cannot_see": BLIND[evaluator], "better_evidence": BETTER}
    if defaults is not None:
        facts["defaults"] = asdict(defaults)
    lines = [
        f"{run.folder}: {run.steps} steps, {run.sentences_per_second:,.0f} sentences/s, "
        f"{run.seconds:,.0f} s in all"
    ]
    notes = []
    if run.score is None:
        notes.append("saved the last model without evaluation (see --evaluate)")
    else:
        link = see("no-gain") if run.improved is False else ""
        lines.insert(0, outcome(run, evaluator) + link)
    lines.append(f"use it: contrasent index DOCUMENTS -o INDEX --model {run.folder}")
    return options.Output(facts, "\n".join(lines), notes)


def outcome(run: "Run", evaluator: str) -> str:
    """The last line of a run that was evaluated: its verdict, the figures, the model it left."""
    from contrasent.report import shown

    saved = {0: "the base model", run.steps: "the last step"}.get(run.kept or 0, f"step {run.kept}")
    if not run.kept:
        trained = "last" if evaluator == "neighbors" else "best"
        saved += f"; trained weights: {run.folder}/run/{trained}"
    if evaluator == "neighbors":
        unchanged = f"{100 * (run.score or 0):.1f} % of the base's neighbors are unchanged"
        if run.improved is False:
            discarded = "" if run.kept else " and discarded"
            return f"Worse{discarded}: only {unchanged}. Saved {saved}."
        return f"Saved {saved}. Without labels improvement cannot be measured; {unchanged}."
    metric = run.metric or ""
    figures = f"{evaluator} {metric} {shown(metric, run.score or 0)} after step {run.best_step}"
    if run.base_score is not None:
        figures += f", {shown(metric, run.base_score)} before training"
    gain = run.gain
    if gain is not None and gain.low is not None and gain.high is not None:
        low, high = (f"{end:+.3f}" for end in (gain.low, gain.high))
        figures += f"; on {gain.count} other items {gain.value:+.3f}, 95 % CI [{low}, {high}]"
    if run.improved is None:
        return f"Saved {saved}: {figures}."
    if run.improved and not run.proven:  # too few items to confirm it on others
        return f"Better, not proven: {figures}. Saved {saved}."
    if run.improved:
        return f"Improved and saved: {figures}." + (
            "" if run.kept == run.best_step else f" Saved {saved}."
        )
    ahead = run.score is not None and run.base_score is not None and run.score > run.base_score
    verdict = "No reliable improvement" if ahead else "No improvement"
    return f"{verdict}: {figures}. Saved {saved}."
