"""Loading a model for a command, and counting the texts that it cuts."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from contrasent.cli.options import note_to_stderr
from contrasent.errors import ModelError, OptionError, check_choice
from contrasent.model.prompts import Model as Model
from contrasent.types import Vectors

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder
    from contrasent.types import EncodeFn, Task


M_co = TypeVar("M_co", bound=Model, covariant=True)


class Counting(Generic[M_co]):
    """An ``EncodeFn`` that counts over all its calls.

    Attributes:
        encoder: the model.
        runtime: what computes it, as ``--runtime`` calls it.
        texts: how many were encoded.
        truncated: how many of them were cut at the model's longest input.
        prompt: text put before each; the model's default prompt if None.
    """

    def __init__(
        self, encoder: M_co, batch: int, *, runtime: str = "torch", batch_invariant: bool = False
    ) -> None:
        self.encoder, self.batch = encoder, batch
        self.runtime, self.batch_invariant = runtime, batch_invariant
        self.texts = self.truncated = 0
        self.prompt: str | None = None

    def for_task(self, task: "Task") -> "EncodeFn":
        """What encodes queries or documents, and counts them here; see ``types.for_task``."""
        text = self.encoder.prompts.of_task(task)
        if text == (self.encoder.prompts.text() if self.prompt is None else self.prompt):
            return self
        return lambda texts: self._encode(texts, text)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Encode, and count."""
        return self._encode(texts, self.prompt)

    def _encode(self, texts: Sequence[str], prompt: str | None) -> Vectors:
        if self.batch_invariant:
            from contrasent.model.calls import encode_batch_invariant

            chosen = self.encoder.prompts.text() if prompt is None else prompt
            tokens, cut = self.encoder.tokenise(texts, chosen)
            self.texts += len(texts)
            self.truncated += int(cut.sum())
            return encode_batch_invariant(self.encoder.embed, tokens, self.encoder.dimension)
        vectors = self.encoder.encode(texts, batch=self.batch, prompt=prompt)
        self.texts += len(texts)
        self.truncated += self.encoder.truncated
        return vectors

    def report_cut(self, *, quiet: bool) -> None:
        """Print one line about the texts that were cut, if any were."""
        if self.truncated:
            note_to_stderr(
                f"{self.truncated:,} of {self.texts:,} texts were longer than "
                f"{self.encoder.max_tokens} tokens and were cut there (--max-tokens)",
                quiet=quiet,
            )


def find_model(name: str) -> Path:
    """The model's folder, before anything heavy is imported.

    Raises:
        ModelError: there is none.
    """
    from contrasent.model.pretrained import resolve
    from contrasent.postprocess.folder import is_flow

    folder = resolve(name)
    known = ("modules.json", "config.json", "export.json")
    if not is_flow(folder) and not any((folder / file).is_file() for file in known):
        raise ModelError(
            f"{folder}: not a model folder (neither modules.json nor config.json in it)"
        )
    return folder


def load_model(
    folder: Path, *, batch: int = 64, pooler: str | None = None, max_tokens: int | None = None
) -> "Counting[Encoder]":
    """Load an encoder; the count of cut texts is the caller's to report, in one line.

    Raises:
        ModelError: the folder holds an exported model, which torch does not run.
    """
    if (folder / "export.json").is_file():
        raise ModelError(f"{folder}: is an exported model; this command needs the model itself")
    from contrasent.model.encoder import Encoder

    logging.getLogger("contrasent.model.encoder").setLevel(logging.ERROR)
    return Counting(Encoder.load(folder, pooler=pooler, max_tokens=max_tokens), batch)


def open_model(
    folder: Path,
    *,
    runtime: str | None = None,
    batch: int = 64,
    pooler: str | None = None,
    max_tokens: int | None = None,
    batch_invariant: bool = False,
) -> Counting[Model]:
    """Open a model to encode with, by torch or an exported graph; the latter without torch.

    Args:
        folder: of a model, or of an export.
        runtime: one of :data:`contrasent.model.runtime.RUNTIMES`; if None, torch for a model and
            its own for an export.
        batch: sentences a forward pass.
        pooler: for a bare encoder, which does not say how to pool.
        max_tokens: where texts are cut; the model's own length if None.
        batch_invariant: the same bits whatever else is encoded, and in whichever order.

    Raises:
        OptionError: an unknown runtime, or settings that an export does not have.
        ModelError: the model has not been exported to that runtime.
    """
    from contrasent.model.runtime import RUNTIMES, Exported, read_export
    from contrasent.postprocess.folder import is_flow

    if runtime is not None:
        check_choice("--runtime", runtime, RUNTIMES)
    logging.getLogger("contrasent.model.runtime").setLevel(logging.ERROR)
    if is_flow(folder):
        return _with_flow(folder, runtime, batch, pooler, max_tokens)
    if (folder / "export.json").is_file():
        own = read_export(folder).name
        if runtime not in (None, "auto", own):
            raise OptionError("--runtime", runtime, f"{folder} is exported to {own}")
        exported = Exported.load(folder)
    elif runtime == "auto":
        return _fastest(folder, batch, pooler, max_tokens, batch_invariant)
    elif runtime in (None, "torch"):
        loaded = load_model(folder, batch=batch, pooler=pooler, max_tokens=max_tokens)
        return Counting(loaded.encoder, batch, batch_invariant=batch_invariant)
    else:
        if not (folder / runtime / "export.json").is_file():
            to, _, int8 = runtime.partition("-")
            how = f"contrasent export {folder} --to {to}{' --int8' if int8 else ''}"
            raise ModelError(f"{folder}: is not exported to {runtime}; do that with '{how}'")
        own = runtime
        exported = Exported.load(folder / runtime, model=folder)
    exported.check(pooler=pooler, max_tokens=max_tokens)
    return Counting(exported, batch, runtime=own, batch_invariant=batch_invariant)


def _with_flow(
    folder: Path, runtime: str | None, batch: int, pooler: str | None, max_tokens: int | None
) -> Counting[Model]:
    """The model of a flow folder, the flow on top of it; torch computes both."""
    from contrasent.postprocess.folder import Flowed, read_flow

    if runtime not in (None, "torch", "auto"):
        raise OptionError(
            "--runtime", runtime, f"{folder} holds a flow, which torch alone computes"
        )
    below, flow = read_flow(folder)
    loaded = load_model(below, batch=batch, pooler=pooler, max_tokens=max_tokens)
    return Counting(Flowed(loaded.encoder, flow), batch)


def _fastest(
    folder: Path, batch: int, pooler: str | None, max_tokens: int | None, batch_invariant: bool
) -> Counting[Model]:
    """Measure torch and the exports that give the same vectors; the fastest, reported on stderr."""
    from contrasent.model.golden import PROBES

    names = ["torch", *(n for n in ("onnx", "openvino") if (folder / n / "export.json").is_file())]
    texts = [f"{text} {number}" for number in range(8) for text in PROBES]
    taken: dict[str, float] = {}
    opened: dict[str, Counting[Model]] = {}
    for name in names:
        opened[name] = open_model(
            folder,
            runtime=name,
            batch=batch,
            pooler=pooler,
            max_tokens=max_tokens,
            batch_invariant=batch_invariant,
        )
        model = opened[name].encoder
        model.encode(texts, batch=batch)  # the first time, kernels are made for each shape
        began = time.perf_counter()
        model.encode(texts, batch=batch)
        taken[name] = time.perf_counter() - began
    best = min(taken, key=lambda name: taken[name])
    rates = ", ".join(f"{name} {len(texts) / seconds:.0f}" for name, seconds in taken.items())
    note_to_stderr(f"sentences a second: {rates}; using {best}", quiet=False)
    return opened[best]


def lasting_name(name: str) -> str:
    """A model's name that still leads there from another working directory."""
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else name
