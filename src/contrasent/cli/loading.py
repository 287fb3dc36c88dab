"""Loading a model for a command, and counting the texts that it cuts."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contrasent.errors import ModelError
from contrasent.types import Vectors

if TYPE_CHECKING:
    from contrasent.model.encoder import Encoder


class Counting:
    """An ``EncodeFn`` that counts over all its calls.

    Attributes:
        texts: how many were encoded.
        truncated: how many of them were cut at the model's longest input.
    """

    def __init__(self, encoder: "Encoder", batch: int) -> None:
        self.encoder, self.batch = encoder, batch
        self.texts = self.truncated = 0

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Encode, and count."""
        vectors = self.encoder.encode(texts, batch=self.batch)
        self.texts += len(texts)
        self.truncated += self.encoder.truncated
        return vectors

    def remark(self) -> str | None:
        """One line about the texts that were cut, or None."""
        if not self.truncated:
            return None
        return (
            f"{self.truncated:,} of {self.texts:,} texts were longer than "
            f"{self.encoder.max_tokens} tokens and were cut there (--max-tokens)"
        )


def find_model(name: str) -> Path:
    """The model's folder, before anything heavy is imported.

    Raises:
        ModelError: there is none.
    """
    from contrasent.model.pretrained import resolve

    folder = resolve(name)
    if not any((folder / said).is_file() for said in ("modules.json", "config.json")):
        raise ModelError(
            f"{folder}: not a model folder (neither modules.json nor config.json in it)"
        )
    return folder


def load_model(
    folder: Path, *, batch: int = 64, pooler: str | None = None, max_tokens: int | None = None
) -> Counting:
    """Load an encoder; the count of cut texts is the caller's to report, in one line."""
    from contrasent.model.encoder import Encoder

    logging.getLogger("contrasent.model.encoder").setLevel(logging.ERROR)
    return Counting(Encoder.load(folder, pooler=pooler, max_tokens=max_tokens), batch)


def lasting_name(name: str) -> str:
    """A model's name that still leads there from another working directory."""
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else name
