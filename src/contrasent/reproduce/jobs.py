"""The pieces of a plan: models, what is measured on them, and where things are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contrasent.reproduce.corpora import Built
from contrasent.reproduce.items import Fit, Resolved, models_of
from contrasent.reproduce.measures import Options
from contrasent.reproduce.store import Manifest


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained.

    Attributes:
        trace: options of the measure that follows the training, if one does.
    """

    corpus: Built
    resolved: Resolved
    trace: Options | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """Something that encodes sentences.

    Attributes:
        base: folder or file that it begins from.
    """

    key: str
    kind: str
    fingerprint: Mapping[str, Any]
    base: str
    training: Training | None = None
    pooler: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """One measurement of one model.

    Attributes:
        key: digest of everything that decides its numbers.
        text: file of what it is fitted to; "" of each task's own sentences.
    """

    key: str
    kind: str
    options: Options
    fit: Fit | None = None
    text: str = ""
    seed: int = 0


@dataclass(slots=True)
class Job:
    """A model and all that is measured on it; what one process does at a time."""

    model: Model
    units: dict[str, Unit]
    label: str
    rank: tuple[int, ...]

    def describe(self) -> dict[str, Any]:
        """What is stored with its results."""
        model = self.model
        about = {"label": self.label, "told": model.fingerprint, "base": Path(model.base).name}
        if model.training is not None:
            found = model.training.resolved
            # A path on this machine is nobody else's business.
            names = {k: Path(v).name for k, v in models_of(found.given).items()}
            corpus = asdict(model.training.corpus)
            del corpus["path"]
            about |= {
                "objective": found.objective,
                "parameters": {**found.defaults, **found.given, **names},
                "settings": found.settings,
                "corpus": corpus,
            }
        return about


@dataclass(slots=True)
class Plan:
    """The work for some items.

    Attributes:
        jobs: in the order to do them in.
        manifests: for each item, what its rows consist of.
    """

    jobs: list[Job]
    manifests: dict[str, Manifest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are.

    Attributes:
        data: the folder of data sets, or None.
        base: what "@base" stands for, or "" for the scale's own.
    """

    results: Path
    data: Path | None
    base: str = ""
    checkpoints: dict[str, str] = field(default_factory=dict)
