"""What must hold of every method, checked on a small encoder: ``contrasent check-objective``.

The encoder has random weights, is made here, and learns from sentences made here: a check needs no
download and takes seconds. Wherever it can be the arithmetic is in float64, so that "the same"
means the same but for rounding.
"""

import json
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from contrasent import parallel
from contrasent.engine.objective import Objective
from contrasent.engine.registry import methods, needs_pairs
from contrasent.errors import OptionError, UserError
from contrasent.train.trial import STEPS, Trial, make_small_base, with_small_models
from contrasent.types import Batch

Verdict = tuple[bool | None, str]

CACHED_ROWS = 5
CLOSE = 1e-7
"""Largest difference, relative to the largest number, that counts as rounding in float64."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: its name.
        passed: whether it holds; None where it does not apply.
        detail: in plain words, what was compared or what is wrong.
    """

    check: str
    passed: bool | None
    detail: str


def check_objective(method: str, given: Mapping[str, Any]) -> Iterator[Finding]:
    """Check a method; findings come as they are made.

    Args:
        method: its name, its file or ``module:Class``.
        given: parameters; "small" names the small encoder where a model is wanted.

    Yields:
        One finding a check; where the first fails, the others are not made.

    Raises:
        UserError: there is no such method, or a parameter cannot be.
    """
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


def _reported(name: str) -> Callable[[Callable[[Trial], Verdict]], Callable[[Trial], Finding]]:
    """Make a finding of what a check says, or of what the method raises in it."""

    def decorate(check: Callable[[Trial], Verdict]) -> Callable[[Trial], Finding]:
        @wraps(check)
        def reported(trial: Trial) -> Finding:
            try:
                return Finding(name, *check(trial))
            except UserError:
                raise
            except Exception as error:  # whatever code of others raises
                return Finding(name, False, _failure(error))

        return reported

    return decorate


@_reported("one step")
def check_step(trial: Trial) -> Verdict:
    """Whether terms are numbers, all weighted ones are there, and all that trains has a gradient.

    Args:
        trial: the method.
    """
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


@_reported("randomness")
def check_randomness(trial: Trial) -> Verdict:
    """Whether a step is a function of seed and step alone.

    Args:
        trial: the method.
    """
    with trial.training(dropout=0.1) as (objective, batch):
        losses = [_step(objective, batch(0))[1].item() for _ in range(2)]
    if losses[0] != losses[1]:
        problem = "draw with torch's own generator, or with random_for(seed, purpose, row, step)"
        return False, f"the same step twice gives {losses}; {problem}"
    return True, "the same step twice gives the same loss, to the bit"


@_reported("gradient")
def check_slope(trial: Trial) -> Verdict:
    """Whether the gradient is the slope of the loss, by central differences in a random direction.

    Args:
        trial: the method.
    """
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


@_reported("cached gradients")
def check_cached_gradients(trial: Trial) -> Verdict:
    """Whether cached gradients (``grad_cache_rows``) are those of the whole batch.

    Args:
        trial: the method.
    """
    found = []
    for rows in (0, CACHED_ROWS):
        try:
            with trial.training(cached_rows=rows) as (objective, batch):
                _step(objective, batch(0))
                named = objective.named_parameters()
                found.append({k: p.grad for k, p in named if p.grad is not None})
        except OptionError as error:
            return None, str(error)
    far = _farthest(found[0], found[1])
    if far:
        return False, f"with {CACHED_ROWS} rows at once the gradient of {far}"
    return True, f"{CACHED_ROWS} rows at once, the same gradient (float64)"


@_reported("resume")
def check_resume(trial: Trial) -> Verdict:
    """Whether a run that goes on from a checkpoint ends in the bits of one that was not stopped.

    Args:
        trial: the method.
    """
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


def check_two_processes(trials: Sequence[Trial]) -> list[Finding]:
    """Whether two processes with half a batch each do what one does with the whole batch.

    Args:
        trials: the methods; one pair of processes runs them all.

    Returns:
        One finding for each.
    """
    with tempfile.TemporaryDirectory() as home:
        place = Path(home)
        spawn(_work, (place, list(trials)), nprocs=2)  # type: ignore[no-untyped-call]
        return [
            _reported("two processes")(partial(_compare, place, number))(trial)
            for number, trial in enumerate(trials)
        ]


@_reported("combination")
def check_combination(trial: Trial) -> Verdict:
    """Whether the method can be joined to SimCSE by "+".

    Args:
        trial: the method.
    """
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


def _failure(error: Exception) -> str:
    """What a method raised, and the line of its own that did."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{type(error).__name__} in {where}: {' '.join(str(error).split())}"


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


def _trained(trial: Trial) -> tuple[dict[str, Tensor], list[float]]:
    """State and losses after some steps without dropout, of this process's share of the batches."""
    with trial.training() as (objective, batch):
        module = parallel.wrap(objective)
        trained = [p for p in objective.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.05)
        losses = []
        for step in range(STEPS):
            torch.manual_seed(step)
            optimizer.zero_grad()
            loss = objective.loss(module(batch(step)))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            objective.after_step()
            losses.append(float(parallel.average(loss)))
        return {k: v.detach().clone() for k, v in objective.state_dict().items()}, losses


def _work(rank: int, place: Path, trials: list[Trial]) -> None:
    """One of two processes; what it found goes to files."""
    torch.set_num_threads(1)
    store = f"file://{place / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    for number, trial in enumerate(trials):
        try:
            state, losses = _trained(trial)
        except Exception as error:  # whatever code of others raises
            (place / f"{number}.{rank}.txt").write_text(_failure(error), "utf-8")
            break  # the other process may wait for this one, and ends with it
        metadata = {"losses": json.dumps(losses)}
        save_file(state, place / f"{number}.{rank}.safetensors", metadata=metadata)
    torch.distributed.destroy_process_group()


def _compare(place: Path, number: int, trial: Trial) -> Verdict:
    whole, losses = _trained(trial)
    before = whole
    for rank in (0, 1):
        path = place / f"{number}.{rank}.safetensors"
        if not path.is_file():
            failed = [p.read_text("utf-8") for p in sorted(place.glob("*.txt"))]
            return False, failed[0] if failed else "the processes ended early"
        with safe_open(path, "pt") as stream:
            own = json.loads(stream.metadata()["losses"])
            state = {k: stream.get_tensor(k) for k in stream.keys()}  # noqa: SIM118
        far = _farthest({"the loss": torch.tensor(losses)}, {"the loss": torch.tensor(own)})
        far = far or _farthest(whole, state)
        if far:
            return False, (
                f"with half a batch each {far}; average over the rows of the process alone, "
                "compare with those of all (gather), and draw with random_for(seed, purpose, row, "
                "step)"
            )
        odd = [k for k, v in state.items() if rank and not torch.equal(v, before[k])]
        if odd:
            return False, f"the two processes hold different values of {odd[0]}"
        before = state
    return True, f"half a batch each, the same after {STEPS} steps (float64)"


def _farthest(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> str:
    """What differs by more than rounding, in words; empty if nothing does."""
    for name in sorted(one.keys() ^ two.keys()):
        return f"{name} is there only once"
    for name, value in one.items():
        gap = (value.double() - two[name].double()).abs().max().item() if value.numel() else 0.0
        if not gap <= CLOSE * max(1.0, value.double().abs().max().item() if value.numel() else 0):
            return f"{name} differs by {gap:.2g}"
    return ""
