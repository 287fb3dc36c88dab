"""Load on a running server: throughput against raw ``encode``, then minutes of mixed traffic.

    python benchmarks/server_load.py [--model NAME] [--seconds 300] [--clients 16]

Starts ``contrasent serve`` as its own process. First the same texts go through ``encode`` and
through the server, in turn, several times. Then clients send good requests (one text, many texts,
searches, comparisons) among malformed, oversized and aborted ones. Printed: the ratio, latency
percentiles, statuses, and the server's memory at the start, in the middle and at the end. It ends
with 1 on any 5xx or if the second half grew by more than 5 %.
"""

import argparse
import asyncio
import base64
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np

WORDS = (
    "river stone bread window letter garden engine music winter market bridge doctor paper "
    "glass horse island kitchen ladder mirror needle orange pocket queen rabbit silver table"
)
OFTEN = {"one": 6, "many": 2, "search": 4, "similarity": 2}  # of 17 requests
ONCE = ("malformed", "oversized", "aborted", "wrong", "probe")
ROUNDS, TEXTS = 5, 1024
JSON = {"content-type": "application/json"}


def texts(count: int, seed: int) -> list[str]:
    """Lines of random words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS.split(), k=draw.randint(4, 24))) for _ in range(count)]


def serve(model: str, folder: Path) -> tuple["subprocess.Popen[str]", str]:
    """``contrasent serve`` in its own process, with an index, and its address once it answers."""
    (folder / "lines.txt").write_text("\n".join(texts(500, 1)))
    run, index = [sys.executable, "-m", "contrasent"], str(folder / "index")
    building = ["index", str(folder / "lines.txt"), "--model", model, "-o", index, "--quiet"]
    subprocess.run([*run, *building], check=True)
    process = subprocess.Popen(
        [*run, "serve", model, "--index", index, "--port", "0", "--quiet"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().split(" at ")[1].split(" ")[0]
    for _ in range(200):
        try:
            httpx.get(f"{url}/health")
            return process, url
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")


async def embedded(url: str, sentences: list[str]) -> np.ndarray:
    """Vectors of sentences by the server, 64 a request."""
    parts = [sentences[at : at + 64] for at in range(0, len(sentences), 64)]
    bodies = [{"input": part, "encoding_format": "base64"} for part in parts]
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        answers = await asyncio.gather(*(client.post("/v1/embeddings", json=b) for b in bodies))
    for answer in answers:
        answer.raise_for_status()
    rows = [item["embedding"] for answer in answers for item in answer.json()["data"]]
    return np.stack([np.frombuffer(base64.b64decode(row), "<f4") for row in rows])


def throughput(model: str, url: str) -> None:
    """The server's speed and that of ``encode``, medians of rounds taken in turn."""
    from contrasent.encoder.encoder import TorchEncoder

    encoder, raw, served = TorchEncoder.load(model), [], []
    for number in range(ROUNDS):
        sentences = texts(TEXTS, 100 + number)
        began = time.perf_counter()
        wanted = encoder.encode(sentences)
        between = time.perf_counter()
        got = asyncio.run(embedded(url, sentences))
        served.append(TEXTS / (time.perf_counter() - between))
        raw.append(TEXTS / (between - began))
        assert np.abs(got - wanted).max() < 1e-5, np.abs(got - wanted).max()
    own, other = statistics.median(raw), statistics.median(served)
    print(f"encode {own:.0f} texts/s, server {other:.0f} texts/s, ratio {other / own:.2f}")


def request(kind: str, draw: random.Random) -> tuple[str, str, dict[str, Any]]:
    """Method, path and arguments of a request."""
    seed, embed = draw.randrange(10**9), "/v1/embeddings"
    if kind == "one":
        return "POST", embed, {"json": {"input": texts(1, seed)}}
    if kind == "many":
        return "POST", embed, {"json": {"input": texts(32, seed), "encoding_format": "base64"}}
    if kind == "search":
        return "POST", "/search", {"json": {"query": texts(1, seed)[0]}}
    if kind == "similarity":
        return "POST", "/similarity", {"json": {"a": texts(4, seed)}}
    if kind == "malformed":
        return "POST", embed, {"content": draw.randbytes(draw.randint(0, 300)), "headers": JSON}
    if kind == "oversized":
        return "POST", embed, {"content": b'{"input": "%s"}' % (b"x" * (9 << 20)), "headers": JSON}
    if kind == "aborted":
        timeout = draw.uniform(0.001, 0.2)
        return "POST", embed, {"json": {"input": texts(64, seed)}, "timeout": timeout}
    if kind == "wrong":
        wrong: list[Any] = [{"input": [[-1]]}, {"input": []}, {"q": 1}, [], None, 3]
        content = json.dumps(draw.choice(wrong))
        path = draw.choice([embed, "/search", "/similarity", "/nowhere"])
        return "POST", path, {"content": content, "headers": JSON}
    return "GET", draw.choice(["/health", "/metrics", "/map", "/"]), {}


async def load(
    process: "subprocess.Popen[str]", url: str, seconds: float, clients: int
) -> tuple[Counter[str], list[float]]:
    """Statuses of all answers, and the megabytes that the server held over time."""
    until, draws = time.time() + seconds, [random.Random(number) for number in range(clients)]
    statuses, memory = Counter[str](), list[float]()
    seen = defaultdict[str, list[float]](list)
    kinds = [*(kind for kind, count in OFTEN.items() for _ in range(count)), *ONCE]

    async def ask(draw: random.Random) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            while time.time() < until:
                kind = draw.choice(kinds)
                method, path, arguments = request(kind, draw)
                began = time.perf_counter()
                try:
                    answer = await client.request(method, path, **arguments)
                except httpx.TransportError:
                    statuses[f"{kind} cut"] += 1
                    continue
                seen[kind].append(time.perf_counter() - began)
                statuses[str(answer.status_code)] += 1

    async def watch() -> None:
        while time.time() < until:
            status = Path(f"/proc/{process.pid}/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            memory.append(int(line.split()[1]) / 1024)
            await asyncio.sleep(max(0.5, seconds / 60))

    await asyncio.gather(*map(ask, draws), watch())
    for kind, times in sorted(seen.items()):
        p50, p95, p99 = np.percentile(np.array(times) * 1000, [50, 95, 99])
        print(f"{kind:>10}  {len(times):6d}  p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms")
    return statuses, memory


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process, url = serve(options.model, Path(folder))
        try:
            throughput(options.model, url)
            statuses, memory = asyncio.run(load(process, url, options.seconds, options.clients))
            alive = httpx.get(f"{url}/health").status_code == 200
        finally:
            process.terminate()
            process.wait(30)
    half = memory[len(memory) // 2 :]
    growth = statistics.mean(half[-5:]) / statistics.mean(half[:5]) - 1
    print("statuses", dict(sorted(statuses.items())))
    print(
        f"memory {memory[0]:.0f} MB at first, {half[0]:.0f} MB half-way, {memory[-1]:.0f} MB at "
        f"the end; second half {100 * growth:+.1f} %"
    )
    failures = sum(count for status, count in statuses.items() if status.startswith("5"))
    print(f"5xx: {failures}; alive: {alive}")
    return 1 if failures or not alive or growth > 0.05 else 0


if __name__ == "__main__":
    sys.exit(main())
