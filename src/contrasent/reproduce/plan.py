"""Plans the work for items: models to make, measurements of each, and what they share.

A model and a measurement are known by a digest of all that determines their numbers: resolved
settings and parameters, including defaults, the base's files, the rows of the corpus, the evaluated
texts, and the version of the code. Tables that need the same one therefore share it, and what is
stored is not computed again. A setting that is new, or a default that changes, makes another key.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from contrasent.errors import DataError, OptionError, UserError
from contrasent.model.pretrained import INSTALLED, resolve
from contrasent.reproduce import measures
from contrasent.reproduce.corpora import Built, NamedCorpus, build
from contrasent.reproduce.measures import MEASURES, Options
from contrasent.reproduce.reading import (
    Resolved,
    Scale,
    evaluations_of,
    models_of,
    recipe_digest,
    resolve_row,
)
from contrasent.reproduce.store import Json, ResultStore, digest_of, folder_digest
from contrasent.reproduce.tables import BASE, GLOVE, NEW, TARGET, FittedTransform, Item, Row

NUMBERS = {"train": 2, "measure": 2}
"""Versions of the code, raised whenever the same work gives other numbers than before, so that
older results are not taken for today's. A digest of the source would throw away hours of work for
every comment, so it is only recorded."""

INDIFFERENT = ("save_steps", "eval_size")  # settings that do not affect numbers
OF_EVALUATION = (
    "eval_steps",
    "early_stopping_patience",
)  # settings that matter only if a run is evaluated


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained; ``trace``: options of the measure that follows it, if any."""

    corpus: Built
    resolved: Resolved
    trace: Options | None = None


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """Something that encodes sentences; ``base`` is the folder or file that it begins from."""

    key: str  # digest of everything that determines its numbers
    kind: str
    base: str
    training: Training | None = None
    pooling: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """One measurement of one model."""

    key: str  # digest of everything that determines its numbers
    kind: str
    options: Options
    fit: FittedTransform | None = None
    text: str = ""  # file of texts to fit to; "" for each task's own sentences
    seed: int = 0


@dataclass(slots=True)
class ModelJob:
    """A model and its measurements, done by one process at a time."""

    model: PlannedModel
    units: dict[str, Unit]
    label: str
    seed: int  # the first one that needs it

    def describe(self) -> Json:
        """The record that is stored with its results."""
        model = self.model
        about: Json = {"label": self.label, "base": Path(model.base).name}
        if model.training is not None:
            resolved = model.training.resolved
            # Local paths are private.
            names = {k: Path(v).name for k, v in models_of(resolved.given).items()}
            corpus = asdict(model.training.corpus)
            del corpus["path"]
            about |= {
                "objective": resolved.objective,
                "parameters": {**resolved.defaults, **resolved.given, **names},
                "settings": resolved.settings,
                "corpus": corpus,
            }
        return about


class WorkPlan(NamedTuple):
    """Jobs in the order to do them, and the contents of each item's rows."""

    jobs: list[ModelJob]
    manifests: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Place:
    """Where results and data sets are, and the folders of checkpoints."""

    results: Path
    data: Path | None
    base: str = ""  # what "@base" stands for, or "" for the scale's own
    checkpoints: dict[str, str] = field(default_factory=dict)


class Planner:
    """Makes plans; remembers digests of folders, corpora and texts."""

    def __init__(self, place: Place, scale: Scale, corpora: Mapping[str, NamedCorpus]) -> None:
        self.place, self.scale, self.corpora = place, scale, corpora
        self.store = ResultStore(place.results)
        self._digest = cache(folder_digest)
        home = place.results / "corpora"
        self._corpus = cache(
            lambda name, n, draw: build(self.corpora[name], n or None, place.data, home, draw)
        )
        self._texts: dict[str, str] = {}
        self._jobs: dict[str, ModelJob] = {}

    def plan(self, items: Sequence[Item], seeds: int | None) -> WorkPlan:
        """The work for items."""
        self._jobs = {}
        manifests = {item.name: self._item(item, seeds) for item in items}
        # Of all tables the first seeds before the second ones.
        return WorkPlan(sorted(self._jobs.values(), key=lambda job: job.seed), manifests)

    def _item(self, item: Item, wanted: int | None) -> Json:
        base = Path(self._name(item.base)).name
        changes = self.scale.changed
        before = self.store.manifest(item.name, self.scale.name)
        known = seeds = wanted or item.seeds
        if before is not None:
            then = before.get("changes", {})
            if before["base"] != base or then != changes:
                stored, current = (
                    ", ".join(f"{k} {v}" for k, v in settings.items()) or "the scale's own settings"
                    for settings in (then, changes)
                )
                problem = f"with {stored}, not with {current}"
                if before["base"] != base:
                    problem = f"from the base {before['base']!r}, not {base!r}"
                problem = f"holds {item.name} {problem}; choose another"
                raise OptionError("--results", str(self.place.results), problem)
            # Seeds run earlier stay in the report.
            known = max(seeds, before["seeds"])
        return {
            "item": item.name,
            "scale": self.scale.name,
            "base": base,
            "changes": changes,
            "seeds": known,
            "rows": [self._row(item, row, seeds, known) for row in item.rows],
        }

    def _row(self, item: Item, row: Row, seeds: int, known: int) -> Json:
        """The keys of a row, with all ``known`` seeds; jobs of the first ``seeds``."""
        planned: Json = {"name": row.name, "kind": row.kind, "measured": {}, "models": {}}
        if row.kind not in ("train", "encoder"):
            return planned
        if self.scale.name not in row.scales:
            planned["skipped"] = f"belongs to --scale {' or '.join(row.scales)}"
            return planned
        planned["recipe"] = recipe_digest(item, row, self.scale.name)
        try:
            for seed in range(known if row.seeded else 1):
                for name in evaluations_of(item, row, self.scale.name):
                    measurement = self._measurement(item, row, name, seed, planned)
                    if measurement is not None and seed < seeds:
                        model, unit = measurement
                        label = f"{item.name} {row.name!r} seed {seed}"
                        job = self._jobs.setdefault(model.key, ModelJob(model, {}, label, seed))
                        job.units[unit.key] = unit
                        job.seed = min(job.seed, seed)
        except UserError as error:
            planned["skipped"] = str(error)
        return planned

    def _measurement(
        self, item: Item, row: Row, name: str, seed: int, planned: Json
    ) -> tuple[PlannedModel, Unit] | None:
        evaluation = item.evaluations[name]
        if MEASURES[evaluation.kind].of_training and row.kind == "encoder":
            return None
        options = MEASURES[evaluation.kind].complete(evaluation.at(self.scale.name))
        model = self._model(item, row, item.first_seed + seed, evaluation.kind, options)
        about = planned["measured"].setdefault(name, {"units": {}})
        try:
            unit = self._unit(model, row, evaluation.kind, options, item.first_seed + seed)
        except DataError as error:
            about["skipped"] = str(error)
            return None
        about["units"][str(seed)] = unit.key
        planned["models"].setdefault(name, {})[str(seed)] = model.key
        return model, unit

    def _model(self, item: Item, row: Row, seed: int, kind: str, options: Options) -> PlannedModel:
        if row.kind == "encoder":
            return self._encoder(row)
        resolved_row = resolve_row(item, row, self.scale, seed=seed)
        base = self._folder(row.base)
        models = {k: self._folder(v, row.base) for k, v in models_of(resolved_row.given).items()}
        settings = dict(resolved_row.settings)
        if settings["pooling"] is None and not (base / "modules.json").is_file():
            settings["pooling"] = "cls"
        built = self._corpus(row.corpus, resolved_row.sentences, seed if row.fresh_samples else 0)
        trace = options if kind in measures.FOLLOWING else None
        select = "none" if trace else resolved_row.select
        evaluated: Options | None = trace or ({"split": "dev"} if select == "stsb" else None)
        judged_on = self._text_digest(kind if trace else "sts", evaluated) if evaluated else ""
        values = {**resolved_row.defaults, **resolved_row.given}
        fingerprint = {
            "version": NUMBERS["train"],
            "base": self._digest(base),
            "objective": resolved_row.objective,
            "parameters": {**values, **{k: self._digest(v) for k, v in models.items()}},
            "settings": {
                k: v
                for k, v in settings.items()
                if k not in INDIFFERENT and (evaluated or k not in OF_EVALUATION)
            },
            "corpus": [built.digest, built.documents],
            "select": select,
            "trace": [kind, trace] if trace is not None else None,
            "judged on": judged_on,
        }
        parameters = {**resolved_row.given, **{k: str(v) for k, v in models.items()}}
        resolved = replace(resolved_row, settings=settings, given=parameters, select=select)
        training = Training(built, resolved, trace)
        return PlannedModel(digest_of(fingerprint), "train", str(base), training)

    def _encoder(self, row: Row) -> PlannedModel:
        if row.encoder == GLOVE:
            path = measures.glove(self.place.data)
            stamp = path.stat()
            parts: dict[str, Any] = {"glove": [path.name, stamp.st_size, stamp.st_mtime_ns]}
            return PlannedModel(digest_of(parts), "glove", str(path))
        folder = self._folder(row.encoder, row.base)
        parts = {"encoder": self._digest(folder), "pooling": row.pooling}
        return PlannedModel(digest_of(parts), "encoder", str(folder), pooling=row.pooling)

    def _unit(self, model: PlannedModel, row: Row, kind: str, options: Options, seed: int) -> Unit:
        fit = None if MEASURES[kind].of_training else row.postprocess
        about: dict[str, Any] = {}
        text = ""
        if fit is not None:
            about = {"kind": fit.kind, "options": fit.options, "corpus": TARGET}
            if fit.kind == "flow":
                about["seed"] = seed
            if fit.corpus != TARGET:
                count = self.scale.sentences if fit.sentences is None else fit.sentences
                built = self._corpus(fit.corpus, count, seed if row.fresh_samples else 0)
                about["corpus"], text = built.digest, built.path
        parts = {
            "version": NUMBERS["measure"],
            "model": model.key,
            "kind": kind,
            "options": options,
            "texts": self._text_digest(kind, options),
            "fit": about or None,
        }
        return Unit(digest_of(parts), kind, options, fit, text, seed)

    def _name(self, name: str, own: str = BASE) -> str:
        """The encoder of a name in an item; "@base" of a row is its own base."""
        name = own if name == BASE else name
        if name == BASE:
            return self.place.base or self.scale.base
        return self.place.checkpoints.get(name, name)

    def _folder(self, name: str, own: str = BASE) -> Path:
        if NEW in (name, own if name == BASE else name):
            return self._untrained(self._folder(BASE))
        wanted = self._name(name, own)
        elsewhere = wanted == name and name not in (BASE, *INSTALLED)
        if elsewhere and self.scale.name == "lab" and own == BASE:
            raise DataError(f"needs --checkpoint {name}=FOLDER")
        return resolve(wanted)

    def _untrained(self, base: Path) -> Path:
        """A model of a base's shape with random weights, the same each time."""
        target = self.place.results / "models" / f"untrained-{self._digest(base)[:12]}"
        if not (target / "modules.json").is_file():
            import torch

            from contrasent.encoder.encoder import TorchEncoder
            from contrasent.engine.momentum_queue import randomize

            encoder = TorchEncoder.load(base, pooling="cls")
            with torch.random.fork_rng():
                torch.manual_seed(0)
                randomize(encoder)
            encoder.save(target)
        return target

    def _text_digest(self, kind: str, options: Options) -> str:
        key = json.dumps([kind, dict(options)], sort_keys=True)
        if key not in self._texts:
            self._texts[key] = measures.texts_digest(kind, options, self.place.data)
        return self._texts[key]
