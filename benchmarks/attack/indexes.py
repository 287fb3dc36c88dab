"""Damaged indexes: the answer is the right one, or one line says that something is wrong."""

import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from benchmarks.attack.bench import (
    Attempt,
    Bench,
    Process,
    contrasent,
    done,
    hits,
    notes,
    tiny_model,
    warm,
)

QUERIES = ("the gardener mended a wooden ladder", "who sold the copper kettle", "Note 3")


def made_index(home: Path, documents: int = 12) -> tuple[Path, Path]:
    """An index of a folder of notes that was changed once since, and the folder."""
    warm()
    model, source, index = tiny_model(home / "model"), notes(home / "notes", documents), home / "ix"
    done(lambda: contrasent("index", source, "-o", index, "--model", model, "--quiet"))
    (source / "note01.md").write_text("# Changed\n\nThe clerk painted two blue lamps.\n")
    (source / "note02.md").unlink()
    done(lambda: contrasent("index", index, "--sync", "--quiet"))
    return index, source


def search(index: Path) -> Callable[[], None]:
    """A search that prints all that it finds."""
    return lambda: contrasent("search", index, *QUERIES, "-k", 500, "--flat", "--json", "--quiet")


def served(index: Path, bodies: list[bytes], seconds: float = 20.0) -> tuple[Attempt, list[bytes]]:
    """A server of an index, started and ended, and its answers to bodies sent to /search."""
    server, answers = Process(lambda: contrasent("serve", index, "--port", 0, "--quiet")), []
    until = time.monotonic() + seconds
    url = ""
    while not url and not server.ended() and time.monotonic() < until:
        found = re.search(r"http://[\d.]+:\d+", server.output(1))
        url = found[0] if found else ""
        time.sleep(0.01)
    while url and not server.ended() and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            break
        except OSError:
            time.sleep(0.01)
    for body in bodies if url else ():
        request = urllib.request.Request(
            f"{url}/search", body, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                answers.append(answer.read())
        except urllib.error.HTTPError as error:
            answers.append(error.read())
        except OSError as error:
            answers.append(str(error).encode())
    if url and not server.ended():
        server.kill(15)
    return server.result(seconds), answers


def damaged(data: bytes, bench: Bench) -> bytes:
    """Bytes with a bit turned, a stretch overwritten, or the end cut off."""
    draw, at = bench.draw, bench.draw.randrange(max(1, len(data)))
    kind = draw.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + draw.randbytes(16) + data[at + 16 :]
    if kind == 2:
        return data + draw.randbytes(9)
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)] if data else []) + data[at + 1 :]


def damages(bench: Bench) -> None:
    """Every file of an index, damaged ``count`` times each, under four commands."""
    index, source = made_index(bench.home)
    body = json.dumps({"query": QUERIES[0], "k": 5}).encode()
    right = hits(done(search(index)).out)
    answered = hits(served(index, [body])[1][0])
    for path in sorted(path for path in index.rglob("*") if path.is_file()):
        name = path.relative_to(index)
        for number in bench.numbers():
            label, copy = f"{name}, damage {number}", bench.home / "copy"
            shutil.copytree(index, copy)
            (copy / name).write_bytes(damaged(path.read_bytes(), bench))
            found = bench.judge(f"{label}: search", Process(search(copy)).result())
            if found.status == 0 and hits(found.out) != right:
                bench.fail("wrong answer", label, found.out)
            bench.command(label, "doctor", copy)
            attempt, answers = served(copy, [body])
            bench.judge(f"{label}: serve", attempt, stopped=True)
            if answers and b"results" in answers[0] and hits(answers[0]) != answered:
                bench.fail("wrong answer", f"{label}: serve", answers[0].decode())
            bench.command(label, "index", copy, source, "--sync", "--quiet")
            shutil.rmtree(copy)


CASES = {"damages": (damages, 30)}
