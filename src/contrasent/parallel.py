"""Several processes: the only module that names ``torch.distributed``.

Each process averages over its own rows and DDP over processes: W processes with B rows give the
gradient of one with W * B.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from contrasent.errors import LostProcessError, UserError, see

LOST = re.compile("gloo|NCCL|Connection (closed|reset|refused)")
"""Part of torch's message where a process does not answer any more."""

Value = TypeVar("Value")


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def device() -> str:
    """This process's device: the GPU that torchrun's LOCAL_RANK names, else the CPU."""
    return f"cuda:{local_rank()}" if torch.cuda.is_available() else "cpu"


def local_rank() -> int:
    """This process's number on its machine, from 0; it is known before the processes join."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_main() -> bool:
    """Whether this is the main process, which evaluates, writes files and prints."""
    return rank() == 0


@contextmanager
def processes() -> Iterator[None]:
    """Join the processes that ``torchrun`` started, if any, for the block."""
    if dist.is_initialized() or "WORLD_SIZE" not in os.environ:
        yield
        return
    try:
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(local_rank())
        dist.init_process_group("nccl" if cuda else "gloo")
    except (ValueError, RuntimeError) as error:
        raise UserError(f"several processes: start them with torchrun ({error})") from error
    number = rank()
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or LOST.search(str(error))):
            raise
        raise LostProcessError(
            f"process {number} of {world()}: another process has ended; its output says why. "
            "Restart all with --resume to continue from the last "
            f"checkpoint{see('training-stopped')}"
        ) from error
    finally:
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.count = len(rows)
        parts = [torch.empty_like(rows) for _ in range(world())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        dist.all_reduce(total)
        return total[rank() * ctx.count : (rank() + 1) * ctx.count]


def gather(rows: Tensor) -> Tensor:
    """Gather the rows of all processes, (n, ...) to (world * n, ...), with gradients.

    All processes must have the same number of rows.
    """
    if world() == 1:
        return rows
    return cast(Tensor, _Gather.apply(rows))  # type: ignore[no-untyped-call]


def first_row(count: int) -> int:
    """Number of this process's first row among gathered rows, ``count`` for each process."""
    return rank() * count


def average(value: Tensor) -> Tensor:
    """Mean of a number over all processes, without gradient."""
    if world() == 1:
        return value.detach()
    total = value.detach().clone()
    dist.all_reduce(total)
    return total / world()


def anywhere(flag: bool) -> bool:
    """Whether a flag is set in any process; all get the same answer."""
    if world() == 1:
        return flag
    place = device() if dist.get_backend() == "nccl" else "cpu"
    total = torch.tensor(int(flag), device=place)
    dist.all_reduce(total, dist.ReduceOp.MAX)
    return bool(total)


def barrier() -> None:
    """Wait for every process."""
    if world() > 1:
        dist.barrier()


def long_barrier() -> Callable[[], None]:
    """A barrier whose others may take a day, as to tokenize a corpus; all make it at once."""
    if world() == 1:
        return lambda: None
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))
    return lambda: dist.barrier(group)


def from_main(value: Any) -> Any:
    """The main process's value, a small plain object, in every process."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


def by_main(function: Callable[[], Value]) -> Value:
    """A small plain object computed by the main process, in every process."""
    if world() == 1:
        return function()
    outcome: list[Any] = [None, ""]
    if is_main():
        try:
            outcome = [function(), ""]
        except UserError as error:
            from_main([None, str(error)])
            raise
    value, problem = from_main(outcome)
    if problem:
        raise UserError(problem)
    return cast(Value, value)


def tensors_from_main(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The main process's tensors on the CPU, in every process, whose machines may share no disk."""
    if world() == 1:
        return tensors
    place = device() if dist.get_backend() == "nccl" else "cpu"
    received = {}
    for name, shape, kind in from_main([(n, t.shape, t.dtype) for n, t in tensors.items()]):
        tensor = tensors[name] if is_main() else torch.empty(shape, dtype=kind)
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).to(place)
        if len(raw):
            dist.broadcast(raw, 0)
        received[name] = raw.cpu().view(kind).reshape(shape)
    return received


def wrap(module: nn.Module) -> nn.Module:
    """The module under DDP if there are several processes, else itself."""
    if world() == 1:
        return module
    from torch.nn.parallel import DistributedDataParallel

    # Buffers are equal in all processes at the start and change alike; the option's name is newer
    # than the oldest torch that we run with.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {name: False}
    return DistributedDataParallel(module, find_unused_parameters=True, **options)
