"""Requests that wait while a forward pass runs share the next one.

A few rows of each request in turn fill a batch's budget of tokens, so that a short request does
not wait for a long one.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from contrasent.serve.guard import ApiError, ServerSettings
from contrasent.types import Mask, Tokens, Vectors

TURN = 8  # rows that a request gets in a batch before the next request has its turn


@dataclass(frozen=True, slots=True)
class Served:
    """A model as the server sees it: text to tokens, tokens to vectors."""

    name: str
    identity: str  # a hash of all that decides its vectors
    dimension: int
    max_seq_length: int  # special ones included
    vocabulary: int
    # Sentences and the prompt before each, or rows of bare ids, to rows of ids, and which were cut.
    tokenize: Callable[[Sequence[str], str], tuple[Tokens, Mask]]
    wrap: Callable[[Sequence[Sequence[int]]], tuple[Tokens, Mask]]
    embed: Callable[[Tokens], Vectors]  # called from one thread
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    query_prompt: str = ""
    document_prompt: str = ""
    knows: Callable[[str], bool] = lambda word: True  # whether a word is one token
    nested: tuple[int, ...] = ()  # sizes that vectors were trained to be cut to


class QueueFull(Exception):
    """The queue has no room; try again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__("the queue is full")
        self.seconds = seconds


class PendingRows:
    """Rows of one request."""

    def __init__(self, tokens: Tokens, dimension: int) -> None:
        self.tokens, self.lengths = tokens, tokens.lengths
        self.out = np.empty((len(tokens), dimension), dtype=np.float32)
        self.next = self.done = 0
        self.result: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()


class Batcher:
    """Runs an encoder on rows of many requests."""

    def __init__(
        self,
        embed: Callable[[Tokens], Vectors],
        dimension: int,
        limits: ServerSettings,
        observe: Callable[[int, int, float], None] = lambda rows, tokens, seconds: None,
    ) -> None:
        self.embed, self.dimension, self.limits, self.observe = embed, dimension, limits, observe
        self.queue: deque[PendingRows] = deque()  # the first request's turn is next
        self.waiting = 0  # tokens in the queue
        self.rate = 0.0  # tokens a second, a moving average
        self.wake = asyncio.Event()
        self.closing = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="embed")
        self.worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the worker in the running event loop."""
        self.worker = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish the accepted requests, then end."""
        self.closing = True
        self.wake.set()
        if self.worker is not None:
            await self.worker
        self.thread.shutdown()

    async def submit(self, tokens: Tokens) -> Vectors:
        """Vectors of rows; when the caller is cancelled, rows not begun are dropped."""
        if not len(tokens):
            return np.empty((0, self.dimension), dtype=np.float32)
        total = int(tokens.lengths.sum())
        if self.waiting and self.waiting + total > self.limits.queue_tokens:
            raise QueueFull(self.waiting / self.rate if self.rate else 1.0)
        job = PendingRows(tokens, self.dimension)
        self.queue.append(job)
        self.waiting += total
        self.wake.set()
        try:
            return await job.result
        except asyncio.CancelledError:
            self._drop(job)
            raise

    def _drop(self, job: PendingRows) -> None:
        if job in self.queue:
            self.queue.remove(job)
            self.waiting -= int(job.lengths[job.next :].sum())

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
            parts = [job.tokens.select(np.arange(first, stop)) for job, first, stop in taken]
            tokens = Tokens.concatenate(parts)
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

    def _take(self) -> list[tuple[PendingRows, int, int]]:
        """Rows of the next batch, as (request, first row, last row + 1)."""
        room = self.limits.batch_tokens
        taken: dict[int, tuple[PendingRows, int, int]] = {}
        while self.queue and room > 0:
            job = self.queue[0]
            first, used = job.next, 0
            limit = len(job.tokens) if len(self.queue) == 1 else min(len(job.tokens), first + TURN)
            while job.next < limit and (used + int(job.lengths[job.next]) <= room or not used):
                length = int(job.lengths[job.next])
                if not used and taken and length > room:
                    return list(taken.values())
                used += length
                job.next += 1
            room -= used
            self.waiting -= used
            start = taken[id(job)][1] if id(job) in taken else first
            taken[id(job)] = (job, start, job.next)
            self.queue.popleft()
            if job.next < len(job.tokens):
                self.queue.append(job)
        return list(taken.values())

    def _deliver(self, taken: list[tuple[PendingRows, int, int]], vectors: Vectors) -> None:
        start = 0
        for job, first, stop in taken:
            job.out[first:stop] = vectors[start : start + stop - first]
            start += stop - first
            job.done += stop - first
            if job.done == len(job.tokens) and not job.result.done():
                job.result.set_result(job.out)

    def _fail(self, taken: list[tuple[PendingRows, int, int]], error: Exception) -> None:
        for job, _, _ in taken:
            self._drop(job)
            if not job.result.done():
                job.result.set_exception(error)


class Embedder:
    """Texts or ids to (n, d) vectors, and the numbers of tokens and of inputs that were cut."""

    def __init__(self, model: Served, batcher: Batcher, settings: ServerSettings) -> None:
        self.model, self.batcher, self.settings = model, batcher, settings

    async def texts(
        self, texts: Sequence[str], prompt: str | None = None
    ) -> tuple[Vectors, int, int]:
        """Encode texts after a prompt, the model's default one if None."""
        first = self.model.default_prompt if prompt is None else prompt
        tokens, cut = await asyncio.to_thread(self.model.tokenize, texts, first)
        return await self._embed(tokens, cut)

    async def ids(self, rows: Sequence[Sequence[int]]) -> tuple[Vectors, int, int]:
        """Encode token ids without special tokens."""
        self.check_count(len(rows))
        last = self.model.vocabulary - 1
        wrong = next((token for row in rows for token in row if not 0 <= token <= last), None)
        if wrong is not None:
            problem = f"token id {str(wrong)[:20]} is not in 0 to {last}"
            raise ApiError(400, problem, "invalid_token")
        return await self._embed(*await asyncio.to_thread(self.model.wrap, rows))

    def check_texts(self, texts: Sequence[str], most: int | None = None) -> None:
        """Reject more texts than one request may have, or longer ones."""
        self.check_count(len(texts), most)
        size, largest = sum(len(text.encode()) for text in texts), self.settings.max_text
        if size > largest:
            problem = f"the texts hold {size:,} bytes; the limit per request is {largest:,}"
            raise ApiError(413, problem, "too_much_text")

    def check_count(self, count: int, most: int | None = None) -> None:
        """Reject more inputs than one request may have."""
        most = self.settings.max_inputs if most is None else most
        if count > most:
            problem = f"{count:,} inputs in one list; the limit is {most:,}"
            raise ApiError(400, problem, "too_many_inputs")

    async def _embed(self, tokens: Tokens, cut: Mask) -> tuple[Vectors, int, int]:
        try:
            vectors = await self.batcher.submit(tokens)
        except QueueFull as full:
            seconds = str(max(1, math.ceil(min(full.seconds, 60.0))))
            problem = f"the queue is full; try again in {seconds} s"
            raise ApiError(429, problem, "queue_full", {"Retry-After": seconds}) from full
        return vectors, int(tokens.lengths.sum()), int(cut.sum())
