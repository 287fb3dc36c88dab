"""One client cannot starve another: turns, a share of the queue, a share of the requests."""

import asyncio
import threading

import httpx
import numpy as np
import pytest

from contrasent.serve.app import create_app
from contrasent.serve.batching import Batcher, QueueFull
from contrasent.serve.guard import ServerSettings, client_of
from contrasent.types import Tokens


def rows(count, length=4, mark=1):
    return Tokens.from_rows([np.full(length, mark, dtype=np.int32)] * count)


class Recorder:
    """Embeds nothing, and remembers which marks each batch held; held back until released."""

    def __init__(self):
        self.batches, self.begun, self.free = [], threading.Event(), threading.Event()

    def __call__(self, tokens):
        self.begun.set()
        assert self.free.wait(300)
        self.batches.append([int(tokens[at][0]) for at in range(len(tokens))])
        return np.zeros((len(tokens), 2), dtype=np.float32)


async def until(condition):
    """Let the loop go on until something holds."""
    while not condition():
        await asyncio.sleep(0.001)


def queue(embed, **limits):
    return Batcher(embed, 2, ServerSettings(**{"batch_tokens": 64, "queue_tokens": 4096, **limits}))


def test_clients_take_turns_whatever_they_ask():
    """Ten requests of one client and one of another: the second is in the very next batch."""

    async def go():
        embed = Recorder()
        batcher = queue(embed)
        batcher.start()
        asked = [asyncio.ensure_future(batcher.submit(rows(16, mark=9), "first"))]
        await until(embed.begun.is_set)  # it runs, and the others wait
        asked += [
            asyncio.ensure_future(batcher.submit(rows(16, mark=1), "greedy")) for _ in "x" * 10
        ]
        asked += [asyncio.ensure_future(batcher.submit(rows(8, mark=2), "modest"))]
        await until(lambda: batcher.waiting == 4 * (160 + 8))
        embed.free.set()
        await asyncio.gather(*asked)
        await batcher.stop()
        return embed.batches, batcher

    batches, batcher = asyncio.run(go())
    assert batches[0] == [9] * 16
    assert batches[1] == [1] * 8 + [2] * 8
    assert sum(len(batch) for batch in batches) == 16 + 160 + 8
    assert batcher.waiting == 0
    assert not batcher.queues
    assert not batcher.queued


def test_a_client_fills_its_share_of_the_queue_and_no_more():
    async def go():
        embed = Recorder()
        batcher = queue(embed, queue_tokens=400, client_share=0.5)
        batcher.start()
        asked = [asyncio.ensure_future(batcher.submit(rows(16), "first"))]
        await until(embed.begun.is_set)
        asked.append(asyncio.ensure_future(batcher.submit(rows(45), "greedy")))  # 180 tokens
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await batcher.submit(rows(6), "greedy")
        asked.append(asyncio.ensure_future(batcher.submit(rows(45), "other")))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):  # the whole queue is full, for anybody
            await batcher.submit(rows(11), "third")
        given_up = asyncio.ensure_future(batcher.submit(rows(5), "greedy"))
        await asyncio.sleep(0)
        assert batcher.queued == {"greedy": 200, "other": 180}
        given_up.cancel()
        await asyncio.sleep(0)
        assert batcher.queued == {"greedy": 180, "other": 180}
        embed.free.set()
        await asyncio.gather(*asked)
        await batcher.stop()
        assert not batcher.queued

    asyncio.run(go())


@pytest.mark.parametrize(("scope", "client"), [
    ({"client": ("192.0.2.7", 40_000)}, "192.0.2.7"),
    ({"client": ("2001:db8:1:2:3:4:5:6", 1)}, "2001:db8:1:2::/64"),
    ({"client": ("2001:db8:1:2::9", 1)}, "2001:db8:1:2::/64"),
    ({"client": ("a unix socket", 0)}, "a unix socket"), ({"client": None}, ""), ({}, ""),
])  # fmt: skip
def test_who_a_client_is(scope, client):
    assert client_of(scope) == client


def test_shares_of_the_settings():
    settings = ServerSettings(max_requests=10, queue_tokens=1000, client_share=0.25)
    assert (settings.client_requests, settings.client_tokens) == (2, 250)
    assert ServerSettings(max_requests=1, client_share=0.01).client_requests == 1


def test_requests_of_one_client_leave_room_for_others(model):
    """Six slow requests of one address; another's is answered beside them."""
    held = asyncio.Event()
    app = create_app(model, settings=ServerSettings(max_requests=4, client_share=0.5))

    async def get(path, address):
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    @app.get("/slow")
    async def slow():
        await held.wait()
        return {}

    async def go():
        asked = [asyncio.ensure_future(get("/slow", "192.0.2.1")) for _ in range(6)]
        await until(lambda: sum(answer.done() for answer in asked) == 4)
        other = await get("/v1/models", "192.0.2.2")
        held.set()
        return [answer.status_code for answer in await asyncio.gather(*asked)], other.status_code

    statuses, other = asyncio.run(go())
    assert sorted(statuses) == [200, 200, 429, 429, 429, 429]
    assert other == 200
