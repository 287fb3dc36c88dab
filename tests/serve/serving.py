"""A server in a thread, on a free port of this machine."""

import socket
import threading
import time
from contextlib import contextmanager

MINILM = "all-MiniLM-L6-v2"
LINES = [
    "The kettle is on the stove.", "A pot of water is being heated.",
    "Interest rates rose by half a point.", "The central bank made borrowing dearer.",
    "Our dog dislikes the vacuum cleaner.", "She planted tomatoes behind the house.",
    "The vegetable garden is watered in the evening.", "A train to the coast leaves every hour.",
    "The railway runs along the sea.", "He mended the bicycle's rear wheel.",
]  # fmt: skip


@contextmanager
def running(app, **limits):
    """Serve an app; gives its address."""
    from contrasent.serve.connections import make_server
    from contrasent.serve.guard import ServerSettings

    server = make_server(app, ServerSettings(**limits))
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
        thread.join(timeout=120)  # seconds are little where the processor is not ours
        assert not thread.is_alive()
