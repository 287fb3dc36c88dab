"""How poolers are called in model folders; no torch."""

MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
"""Poolers that sentence-transformers has, by its names for them."""
AVERAGED = {"first_last": (1, -1), "embeddings_last": (0, -1), "last_two": (-2, -1)}
"""Hidden states that a pooler averages, 0 for the embedding output."""
OWN = "contrasent"
"""Modules of poolers that sentence-transformers lacks have types of this name, so that it rejects
the folder instead of pooling otherwise."""


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
