"""The documents that ``diff`` searches, of an index or of a corpus."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.cli.loading import Counting
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.model.prompts import Model
    from contrasent.serve.client import RemoteModel
    from contrasent.types import Vectors


@dataclass(frozen=True, slots=True)
class Searched:
    """The documents, and what an index that they are from says of its vectors."""

    texts: list[str]
    of: int
    metric: str = "cosine"
    model: str = ""
    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    vectors: "Vectors | None" = None

    def vectors_by(self, model: "Counting[Model] | RemoteModel") -> "Vectors | None":
        """The stored vectors, if this model made them; a quantised copy has its own."""
        if not isinstance(model, Counting):
            made = model.identity == self.model != ""
        else:
            exact = ("int8" in model.runtime) == ("int8" in _runtime_of(self.source))
            made = model.encoder.identity == self.model and exact
        return self.vectors if made and not self.settings.get("mapped") else None


def open_searched(on: str, most: int, column: str | None, seed: int) -> Searched:
    """Read the documents of an index or a corpus."""
    import numpy as np

    from contrasent.search.manifest import MILVUS, NAME
    from contrasent.search.opening import open_index
    from contrasent.search.records import Records
    from contrasent.search.records import column as position

    random = np.random.default_rng(seed)
    place = Path(on)
    if not any((place / name).is_file() for name in (NAME, MILVUS)):
        rows = Records(on, text=None if column is None else position(column))
        texts = [text for text, _, _ in rows]
        if len(texts) > most:
            chosen = np.sort(random.choice(len(texts), most, replace=False)).tolist()
            return Searched([texts[at] for at in chosen], len(texts))
        return Searched(texts, len(texts))
    if column is not None:
        raise OptionError("--column", column, f"{on} is an index, which has one text a row")
    opened = open_index(place)
    from contrasent.search.index import Index

    of = len(opened)
    if isinstance(opened, Index):
        numbers = np.flatnonzero(opened.alive())
        if of > most:
            numbers = np.sort(random.choice(numbers, most, replace=False))
        held: Any = opened
    else:
        held = opened.sample(most)
        numbers = np.arange(len(held))
    texts = [held.named(int(row))["text"] for row in numbers]
    return Searched(
        texts,
        of,
        opened.metric,
        opened.model,
        opened.manifest.source,
        opened.manifest.settings,
        opened.manifest.threshold,
        held.vectors_of(numbers),
    )


def _runtime_of(source: str) -> str:
    """What computed the vectors of an index, by the model that it names."""
    from contrasent.model.exports import NAME, read_export

    return read_export(Path(source)).name if (Path(source) / NAME).is_file() else "torch"
