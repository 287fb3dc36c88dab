"""From recipes to work: which models are made, what is measured on each, and what is shared.

A model and a measurement are known by a digest of everything that decides their numbers: settings
and parameters as they are resolved, defaults included, the base's files, the rows of the corpus,
the texts that are measured on, and the version of the code. Two tables that ask for the same
therefore share it, and what is stored is not made again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contrasent.errors import DataError, OptionError, UserError
from contrasent.model.pretrained import resolve
from contrasent.reproduce import corpora, data, kinds
from contrasent.reproduce.corpora import Built
from contrasent.reproduce.digests import departing, digest_of, folder_digest
from contrasent.reproduce.jobs import Job, Model, Place, Plan, Unit
from contrasent.reproduce.recipe import BASE, GLOVE, TARGET, Evaluation, Recipe, Row
from contrasent.reproduce.scale import Scale, chosen, models_of
from contrasent.reproduce.store import Store

NUMBERS = {"train": 1, "measure": 1, "geometry": 2}
"""The version of the code, as far as numbers depend on it: raised whenever the same work gives
other numbers than before, so that older results are not taken for today's; a default that changes
shows in the keys by itself. (A digest of the source would throw away hours of work for every
comment; it is recorded instead.) A measure that is named has a version of its own."""

INDIFFERENT = ("checkpoint_every", "heldout")
"""Settings that no number depends on."""

JUDGED = ("evaluate_every", "patience")
"""Settings that matter where a run is evaluated."""


class Planner:
    """Makes plans; remembers digests of folders, corpora and texts.

    Args:
        place: where things are.
        scale: of the runs.
    """

    def __init__(self, place: Place, scale: Scale) -> None:
        self.place, self.scale = place, scale
        self.store = Store(place.results)
        self._digests: dict[str, str] = {}
        self._built: dict[tuple[str, int | None], Built] = {}
        self._texts: dict[str, str] = {}

    def plan(self, recipes: Sequence[Recipe], seeds: int | None) -> Plan:
        """The work for recipes.

        Args:
            recipes: in order.
            seeds: how many; each recipe's own number if None.
        """
        jobs: dict[str, Job] = {}
        manifests = {}
        for number, recipe in enumerate(recipes):
            manifests[recipe.name] = self._recipe(recipe, number, seeds or recipe.seeds, jobs)
        return Plan(sorted(jobs.values(), key=lambda job: job.rank), manifests)

    def _recipe(
        self, recipe: Recipe, number: int, seeds: int, jobs: dict[str, Job]
    ) -> dict[str, Any]:
        base = Path(self._name(BASE)).name
        before = self.store.manifest(recipe.name, self.scale.name)
        if before is not None and before["base"] != base:
            problem = f"holds {recipe.name} from the base {before['base']!r}, not {base!r}"
            raise OptionError("--results", str(self.place.results), f"{problem}; choose another")
        if before is not None and before.get("changes", {}) != self.scale.changes:
            problem = (
                f"holds {recipe.name} with {_changes_said(before.get('changes', {}))}, not with "
            )
            problem += f"{_changes_said(self.scale.changes)}; choose another"
            raise OptionError("--results", str(self.place.results), problem)
        # Seeds that were run before stay in the report.
        known = max(seeds, before["seeds"] if before is not None else 0)
        judged = {recipe.reference}
        judged |= {n for c in recipe.claims for n in (c.subject, c.row, *c.than)}
        rows = []
        for i, row in enumerate(recipe.rows):
            rank = (0 if row.name in judged else 1, number, i)
            rows.append(self._row(recipe, row, (seeds, known), rank, jobs))
        return {
            "item": recipe.name,
            "recipe": digest_of(Path(recipe.file).read_text("utf-8")),
            "scale": self.scale.name,
            "base": base,
            "changes": self.scale.changes,
            "seeds": known,
            "rows": rows,
        }

    def _row(
        self,
        recipe: Recipe,
        row: Row,
        seeds: tuple[int, int],
        rank: tuple[int, ...],
        jobs: dict[str, Job],
    ) -> dict[str, Any]:
        """What a row consists of, with all seeds; jobs are made of those that are asked for."""
        asked, known = seeds
        told: dict[str, Any] = {"name": row.name, "kind": row.kind, "measured": {}, "models": {}}
        if row.kind not in ("train", "encoder"):
            return told
        if self.scale.name not in row.scales:
            told["skipped"] = f"belongs to --scale {' or '.join(row.scales)}"
            return told
        try:
            for seed in range(known if row.seeded else 1):
                self._seed(recipe, row, seed, rank, jobs if seed < asked else {}, told)
        except UserError as error:
            told["skipped"] = str(error)
        return told

    def _seed(
        self,
        recipe: Recipe,
        row: Row,
        seed: int,
        rank: tuple[int, ...],
        jobs: dict[str, Job],
        told: dict[str, Any],
    ) -> None:
        for name in row.evaluations[self.scale.name]:
            evaluation = recipe.evaluations[name]
            options = {**kinds.DEFAULTS[evaluation.kind], **evaluation.options}
            model = self._model(recipe, row, seed, evaluation, options)
            about = told["measured"].setdefault(name, {"units": {}})
            try:
                unit = self._unit(model, row, evaluation.kind, options, seed)
            except DataError as error:
                about["skipped"] = str(error)
                continue
            about["units"][str(seed)] = unit.key
            told["models"].setdefault(name, {})[str(seed)] = model.key
            place = (seed, *rank)
            label = f"{recipe.name} {row.name!r} seed {seed}"
            job = jobs.setdefault(model.key, Job(model, {}, label, place))
            job.units[unit.key] = unit
            if place < job.rank:
                job.rank, job.label = place, label

    def _model(
        self, recipe: Recipe, row: Row, seed: int, evaluation: Evaluation, options: dict[str, Any]
    ) -> Model:
        if row.kind == "encoder":
            return self._encoder(row)
        found = chosen(recipe, row, self.scale, seed=seed)
        base = self._folder(row.base)
        models = {k: self._folder(v, row.base) for k, v in models_of(found.given).items()}
        settings = dict(found.settings)
        if settings["pooler"] is None and not (base / "modules.json").is_file():
            settings["pooler"] = "cls"
        resolved = replace(
            found,
            settings=settings,
            given={**found.given, **{k: str(v) for k, v in models.items()}},
        )
        built = self._corpus(row.corpus, found.sentences)
        trace = options if evaluation.kind == "trace" else None
        select = "none" if trace else found.select
        judged = trace or ({"split": "dev"} if select == "stsb" else None)
        values = {**found.defaults, **found.given}
        told = {
            "version": train_version(found.objective, values | settings),
            "base": self._digest(base),
            "objective": found.objective,
            "parameters": {
                **departing(values, "objectives", found.objective),
                **{k: self._digest(v) for k, v in models.items()},
            },
            "settings": {
                k: v
                for k, v in departing(settings, "settings").items()
                if k not in INDIFFERENT and (judged or k not in JUDGED)
            },
            "corpus": [built.digest, built.documents],
            "select": select,
            "trace": departing(trace, "measures", "trace") if trace is not None else None,
            "judged on": self._text_digest("trace" if trace else "sts", judged) if judged else "",
        }
        resolved = replace(resolved, select=select)
        return Model(digest_of(told), "train", told, str(base), built, resolved, trace)

    def _encoder(self, row: Row) -> Model:
        if row.encoder == GLOVE:
            path = data.glove(self.place.data)
            stamp = path.stat()
            told: dict[str, Any] = {"glove": [path.name, stamp.st_size, stamp.st_mtime_ns]}
            return Model(digest_of(told), "glove", told, str(path))
        folder = self._folder(row.encoder)
        told = {"encoder": self._digest(folder), "pooler": row.pooler}
        return Model(digest_of(told), "encoder", told, str(folder), pooler=row.pooler)

    def _unit(self, model: Model, row: Row, kind: str, options: dict[str, Any], seed: int) -> Unit:
        fit = self._fit(row, seed) if kind not in kinds.OF_TRAINING else None
        told = {
            "version": NUMBERS.get(kind, NUMBERS["measure"]),
            "model": model.key,
            "kind": kind,
            "options": departing(options, "measures", kind),
            "texts": self._text_digest(kind, options),
            "fit": {k: v for k, v in fit.items() if k != "path"} if fit else None,
        }
        return Unit(digest_of(told), kind, options, fit)

    def _fit(self, row: Row, seed: int) -> dict[str, Any] | None:
        if row.fit is None:
            return None
        fit: dict[str, Any] = {"kind": row.fit.kind, "options": row.fit.options, "path": ""}
        if row.fit.kind == "flow":
            fit["seed"] = seed
        if row.fit.corpus == TARGET:
            return {**fit, "corpus": TARGET}
        count = row.fit.options.get("sentences", self.scale.sentences)
        built = self._corpus(row.fit.corpus, count)
        return {**fit, "corpus": built.digest, "path": built.path}

    def _name(self, name: str, own: str = BASE) -> str:
        """What a name in a recipe stands for; "@base" of a row is its own base."""
        if name == BASE and own != BASE:
            name = own
        if name == BASE:
            return self.place.base or self.scale.base
        return self.place.checkpoints.get(name, name)

    def _folder(self, name: str, own: str = BASE) -> Path:
        wanted = self._name(name, own)
        if name != BASE and wanted == name and self.scale.name == "lab" and own == BASE:
            where = "--checkpoint NAME=FOLDER gives it, --scale paper looks for it"
            raise DataError(f"needs the checkpoint {name} ({where})")
        return resolve(wanted)

    def _corpus(self, name: str, sentences: int | None) -> Built:
        wanted = (name, sentences or None)
        if wanted not in self._built:
            home = self.place.results / "corpora"
            self._built[wanted] = corpora.build(name, wanted[1], self.place.data, home)
        return self._built[wanted]

    def _digest(self, folder: Path) -> str:
        name = str(folder)
        if name not in self._digests:
            self._digests[name] = folder_digest(folder)
        return self._digests[name]

    def _text_digest(self, kind: str, options: dict[str, Any]) -> str:
        key = json.dumps([kind, options], sort_keys=True)
        if key not in self._texts:
            self._texts[key] = data.texts_digest(kind, options, self.place.data)
        return self._texts[key]


def _changes_said(changes: dict[str, Any]) -> str:
    said = ", ".join(f"{k} {v}" for k, v in changes.items())
    return said or "the scale's own settings"


def train_version(objective: str, values: Mapping[str, Any]) -> int:
    """``NUMBERS["train"]``, and one more where a mend changed what these options compute.

    On 2026-11-22: rows of a queue under batch normalisation, DiffCSE compiled, two terms that mask.

    Args:
        objective: its name.
        values: of all parameters and settings.
    """
    methods = {part.strip() for part in objective.split("+")}
    normalised = "batchnorm" in (values.get("projector"), values.get("head"))
    mended = (
        ("esimcse" in methods and normalised and values["queue_size"] > 0)
        or ("diffcse" in methods and values["compile"])
        or {"diffcse", "masked_lm"} <= methods
    )
    return NUMBERS["train"] + mended
