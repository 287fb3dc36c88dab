"""Dynamic batching: requests that wait while a forward pass runs share the next one.

A batch is filled up to a budget of tokens, a few rows of each waiting client in turn and of each
of its requests in turn, so that a short request is not held up behind a long one, nor one client
behind another's hundred requests. The queue is bounded in tokens, in all and for each client; what
does not fit is refused at once, and rows of a request that was given up are never computed.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from contrasent.types import Tokens, Vectors

TURN = 8
"""Rows that a request gets in a batch before the next request has its turn."""

Observe = Callable[[int, int, float], None]
"""observe(rows, tokens, seconds): a batch is done."""


class QueueFull(Exception):
    """The queue has no room, for this client or at all; try again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__("the queue is full")
        self.seconds = seconds


class Job:
    """Rows of one request."""

    def __init__(self, tokens: Tokens, dimension: int, client: str) -> None:
        self.tokens, self.lengths, self.client = tokens, tokens.lengths, client
        self.out = np.empty((len(tokens), dimension), dtype=np.float32)
        self.next = self.done = 0
        self.result: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()


class Batcher:
    """Runs an encoder on rows of many requests."""

    def __init__(
        self,
        embed: Callable[[Tokens], Vectors],
        dimension: int,
        *,
        batch_tokens: int,
        queue_tokens: int,
        client_tokens: int | None = None,
        observe: Observe = lambda rows, tokens, seconds: None,
    ) -> None:
        self.embed, self.dimension = embed, dimension
        self.batch_tokens, self.queue_tokens = batch_tokens, queue_tokens
        self.client_tokens = queue_tokens if client_tokens is None else client_tokens
        self.observe = observe
        self.queues: dict[str, deque[Job]] = {}  # the first client's turn is next
        self.held: Counter[str] = Counter()  # tokens that wait, by client
        self.rate = 0.0  # tokens a second, a moving average
        self.wake = asyncio.Event()
        self.closing = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="embed")
        self.worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work, in the running event loop."""
        self.worker = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish what was accepted, then end."""
        self.closing = True
        self.wake.set()
        if self.worker is not None:
            await self.worker
        self.thread.shutdown()

    @property
    def waiting(self) -> int:
        """Tokens that wait."""
        return self.held.total()

    async def submit(self, tokens: Tokens, client: str = "") -> Vectors:
        """Vectors of rows; when the caller is cancelled, rows not begun are dropped."""
        if not len(tokens):
            return np.empty((0, self.dimension), dtype=np.float32)
        total = int(tokens.lengths.sum())
        for held, room in (
            (self.waiting, self.queue_tokens),
            (self.held[client], self.client_tokens),
        ):
            if held and held + total > room:
                raise QueueFull(held / self.rate if self.rate else 1.0)
        job = Job(tokens, self.dimension, client)
        self.queues.setdefault(client, deque()).append(job)
        self._hold(client, total)
        self.wake.set()
        try:
            return await job.result
        except asyncio.CancelledError:
            self._drop(job)
            raise

    def _hold(self, client: str, tokens: int) -> None:
        self.held[client] += tokens
        if not self.held[client]:
            del self.held[client]

    def _remove(self, job: Job) -> None:
        queue = self.queues[job.client]
        queue.remove(job)
        if not queue:
            del self.queues[job.client]

    def _drop(self, job: Job) -> None:
        if job in self.queues.get(job.client, ()):
            self._remove(job)
            self._hold(job.client, -int(job.lengths[job.next :].sum()))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            taken = self._take()
            if not taken:
                if self.closing:
                    return
                self.wake.clear()
                await self.wake.wait()
                continue
            tokens = Tokens.concatenate(
                [job.tokens.select(np.arange(first, stop)) for job, first, stop in taken]
            )
            began = time.perf_counter()
            try:
                vectors = await loop.run_in_executor(self.thread, self.embed, tokens)
            except Exception as error:
                self._fail(taken, error)
                continue
            seconds = time.perf_counter() - began
            self._deliver(taken, vectors)
            total = int(tokens.lengths.sum())
            speed = total / max(seconds, 1e-9)
            self.rate = speed if not self.rate else 0.9 * self.rate + 0.1 * speed
            self.observe(len(tokens), total, seconds)

    def _take(self) -> list[tuple[Job, int, int]]:
        """The rows of the next batch, as (request, first row, last row + 1)."""
        room = self.batch_tokens
        taken: dict[int, tuple[Job, int, int]] = {}
        while self.queues and room > 0:
            client, queue = next(iter(self.queues.items()))
            job = queue[0]
            first, used = job.next, 0
            alone = len(self.queues) == 1 and len(queue) == 1
            limit = len(job.tokens) if alone else min(len(job.tokens), first + TURN)
            while job.next < limit and (used + int(job.lengths[job.next]) <= room or not used):
                length = int(job.lengths[job.next])
                if not used and taken and length > room:
                    return list(taken.values())
                used += length
                job.next += 1
            room -= used
            self._hold(client, -used)
            start = taken[id(job)][1] if id(job) in taken else first
            taken[id(job)] = (job, start, job.next)
            queue.rotate(-1)
            self.queues[client] = self.queues.pop(client)
            if job.next == len(job.tokens):
                self._remove(job)
        return list(taken.values())

    def _deliver(self, taken: list[tuple[Job, int, int]], vectors: Vectors) -> None:
        at = 0
        for job, first, stop in taken:
            job.out[first:stop] = vectors[at : at + stop - first]
            at += stop - first
            job.done += stop - first
            if job.done == len(job.tokens) and not job.result.done():
                job.result.set_result(job.out)

    def _fail(self, taken: list[tuple[Job, int, int]], error: Exception) -> None:
        for job, _, _ in taken:
            self._drop(job)
            if not job.result.done():
                job.result.set_exception(error)
