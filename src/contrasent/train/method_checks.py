"""What must hold of every method, checked on a small encoder: ``contrasent check-objective``.

The encoder has random weights, is made here, and learns from sentences made here: a check needs no
download and takes seconds. Wherever it can be the arithmetic is in float64, so that "the same"
means the same but for rounding.
"""

import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contrasent.engine.objective import Objective
from contrasent.engine.registry import methods, needs_pairs
from contrasent.errors import OptionError
from contrasent.train.findings import (
    Finding,
    Verdict,
    check_two_processes,
    farthest,
    reported,
)
from contrasent.train.trial import STEPS, Trial, make_small_base, with_small_models
from contrasent.types import Batch

CACHED_ROWS = 5


def check_objective(method: str, given: Mapping[str, Any]) -> Iterator[Finding]:
    """Check a method; findings come as they are made."""
    with tempfile.TemporaryDirectory() as home:
        base = make_small_base(Path(home) / "base")
        trial = Trial(method, with_small_models(method, given, base), base)
        first = check_step(trial)
        yield first
        if not first.passed:
            return
        yield check_randomness(trial)
        yield check_slope(trial)
        yield check_cached_gradients(trial)
        yield check_resume(trial)
        (finding,) = check_two_processes([trial])
        yield finding
        yield check_combination(trial)


@reported("one step")
def check_step(trial: Trial) -> Verdict:
    """Whether terms are numbers and complete, and all that trains has a gradient."""
    with trial.training(dropout=0.1) as (objective, batch):
        with torch.no_grad():
            terms = objective(batch(0))
        odd = [k for k, v in terms.items() if v.dim() or not bool(v.isfinite())]
        if odd:
            return False, f"the term {odd[0]!r} is not one finite number"
        missing = sorted(objective.weights.keys() - terms.keys())
        if missing:
            return False, f"no term {missing[0]!r}, which has a weight"
        _, loss = _step(objective, batch(0))
        idle = [k for k, p in objective.named_parameters() if p.requires_grad and p.grad is None]
        if idle:
            return False, f"{idle[0]} trains, but the loss does not depend on it"
        return True, f"loss {loss.item():.4f}; all that trains has a gradient"


@reported("randomness")
def check_randomness(trial: Trial) -> Verdict:
    """Whether a step is a function of seed and step alone."""
    with trial.training(dropout=0.1) as (objective, batch):
        losses = [_step(objective, batch(0))[1].item() for _ in range(2)]
    if losses[0] != losses[1]:
        problem = "draw with torch's own generator, or with random_for(seed, purpose, row, step)"
        return False, f"the same step twice gives {losses}; {problem}"
    return True, "the same step twice gives the same loss, to the bit"


@reported("gradient")
def check_slope(trial: Trial) -> Verdict:
    """Whether the gradient is the slope of the loss, by differences in a random direction."""
    with trial.training() as (objective, batch):
        trained = [p for p in objective.parameters() if p.requires_grad]
        generator = torch.Generator().manual_seed(1)
        way = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in trained]
        for module in objective.modules():
            # Torch gives the vector of padding no gradient, even where padding is in the loss.
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                for p, w in zip(trained, way, strict=True):
                    if p is module.weight:
                        w[module.padding_idx] = 0.0
        _step(objective, batch(0))
        pairs = zip(trained, way, strict=True)
        slope = sum((p.grad * w).sum().item() for p, w in pairs if p.grad is not None)
        size, losses = 1e-6, []
        for sign in (1, -2):
            with torch.no_grad():
                for p, w in zip(trained, way, strict=True):
                    p.add_(w, alpha=sign * size)
            losses.append(_step(objective, batch(0))[1].item())
        measured = (losses[0] - losses[1]) / (2 * size)
        if abs(measured - slope) <= 1e-4 * max(abs(measured), abs(slope), 1e-3):
            return True, "the gradient is the slope of the loss (float64)"
        problem = (
            f"the gradient says {slope:.6g}, the loss changes by {measured:.6g}: something is "
            "detached, rounded or computed in no_grad, which is right only if it is meant"
        )
        return False, problem


@reported("cached gradients")
def check_cached_gradients(trial: Trial) -> Verdict:
    """Whether cached gradients (``grad_cache_rows``) are those of the whole batch."""
    found = []
    for rows in (0, CACHED_ROWS):
        try:
            with trial.training(cached_rows=rows) as (objective, batch):
                _step(objective, batch(0))
                named = objective.named_parameters()
                found.append({k: p.grad for k, p in named if p.grad is not None})
        except OptionError as error:
            return None, str(error)
    far = farthest(found[0], found[1])
    if far:
        return False, f"with {CACHED_ROWS} rows at once the gradient of {far}"
    return True, f"{CACHED_ROWS} rows at once, the same gradient (float64)"


@reported("resume")
def check_resume(trial: Trial) -> Verdict:
    """Whether a run that goes on from a checkpoint ends in the bits of one that was not stopped."""
    with trial.training(dropout=0.1) as (whole, batch):
        optimizer = _adam(whole)
        state: dict[str, Tensor] = {}
        moments: dict[str, Any] = {}
        for step in range(STEPS + 1):
            if step == 2:
                state = {k: v.clone() for k, v in whole.state_dict().items()}
                moments = deepcopy(optimizer.state_dict())
            _update(whole, batch(step), optimizer, step)
    with trial.training(dropout=0.1) as (again, batch):
        optimizer = _adam(again)
        again.load_state_dict(state)
        optimizer.load_state_dict(moments)
        for step in range(2, STEPS + 1):
            _update(again, batch(step), optimizer, step)
        found = again.state_dict()
    for key, value in whole.state_dict().items():
        if not torch.equal(value, found[key]):
            problem = "keep all that lasts from step to step in parameters and buffers"
            return False, f"{key} is another after a resume; {problem}"
    return True, "goes on from a checkpoint to the same bits"


@reported("combination")
def check_combination(trial: Trial) -> Verdict:
    """Whether the method can be joined to SimCSE by "+"."""
    plain = "simcse_supervised" if needs_pairs(trial.method) else "simcse"
    if "+" in trial.method or trial.method == plain:
        return None, "is one already" if "+" in trial.method else "is SimCSE itself"
    joined = Trial(f"{plain}+{trial.method}", trial.parameters, trial.base)
    try:
        with joined.training() as (objective, batch):
            terms, _ = _step(objective, batch(0))
    except OptionError as error:
        return None, str(error)
    names = ", ".join(sorted(objective.weights.keys() & terms.keys()))
    return True, f"{plain}+{methods(trial.method)[0].name} trains on {names}"


def _step(objective: Objective, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """Terms and loss of a batch; the gradient is left in the parameters."""
    torch.manual_seed(batch.step)
    objective.zero_grad(set_to_none=True)
    terms = objective(batch)
    loss = objective.loss(terms)
    loss.backward()  # type: ignore[no-untyped-call]
    return terms, loss


def _adam(objective: Objective) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=1e-3)


def _update(
    objective: Objective, batch: Batch, optimizer: torch.optim.Optimizer, step: int
) -> None:
    _step(objective, batch)
    optimizer.step()
    objective.after_step()
