"""Loading a model for a command, and counting the texts that it cuts."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from contrasent.cli.options import Loading
from contrasent.errors import ModelError, OptionError, check_choice

if TYPE_CHECKING:
    from contrasent.encoding.job import Opened
    from contrasent.model.base import Model
    from contrasent.types import EncodeFn, Task, Vectors

FLOW = "contrasent_flow.json"  # of a folder with a flow in it
KNOWN = ("modules.json", "config.json", "export.json", FLOW)
SETTINGS = ("pooler", "max_tokens")

M_co = TypeVar("M_co", bound="Model", covariant=True)


class Counting(Generic[M_co]):
    """An ``EncodeFn`` that counts over all its calls."""

    # `runtime`: what computes it, as `--runtime` calls it. `truncated`: how many of them were cut
    # at the model's longest input. `prompt`: text put before each; the model's default prompt if
    # None.

    def __init__(self, encoder: M_co, loading: Loading, runtime: str = "torch") -> None:
        self.encoder, self.loading, self.runtime = encoder, loading, runtime
        self.texts = self.truncated = 0
        self.prompt: str | None = None

    def for_task(self, task: "Task") -> "EncodeFn":
        """Encode queries or documents, and count them here; see ``types.for_task``."""
        text = self.encoder.prompts.of_task(task)
        if text == (self.encoder.prompts.text() if self.prompt is None else self.prompt):
            return self
        return lambda texts: self._encode(texts, text)

    def __call__(self, texts: Sequence[str]) -> "Vectors":
        """Encode, and count."""
        return self._encode(texts, self.prompt)

    def _encode(self, texts: Sequence[str], prompt: str | None) -> "Vectors":
        if self.loading.batch_invariant:
            from contrasent.model.base import encode_batch_invariant

            chosen = self.encoder.prompts.text() if prompt is None else prompt
            tokens, cut = self.encoder.tokenise(texts, chosen)
            self.texts += len(texts)
            self.truncated += int(cut.sum())
            return encode_batch_invariant(self.encoder.embed, tokens, self.encoder.dimension)
        vectors = self.encoder.encode(texts, batch=self.loading.batch, prompt=prompt)
        self.texts += len(texts)
        self.truncated += self.encoder.truncated
        return vectors

    @property
    def notes(self) -> list[str]:
        """A line about the texts that were cut, if any were."""
        if not self.truncated:
            return []
        cut = f"{self.truncated:,} of {self.texts:,} texts were longer than "
        return [f"{cut}{self.encoder.max_tokens} tokens and were cut there (--max-tokens)"]


def find_model(name: str) -> Path:
    """The model's folder, before anything heavy is imported."""
    from contrasent.model.pretrained import resolve

    folder = resolve(name)
    if not any((folder / file).is_file() for file in KNOWN):
        raise ModelError(
            f"{folder}: not a model folder (neither modules.json nor config.json in it)"
        )
    return folder


def open_model(
    folder: Path, loading: Loading | None = None, *, light: bool = False
) -> "Counting[Model]":
    """Open a model to encode with: by numpy, torch, or an exported graph.

    ``light``: by numpy unless something else is named, where it knows the model and there is no
    accelerator.
    """
    from contrasent.model.numpy_model import NumpyModel, by_numpy
    from contrasent.model.runtime import RUNTIMES, Exported, read_export

    loading = loading or Loading()
    runtime, given = loading.runtime, {key: getattr(loading, key) for key in SETTINGS}
    if runtime is not None:
        check_choice("--runtime", runtime, RUNTIMES)
    # The count of cut texts is the command's to report, in one line.
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)
    is_flow = (folder / FLOW).is_file()
    if is_flow and runtime not in (None, "torch"):
        raise OptionError(
            "--runtime", runtime, f"{folder} holds a flow, which torch alone computes"
        )
    if (folder / "export.json").is_file():
        own = read_export(folder).name
        if runtime not in (None, own):
            raise OptionError("--runtime", runtime, f"{folder} is exported to {own}")
        exported = Exported.load(folder)
    elif runtime not in (None, "torch", "numpy"):
        own = runtime
        if not (folder / own / "export.json").is_file():
            to, _, int8 = own.partition("-")
            how = f"contrasent export {folder} --to {to}{' --int8' if int8 else ''}"
            raise ModelError(f"{folder}: is not exported to {own}; do that with '{how}'")
        exported = Exported.load(folder / own, model=folder)
    elif runtime == "numpy" or (
        not (is_flow or runtime) and by_numpy(folder, loading.pooler, light=light)
    ):
        return Counting(NumpyModel(folder, **given), loading, "numpy")
    else:
        from contrasent.encoder.encoder import Encoder

        if not is_flow:
            return Counting(Encoder.load(folder, **given), loading)
        from contrasent.postprocess.flow import Flowed, read_flow

        below, flow = read_flow(folder)
        flowed: Any = Flowed(Encoder.load(below, **given), flow)
        return Counting(flowed, loading)
    exported.check(**given)
    return Counting(exported, loading, own)


def lasting_name(name: str) -> str:
    """A model's name that still leads there from another working directory."""
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else name


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

    def open(self) -> "tuple[Counting[Model], dict[str, Any]]":
        """The model, and the settings that decide its vectors."""
        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # for what is not torch
        model = open_model(Path(self.folder), self.loading, light=self.stream)
        encoder = model.encoder
        if self.threads is not None and model.runtime == "torch":
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
            "runtime": model.runtime,
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

    def notes(self, encoder: "Model") -> list[str]:
        """A line if the model was not trained to be cut at these dimensions."""
        nested = getattr(encoder, "nested", ())
        if self.dimensions in (None, encoder.dimension, *nested):
            return []
        known = f"for {', '.join(map(str, nested[1:]))}" if nested else "for no fewer dimensions"
        return [f"--dimensions {self.dimensions}: the model was trained {known}"]
