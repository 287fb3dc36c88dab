"""BERT-flow's training: maximum likelihood on vectors of a frozen encoder without dropout."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from contrasent import progress
from contrasent.encoder.flow import Flow, FlowSettings
from contrasent.errors import DataError
from contrasent.types import Vectors


def fit(
    vectors: Vectors,
    settings: FlowSettings | None = None,
    *,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Flow:
    """Train a flow on vectors (n, d) of a frozen encoder by maximum likelihood."""
    s = settings or FlowSettings()
    x = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    if len(x) < s.batch:
        raise DataError(f"{len(x):,} vectors are fewer than a batch of {s.batch}; give more text")
    if not torch.isfinite(x).all():
        raise DataError("some of the vectors hold NaN or infinite numbers")
    generator = torch.Generator().manual_seed(s.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(s.seed)
        flow = Flow(x.shape[1], s)
    optimiser = torch.optim.AdamW(flow.parameters(), lr=s.lr, weight_decay=s.weight_decay, eps=1e-6)
    flow.start(x[torch.randperm(len(x), generator=generator)[: max(s.batch, 512)]])
    per_epoch = len(x) // s.batch
    step = 0
    with progress.task("flow", per_epoch * s.epochs, "steps") as advance:
        for _ in range(s.epochs):
            order = torch.randperm(len(x), generator=generator)
            for i in range(per_epoch):
                loss = flow.loss(x[order[i * s.batch : (i + 1) * s.batch]])
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise DataError(f"the flow's loss is {value} at step {step}; lower its lr")
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(flow.parameters(), s.clip)
                optimiser.step()
                report(step, value)
                advance(1, loss=value)
                step += 1
    return flow.eval()
