"""Prompts: what a model wants before a text, by name, as sentence-transformers keeps them."""

# As in config_sentence_transformers.json. One with [X] is a template: its tokens stand around those
# of the text, which is cut so that they always fit.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import ModelError, OptionError
from contrasent.files import read_object
from contrasent.types import EncodeFn, Task, Tokens, Vectors

if TYPE_CHECKING:
    from contrasent.text.tokens import Tokenizer

NAME = "config_sentence_transformers.json"
TASKS: dict[str, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""Names of the prompts of a task; the first that a model has is taken."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a model; most models have none.

    Attributes:
        default: name of the one that is used where nobody names one, or None.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def text(self, name: str | None = None) -> str:
        """The text of a prompt; of the default if no name is given."""
        if name is None:
            return self.texts[self.default] if self.default else ""
        if name not in self.texts:
            known = f"it has {', '.join(self.texts)}" if self.texts else "it has none"
            problem = f"the model has no prompt of that name; {known}"
            raise OptionError("--prompt", name, problem, choices=self.texts)
        return self.texts[name]

    def of_task(self, task: Task) -> str:
        """The text for queries or documents; none if there is none, whatever the default is."""
        return next((self.texts[name] for name in TASKS[task] if name in self.texts), "")

    @classmethod
    def read(cls, folder: Path) -> "Prompts":
        """The prompts of a model folder, or of an export; empty ones are none."""
        path = folder / NAME
        config = read_object(path)
        size = config.get("truncate_dim")
        if size is not None:
            raise ModelError(
                f"{path}: truncate_dim {size!r} is not supported; set it to null, knowing that the "
                "vectors are then others"
            )
        texts, default = config.get("prompts") or {}, config.get("default_prompt_name")
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise ModelError(f"{path}: prompts must map names to texts")
        if default is not None and default not in texts:
            raise ModelError(f"{path}: default_prompt_name {default!r} is none of its prompts")
        found = {str(name): text for name, text in texts.items() if text}
        return cls(found, default if default in found else None)


class Prompted(Protocol):
    """A model with prompts."""

    prompts: Prompts

    def encode(
        self, sentences: Sequence[str], *, batch: int = 64, prompt: str | None = None
    ) -> Vectors:
        """Vectors of sentences with a prompt before each; the default's if None."""


class Model(Prompted, Protocol):
    """A model as commands see it, whatever computes it."""

    truncated: int
    tokenizer: "Tokenizer"

    @property
    def identity(self) -> str:
        """A hash of all that decides the vectors."""

    @property
    def dimension(self) -> int:
        """Size of the vectors."""

    @property
    def max_tokens(self) -> int:
        """Where texts are cut."""

    def tokenise(
        self, sentences: Sequence[str], prompt: str = ""
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Rows of ids, a prompt's with each, and which were cut."""

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of rows, in one pass."""


class TaskEncoder:
    """A model's ``EncodeFn``, with one for each task for :func:`contrasent.types.for_task`."""

    def __init__(self, model: Prompted) -> None:
        self.model = model

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """Vectors with the default prompt, if there is one."""
        return self.model.encode(sentences)

    def for_task(self, task: Task) -> EncodeFn:
        """Itself, or what encodes queries or documents where they have a prompt of their own."""
        prompts = self.model.prompts
        text = prompts.of_task(task)
        if text == prompts.text():
            return self
        return lambda sentences: self.model.encode(sentences, prompt=text)
