"""The base class of poolers, and how one is kept in a model folder."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from contrasent.errors import ModelError
from contrasent.files import write_object
from contrasent.model.poolers.names import OWN
from contrasent.model.storage import read_tensors, save_tensors
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens


class Pooler(nn.Module):
    """A pooler without weights or statistics; subclasses keep theirs in parameters and buffers.

    Attributes:
        name: its key in ``POOLERS``.
        layers: the hidden states that it reads, 0 for the embedding output; (-1,) for the last.
        first_token: whether the last layer's first token is all that it reads.
        portable: whether sentence-transformers pools a saved model in the same way.
        exportable: whether a graph for ONNX or OpenVINO can pool so.
        card: how its vectors are made, for the cards of models that are not portable; TEMPLATE
            stands for the model's prompt.
    """

    name: ClassVar[str]
    layers: ClassVar[tuple[int, ...]] = (-1,)
    first_token: ClassVar[bool] = False
    portable: ClassVar[bool] = False
    exportable: ClassVar[bool] = True
    card: ClassVar[str] = ""

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        """For a backbone of that configuration."""
        super().__init__()
        self.size, self.depth = int(config.hidden_size), int(config.num_hidden_layers)

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors (n, d) of a block of rows.

        ``states``: hidden states (n, t, d), all of them if ``layers`` names others than the last,
        which comes last in any case. ``ids``: (n, t). ``mask``: (n, t), true on real tokens.
        """
        raise NotImplementedError

    def fit(self, corpus: Iterable[Tokens]) -> None:
        """Take statistics of the training corpus, block by block; called when training starts."""

    def save(self, folder: Path) -> list[tuple[str, str]]:
        """Write its modules into a model folder; their types and paths for ``modules.json``."""
        path = folder / f"1_{type(self).__name__}"
        path.mkdir()
        write_object(path / "config.json", {"pooling": self.name})
        if state := self.state_dict():
            save_tensors(path / "model.safetensors", state)
        return [(f"{OWN}.{type(self).__name__}", path.name)]

    def load(self, path: Path) -> None:
        """Read its state from the folder of its module."""
        own = self.state_dict()
        stored = read_tensors(path / "model.safetensors") if own else {}
        shapes = [{k: (v.shape, v.dtype) for k, v in state.items()} for state in (own, stored)]
        if shapes[0] != shapes[1]:
            raise ModelError(f"{path}: does not fit the pooler {self.name!r} of this model")
        self.load_state_dict(stored)


def masked_mean(states: Tensor, weights: Tensor) -> Tensor:
    """(n, d) weighted mean over the tokens of (n, t, d) states, weights (n, t)."""
    weights = weights[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)
