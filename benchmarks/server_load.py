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
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np

WORDS = (
    "river stone bread window letter garden engine music winter market bridge doctor paper "
    "glass horse island kitchen ladder mirror needle orange pocket queen rabbit silver table"
)


def texts(count: int, seed: int, low: int = 4, high: int = 24) -> list[str]:
    """Lines of random words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS.split(), k=rng.randint(low, high))) for _ in range(count)]


def resident(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


class Server:
    """``contrasent serve`` in its own process, with an index."""

    def __init__(self, model: str, folder: Path) -> None:
        lines = folder / "lines.txt"
        lines.write_text("\n".join(texts(500, 1)))
        index = folder / "index"
        run = [sys.executable, "-m", "contrasent"]
        subprocess.run(
            [*run, "index", str(lines), "--model", model, "-o", str(index), "--quiet"], check=True
        )
        self.process = subprocess.Popen(
            [*run, "serve", model, "--index", str(index), "--port", "0", "--quiet"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split(" at ")[1].split(" ")[0]
        with httpx.Client(base_url=self.url) as client:
            for _ in range(200):
                try:
                    self.model = client.get("/health").json()["model"]
                    return
                except httpx.TransportError:
                    time.sleep(0.1)
        raise RuntimeError("the server does not answer")

    def stop(self) -> None:
        """End it, gracefully."""
        self.process.terminate()
        self.process.wait(30)


def throughput(model: str, server: Server, rounds: int, count: int) -> float:
    """Ratio of the server's speed to that of ``encode``, medians of rounds taken in turn."""
    from contrasent.encoder.encoder import TorchEncoder

    encoder = TorchEncoder.load(model)
    raw, served = [], []

    async def ask(sentences: list[str]) -> np.ndarray:
        parts = [sentences[at : at + 64] for at in range(0, len(sentences), 64)]
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            bodies = [{"input": part, "encoding_format": "base64"} for part in parts]
            answers = await asyncio.gather(
                *(client.post("/v1/embeddings", json=body) for body in bodies)
            )
        for answer in answers:
            answer.raise_for_status()
        rows = [item["embedding"] for answer in answers for item in answer.json()["data"]]
        return np.stack([np.frombuffer(base64.b64decode(row), "<f4") for row in rows])

    for number in range(rounds):
        sentences = texts(count, 100 + number)
        began = time.perf_counter()
        wanted = encoder.encode(sentences)
        raw.append(len(sentences) / (time.perf_counter() - began))
        began = time.perf_counter()
        got = asyncio.run(ask(sentences))
        served.append(len(sentences) / (time.perf_counter() - began))
        assert np.abs(got - wanted).max() < 1e-5, np.abs(got - wanted).max()
    ratio = statistics.median(served) / statistics.median(raw)
    print(
        f"encode {statistics.median(raw):.0f} texts/s, server {statistics.median(served):.0f} "
        f"texts/s, ratio {ratio:.2f}"
    )
    return ratio


async def one_client(
    url: str, number: int, until: float, seen: dict[str, list[float]]
) -> Counter[str]:
    """Ask again and again, a mixture of good and bad, until the time is up."""
    rng = random.Random(number)
    statuses: Counter[str] = Counter()
    json_type = {"content-type": "application/json"}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while time.time() < until:
            kind = rng.choice(
                ["one"] * 6
                + ["many"] * 2
                + ["search"] * 4
                + ["similarity"] * 2
                + ["malformed", "oversized", "aborted", "wrong", "probe"]
            )
            seed = rng.randrange(10**9)
            began = time.perf_counter()
            try:
                if kind == "one":
                    answer = await client.post("/v1/embeddings", json={"input": texts(1, seed)})
                elif kind == "many":
                    body = {"input": texts(32, seed), "encoding_format": "base64"}
                    answer = await client.post("/v1/embeddings", json=body)
                elif kind == "search":
                    answer = await client.post("/search", json={"query": texts(1, seed)[0]})
                elif kind == "similarity":
                    answer = await client.post("/similarity", json={"a": texts(4, seed)})
                elif kind == "malformed":
                    data = rng.randbytes(rng.randint(0, 300))
                    answer = await client.post("/v1/embeddings", content=data, headers=json_type)
                elif kind == "oversized":
                    data = b'{"input": "' + b"x" * (9 << 20) + b'"}'
                    answer = await client.post("/v1/embeddings", content=data, headers=json_type)
                elif kind == "aborted":
                    body = {"input": texts(64, seed)}
                    await client.post("/v1/embeddings", json=body, timeout=rng.uniform(0.001, 0.2))
                    continue
                elif kind == "wrong":
                    wrong: list[Any] = [{"input": [[-1]]}, {"input": []}, {"q": 1}, [], None, 3]
                    content = json.dumps(rng.choice(wrong))
                    path = rng.choice(["/v1/embeddings", "/search", "/similarity", "/nowhere"])
                    answer = await client.post(path, content=content, headers=json_type)
                else:
                    answer = await client.get(rng.choice(["/health", "/metrics", "/map", "/"]))
            except httpx.TransportError:
                statuses[f"{kind} cut"] += 1
                continue
            seen.setdefault(kind, []).append(time.perf_counter() - began)
            statuses[str(answer.status_code)] += 1
    return statuses


async def load(server: Server, seconds: float, clients: int) -> tuple[Counter[str], list[float]]:
    """Statuses of all answers, and the server's memory over time."""
    until = time.time() + seconds
    seen: dict[str, list[float]] = {}
    memory: list[float] = []

    async def watch() -> None:
        while time.time() < until:
            memory.append(resident(server.process.pid))
            await asyncio.sleep(max(0.5, seconds / 60))

    work = [one_client(server.url, number, until, seen) for number in range(clients)]
    *counts, _ = await asyncio.gather(*work, watch())
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    for kind, times in sorted(seen.items()):
        p50, p95, p99 = np.percentile(np.array(times) * 1000, [50, 95, 99])
        print(f"{kind:>10}  {len(times):6d}  p50 {p50:7.1f}  p95 {p95:7.1f}  p99 {p99:7.1f} ms")
    return total, memory


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1024, help="a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.model, Path(folder))
        try:
            throughput(options.model, server, options.rounds, options.texts)
            statuses, memory = asyncio.run(load(server, options.seconds, options.clients))
            alive = httpx.get(f"{server.url}/health").status_code == 200
        finally:
            server.stop()
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
