"""One optimizer step: forward, backward, checks, each term's share, update."""

import logging
import math
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.encoder import products
from contrasent.engine.objective import Objective
from contrasent.text.batches import Collator
from contrasent.train.monitor import GRADIENT, Monitor
from contrasent.train.settings import Settings

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
log = logging.getLogger(__name__)

STOPPING = (
    "stopping after this step, with a checkpoint; Ctrl-C again stops after the current computation"
)

LONG = 300
"""Steps for each further term from which four measurements are below 2 % of a run."""

WINDOW = 10  # steps after which a GPU's numbers are read, which waits for it


def moments(objective: Objective, total: int) -> frozenset[int]:
    """Numbers of the steps that are measured: the first, those at 10 % and 50 %, and the last.

    Only steps in which the encoder learns count.
    """
    start = min(objective.warmup_steps, total - 1)
    further, steps = len(_acting(objective)) - 1, total - start
    ends = {start, total - 1}
    between = {start + steps // 10, start + steps // 2}
    return frozenset(ends | between if steps >= LONG * further else ends)


def gradient_shares(
    objective: Objective, terms: Mapping[str, Tensor], factor: float
) -> dict[str, float]:
    """Share of each term: weight * |gradient of the term| / |gradient of the loss|, on the encoder.

    Each term has a backward pass of its own, whose gradient a factor keeps within fp16.
    """
    acting = _acting(objective)
    if len(acting) == 1:
        return {name: float(name in acting) for name in objective.weights}
    parameters = [p for p in objective.encoder.parameters() if p.requires_grad]
    norms = dict.fromkeys(objective.weights, 0.0)
    whole = [torch.zeros_like(p) for p in parameters]
    for name in acting:
        value = factor * objective.weights[name] * terms[name]
        if not value.requires_grad:
            continue
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        pairs = zip(found, parameters, strict=True)
        grads = [parallel.average(torch.zeros_like(p) if g is None else g) for g, p in pairs]
        norms[name] = _norm(grads)
        torch._foreach_add_(whole, grads)
    total = _norm(whole)
    if not total or not math.isfinite(total):
        return {}
    return {name: norm / total for name, norm in norms.items()}


def _acting(objective: Objective) -> list[str]:
    return [name for name, weight in objective.weights.items() if weight]


def _norm(grads: list[Tensor]) -> float:
    return float(torch.stack(torch._foreach_norm(grads)).norm())


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """The numbers of a step."""

    step: int
    rate: float
    norm: float
    terms: dict[str, float]  # the loss and its terms, means over processes and accumulated parts
    shares: dict[str, float]  # of each term in the encoder's gradient; empty where not measured

    def line(self) -> dict[str, Any]:
        """The line in the run's log."""
        norm = self.norm if math.isfinite(self.norm) else None
        line: dict[str, Any] = {
            "step": self.step + 1,
            "learning_rate": self.rate,
            "norm": norm,
            **self.terms,
        }
        if self.shares:
            line["shares"] = self.shares
        return line


@dataclass
class StepRunner:
    """Takes the steps of a run; the numbers of a GPU are read every ``window`` steps."""

    objective: Objective
    module: nn.Module  # the same, under DDP if there are several processes
    collator: Collator
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    settings: Settings
    total: int
    monitor: Monitor
    window: int = 1
    _waiting: list[tuple[int, float, list[str], Tensor]] = field(default_factory=list)
    _shares: dict[int, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.moments = moments(self.objective, self.total)

    def take(self, step: int) -> list[StepMetrics]:
        """Take a step; return the numbers that have become known."""
        settings = self.settings
        start = self.objective.warmup_steps
        rate = self._rate(step, settings.learning_rate, start)
        for group in self.optimizer.param_groups:
            peak = group.get("peak", settings.learning_rate)
            group["lr"] = self._rate(step, peak, group.get("start", start))
        self.optimizer.zero_grad(set_to_none=True)
        with without_onednn(settings.precision):
            sums = self._gradient(step)
        self.scaler.unscale_(self.optimizer)
        norm = _clip(list(self.objective.parameters()), settings.max_grad_norm)
        numbers = torch.stack([norm, *(parallel.average(v).to(norm) for v in sums.values())])
        self._waiting.append((step, rate, list(sums), numbers))
        known = self.known() if self.window == 1 else []
        if self.window > 1 and settings.precision != "fp16":
            # Read by the fused update: nothing is changed where it is one.
            self.optimizer.found_inf = (~numbers.isfinite().all()).float()  # type: ignore[attr-defined]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.objective.after_step()
        return known if len(self._waiting) < self.window else self.known()

    def _rate(self, step: int, peak: float, start: int) -> float:
        if step < start:
            return 0.0
        warmup = self.settings.warmup_ratio
        return scheduled_rate(
            step - start, total=self.total - start, peak=peak, warmup_ratio=warmup
        )

    def known(self) -> list[StepMetrics]:
        """The numbers of the steps that have not been read yet."""
        waiting, self._waiting = self._waiting, []
        values = [numbers for *_, numbers in waiting]
        metrics = []
        for (step, rate, names, _), row in zip(waiting, _read(values), strict=True):
            norm, *losses = row
            terms = dict(zip(names, losses, strict=True))
            # In fp16 the scaler passes over steps whose gradients overflow.
            scaled = self.settings.precision == "fp16"
            self.monitor.check(step, terms if scaled else {**terms, GRADIENT: norm}, rate)
            metrics.append(StepMetrics(step, rate, norm, terms, self._shares.pop(step, {})))
        return metrics

    def _gradient(self, step: int) -> dict[str, Tensor]:
        """Leave the batch's gradient in the parameters; return the loss and its terms."""
        settings, device = self.settings, self.objective.encoder.device.type
        parts = settings.gradient_accumulation_steps
        dtype = DTYPES.get(settings.precision)
        sums: dict[str, Tensor] = {}
        # Shares need a weighted sum, whose graph can be traversed more than once.
        walked = type(self.objective).loss is Objective.loss and not settings.compile
        for part in range(parts):
            torch.manual_seed(mix(settings.seed, step, parallel.rank(), part))
            number = parallel.rank() * parts + part
            batch = self.collator.batch(step, number, parts * parallel.world())
            with products.autocast(device, dtype) if dtype else nullcontext():
                terms = self.module(batch)
                loss = self.objective.loss(terms)
            if step in self.moments and walked and not part:
                factor = self.scaler.get_scale() / parts
                self._shares[step] = gradient_shares(self.objective, terms, factor)
            self.scaler.scale(loss / parts).backward()  # type: ignore[no-untyped-call]
            for name, value in {"loss": loss, **terms}.items():
                share = value.detach() / parts
                sums[name] = sums[name] + share if name in sums else share
        return sums


def _clip(parameters: list[nn.Parameter], most: float) -> Tensor:
    """Scale the gradient down to a norm of at most ``most``; its norm before."""
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    # torch would multiply by 1 where it need not scale; a GPU would wait for the comparison.
    if norm.device.type != "cpu" or not bool(norm + 1e-6 <= most):
        nn.utils.clip_grads_with_norm_(parameters, most, norm)
    return norm


def _read(rows: list[Tensor]) -> list[list[float]]:
    """Numbers of several tensors, in one read of the device if they have equally many."""
    if len({len(row) for row in rows}) == 1:
        return [[float(v) for v in row] for row in torch.stack(rows).tolist()]
    return [[float(v) for v in row.tolist()] for row in rows]


def mix(seed: int, step: int, rank: int, part: int) -> int:
    """One number for torch's generator, different for all four arguments."""
    (number,) = np.random.SeedSequence([seed, step, rank, part]).generate_state(1, np.uint64)
    return int(number >> 1)


def scheduled_rate(step: int, *, total: int, peak: float, warmup_ratio: float) -> float:
    """Linear rise over the warm-up, then linear decay to zero after the last step."""
    rise = int(warmup_ratio * total)
    if step < rise:
        return peak * (step + 1) / (rise + 1)
    return peak * (total - step) / (total - rise)


@contextmanager
def without_onednn(precision: str) -> Iterator[None]:
    """Switch oneDNN off for the block where it only costs memory: in fp32 on x86, by MKL."""
    # There torch leaves GELU to oneDNN, which compiles a kernel for every number of rows: a process
    # of 1.2 GB grew to 2.6 GB over 320 steps. For steps alone: its GELU does not depend on where a
    # number stands, torch's does, and vectors must be those the model gives later, bit for bit.
    # Where it multiplies, GELU is its too: no setting of torch tells the two apart, and its cache
    # of kernels is bounded (`limit_onednn_cache`).
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    if precision != "fp32" or not x86 or products.used() == products.ONEDNN:
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or SIGTERM finish the current step; a second one does not wait for it."""
    received = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True
        if parallel.is_main():
            log.warning(STOPPING)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # only that may handle signals
        before = {n: signal.signal(n, receive) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
