"""Malformed requests to one server, and its end with large ones at work."""

import http.client
import json
import random
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.attack.bench import (
    REQUEST_MEMORY,
    Bench,
    Process,
    contrasent,
    hits,
    load,
    resident,
)
from benchmarks.attack.indexes import made_index

SECONDS = 70.0  # to wait for an answer; the server's own limit is 60
HEALTHY = 1.0  # seconds within which /health answers
ENDED = 10.0  # seconds after SIGTERM
LATE, MINUTE = 3.0, 60.0  # seconds: of 99 in 100 answers to many clients, and all of their asking
LOCKS = (".lock", "index.db-shm", "index.db-wal")  # of readers, without content
RAW = (
    b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 1000, b"POST\r\n\r\n",
    b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
    b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
    b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%00%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"\x00" * 5000,
)  # fmt: skip


@contextmanager
def running(index: Path) -> Iterator[tuple[Process, str, int]]:
    """A server of an index that answers, its host and its port."""
    server = Process(lambda: contrasent("serve", index, "--port", 0, "--quiet"))
    until = time.monotonic() + 120
    try:
        while not (found := re.search(r"http://[\d.]+:\d+", server.output(1))):
            if server.ended() or time.monotonic() > until:
                raise RuntimeError(server.output(1) + server.output(2))
            time.sleep(0.05)
        place = urlsplit(found[0])
        assert place.hostname is not None and place.port is not None
        while health(place.hostname, place.port) > SECONDS:
            if time.monotonic() > until:
                raise RuntimeError("the server does not answer")
            time.sleep(0.05)
        yield server, place.hostname, place.port
    finally:
        server.kill()


def ask(host: str, port: int, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    """Status and content of an answer; 0 where the connection was closed."""
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        given = {"Content-Type": "application/json"} | headers
        connection.request("POST" if body else "GET", path, body or None, given)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except TimeoutError:
        return -1, b"no answer"
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error).encode()
    finally:
        connection.close()


def health(host: str, port: int) -> float:
    """Seconds that /health took; endless where it did not answer."""
    began = time.monotonic()
    status, _ = ask(host, port, "/health", b"")
    return time.monotonic() - began if status == 200 else float("inf")


def bodies(bench: Bench) -> tuple[str, bytes]:
    """A route and a body for it: forged JSON, a filter out of all proportion, or a long list."""
    from fuzz_targets import BODIES, Draw, odd_json

    draw = bench.draw
    path = draw.choice(sorted(BODIES))
    kind, many = draw.randrange(8), draw.choice([500, 5_000, 60_000])
    if kind == 0:
        where = draw.choice([
            {"a." * many + "a": 1}, {"a": {"$in": list(range(many))}},
            {"$or": [{f"a{n}": n} for n in range(many)]}, {"a": {"$contains": "x" * many}},
        ])  # fmt: skip
        return "/search", json.dumps({"query": "a", "where": where}).encode()
    if kind == 1:
        return "/search", b'{"query": "a", "where": ' + b'{"$not": ' * many + b"1" + b"}" * many
    if kind == 2:
        texts = ["a map " * draw.choice([1, 400])] * draw.choice([300, 2048, 5000])
        key = {"/v1/embeddings": "input", "/search": "query", "/similarity": "a"}[path]
        more = {"k": 1000} if key == "query" else {"b": texts} if key == "a" else {}
        return path, json.dumps({key: texts, **more}).encode()
    return path, odd_json(Draw(draw.randbytes(64)), BODIES[path])


def malformed(bench: Bench) -> None:
    """One server gets them all; it says what is wrong, and answers /health at any time."""
    index, _ = made_index(bench.home)
    with running(index) as (server, host, port):
        ask(host, port, "/search", b'{"query": "a map"}')
        base = resident(server.pid)
        for number in bench.numbers():
            began, before = time.monotonic(), resident(server.pid)
            Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak begins anew
            body = b""
            if bench.draw.random() < 0.2:
                raw = bench.draw.choice(RAW)
                label = f"request {number}: {raw[:60]!r}"
                status, said = sent(host, port, raw), b""
            else:
                path, body = bodies(bench)
                label = f"request {number}: {path} {body[:60]!r}, {len(body):,} bytes"
                status, said = ask(host, port, path, body)
            bench.slowest = max(bench.slowest, time.monotonic() - began)
            grown = peak(server.pid) - before
            bench.peak = max(bench.peak, grown)
            if resident(server.pid) - base > 2 * REQUEST_MEMORY:
                bench.fail("memory", f"all up to {label}", f"{resident(server.pid) >> 20} MB")
            if status < 0 or (status >= 500 and status != 503):
                bench.fail("no answer" if status < 0 else f"status {status}", label, repr(said))
            elif 400 <= status < 500 and said and not sentence(said):
                bench.fail("no sentence", label, repr(said[:300]))
            if grown > REQUEST_MEMORY and len(body) <= 1 << 20:
                bench.fail("memory", label, f"{grown >> 20} MB")
            if (took := health(host, port)) > HEALTHY * load():
                bench.fail("health", label, f"{took:.1f} s")
        if server.ended() or "Traceback" in server.output(2):
            bench.fail("crash", "after all", server.output(2))


def peak(pid: int) -> int:
    """Bytes of memory that a process held at its peak."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text("ascii"))
    return int(found[1]) << 10 if found else 0


def sent(host: str, port: int, raw: bytes) -> int:
    """Send bytes and wait for the end; the status of the answer, -1 if there is no end."""
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
    except TimeoutError:
        return -1
    except OSError:
        return 0
    found = re.match(rb"HTTP/1\.\d (\d+)", answer)
    return int(found[1]) if found else 0


def sentence(said: bytes) -> bool:
    """Whether an answer says in words what is wrong."""
    try:
        message = json.loads(said)
        message = message.get("error", message)
        text = message["message"] if isinstance(message, dict) else str(message)
    except (ValueError, KeyError, AttributeError):
        text = said.decode("utf-8", "replace")
    return " " in text and not re.search(r"function-|Traceback|\(\)", text)


def ends(bench: Bench) -> None:
    """SIGTERM while large requests are at work: each is answered, and all is over in time."""
    index, _ = made_index(bench.home)
    body = json.dumps({"input": ["a map of the road to the coast " * 40] * 800}).encode()
    for number in bench.numbers():
        seen: list[int] = []
        with running(index) as (server, host, port):
            clients = [
                threading.Thread(
                    target=lambda: seen.append(ask(host, port, "/v1/embeddings", body)[0])  # noqa: B023
                )
                for _ in range(20)
            ]
            for client in clients:
                client.start()
            time.sleep(bench.draw.uniform(0, 2))
            server.kill(15)
            began = time.monotonic()
            over = server.wait(60)
            took = time.monotonic() - began
            bench.slowest = max(bench.slowest, took)
            if not over or took > ENDED + load():
                bench.fail("late", f"end {number}", f"{took:.1f} s")
            for client in clients:
                client.join()
            if odd := sorted({status for status in seen if status not in (0, 200, 429, 503)}):
                bench.fail("status", f"end {number}", str(odd))


def clients(bench: Bench) -> None:
    """Clients that never pause for a minute: each is answered, and so is /health."""
    index, _ = made_index(bench.home)
    given = [
        ("/search", {"query": "a map of the road", "answers": True}),
        ("/v1/embeddings", {"input": ["the gardener mended a wooden ladder"] * 4}),
        ("/similarity", {"a": ["a map", "a kettle"]}),
    ]
    bodies = [(path, json.dumps(body).encode()) for path, body in given]
    seconds, statuses, waits = list[float](), Counter[int](), list[float]()
    with running(index) as (server, host, port):
        until = time.monotonic() + MINUTE

        def asks(number: int) -> None:
            draw = random.Random(number)
            while time.monotonic() < until:
                began = time.monotonic()
                status, _ = ask(host, port, *draw.choice(bodies))
                seconds.append(time.monotonic() - began)
                statuses[status] += 1

        threads = [threading.Thread(target=asks, args=(n,)) for n in range(bench.count)]
        for thread in threads:
            thread.start()
        while time.monotonic() < until:
            waits.append(health(host, port))
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        if server.ended() or "Traceback" in server.output(2):
            bench.fail("crash", "after all", server.output(2))
    bench.tried, bench.slowest = len(seconds), max(seconds)
    seconds.sort()
    half, most = seconds[len(seconds) // 2], seconds[int(0.99 * len(seconds))]
    said = f"p50 {half:.2f} s, p99 {most:.2f} s, /health {max(waits):.2f} s, load {load():.1f}"
    print(f"  {bench.name}: {said}, statuses {dict(statuses)}", file=sys.stderr, flush=True)
    if most > LATE * load():
        bench.fail("late", "p99", said)
    if max(waits) > HEALTHY * load():
        bench.fail("health", "meanwhile", said)
    if set(statuses) - {200, 429}:
        bench.fail("status", "of all", str(dict(statuses)))


def kills(bench: Bench) -> None:
    """A server that is killed at work leaves its index as it was, and another one starts."""
    from benchmarks.attack.kills import digests

    index, _ = made_index(bench.home)
    before = digests(index, LOCKS)
    body = json.dumps({"query": ["a map of the road"] * 200, "k": 50}).encode()
    right = None
    for number in bench.numbers():
        with running(index) as (server, host, port):
            answer = hits(ask(host, port, "/search", body)[1])
            right = right or answer
            if answer != right:
                bench.fail("wrong answer", f"kill {number}", repr(answer)[:300])
            client = threading.Thread(target=ask, args=(host, port, "/search", body))
            client.start()
            time.sleep(bench.draw.uniform(0, 0.2))
            server.kill()
            client.join()
        if (now := digests(index, LOCKS)) != before:
            changed = sorted(set(now.items()) ^ set(before.items()))
            bench.fail("changed", f"kill {number}", str(changed))


CASES = {
    "malformed requests": (malformed, 300),
    "SIGTERM of serve": (ends, 10),
    "clients at once": (clients, 200),
    "kills of serve": (kills, 40),
}
