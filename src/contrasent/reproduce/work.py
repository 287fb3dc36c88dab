"""Doing a job: make the model, measure it, store the numbers; here torch is needed."""

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.errors import OutputError, TrainingError, UserError
from contrasent.report import Report, Row
from contrasent.reproduce import data, kinds
from contrasent.reproduce.jobs import Job, Model, Unit, describe
from contrasent.reproduce.measure import clocked, following, measure, seven, traced
from contrasent.reproduce.recipe import TARGET
from contrasent.reproduce.store import Store
from contrasent.types import EncodeFn

if TYPE_CHECKING:
    from contrasent.train.run import RunFolder
    from contrasent.train.settings import Settings

CODE = ("losses", "objectives", "model", "train", "text")
"""Folders of the package that the numbers of a training run depend on."""


def do(job: Job, store: Store, folder: Path | None, *, keep: bool) -> dict[str, Report]:
    """Make a job's model, unless it is there, and its measurements that are missing.

    Args:
        job: what to do.
        store: where numbers go.
        folder: the data folder.
        keep: keep the model when it has been measured.

    Returns:
        The new measurements by unit.

    Raises:
        UserError: a model, data or package that the job needs is missing.
        KeyboardInterrupt: Ctrl-C; a training run has written its checkpoint.
    """
    told = describe(job)
    wanted = [unit for unit in job.units.values() if not store.has(unit.key)]
    loaded = _Loaded(job.model, store, folder, told)
    found: dict[str, Report] = {}
    failed: UserError | None = None
    for unit in wanted:
        began = time.monotonic()
        try:
            report = loaded.measure(unit)
        except TrainingError as error:
            store.write_record(job.model.key, {**told, "failed": str(error)})
            raise
        except OutputError:
            raise
        except UserError as error:
            # What one measurement lacks, another may not need.
            failed = failed or error
            continue
        seconds = round(time.monotonic() - began - loaded.training(), 1)
        store.write_unit(unit.key, report, {"model": job.model.key, "measured_in": seconds, **told})
        found[unit.key] = report
    if failed is not None:
        raise failed
    if job.model.kind == "train" and not keep:
        store.drop_model(job.model.key)
    return found


class _Loaded:
    """A model that is made when a measurement first asks for it."""

    def __init__(
        self, model: Model, store: Store, folder: Path | None, told: dict[str, Any]
    ) -> None:
        self.model, self.store, self.folder, self.told = model, store, folder, told
        self._plain: EncodeFn | None = None
        self._record: dict[str, Any] | None = None
        self._training = 0.0

    def training(self) -> float:
        """Seconds of training since this was last asked; its record counts them."""
        seconds, self._training = self._training, 0.0
        return seconds

    def measure(self, unit: Unit) -> Report:
        if unit.kind in kinds.OF_TRAINING:
            record = self._trained()
            if unit.kind == "speed":
                return clocked(record)
            return traced([(step, Report.from_json(r)) for step, r in record["trace"]])
        if unit.fit is None:
            return measure(self._encode(), unit.kind, unit.options, self.folder)
        if unit.fit["corpus"] != TARGET:
            from contrasent.text.corpus import open_corpus

            texts = dict.fromkeys(text for row in open_corpus(unit.fit["path"]) for text in row)
            encode = self._fitted(unit.fit, list(texts))
            return measure(encode, unit.kind, unit.options, self.folder)
        return self._on_targets(unit)

    def _on_targets(self, unit: Unit) -> Report:
        """A transform for each task, fitted to all of its own sentences."""
        assert unit.fit is not None
        rows: list[Row] = []
        for task in unit.options["tasks"]:
            options = {**unit.options, "tasks": (task,)}
            parts = data.scored_pairs({**options, "split": "all"}, self.folder)
            texts = [s for p in parts for side in (p.first, p.second) for s in side]
            encode = self._fitted(unit.fit, list(dict.fromkeys(texts)))
            rows += measure(encode, unit.kind, options, self.folder).rows
        return Report((*rows, *seven(rows, unit.options)), {"fitted": "to each task"})

    def _encode(self) -> EncodeFn:
        """The model; each sentence is encoded once for all measurements."""
        if self._plain is None:
            from contrasent.evaluate.vectors import Cached

            self._plain = Cached(self._load(normalise=None))
        return self._plain

    def _load(self, *, normalise: bool | None) -> EncodeFn:
        if self.model.kind == "glove":
            from contrasent.postprocess.glove import Glove

            return Glove.load(Path(self.model.base))
        from contrasent.model.encoder import Encoder

        if self.model.kind == "train":
            self._trained(again=True)
            return Encoder.load(self.store.model(self.model.key), normalise=normalise).encode
        pooler = self.model.pooler or None
        return Encoder.load(Path(self.model.base), pooler=pooler, normalise=normalise).encode

    def _fitted(self, fit: dict[str, Any], texts: list[str]) -> EncodeFn:
        from contrasent.postprocess import flow, whitening

        encode = self._load(normalise=False)
        vectors = encode(texts)
        transform: Any
        if fit["kind"] == "whitening":
            transform = whitening.fit(vectors, dimensions=fit["options"].get("dimensions"))
        else:
            epochs = fit["options"].get("epochs", 1)
            transform = flow.fit(vectors, flow.Settings(epochs=epochs, seed=fit["seed"])).transform
        return whitening.whitened(encode, transform)

    def _trained(self, *, again: bool = False) -> dict[str, Any]:
        """The record of the training, after doing it if it is not done.

        Args:
            again: whether the model itself is needed, which may have been deleted.
        """
        key = self.model.key
        record = self._record or self.store.record(key)
        there = (self.store.model(key) / "modules.json").is_file()
        if record is not None and "failed" in record:
            raise TrainingError(record["failed"])
        if record is None or (again and not there):
            began = time.monotonic()
            record = train(self.model, self.store.model(key), self.folder)
            self._training += time.monotonic() - began
            self.store.write_record(key, {**self.told, **record})
            shutil.rmtree(self.store.model(key) / "run", ignore_errors=True)
        self._record = record
        return record


def train(model: Model, target: Path, folder: Path | None) -> dict[str, Any]:
    """Train a model into a folder, going on with a run that was stopped.

    Returns:
        Facts of the run: steps, seconds, speed, scores, and its trace.
    """
    from contrasent.model.card import Facts
    from contrasent.text.corpus import open_corpus
    from contrasent.train.fit import fit
    from contrasent.train.prepare import prepare
    from contrasent.train.run import RunFolder
    from contrasent.train.settings import Settings

    resolved, built = model.resolved, model.corpus
    assert resolved is not None
    assert built is not None
    settings = dict(resolved.settings)
    if model.trace is not None:
        settings["evaluate_every"] = model.trace["every"]
    chosen = Settings(**settings)
    learner = prepare(Path(model.base), resolved.objective, resolved.given, chosen)
    corpus = open_corpus(built.path, documents=built.documents)
    same = _same_settings(RunFolder(target), chosen)
    began = time.monotonic()
    run = fit(
        learner,
        corpus,
        chosen,
        folder=target,
        evaluate=_judge(model, folder),
        keep="trained",  # the papers choose among trained steps
        resume=same,
        overwrite=not same,
        facts=Facts(base=Path(model.base).name),
    )
    trace = _trace(RunFolder(target).log) if model.trace is not None else []
    return {
        "steps": run.steps,
        "batch": chosen.batch,
        "precision": chosen.precision,
        "seconds": round(time.monotonic() - began, 1),
        "sentences_per_second": run.sentences_per_second,
        "best_step": run.best_step,
        "history": run.history,
        "trace": trace,
        **environment(),
    }


def _same_settings(place: "RunFolder", settings: "Settings") -> bool:
    """Whether a run that was begun in a folder, if any, can be gone on with."""
    from dataclasses import asdict

    try:
        before = json.loads(place.settings.read_text("utf-8"))["settings"]
    except (OSError, ValueError, KeyError):
        return True
    return bool(before == json.loads(json.dumps(asdict(settings))))


def _judge(model: Model, folder: Path | None) -> Any:
    """What a run is asked every so often: its trace, the score that selects, or nothing."""
    if model.trace is not None:
        return following(model.trace, folder)
    if model.resolved is not None and model.resolved.select == "stsb":
        options = {**kinds.DEFAULTS["sts"], "tasks": ("STSB",), "split": "dev"}
        return lambda encode: measure(encode, "sts", options, folder)
    return None


def _trace(log: Path) -> list[tuple[int, dict[str, Any]]]:
    """The reports in a run's log, by step."""
    found = {}
    for line in log.read_text("utf-8").splitlines():
        said = json.loads(line)
        if "evaluation" in said:
            found[int(said["step"])] = {"rows": said["evaluation"], "notes": {}}
    return sorted(found.items())


def environment() -> dict[str, Any]:
    """Machine and versions, for the record."""
    import os
    import platform

    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    from contrasent import __version__

    return {
        "machine": f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "versions": {
            "contrasent": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "code": _code_digest(),
    }


def _code_digest() -> str:
    """12 digits that stand for the source text that a training run's numbers depend on."""
    import contrasent

    home = Path(contrasent.__file__).parent
    total = hashlib.sha256()
    for folder in CODE:
        for path in sorted((home / folder).rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()[:12]


def _processor() -> str:
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
