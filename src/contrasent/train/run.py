"""A run's folder: the model at its top, everything about the training under ``run/``; its page.

There are settings.json, log.jsonl, and result.json once it is complete; until then
checkpoint.safetensors, base/, best/ and last/, and best-STEP/ that no checkpoint knows yet.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contrasent import files, pictures
from contrasent.errors import MissingExtraError, OptionError, OutputError, import_extra
from contrasent.model.description import check_replaceable
from contrasent.report import Report, html_table, shown
from contrasent.types import EncodeFn

if TYPE_CHECKING:
    from contrasent.encoder.card import CardMetadata
    from contrasent.encoder.encoder import TorchEncoder

Keep = Literal["proven", "unharmed", "trained", "last"]
"""The model a run gives: the best step if it is proven better, else the base; the last step if
enough of the base is left, else the base; the best step in any case; the last."""


Evaluate = Callable[[EncodeFn], Report]
"""An evaluation. One with a method ``against(encode, base)`` also compares with its own report of
the base: a row "gain_..." is the paired difference, with its interval. One with an attribute
``floor`` measures how much of the base is left: the last model is given if its score is at least
that, else the base (:mod:`contrasent.evaluate.validation`)."""


OnStep = Callable[[int, dict[str, float]], Any]
"""Takes the number of a step, and what is known of it by name; see :func:`numbers`."""


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a line of a run's log by name, such as "loss" and "shares/contrast"."""
    by_name: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            by_name |= {f"{name}/{inner}": number for inner, number in value.items()}
        elif isinstance(value, list):  # rows of a report; some trackers allow no @ in a name
            rows = {f"{name}/{row['task']}/{row['metric']}": row["value"] for row in value}
            by_name |= {key.replace("@", "_at_"): number for key, number in rows.items()}
        elif name != "step" and value is not None:
            by_name[name] = value
    return by_name


def choose_keep(keep: Keep | None, evaluate: Any, note: str = "") -> Keep:
    """The model to leave; the default depends on whether the evaluation shows gain or only harm.

    ``note`` says why there is no evaluation.
    """
    blind = getattr(evaluate, "floor", None) is not None
    if keep == "unharmed" and not blind:
        raise OptionError("--keep", keep, "needs --evaluate neighbors")
    if keep == "proven" and evaluate is None:
        problem = f"needs an evaluation; {note or 'see --evaluate'}"
        raise OptionError("--keep", keep, problem)
    return keep or ("unharmed" if blind else "proven")


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired difference from the base, on items that were not used to choose the step."""

    value: float
    low: float | None  # lower end of its 95 % interval
    high: float | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """The outcome of a training run; ``encoder``, ``report`` and ``log`` are read when first used.

    Attributes:
        improved: whether the best step is better than the base: by its score and, with paired
            items, by a gain whose interval is above zero. None without an evaluation that can tell.
        kept: the step whose model is at the top of the folder; 0 for the base.
        base_score: score of the base, before the first step.
        gain: difference from the base, if the evaluation has paired items.
        metric: name of the score, such as "mrr@10".
        seconds: how long it took, up to the checkpoint of each session that was stopped.
        sentences_per_second: corpus rows a second, without evaluations.
        score: best score after a step, or None.
        best_step: step of the best score, or None.
        history: (step, score) of every evaluation.
        shares: share of each term in the encoder's gradient, at the steps that were measured.
    """

    improved: bool | None = None
    kept: int | None = None
    base_score: float | None = None
    gain: Gain | None = None
    metric: str | None = None
    folder: Path
    steps: int
    seconds: float
    sentences_per_second: float
    score: float | None
    best_step: int | None
    history: list[tuple[int, float]] = field(default_factory=list)
    shares: list[dict[str, float]] = field(default_factory=list)

    @property
    def proven(self) -> bool:
        """True if the best step is better by a gain whose interval is above zero."""
        return bool(self.improved and self.gain and self.gain.low is not None)

    def _repr_html_(self) -> str:
        """The outcome as a table of HTML, for a notebook."""
        facts: dict[str, Any] = {"folder": self.folder, "steps": self.steps}
        facts |= {"seconds": f"{self.seconds:.1f}", "improved": self.improved}
        if self.metric and self.score is not None and self.base_score is not None:
            facts["base"] = shown(self.metric, self.base_score)
            facts[self.metric] = f"{shown(self.metric, self.score)} (step {self.best_step})"
        return html_table([("", "run"), *((name, str(value)) for name, value in facts.items())])

    @cached_property
    def encoder(self) -> "TorchEncoder":
        """The model that the run saved."""
        from contrasent.encoder.encoder import TorchEncoder

        return TorchEncoder.load(self.folder)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The lines of ``run/log.jsonl``: steps with their terms, evaluations and geometry."""
        return RunFolder(self.folder).lines()

    @cached_property
    def report(self) -> Report | None:
        """The evaluation of the saved model; None without one."""
        return self.evaluation(self.kept)

    def evaluation(self, step: int | None) -> Report | None:
        """The evaluation after a step, 0 for the base; None without one."""
        rows = [x["evaluation"] for x in self.log if "evaluation" in x and x["step"] == step]
        return Report.from_json({"rows": rows[-1]}) if rows else None


class RunFolder:
    """Paths and records of one run."""

    def __init__(self, folder: Path) -> None:
        self.model = folder
        self.home = folder / "run"
        self.settings = self.home / "settings.json"
        self.log = self.home / "log.jsonl"
        self.checkpoint = self.home / "checkpoint.safetensors"
        self.base = self.home / "base"
        self.best = self.home / "best"
        self.last = self.home / "last"
        self.result = self.home / "result.json"
        self.tokens = self.home / "tokens"
        self.listeners: list[OnStep] = []
        self._lock = ExitStack()

    def open(self, config: dict[str, Any], *, resume: bool, overwrite: bool, needed: int) -> bool:
        """Check that the folder may be written; return whether it holds a checkpoint."""
        files.check_writable(self.model, needed)
        # Nothing is lost if the run there ended before its first step.
        occupied = sorted(path.name for path in self.model.iterdir())
        early = (self.settings.name, self.tokens.name, files.LOCK, files.HOLDER)
        begun = not self.home.is_dir() or any(
            path.name not in early and not files.is_temporary(path) for path in self.home.iterdir()
        )
        if occupied == ["run"] and not begun:
            occupied = []
        if occupied:
            self._check_loss(occupied, resume=resume, overwrite=overwrite)
        if not (resume and self.ended()):  # a complete run is only read
            self._lock.enter_context(
                files.only_process(self.home, "is training into this folder", 0)
            )
        with files.writing(self.model):
            if overwrite and not resume:
                for path in (*self.model.iterdir(), *self.home.iterdir()):
                    if path != self.home and path.name not in (files.LOCK, files.HOLDER):
                        files.remove(path)
            for folder in (self.model, self.home):
                files.remove_temporaries(folder, "*")
        if resume and occupied:
            self.check_same(config)
            if (done := self.finished()) is not None:
                self._drop_steps(done)
                shutil.rmtree(self.tokens, ignore_errors=True)
            return self.checkpoint.is_file()
        files.write_json(self.settings, config)
        return False

    def close(self) -> None:
        """Release the folder for other processes."""
        self._lock.close()

    def _check_loss(self, occupied: list[str], *, resume: bool, overwrite: bool) -> None:
        run, holds = self.settings.is_file(), f"{self.model}: contains {occupied[0]!r}"
        if resume:
            if not run:
                raise OutputError(f"{holds} and no run to resume; choose another folder")
            return
        if not overwrite:
            if run:
                what = f"{self.model}: already contains a run; --resume continues it, --overwrite"
            else:
                what = f"{holds}; for a model, --overwrite"
            raise OutputError(f"{what} starts again, or choose another folder")
        if not run and "modules.json" not in occupied:
            raise OutputError(
                f"{holds} and no model; --overwrite replaces only models. Remove the folder or "
                "choose another"
            )
        check_replaceable(self.model)

    def check_same(self, config: dict[str, Any]) -> None:
        """Reject a resumption with other settings or text."""
        before = self.begun() or {}
        now = json.loads(json.dumps(config))
        texts = [of.get("corpus") or {} for of in (before, now)]
        if texts[0].get("sha256") != texts[1].get("sha256"):
            raise OutputError(
                f"{self.model}: the run there used a different text, {texts[0].get('source')!r}, "
                f"than {texts[1].get('source')!r} now; resume with the same text, or use "
                "--overwrite or another folder"
            )
        old, new = _compared(before), _compared(now)
        names = sorted(old.keys() | new.keys(), key=lambda k: (not k[1].startswith(SOURCE), k[1]))
        for group, key in names:
            one, two = old.get((group, key)), new.get((group, key))
            if key.startswith(SOURCE) and one and two and one != two:
                raise OutputError(
                    f"{self.model}: the file of {config['objective']['name']} has changed "
                    f"(sha256 {one[:8]}..., now {two[:8]}...); restore it, or use "
                    "--overwrite or another folder"
                )
            if one != two:
                raise OutputError(
                    f"{self.model}: the run there has {key} {one!r}, now it is {two!r}; use "
                    "the same, or --overwrite or another folder"
                )

    def begun(self) -> dict[str, Any] | None:
        """The settings of the run there; None if there is no run."""
        if not self.settings.is_file():
            return None
        return dict(json.loads(self.settings.read_text("utf-8")))

    def defaults(self) -> dict[str, Any] | None:
        """Settings chosen for the run there; empty if begun from Python, None if no run."""
        before = self.begun()
        return None if before is None else dict(before.get("defaults", {}))

    def new_best(self, step: int) -> Path:
        """Where the model of a step that is the best so far waits for the next checkpoint."""
        self.promote(None)
        return self.home / f"best-{step}"

    def promote(self, best: tuple[int, float] | None) -> None:
        """Make a checkpoint's best, step and score, the best model; drop one that it lacks."""
        with files.writing(self.best):
            if best and (new := self.home / f"best-{best[0]}").is_dir():
                shutil.rmtree(self.best, ignore_errors=True)
                new.rename(self.best)
            for unknown in self.home.glob("best-*"):
                shutil.rmtree(unknown)

    def cut_log(self, step: int) -> None:
        """Forget log lines of steps from ``step`` on; they will be written again."""
        if self.log.is_file():
            before = [line for line in self.lines() if line["step"] <= step]
            with files.atomic_file(self.log) as stream:
                stream.writelines(json.dumps(line) + "\n" for line in before)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log up to one that a kill cut short."""
        lines = []
        for line in self.log.read_text("utf-8").splitlines() if self.log.is_file() else ():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines

    def write_log(self, line: dict[str, Any], *, kept: bool = True) -> None:
        """Append a line, unless it is only for listeners."""
        if kept:
            with files.writing(self.log), self.log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        for listener in self.listeners:
            listener(line["step"], numbers(line))

    def listen(self, on_step: OnStep | None, *, tensorboard: bool) -> None:
        """Hand the numbers of every step to a callback, and to TensorBoard."""
        if on_step is not None:
            self.listeners.append(on_step)
        if tensorboard:
            package = import_extra("tensorboardX", "tensorboard", "--tensorboard")
            writers: list[Any] = []  # opened with the first line, not before

            def write(step: int, values: dict[str, float]) -> None:
                if not writers:
                    writers.append(
                        package.SummaryWriter(str(self.home / "tensorboard"), purge_step=step)
                    )
                for name, value in values.items():
                    writers[0].add_scalar(name, value, step)
                writers[0].flush()

            self.listeners.append(write)

    def shares(self, step: int | None = None) -> list[dict[str, float]]:
        """The shares of the terms in the log, up to a step."""
        lines = (line for line in self.lines() if "shares" in line)
        entries = [{"step": line["step"], **line["shares"]} for line in lines]
        return [shares for shares in entries if step is None or shares["step"] <= step]

    def publish(self, run: Run) -> None:
        """Put the run's model at the top of the folder; record the result."""
        best = run.kept in (None, run.best_step) and self.best.is_dir()
        source = self.base if run.kept == 0 else self.best if best else self.last
        with files.writing(self.model):
            for path in sorted(source.iterdir(), key=lambda p: p.name == "modules.json"):
                target = self.model / path.name
                staged = self.model / f".{path.name}.new"
                if path.is_dir():
                    shutil.rmtree(staged, ignore_errors=True)
                    shutil.copytree(path, staged)
                    shutil.rmtree(target, ignore_errors=True)
                else:
                    shutil.copy2(path, staged)
                staged.replace(target)
        files.write_json(self.result, {**asdict(run), "folder": str(run.folder)})
        self._drop_steps(run)

    def _drop_steps(self, run: Run) -> None:
        """Leave trained weights of a finished run only if its model is the base."""
        trained = self.best if self.best.is_dir() else self.last
        for path in (self.checkpoint, self.base, self.best, self.last):
            if path.exists() and not (run.kept == 0 and path == trained):
                files.remove(path)

    def ended(self) -> bool:
        """Whether the run is complete, without leftovers of a kill to remove."""
        return self.result.is_file() and not (self.home / files.HOLDER).exists()

    def finished(self) -> Run | None:
        """The result, if the run is complete."""
        if not self.result.is_file():
            return None
        stored = json.loads(self.result.read_text("utf-8"))
        known = {one.name: stored[one.name] for one in fields(Run) if one.name in stored}
        known["history"] = [(int(step), float(score)) for step, score in stored["history"]]
        gain = stored.get("gain")
        return Run(**(known | {"folder": self.model, "gain": gain and Gain(**gain)}))


SOURCE = "source_sha256"  # the digest of a method's file, among the parameters of the method


def _compared(config: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """What a resumed run must have alike, by group and name.

    A parameter may have the name of a setting.
    """
    flat: dict[tuple[str, str], Any] = {}
    for group in config.keys() - {"defaults", "corpus", "products"}:
        inner = config[group]
        for key, value in (inner if isinstance(inner, dict) else {group: inner}).items():
            flat[group, key] = value
    return flat


def trajectory(model: Path) -> list[dict[str, float]]:
    """The geometry logged in the run that trained a model (SimCSE, Figure 2)."""
    lines = (line for line in RunFolder(model).lines() if "geometry" in line)
    return [
        {"step": float(line["step"]), **{row["metric"]: row["value"] for row in line["geometry"]}}
        for line in lines
    ]


MOST_POINTS = 400  # of a curve
SHOWN = 6  # texts whose neighbors are listed
DRIFT = {"mean_cosine", "effective_rank", "neighbor_overlap", "measured_at"}
TERMS, HELD_OUT, SHARES = "loss and its terms", "held out, with 95 % CI", "share of each term"

Lines = Mapping[str, Sequence[pictures.Point]]


def run_page(
    run: Run,
    facts: "CardMetadata",
    texts: Sequence[str],
    before: Sequence[Sequence[int]] = (),
    after: Sequence[Sequence[int]] = (),
) -> str:
    """``report.html``; ``before`` and ``after`` are each text's nearest by base and last model."""
    try:
        drawn, note = pictures.panels(curves(run.log)), ""
    except MissingExtraError as error:
        drawn, note = None, f"Curves are missing: {error}"
    evaluations = [line for line in run.log if "evaluation" in line]
    places = [i * len(texts) // SHOWN for i in range(SHOWN)] if len(before) else []
    measured = [line["measured_at"] for line in run.log if "measured_at" in line]
    return files.render(
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
        measured_at=measured[-1] if measured else 0,
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
            if kind == "" and (name in DRIFT | {"learning_rate", "norm"} or "cosine" in name):
                title = "cosines" if "cosine" in name else name.replace("_", " ")
            if kind in ("", "shares") and name != "measured_at":
                points = panels.setdefault(title, {}).setdefault(label, [])
                measured_at = line["measured_at"] if name in DRIFT else step
                if not points or points[-1][0] < measured_at:
                    points.append((measured_at, value, value, value))
        for row in line.get("evaluation", ())[:1]:
            ends = [row["value"] if row[end] is None else row[end] for end in ("low", "high")]
            name = f"{row['task']} {row['metric']}"
            held_out = panels.setdefault(HELD_OUT, {}).setdefault(name, [])
            held_out.append((step, row["value"], *ends))
    thinned = {
        title: {name: points[:: -(-len(points) // MOST_POINTS)] for name, points in lines.items()}
        for title, lines in panels.items()
    }
    first = [title for title in (TERMS, HELD_OUT, "neighbor overlap") if title in thinned]
    return {title: thinned[title] for title in (*first, *(t for t in thinned if t not in first))}
