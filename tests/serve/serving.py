"""A server in a thread, on a free port of this machine."""

import socket
import threading
import time
from contextlib import contextmanager
from functools import partial

import httpx

MINILM = "all-MiniLM-L6-v2"
LINES = [
    "The kettle is on the stove.", "A pot of water is being heated.",
    "Interest rates rose by half a point.", "The central bank made borrowing dearer.",
    "Our dog dislikes the vacuum cleaner.", "She planted tomatoes behind the house.",
    "The vegetable garden is watered in the evening.", "A train to the coast leaves every hour.",
    "The railway runs along the sea.", "He mended the bicycle's rear wheel.",
]  # fmt: skip


# The machine may have more to do than answer.
get_from, post_to = (partial(ask, timeout=300) for ask in (httpx.get, httpx.post))


@contextmanager
def running(app, limits=None):
    """Serve an app; gives its address."""
    from contrasent.serve.app import make_server
    from contrasent.serve.guard import ServerSettings

    server = make_server(app, limits or ServerSettings())
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=600)  # seconds are little where the processor is not ours
        assert not thread.is_alive()


def counter(url, name):
    """A number of the server's metrics; reading them is no request that counts as at work."""
    lines = get_from(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"contrasent_{name} "))


class Gate:
    """Work that begins and goes on when it may."""

    def __init__(self):
        self.begun, self.free, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self):
        self.calls += 1
        self.begun.set()
        assert self.free.wait(600)  # longer than anybody waits for what it holds
