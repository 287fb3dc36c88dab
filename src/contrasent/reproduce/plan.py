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
from contrasent.reproduce.corpora import NamedCorpus, build
from contrasent.reproduce.measures import MEASURES, Options
from contrasent.reproduce.store import Json, ResultStore, digest_of, folder_digest
from contrasent.reproduce.tables import (
    BASE,
    GLOVE,
    NEW,
    TARGET,
    FittedTransform,
    Item,
    Row,
    Scale,
    Training,
    recipe_digest,
    resolve_row,
)

NUMBERS = {"train": 2, "measure": 2, "terms": 3}
"""Versions of the code, raised whenever the same work gives other numbers than before, so that
older results are not taken for today's; a kind of measure may have its own. A digest of the source
would throw away hours of work for every comment, so it is only recorded."""

INDIFFERENT = ("save_steps", "eval_size")  # settings that do not affect numbers
OF_EVALUATION = ("eval_steps", "early_stopping_patience")  # those of a run that is evaluated


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one model."""

    key: str  # digest of everything that determines its numbers
    kind: str
    options: Options
    fit: FittedTransform | None = None
    text: str = ""  # file of texts to fit to; "" for each task's own sentences
    seed: int = 0
    precision: str = "fp32"


@dataclass(slots=True)
class Job:
    """Something that encodes sentences, and its measurements, done by one process at a time."""

    key: str  # digest of everything that determines its numbers
    kind: str  # "train", "encoder" or "glove"
    base: str  # the folder or file that it begins from
    training: Training | None = None
    pooling: str = ""
    measurements: dict[str, Measurement] = field(default_factory=dict)
    label: str = ""
    seed: int = 0  # the first one that needs it

    def describe(self) -> Json:
        """The record that is stored with its results."""
        about: Json = {"label": self.label, "base": Path(self.base).name}
        if (training := self.training) is not None and training.corpus is not None:
            # Local paths are private.
            names = {k: Path(str(training.given[k])).name for k in training.models}
            parameters = {**training.known, **training.given, **names}
            corpus = asdict(training.corpus)
            del corpus["path"]
            about |= {
                "objective": parameters.pop("name"),
                "parameters": parameters,
                "settings": training.settings,
                "corpus": corpus,
            }
        return about


class WorkPlan(NamedTuple):
    """Jobs in the order to do them, and the contents of each item's rows."""

    jobs: list[Job]
    manifests: dict[str, Json]


class Planner:
    """Makes plans; remembers digests of folders, corpora and texts.

    ``base``: what "@base" stands for, or "" for the scale's own; ``checkpoints``: folders by the
    names that items give them.
    """

    def __init__(
        self,
        results: Path,
        data: Path | None,
        scale: Scale,
        corpora: Mapping[str, NamedCorpus],
        *,
        base: str = "",
        checkpoints: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.data, self.scale = ResultStore(results), data, scale
        self.base, self.checkpoints = base or scale.base, checkpoints or {}
        self._digest = cache(folder_digest)
        self._corpus = cache(
            lambda name, count, draw: build(
                corpora[name], count or None, data, results / "corpora", draw
            )
        )
        self._texts: dict[str, str] = {}

    def plan(self, items: Sequence[Item], seeds: int | None) -> WorkPlan:
        """The work for items."""
        self._jobs: dict[str, Job] = {}
        manifests = {item.name: self._item(item, seeds) for item in items}
        # The first seeds of all tables come before the second ones.
        return WorkPlan(sorted(self._jobs.values(), key=lambda job: job.seed), manifests)

    def _item(self, item: Item, wanted: int | None) -> Json:
        base, changes = Path(self._name(item.base)).name, self.scale.changed
        known = seeds = wanted or item.seeds
        if (before := self.store.manifest(item.name, self.scale.name)) is not None:
            then = before.get("changes", {})
            problem = ""
            if before["base"] != base:
                problem = f"from the base {before['base']!r}, not {base!r}"
            elif then != changes:
                problem = f"with {_listed(then)}, not with {_listed(changes)}"
            if problem:
                problem = f"holds {item.name} {problem}; choose another"
                raise OptionError("--results", str(self.store.home), problem)
            # Seeds run earlier stay in the report.
            known = max(seeds, before["seeds"])
        stored = {row["name"]: row for row in (before or {}).get("rows", ())}
        return {
            "item": item.name,
            "scale": self.scale.name,
            "base": base,
            "changes": changes,
            "seeds": known,
            "rows": [
                self._row(item, row, seeds, known, stored.get(row.name, {})) for row in item.rows
            ],
        }

    def _row(self, item: Item, row: Row, seeds: int, known: int, stored: Json) -> Json:
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
                for name in row.at(self.scale.name).evaluations:
                    self._measure(item, row, name, seed, planned, wanted=seed < seeds)
        except UserError as error:
            planned["skipped"] = str(error)
        if stored.get("recipe", planned["recipe"]) == planned["recipe"]:
            self._keep(planned, stored)
        return planned

    def _keep(self, planned: Json, stored: Json) -> None:
        """Keep the stored keys of evaluations that cannot be planned now, such as without data."""
        whole = planned.get("skipped")
        for name, then in stored.get("measured", {}).items():
            reason = whole or planned["measured"].get(name, {}).get("skipped")
            if reason and then["units"]:
                planned.pop("skipped", None)
                planned["measured"][name] = {"units": then["units"]}
                planned["models"][name] = stored["models"][name]
                if not all(map(self.store.has, then["units"].values())):
                    planned["measured"][name]["skipped"] = reason

    def _measure(
        self, item: Item, row: Row, name: str, seed: int, planned: Json, *, wanted: bool
    ) -> None:
        """Note the keys of an evaluation of a row at a seed, and add its job if it is wanted."""
        kind = item.evaluations[name].kind
        if MEASURES[kind].of_training and row.kind == "encoder":
            return
        options = item.options(name, self.scale.name)
        own_seed = item.first_seed + seed
        if row.kind == "encoder":
            job = self._encoder(row)
        else:
            job = self._training(row, own_seed, kind, options)
        about = planned["measured"].setdefault(name, {"units": {}})
        try:
            measurement = self._measurement(
                job, row, kind, options, own_seed, item.encode_precision
            )
        except DataError as error:
            about["skipped"] = str(error)
            return
        about["units"][str(seed)] = measurement.key
        planned["models"].setdefault(name, {})[str(seed)] = job.key
        if wanted:
            job.label, job.seed = f"{item.name} {row.name!r} seed {seed}", seed
            job = self._jobs.setdefault(job.key, job)
            job.measurements[measurement.key] = measurement
            job.seed = min(job.seed, seed)

    def _training(self, row: Row, seed: int, kind: str, options: Options) -> Job:
        training = resolve_row(row, self.scale, seed=seed)
        base = self._folder(row.base)
        models = {k: self._folder(str(training.given[k]), row.base) for k in training.models}
        settings = dict(training.settings)
        if settings["pooling"] is None and not (base / "modules.json").is_file():
            settings["pooling"] = "cls"
        built = self._corpus(row.corpus, training.sentences, seed if row.fresh_samples else 0)
        trace = options if kind in measures.FOLLOWING else None
        select = "none" if trace else training.select
        evaluated: Options | None = trace or ({"split": "dev"} if select == "stsb" else None)
        evaluated_on = self._text_digest(kind if trace else "sts", evaluated) if evaluated else ""
        digests = {k: self._digest(v) for k, v in models.items()}
        parameters = {**training.known, **training.given, **digests}
        fingerprint = {
            "version": NUMBERS["train"],
            "base": self._digest(base),
            "objective": parameters.pop("name"),
            "parameters": parameters,
            "settings": {
                k: v
                for k, v in settings.items()
                if k not in INDIFFERENT and (evaluated or k not in OF_EVALUATION)
            },
            "corpus": [built.digest, built.documents],
            "select": select,
            "trace": [kind, trace] if trace is not None else None,
            "judged on": evaluated_on,  # the name in stored keys
        }
        given = {**training.given, **{k: str(v) for k, v in models.items()}}
        training = replace(
            training, settings=settings, given=given, select=select, corpus=built, trace=trace
        )
        return Job(digest_of(fingerprint), "train", str(base), training)

    def _encoder(self, row: Row) -> Job:
        if row.encoder == GLOVE:
            path = measures.glove(self.data)
            stamp = path.stat()
            parts: Json = {"glove": [path.name, stamp.st_size, stamp.st_mtime_ns]}
            return Job(digest_of(parts), "glove", str(path))
        folder = self._folder(row.encoder, row.base)
        parts = {"encoder": self._digest(folder), "pooling": row.pooling}
        return Job(digest_of(parts), "encoder", str(folder), pooling=row.pooling)

    def _measurement(
        self, job: Job, row: Row, kind: str, options: Options, seed: int, precision: str
    ) -> Measurement:
        fit = None if MEASURES[kind].of_training else row.postprocess
        about: Json = {}
        text = ""
        if fit is not None:
            stated = fit.model_dump(exclude={"kind", "corpus"}, exclude_none=True)
            about = {"kind": fit.kind, "options": stated, "corpus": TARGET}
            if fit.kind == "flow":
                about["seed"] = seed
            if fit.corpus != TARGET:
                count = self.scale.sentences if fit.sentences is None else fit.sentences
                built = self._corpus(fit.corpus, count, seed if row.fresh_samples else 0)
                about["corpus"], text = built.digest, built.path
        parts = {
            "version": NUMBERS.get(kind, NUMBERS["measure"]),
            "model": job.key,
            "kind": kind,
            "options": options,
            "texts": self._text_digest(kind, options),
            "fit": about or None,
            **({} if precision == "fp32" else {"precision": precision}),
        }
        return Measurement(digest_of(parts), kind, options, fit, text, seed, precision)

    def _name(self, name: str, own: str = BASE) -> str:
        """The encoder of a name in an item; "@base" of a row is its own base."""
        name = own if name == BASE else name
        return self.base if name == BASE else self.checkpoints.get(name, name)

    def _folder(self, name: str, own: str = BASE) -> Path:
        if NEW in (name, own if name == BASE else name):
            return self._untrained(self._folder(BASE))
        wanted = self._name(name, own)
        # A folder or a name with its commit says itself where the model is.
        stated = name in INSTALLED or "@" in name or Path(name).is_dir()
        if wanted == name and not stated and self.scale.name == "lab" and own == BASE:
            raise DataError(f"needs --checkpoint {name}=FOLDER")
        return resolve(wanted)

    def _untrained(self, base: Path) -> Path:
        """A model of a base's shape with random weights, the same each time."""
        target = self.store.model(f"untrained-{self._digest(base)[:12]}")
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
            self._texts[key] = measures.texts_digest(kind, options, self.data)
        return self._texts[key]


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in settings.items()) or "the scale's own settings"
