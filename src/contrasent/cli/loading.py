"""Opening a model for a command, here or in a worker."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.cli.options import Loading
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.encoding.job import Opened
    from contrasent.model.base import Encoder, TaskEncoder
    from contrasent.types import Vectors


def open_model(
    name: str | Path, loading: Loading | None = None, *, light: bool = False
) -> "TaskEncoder":
    """Open a model as the options of a command say; ``light``: see ``open_encoder``."""
    from contrasent.model.base import TaskEncoder
    from contrasent.model.opening import find_model, open_encoder

    given = loading or Loading()
    encoder = open_encoder(
        find_model(name),
        runtime=given.runtime,
        pooler=given.pooler,
        max_tokens=given.max_tokens,
        light=light,
    )
    return TaskEncoder(encoder, batch=given.batch, batch_invariant=given.batch_invariant)


@dataclass(frozen=True, slots=True)
class OpenModel:
    """Opens a model, here or in a worker, with the form that its vectors are to have."""

    folder: str
    loading: Loading
    unit: bool = False  # whether vectors are scaled to length one
    dimensions: int | None = None  # how many are kept, scaled to length one; all if None
    prompt: str | None = None  # name of a prompt
    threads: int | None = None  # to compute with; as the process has them if None
    stream: bool = False  # of one process: by numpy where that is sooner, with the default prompt

    def __call__(self) -> "Opened":
        """The same with its settings, as a worker needs it."""
        from contrasent.encoding.job import Opened

        model, settings = self.open()
        return Opened(
            lambda texts: self.formed(model(texts)),
            self.dimensions or model.encoder.dimension,
            lambda: model.truncated,
            settings,
            self.notes(model.encoder),
        )

    def open(self) -> "tuple[TaskEncoder, dict[str, Any]]":
        """The model, and the settings that decide its vectors."""
        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # for what is not torch
        model = open_model(self.folder, self.loading, light=self.stream)
        encoder = model.encoder
        if self.threads is not None and encoder.runtime == "torch":
            import torch

            torch.set_num_threads(self.threads)
        document = encoder.prompts.of_task("document")
        if self.prompt is not None:
            model.prompt = encoder.prompts.text(self.prompt)
        elif not self.stream and document != encoder.prompts.text():
            model.prompt = document  # as `index` encodes rows
        if self.dimensions is not None and self.dimensions > encoder.dimension:
            problem = f"the model has {encoder.dimension}"
            raise OptionError("--dimensions", self.dimensions, problem)
        settings = {
            "model": encoder.identity,
            "runtime": encoder.runtime,
            "invariant": self.loading.batch_invariant,
            "unit": self.unit,
            "dimensions": self.dimensions,
            "prompt": model.prompt,
        }
        return model, {key: value for key, value in settings.items() if value is not None}

    def formed(self, vectors: "Vectors") -> "Vectors":
        """Vectors of the model in this form."""
        if not self.unit and self.dimensions is None:
            return vectors
        from contrasent.metrics import normalize

        return normalize(vectors[:, : self.dimensions])

    def notes(self, encoder: "Encoder") -> list[str]:
        """A line if the model was not trained to be cut at these dimensions."""
        nested = encoder.matryoshka_dims
        if self.dimensions in (None, encoder.dimension, *nested):
            return []
        known = f"for {', '.join(map(str, nested[1:]))}" if nested else "for no fewer dimensions"
        return [f"--dimensions {self.dimensions}: the model was trained {known}"]
