"""What a check of a method finds, and the check that two processes do what one does."""

import json
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from contrasent import parallel
from contrasent.errors import UserError
from contrasent.train.trial import STEPS, Trial

Verdict = tuple[bool | None, str]

CLOSE = 1e-7
"""Largest difference, relative to the largest number, that counts as rounding in float64."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        passed: whether it holds; None where it does not apply.
        detail: in plain words, what was compared or what is wrong.
    """

    check: str
    passed: bool | None
    detail: str


def reported(name: str) -> Callable[[Callable[[Trial], Verdict]], Callable[[Trial], Finding]]:
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


def check_two_processes(trials: Sequence[Trial]) -> list[Finding]:
    """Of each method, whether two processes with half a batch each do what one does with it all."""
    with tempfile.TemporaryDirectory() as home:
        place = Path(home)
        spawn(_work, (place, list(trials)), nprocs=2)  # type: ignore[no-untyped-call]
        return [
            reported("two processes")(partial(_compare, place, number))(trial)
            for number, trial in enumerate(trials)
        ]


def _failure(error: Exception) -> str:
    """What a method raised, and the line of its own that did."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{type(error).__name__} in {where}: {' '.join(str(error).split())}"


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
        far = farthest({"the loss": torch.tensor(losses)}, {"the loss": torch.tensor(own)})
        far = far or farthest(whole, state)
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


def farthest(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> str:
    """What differs by more than rounding, in words; empty if nothing does."""
    for name in sorted(one.keys() ^ two.keys()):
        return f"{name} is there only once"
    for name, value in one.items():
        gap = (value.double() - two[name].double()).abs().max().item() if value.numel() else 0.0
        if not gap <= CLOSE * max(1.0, value.double().abs().max().item() if value.numel() else 0):
            return f"{name} differs by {gap:.2g}"
    return ""
