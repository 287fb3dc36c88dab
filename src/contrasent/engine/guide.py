"""A guide: a frozen encoder that says in training what is alike."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from contrasent.errors import ModelError, OptionError
from contrasent.model.description import describe
from contrasent.model.encoder import Encoder
from contrasent.model.pretrained import resolve
from contrasent.types import Tokens


class Guide:
    """A frozen sentence encoder. No module, so that no checkpoint holds its weights.

    Attributes:
        encoder: of the guide, without dropout.
        student: the encoder that is trained, whose token ids the guide is given.
    """

    def __init__(self, encoder: Encoder, student: Encoder) -> None:
        self.encoder = encoder.requires_grad_(False).eval()
        self.student = student
        one, other = encoder.tokenizer.backend, student.tokenizer.backend
        self._same_ids = encoder.tokenizer.max_tokens >= student.tokenizer.max_tokens and (
            one.to_str() == other.to_str()
        )

    @classmethod
    def load(cls, name: str | None, student: Encoder) -> "Guide":
        """Load one."""
        folder = check_guide("guide", name)
        return cls(Encoder.load(folder, device=str(student.device)), student)

    @torch.no_grad()
    def __call__(self, columns: Sequence[Tokens]) -> list[Tensor]:
        """Vectors of columns of the student's token ids, (n, g) each."""
        tokens = Tokens.concatenate(columns)
        if not self._same_ids:
            backend = self.student.tokenizer.backend
            texts = backend.decode_batch([tokens[i].tolist() for i in range(len(tokens))])
            tokens = self.encoder.tokenise(texts)[0]
        return list(self.encoder(tokens).split([len(column) for column in columns]))


def check_guide(option: str, name: str | None) -> Path:
    """The folder of a guide that is there and says how it pools."""
    if not name:
        raise OptionError(
            option, "", "needs a sentence encoder to learn from, by folder or name@commit"
        )
    folder = resolve(name)
    if describe(folder).pooler is None:
        raise ModelError(f"{name}: a bare encoder, which does not say how it pools, is no guide")
    return folder
