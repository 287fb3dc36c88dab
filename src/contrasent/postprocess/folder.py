"""A model with a flow on top, used as any other model, and the folder that holds both."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contrasent.errors import ModelError
from contrasent.files import atomic_folder, write_json
from contrasent.types import Tokens, Vectors

if TYPE_CHECKING:
    from contrasent.postprocess.flow import Flow

CONFIG = "contrasent_flow.json"
WEIGHTS = "flow.safetensors"
ENCODER = "encoder"


class Flowed:
    """An encoder whose vectors a flow takes on to its own space."""

    # `truncated`: how many of the sentences of the last `encode` were cut.

    def __init__(self, encoder: Any, flow: "Flow") -> None:
        self.encoder, self.flow, self.tokenizer = encoder, flow, encoder.tokenizer
        self.prompts = encoder.prompts
        self.truncated = 0

    @property
    def identity(self) -> str:
        """A hash of all that decides the vectors: the encoder and the flow."""
        digest = hashlib.sha256(str(self.encoder.identity).encode())
        for key, value in sorted(self.flow.state_dict().items()):
            digest.update(key.encode())
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
        return digest.hexdigest()

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        return int(self.encoder.dimension)

    @property
    def max_tokens(self) -> int:
        """Sentences are cut at this many tokens, special tokens included."""
        return int(self.encoder.max_tokens)

    def tokenise(self, sentences: Sequence[str], prompt: str = "") -> Any:
        """Token ids of sentences after (or in) a prompt, and which were cut."""
        return self.encoder.tokenise(sentences, prompt)

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenised sentences."""
        return self.flow.transform(self.encoder.embed(tokens))

    def encode(
        self, sentences: Sequence[str], *, batch: int = 64, prompt: str | None = None
    ) -> Vectors:
        """Vectors of sentences, float32, in the order given; ``prompt`` as the encoder's."""
        vectors = self.encoder.encode(sentences, batch=batch, prompt=prompt)
        self.truncated = self.encoder.truncated
        return self.flow.transform(vectors)


def write_flow(target: Path, flow: "Flow", save_encoder: Callable[[Path], Any]) -> None:
    """Write flow and model, atomically."""
    from safetensors.torch import save_file

    with atomic_folder(target) as folder:
        save_encoder(folder / ENCODER)
        save_file({k: v.contiguous() for k, v in flow.state_dict().items()}, folder / WEIGHTS)
        write_json(folder / CONFIG, {"format": 1, "model": ENCODER, **flow.describe()})


def is_flow(folder: Path) -> bool:
    """Whether a folder holds a model with a flow."""
    return (folder / CONFIG).is_file()


def read_flow(folder: Path) -> "tuple[Path, Flow]":
    """The model's folder, and the flow."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from contrasent.postprocess.flow import Flow, FlowSettings

    try:
        stored = json.loads((folder / CONFIG).read_text("utf-8"))
        known = {f.name for f in fields(FlowSettings)}
        flow = Flow(int(stored["dimension"]), FlowSettings(**{k: stored[k] for k in known}))
        flow.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).split("\n")[0]
        raise ModelError(f"{folder}: the flow cannot be read ({reason})") from error
    return folder / ENCODER, flow.eval()
