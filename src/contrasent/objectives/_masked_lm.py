"""The term "masked_lm": masked language modelling beside the contrast."""

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.errors import ModelError
from contrasent.losses import masked_lm
from contrasent.model.encoder import Encoder
from contrasent.model.groups import by_length
from contrasent.objectives import _masking
from contrasent.objectives._masked_model import LanguageHead
from contrasent.objectives._step import Step
from contrasent.types import Tokens


class MaskedLanguageModelling(nn.Module):
    """A second pass of the encoder over masked copies of all columns (SimCSE, appendix A).

    Masks are drawn independently for every row of every view; the contrast never sees them. The
    loss is the mean over the masked tokens of all processes.
    """

    def __init__(self, encoder: Encoder, *, mask_ratio: float, head: str | None) -> None:
        super().__init__()
        if encoder.tokenizer.specials.mask is None:
            raise ModelError("masked language modelling needs a tokenizer with a [MASK] token")
        self.mask_ratio = mask_ratio
        self.head = LanguageHead.load(head, encoder)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """The term of a step."""
        encoder = step.objective.encoder
        columns = list(step.batch.columns)
        parts = [
            _masking.mask(column, self.mask_ratio, encoder.tokenizer, step.generators(self, c))
            for c, column in enumerate(columns)
        ]
        tokens = Tokens.concatenate([part.tokens for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        vectors, targets = at_labels(encoder, tokens, labels)
        count = parallel.average(torch.tensor(float(len(targets)), device=encoder.device))
        return {"masked_lm": masked_lm(self.head(vectors), targets, count=count.clamp_min(1e-6))}


def at_labels(
    encoder: Encoder, tokens: Tokens, labels: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[Tensor, Tensor]:
    """Token vectors (k, d) and labels (k,) where a label is not -1."""
    vectors, targets = [], []
    for rows in by_length(tokens.lengths):
        hidden, _ = encoder.hidden(tokens.select(rows))
        wanted = Tokens(labels, tokens.offsets).select(rows).pad(-1)[0]  # type: ignore[arg-type]
        chosen = torch.from_numpy(wanted).to(encoder.device)
        # Where shapes are bucketed the block is wider than its longest row.
        vectors.append(hidden[-1][:, : chosen.shape[1]][chosen >= 0])
        targets.append(chosen[chosen >= 0])
    return torch.cat(vectors), torch.cat(targets)
