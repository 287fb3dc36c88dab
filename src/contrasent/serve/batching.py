"""Requests that wait while a forward pass runs share the next one.

A few rows of each in turn fill a batch: a short request does not wait for all of a long one.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from contrasent.model.base import Encoder
from contrasent.serve.guard import ApiError, ServerSettings
from contrasent.types import Mask, Tokens, Vectors

TURN = 8  # rows of a request before the next one has its turn


class PendingRows:
    """Rows of one request: which is the next, how many have no vector yet, and the vectors."""

    def __init__(self, tokens: Tokens, encoder: Encoder) -> None:
        self.tokens, self.lengths, self.encoder = tokens, tokens.lengths.tolist(), encoder
        self.next, self.left = 0, len(tokens)
        self.vectors = np.empty((len(tokens), encoder.dimension), dtype=np.float32)
        self.result: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()


class Batcher:
    """Runs the encoder of each request on the rows of many, in one thread.

    ``texts`` and ``ids`` give (n, d) vectors, and the numbers of tokens and of inputs that were
    cut. ``observe`` is called with the rows, tokens and seconds of each batch.
    """

    def __init__(
        self,
        limits: ServerSettings,
        observe: Callable[[int, int, float], None] = lambda rows, tokens, seconds: None,
    ) -> None:
        self.limits, self.observe = limits, observe
        self.queue: deque[PendingRows] = deque()  # those with rows not begun; the first is next
        self.waiting = 0  # tokens in the queue
        self.speed = 0.0  # tokens per second, of the last batch
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

    async def texts(
        self, encoder: Encoder, texts: Sequence[str], prompt: str | None = None
    ) -> tuple[Vectors, int, int]:
        """Encode texts after a prompt, the model's default one if None."""
        first = encoder.prompts.text() if prompt is None else prompt
        tokens, cut = await asyncio.to_thread(encoder.tokenize, texts, first)
        return await self._submit(encoder, tokens, cut)

    async def ids(
        self, encoder: Encoder, rows: Sequence[Sequence[int]]
    ) -> tuple[Vectors, int, int]:
        """Encode token ids, which come without special tokens."""
        last = encoder.tokenizer.size - 1
        wrong = next((token for row in rows for token in row if token > last), None)
        if wrong is not None:
            problem = f"token id {str(wrong)[:20]} is not in 0 to {last}"
            raise ApiError(400, problem, "invalid_token")
        return await self._submit(encoder, *await asyncio.to_thread(_framed, encoder, rows))

    async def _submit(
        self, encoder: Encoder, tokens: Tokens, cut: Mask
    ) -> tuple[Vectors, int, int]:
        """Wait for the vectors of rows; if the caller is cancelled, rows not begun are dropped."""
        total = int(tokens.lengths.sum())
        if self.waiting and self.waiting + total > self.limits.queue_tokens:
            estimated = self.waiting / self.speed if self.speed else 1.0
            seconds = str(max(1, math.ceil(min(estimated, 60.0))))
            problem = f"the queue is full; try again in {seconds} s"
            raise ApiError(429, problem, "queue_full", {"Retry-After": seconds})
        request = PendingRows(tokens, encoder)
        self.queue.append(request)
        self.waiting += total
        self.wake.set()
        try:
            return await request.result, total, int(cut.sum())
        except asyncio.CancelledError:
            self._drop(request)
            raise

    def _drop(self, request: PendingRows) -> None:
        if request in self.queue:
            self.queue.remove(request)
            self.waiting -= sum(request.lengths[request.next :])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self.queue or not self.closing:
            if not self.queue:
                self.wake.clear()
                await self.wake.wait()
                continue
            batch = self._take()
            tokens = Tokens.from_rows(request.tokens[row] for request, row in batch)
            began = time.perf_counter()
            try:
                embed = batch[0][0].encoder.embed
                vectors = await loop.run_in_executor(self.thread, embed, tokens)
            except Exception as error:
                for request in {request for request, _ in batch}:
                    self._drop(request)
                    if not request.result.done():
                        request.result.set_exception(error)
                continue
            seconds = time.perf_counter() - began
            for (request, row), vector in zip(batch, vectors, strict=True):
                request.vectors[row] = vector
                request.left -= 1
                if not request.left and not request.result.done():
                    request.result.set_result(request.vectors)
            self.speed = len(tokens.ids) / max(seconds, 1e-9)
            self.observe(len(tokens), len(tokens.ids), seconds)

    def _take(self) -> list[tuple[PendingRows, int]]:
        """Rows of the next batch, of one model, up to the budget of tokens, and one at least."""
        batch, room = list[tuple[PendingRows, int]](), self.limits.batch_tokens
        while self.queue:
            request = self.queue[0]
            if batch and request.encoder is not batch[0][0].encoder:
                break
            first, end = request.next, len(request.lengths)
            stop = end if len(self.queue) == 1 else min(first + TURN, end)
            for length in request.lengths[first:stop]:
                if batch and length > room:
                    break
                batch.append((request, request.next))
                request.next += 1
                room -= length
                self.waiting -= length
            if request.next == first:
                break  # the batch is full, and this request begins the next one
            self.queue.popleft()
            if request.next < end:
                self.queue.append(request)
        return batch


def _framed(encoder: Encoder, rows: Sequence[Sequence[int]]) -> tuple[Tokens, Mask]:
    """Token ids with special tokens, and which were cut."""
    before, after = (ids.tolist() for ids in encoder.tokenizer.frame)
    room = encoder.max_seq_length - len(before) - len(after)
    tokens = Tokens.from_rows([[*before, *row[:room], *after] for row in rows])
    return tokens, np.array([len(row) > room for row in rows], dtype=bool)
