"""What the tests of losses share: drawn vectors, and similarities as loops over Python floats."""

import math

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

few = settings(max_examples=25, deadline=None)
fewer = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**31 - 1)


def vectors(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a)) / math.sqrt(dot(b, b))
