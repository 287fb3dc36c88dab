"""BERT-flow: an invertible map from a model's vectors to a standard normal (Li et al., 2020).

The small Glow of the released code, trained by maximum likelihood on vectors without dropout.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import progress
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.tensors import read_tensors, save_tensors
from contrasent.errors import DataError, ModelError, OptionError, brief
from contrasent.files import atomic_folder, read_object, write_json
from contrasent.model.base import Encoder
from contrasent.model.golden import EncoderConfig
from contrasent.model.opening import FLOW
from contrasent.types import Tokens, Vectors

WEIGHTS = "flow.safetensors"
ENCODER = "encoder"
BLOCK = 8192
LOG_SCALE = 3.0
"""Actnorm's scale is exp(3 s): the released code's factor, which makes s learn faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """How a flow is built and trained; the defaults are the released code's."""

    levels: int = 3  # each but the last is followed by a split of the channels in half
    steps: int = 3
    hidden: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    batch_size: int = 64  # vectors a step (the released code takes both sentences of 32 pairs)
    num_train_epochs: int = 1
    max_grad_norm: float = 1.0
    seed: int = 0


class Actnorm(nn.Module):
    """A scale and a shift for each channel, set so that the first batch's outputs are standard."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log = nn.Parameter(torch.zeros(channels))

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Set from a batch (n, c)."""
        self.shift.copy_(-x.mean(0))
        self.log.copy_(-torch.log(x.std(0, unbiased=False) + 1e-6) / LOG_SCALE)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(n, c) and the log-determinant, the same for each row."""
        return (x + self.shift) * torch.exp(LOG_SCALE * self.log), LOG_SCALE * self.log.sum()


class Coupling(nn.Module):
    """Shifts one half of the channels by a function of the other; preserves volume."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.kept = channels // 2
        last = nn.Linear(hidden, channels - self.kept)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.net = nn.Sequential(
            nn.Linear(self.kept, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last
        )
        for layer in self.net.modules():
            if isinstance(layer, nn.Linear) and layer is not last:
                nn.init.normal_(layer.weight, std=0.05)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, c) to (n, c); the log-determinant is 0."""
        a, b = x[:, : self.kept], x[:, self.kept :]
        return torch.cat([a, b + self.net(a)], 1)


class Step(nn.Module):
    """Actnorm, reversal of the channels, coupling."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.norm = Actnorm(channels)
        self.coupling = Coupling(channels, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(n, c) and the log-determinant."""
        x, volume = self.norm(x)
        return cast(Tensor, self.coupling(x.flip(1))), volume


class Flow(nn.Module):
    """An invertible map of (n, d) vectors to codes, standard normal once trained."""

    def __init__(self, dimension: int, settings: FlowSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or FlowSettings()
        self.dimension = dimension
        levels = self.settings.levels
        if levels < 1 or dimension < 2**levels:
            raise OptionError("levels", levels, f"cannot halve {dimension} dimensions that often")
        self.levels = nn.ModuleList()
        width = dimension
        for level in range(levels):
            steps = [Step(width, self.settings.hidden) for _ in range(self.settings.steps)]
            self.levels.append(nn.ModuleList(steps))
            width = width - width // 2 if level < levels - 1 else width

    def forward(self, x: Tensor, *, start: bool = False) -> tuple[Tensor, Tensor]:
        """Codes (n, d), and the log-determinant; ``start`` sets every actnorm from the batch."""
        aside: list[Tensor] = []
        volume = x.new_zeros(())
        for i, level in enumerate(self.levels):
            for step in cast(nn.ModuleList, level):
                if start:
                    cast(Step, step).norm.start(x)
                x, more = step(x)
                volume = volume + more
            if i < len(self.levels) - 1:
                cut = x.shape[1] - x.shape[1] // 2
                aside.append(x[:, cut:])
                x = x[:, :cut]
        return torch.cat([*aside, x], 1), volume

    def loss(self, x: Tensor) -> Tensor:
        """Mean negative log-likelihood in bits per dimension."""
        z, volume = self(x)
        normal = -0.5 * (z**2).sum(1) - 0.5 * self.dimension * math.log(2 * math.pi)
        nats: Tensor = -(normal + volume).mean()
        return nats / (self.dimension * math.log(2))

    @torch.inference_mode()
    def transform(self, vectors: Vectors) -> Vectors:
        """(n, d) float32 codes of an ``EncodeFn``'s vectors."""
        codes = []
        for start in range(0, len(vectors), BLOCK):
            block = np.ascontiguousarray(vectors[start : start + BLOCK], dtype=np.float32)
            codes.append(self(torch.from_numpy(block))[0].numpy())
        return np.concatenate(codes) if codes else np.empty_like(vectors)


def fit(
    vectors: Vectors,
    settings: FlowSettings | None = None,
    *,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Flow:
    """Train a flow on vectors (n, d) of a frozen encoder by maximum likelihood."""
    s = settings or FlowSettings()
    x = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    if len(x) < s.batch_size:
        raise DataError(f"{len(x):,} vectors do not fill a batch of {s.batch_size}; give more text")
    if not torch.isfinite(x).all():
        raise DataError("some vectors contain NaN or infinite numbers")
    generator = torch.Generator().manual_seed(s.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(s.seed)
        flow = Flow(x.shape[1], s)
    optimizer = torch.optim.AdamW(
        flow.parameters(), lr=s.learning_rate, weight_decay=s.weight_decay, eps=1e-6
    )
    with torch.no_grad():
        flow(x[torch.randperm(len(x), generator=generator)[: max(s.batch_size, 512)]], start=True)
    per_epoch = len(x) // s.batch_size
    step = 0
    with progress.task("flow", per_epoch * s.num_train_epochs, "steps") as advance:
        for _ in range(s.num_train_epochs):
            order = torch.randperm(len(x), generator=generator)
            for i in range(per_epoch):
                loss = flow.loss(x[order[i * s.batch_size : (i + 1) * s.batch_size]])
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise DataError(
                        f"the flow's loss is {value} at step {step}; lower its learning_rate"
                    )
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(flow.parameters(), s.max_grad_norm)
                optimizer.step()
                report(step, value)
                advance(1, loss=value)
                step += 1
    return flow.eval()


class FlowEncoder(Encoder):
    """An encoder whose vectors a flow maps to a space of its own."""

    runtime = "torch"

    def __init__(self, encoder: Encoder, flow: Flow) -> None:
        self.encoder, self.flow = encoder, flow
        self.tokenizer, self.prompts = encoder.tokenizer, encoder.prompts
        self.lower_case = encoder.lower_case

    @classmethod
    def load(cls, folder: Path, **settings: Any) -> "FlowEncoder":  # type: ignore[override]
        """Read a folder that :func:`write_flow` wrote; ``settings`` are those of the encoder."""
        below, flow = read_flow(folder)
        return cls(TorchEncoder.load(below, **settings), flow)

    @property
    def identity(self) -> str:
        """A hash of everything that determines the vectors: the encoder and the flow."""
        hashed = hashlib.sha256(self.encoder.identity.encode())
        for key, value in sorted(self.flow.state_dict().items()):
            hashed.update(key.encode())
            hashed.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
        return hashed.hexdigest()

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        return self.encoder.dimension

    @property
    def config(self) -> EncoderConfig:
        """The settings of the encoder below, with :attr:`identity`."""
        return replace(self.encoder.config, identity=self.identity)

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenized sentences."""
        return self.flow.transform(self.encoder.embed(tokens))

    def encode_tokens(self, tokens: Tokens, batch_size: int) -> Vectors:
        """Vectors of distinct rows in calls of at most ``batch_size`` of them."""
        return self.flow.transform(self.encoder.encode_tokens(tokens, batch_size))


def write_flow(target: Path, flow: Flow, save_encoder: Callable[[Path], Any]) -> None:
    """Write flow and model, atomically."""
    settings = {"dimension": flow.dimension, **asdict(flow.settings)}
    with atomic_folder(target) as folder:
        save_encoder(folder / ENCODER)
        save_tensors(folder / WEIGHTS, flow.state_dict())
        write_json(folder / FLOW, {"format": 1, "model": ENCODER, **settings})


def read_flow(folder: Path) -> tuple[Path, Flow]:
    """The model's folder, and the flow."""
    try:
        stored = read_object(folder / FLOW, needed=True)
        known = {f.name for f in fields(FlowSettings)}
        flow = Flow(int(stored["dimension"]), FlowSettings(**{k: stored[k] for k in known}))
        flow.load_state_dict(read_tensors(folder / WEIGHTS))
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelError(f"{folder}: the flow cannot be read ({brief(error)})") from error
    return folder / ENCODER, flow.eval()
