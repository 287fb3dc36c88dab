"""The pieces of a plan: models, what is measured on them, and where things are."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contrasent.reproduce.corpora import Built
from contrasent.reproduce.scale import Resolved, models_of


@dataclass(frozen=True, slots=True)
class Model:
    """Something that encodes sentences.

    Attributes:
        key: digest of ``told``.
        kind: "train", "encoder" or "glove".
        told: everything that decides its numbers.
        base: folder or file that it begins from.
        corpus: what it is trained on.
        resolved: objective, parameters and settings.
        trace: options of the measurement that follows the training, if one does.
        pooler: of an encoder.
    """

    key: str
    kind: str
    told: dict[str, Any]
    base: str
    corpus: Built | None = None
    resolved: Resolved | None = None
    trace: dict[str, Any] | None = None
    pooler: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """One measurement of one model.

    Attributes:
        key: digest of everything that decides its numbers.
        kind: of ``kinds.MEASURES``.
        options: all of them.
        fit: transform of the vectors: kind, options, and the corpus that it is fitted to.
    """

    key: str
    kind: str
    options: dict[str, Any]
    fit: dict[str, Any] | None = None


@dataclass(slots=True)
class Job:
    """A model and all that is measured on it; what one process does at a time.

    Attributes:
        model: what to make.
        units: what to measure, by key.
        label: for people.
        rank: the most informative come first.
    """

    model: Model
    units: dict[str, Unit]
    label: str
    rank: tuple[int, ...]


@dataclass(slots=True)
class Plan:
    """The work for some recipes.

    Attributes:
        jobs: in the order to do them in.
        manifests: for each item, what its rows consist of.
    """

    jobs: list[Job]
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are.

    Attributes:
        results: the folder of results.
        data: the folder of data sets, or None.
        base: what "@base" stands for, or "" for the scale's own.
        checkpoints: folders for other names.
    """

    results: Path
    data: Path | None
    base: str = ""
    checkpoints: dict[str, str] = field(default_factory=dict)


def describe(job: Job) -> dict[str, Any]:
    """A job in plain data, to be stored with its results."""
    model = job.model
    told: dict[str, Any] = {"label": job.label, "told": model.told, "base": Path(model.base).name}
    if model.resolved is not None:
        found = model.resolved
        # A path on this machine is nobody else's business.
        names = {k: Path(v).name for k, v in models_of(found.given).items()}
        told |= {
            "objective": found.objective,
            "parameters": {**found.defaults, **found.given, **names},
            "settings": found.settings,
        }
    if model.corpus is not None:
        told["corpus"] = {k: v for k, v in asdict(model.corpus).items() if k != "path"}
    return told
