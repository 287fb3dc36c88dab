"""Poolers by name, which make one vector a sentence of token vectors."""

from typing import Any

from contrasent.errors import check_choice

POOLERS = (
    "cls", "mean", "max", "last_token", "first_last", "embeddings_last", "last_two", "mask", "idf",
)  # fmt: skip
"""Names in settings and model folders; the classes are in :mod:`contrasent.encoder.poolers`."""
MODULES = "sentence_transformers.models"
MODES = {
    "cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last_token": "lasttoken",
}  # fmt: skip
"""Poolers that sentence-transformers has, by its names for them."""
AVERAGED = {"first_last": (1, -1), "embeddings_last": (0, -1), "last_two": (-2, -1)}
"""Hidden states that a pooler averages, 0 for the embedding output."""
OWN = "contrasent"
"""Modules of poolers that sentence-transformers lacks have types of this name, so that it rejects
the folder instead of pooling otherwise."""
Part = tuple[str, dict[str, Any], dict[str, Any]]
"""A module of a model folder: its type, its config.json and its tensors."""


def check_pooler(name: str) -> None:
    """Reject an unknown pooler."""
    check_choice("pooling", name, POOLERS)


def layer_weights(read: tuple[int, ...], depth: int) -> list[float] | None:
    """Weights of the depth + 1 hidden states if several are averaged; None for the last alone."""
    if len(read) == 1:
        return None
    picked = {layer % (depth + 1) for layer in read}
    return [float(i in picked) for i in range(depth + 1)]


def averaging(weights: list[float]) -> str | None:
    """The name of the pooler that averages layers by these weights, if there is one."""
    depth = len(weights) - 1
    return next((n for n, read in AVERAGED.items() if layer_weights(read, depth) == weights), None)
