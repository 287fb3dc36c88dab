"""Collections with queries and judgments of people, each text of which is encoded once."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.datasets.beir import read_collection
from contrasent.model.base import TaskEncoder
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.pretrained import resolve
from contrasent.types import Vectors, for_task


def arguments(description: str | None, *, named: bool = False) -> argparse.ArgumentParser:
    """The options of what measures on collections, one of which at least must be ``named``."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    about: dict[str, Any] = {"metavar": "COLLECTION", "help": "folders of $CONTRASENT_DATA/ir"}
    parser.add_argument("collections", nargs="+" if named else "*", type=_there, **about)
    parser.add_argument("--vectors", type=Path, default=Path("vectors"), help="encodings, kept")
    return parser


def _there(name: str) -> str:
    if not (folder := home() / name.partition(":")[0]).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {folder}")
    return name


def home() -> Path:
    """The folder of the collections."""
    return Path(os.environ["CONTRASENT_DATA"]) / "ir"


def all_names() -> list[str]:
    """The names of all collections."""
    return sorted(path.name for path in home().iterdir())


def task_encoder(base: str) -> Any:
    """A base, which encodes queries and documents by its prompts."""
    return TaskEncoder(NumpyModel(resolve(base)))


class Judged:
    """A collection in BEIR's layout; ``cache`` keeps its vectors."""

    def __init__(self, name: str, cache: Path) -> None:
        self.name, self.cache, self.folder = name, cache, home() / name
        self.texts = read_collection(self.folder)

    def encoded(self, base: str, task: Any, texts: Sequence[str], kept: str = "") -> Vectors:
        """(n, d) of some texts, kept as "query" or "document" unless it is said otherwise."""
        path = self.cache / f"{self.name}.{base}.{kept or task}.npy"
        if not path.is_file():
            self.cache.mkdir(parents=True, exist_ok=True)
            np.save(path, for_task(task_encoder(base), task)(list(texts)))
        found: Vectors = np.load(path, allow_pickle=False)
        return found
