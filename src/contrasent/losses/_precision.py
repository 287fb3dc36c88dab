"""Full precision inside the losses."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def full(vectors: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it came so."""
    return vectors if vectors.dtype == torch.float64 else vectors.float()


@contextmanager
def full_precision(like: Tensor) -> Iterator[None]:
    """Switch autocast off: it would turn matrix products of float32 into half precision again."""
    with torch.autocast(device_type=like.device.type, enabled=False):
        yield
