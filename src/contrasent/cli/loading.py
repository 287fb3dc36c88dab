"""Loading a model for a command, and counting the texts that it cuts."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from contrasent.cli.options import Loading
from contrasent.errors import ModelError, OptionError, check_choice

if TYPE_CHECKING:
    from contrasent.encoding.job import Opened
    from contrasent.model.base import Model
    from contrasent.model.encoder import Encoder
    from contrasent.types import EncodeFn, Task, Vectors


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

    @property
    def stated(self) -> str:
        """All that decides the vectors, in one line."""
        return f"{self.encoder.identity} {self.runtime} {self.prompt!r} {self.loading!r}"

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
    from contrasent.postprocess.folder import is_flow

    folder = resolve(name)
    known = ("modules.json", "config.json", "export.json")
    if not is_flow(folder) and not any((folder / file).is_file() for file in known):
        raise ModelError(
            f"{folder}: not a model folder (neither modules.json nor config.json in it)"
        )
    return folder


def load_model(folder: Path, loading: Loading) -> "Counting[Encoder]":
    """Load an encoder."""
    if (folder / "export.json").is_file():
        raise ModelError(f"{folder}: is an exported model; this command needs the model itself")
    from contrasent.model.encoder import Encoder

    # The count of cut texts is the command's to report, in one line.
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)
    encoder = Encoder.load(folder, pooler=loading.pooler, max_tokens=loading.max_tokens)
    return Counting(encoder, loading)


def open_model(
    folder: Path, loading: Loading | None = None, *, light: bool = False
) -> "Counting[Model]":
    """Open a model to encode with: by numpy, torch, or an exported graph.

    ``light``: by numpy unless something else is named, where it knows the model and there is no
    accelerator: starting torch takes longer than encoding some thousand texts.
    """
    from contrasent.model.runtime import RUNTIMES, Exported, read_export
    from contrasent.postprocess.folder import Flowed, is_flow, read_flow

    loading = loading or Loading()
    runtime = loading.runtime
    if runtime is not None:
        check_choice("--runtime", runtime, RUNTIMES)
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)
    if is_flow(folder):
        if runtime not in (None, "torch"):
            problem = f"{folder} holds a flow, which torch alone computes"
            raise OptionError("--runtime", runtime, problem)
        below, flow = read_flow(folder)
        flowed: Any = Flowed(load_model(below, loading).encoder, flow)
        return Counting(flowed, loading)
    if (folder / "export.json").is_file():
        own = read_export(folder).name
        if runtime not in (None, own):
            raise OptionError("--runtime", runtime, f"{folder} is exported to {own}")
        exported = Exported.load(folder)
    elif runtime == "numpy" or (runtime is None and _by_numpy(folder, loading, light)):
        from contrasent.model.numpy_model import NumpyModel

        model = NumpyModel(folder, pooler=loading.pooler, max_tokens=loading.max_tokens)
        return Counting(model, loading, "numpy")
    elif runtime in (None, "torch"):
        return Counting(load_model(folder, loading).encoder, loading)
    else:
        if not (folder / runtime / "export.json").is_file():
            to, _, int8 = runtime.partition("-")
            how = f"contrasent export {folder} --to {to}{' --int8' if int8 else ''}"
            raise ModelError(f"{folder}: is not exported to {runtime}; do that with '{how}'")
        own = runtime
        exported = Exported.load(folder / runtime, model=folder)
    exported.check(pooler=loading.pooler, max_tokens=loading.max_tokens)
    return Counting(exported, loading, own)


def _by_numpy(folder: Path, loading: Loading, light: bool) -> bool:
    from contrasent.model.numpy_model import supports

    if find_spec("torch") is None:
        return True
    accelerated = sys.platform == "darwin" or Path("/dev/nvidiactl").exists()
    return light and not accelerated and supports(folder, loading.pooler)


def lasting_name(name: str) -> str:
    """A model's name that still leads there from another working directory."""
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else name


class Form(NamedTuple):
    """How vectors are made of texts."""

    unit: bool = False  # whether they are scaled to length one
    dimensions: int | None = None  # how many are kept, scaled to length one; all if None
    prompt: str | None = None  # name of a prompt; the default if None

    def of(self, vectors: "Vectors") -> "Vectors":
        """The model's vectors, so made."""
        if not self.unit and self.dimensions is None:
            return vectors
        from contrasent.metrics import normalize

        return normalize(vectors[:, : self.dimensions])

    def apply(self, function: "Counting[Model]") -> dict[str, Any]:
        """Choose the prompt of a model; the settings that decide the vectors."""
        encoder = function.encoder
        if self.prompt is not None:
            function.prompt = encoder.prompts.text(self.prompt)
        if self.dimensions is not None and self.dimensions > encoder.dimension:
            problem = f"the model has {encoder.dimension}"
            raise OptionError("--dimensions", self.dimensions, problem)
        facts = {
            "model": encoder.identity,
            "runtime": function.runtime,
            "invariant": function.loading.batch_invariant,
            "unit": self.unit,
            "dimensions": self.dimensions,
            "prompt": function.prompt,
        }
        return {key: value for key, value in facts.items() if value is not None}

    def notes(self, encoder: "Model") -> list[str]:
        """A line if the model was not trained to be cut at these dimensions."""
        nested = getattr(encoder, "nested", ())
        if self.dimensions in (None, encoder.dimension, *nested):
            return []
        known = f"for {', '.join(map(str, nested[1:]))}" if nested else "for no fewer dimensions"
        return [f"--dimensions {self.dimensions}: the model was trained {known}"]


@dataclass(frozen=True, slots=True)
class OpenModel:
    """Opens a model in a worker; equal ones open equal models."""

    folder: str
    loading: Loading
    form: Form
    threads: int | None = None  # to compute with; as the process has them if None

    def __call__(self) -> "Opened":
        """Open it."""
        from contrasent.encoding.job import Opened

        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # for what is not torch
        function = open_model(Path(self.folder), self.loading)
        if self.threads is not None and function.runtime == "torch":
            import torch

            torch.set_num_threads(self.threads)
        form, encoder = self.form, function.encoder
        document = encoder.prompts.of_task("document")
        if document != encoder.prompts.text():
            function.prompt = document  # as `index` encodes rows; a prompt that is named goes first
        settings = form.apply(function)
        return Opened(
            lambda texts: form.of(function(texts)),
            form.dimensions or encoder.dimension,
            lambda: function.truncated,
            settings,
            form.notes(encoder),
        )
