"""Negatives from earlier batches, by a momentum encoder."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder import dropout
from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.encodings import BatchEncodings

Init = Literal["copy", "random"]
Column = Literal["first", "second"]
Start = Literal["grow", "full"]


class MomentumQueue(nn.Module):
    """A queue of vectors of recent batches by a momentum encoder (ESimCSE, section 3.2).

    After every optimizer step theta_m <- momentum * theta_m + (1 - momentum) * theta_e (equation
    5); buffers are copied. Every training batch is encoded by theta_m without dropout and without
    gradient, goes through the objective's own projector, as in the released code, and enters the
    queue after the step; the oldest rows leave. The rows of all processes enter every process's
    queue, so that the loss is that of one process.

    A batch normalization, in the projector or in a head of the encoder, uses the statistics of the
    rows that enter together, like the key encoder of MoCo (He et al., 2020, section 3.3). Running
    statistics would make the first rows nearly parallel. ESimCSE's paper and code do not use batch
    normalization.

    Attributes:
        momentum_encoder: theta_m, equal to the encoder at step 0 unless ``init`` is "random".
        rows: (size, d), the newest rows last.
        filled: number of rows in use.
    """

    rows: Tensor
    filled: Tensor

    def __init__(
        self,
        encoder: TorchEncoder,
        *,
        size: int,
        momentum: float,
        init: Init = "copy",
        column: Column = "first",
        start: Start = "grow",
    ) -> None:
        """Make an empty queue.

        Args:
            encoder: theta_e.
            size: most rows in the queue.
            momentum: lambda of equation 5.
            init: "copy" of the encoder; "random" is what the released code does, by accident: its
                copy is made before the weights are loaded.
            column: "first" enqueues the original sentence (released code), "second" its view.
            start: "grow" uses the queue from its first rows on (released code), "full" only once
                it is filled.
        """
        super().__init__()
        self.size, self.momentum, self.column, self.start = size, momentum, column, start
        self.momentum_encoder = copy_encoder(encoder)
        if init == "random":
            randomize(self.momentum_encoder)
        self.momentum_encoder.requires_grad_(False)
        self.register_buffer("rows", torch.zeros(size, encoder.dimension))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        # The same as a number, since reading it from a GPU waits for that; None if not known.
        self._filled: int | None = None
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]
        self._waiting: list[Tensor] = []

    def negatives(self) -> Tensor | None:
        """Negatives (q, d) for the contrastive loss, or None as long as the queue is empty."""
        if self._filled is None:
            self._filled = int(self.filled)
        filled = self._filled
        if filled == 0 or (self.start == "full" and filled < self.size):
            return None
        return self.rows[self.size - filled :]

    @torch.no_grad()
    def encode(self, encodings: BatchEncodings) -> None:
        """Encode a batch; ``after_step`` puts its rows into the queue."""
        tokens = encodings.columns("anchor" if self.column == "first" else "positive")[0]
        projector = encodings.networks.projector or nn.Identity()
        whole = nn.Sequential(self.momentum_encoder, projector)
        with _without_running_statistics(whole) as normalized:
            if normalized and parallel.world() * len(tokens) < 2:
                return  # one row has no statistics
            vectors = whole(tokens)
        self._waiting.append(parallel.gather(vectors).to(self.rows.dtype))

    @torch.no_grad()
    def after_step(self, encoder: TorchEncoder) -> None:
        """Put the step's rows into the queue, and update the momentum encoder."""
        for vectors in self._waiting:
            self.rows = torch.cat([self.rows, vectors.to(self.rows)])[-self.size :]
            self.filled = (self.filled + len(vectors)).clamp_max(self.size)
            if self._filled is not None:
                self._filled = min(self._filled + len(vectors), self.size)
        self._waiting.clear()
        mine = [p.detach() for p in self.momentum_encoder.parameters()]
        theirs = [p.detach() for p in encoder.parameters()]
        torch._foreach_lerp_(mine, theirs, 1 - self.momentum)
        for buffer, source in zip(self.momentum_encoder.buffers(), encoder.buffers(), strict=True):
            buffer.copy_(source)


def _forget(queue: MomentumQueue, _: Any) -> None:
    queue._filled = None


@contextmanager
def _without_running_statistics(module: nn.Module) -> Iterator[bool]:
    """Dropout off; batch normalization by the rows alone, without storing their statistics."""
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d)]
    with dropout.off(module):
        for norm in norms:
            norm.training, norm.track_running_stats = True, False
        try:
            yield bool(norms)
        finally:
            for norm in norms:
                norm.track_running_stats = True


def copy_encoder(encoder: TorchEncoder) -> TorchEncoder:
    """A copy of an encoder with weights of its own; the tokenizer is shared."""
    memo: dict[int, Any] = {id(encoder.tokenizer): encoder.tokenizer}
    return copy.deepcopy(encoder, memo)


def randomize(encoder: TorchEncoder) -> None:
    """Reset a backbone to random weights, as before pre-training."""
    from transformers import AutoModel

    config = copy.deepcopy(cast(Any, encoder.backbone).config)
    weights = AutoModel.from_config(config).state_dict()
    state = encoder.backbone.state_dict()
    drawn = {k: weights[k.replace(".base_layer.", ".")] for k in state if ".lora_" not in k}
    encoder.backbone.load_state_dict(state | drawn)
