"""Vectors with dropout left on: one of the views that SimCSE compares."""

from collections.abc import Sequence

import numpy as np
import torch

from contrasent import progress
from contrasent.model.encoder import Encoder
from contrasent.text.tokens import SLOT
from contrasent.types import Vectors


@torch.inference_mode()
def dropout_view(
    encoder: Encoder, sentences: Sequence[str], *, seed: int, batch: int = 64
) -> Vectors:
    """(n, d) float32 vectors, not normalised, with the encoder's dropout on.

    A function of the sentences, the seed and the batch size: the caller's random state is neither
    read nor moved.
    """
    prompt = encoder.prompts.text()
    tokens, _ = encoder.tokenise(list(sentences), prompt if SLOT in prompt else "")
    out = np.empty((len(sentences), encoder.dimension), dtype=np.float32)
    order = np.argsort(-tokens.lengths, kind="stable")
    was = encoder.training
    encoder.train()
    try:
        with (
            torch.random.fork_rng(),
            progress.task("encode with dropout", len(sentences), "sentences") as advance,
        ):
            torch.manual_seed(seed)
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                out[rows] = encoder(tokens.select(rows)).cpu().numpy()
                advance(len(rows))
    finally:
        encoder.train(was)
    return out
