"""Runs hostile input in forks with limits, and judges what came of it."""

import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

HANG = 20.0
"""Seconds after which a command that answers one hostile input hangs."""
DOCUMENT_MEMORY = 1 << 30
"""Bytes that a document may take, beyond those of a process that has read nothing."""
REQUEST_MEMORY = 500 << 20
"""Bytes by which a request of 1 MB may let the server grow."""
SHOWN = 800
"""Characters of an output that are kept with a failure."""
# Control characters but tab and line ends, and those that turn the direction of text.
_ESCAPES = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Attempt:
    """What a process left behind."""

    status: int  # negative: the signal that ended it
    out: str
    err: str
    seconds: float
    memory: int  # bytes at its peak, beyond those of this process
    hung: bool = False

    def fault(self, memory: int, stopped: bool) -> str:
        """The first thing that is wrong with it in general, or "".

        ``stopped``: it was ended by SIGTERM.
        """
        text = self.out + self.err
        if self.hung:
            return "hang"
        if "Traceback (most recent call last)" in text or "Fatal Python error" in text:
            return "traceback"
        if self.status not in (0, 1, 2, *[-signal.SIGTERM] * stopped):
            return "crash"
        if _ESCAPES.search(text):
            return "escape"
        return "memory" if self.memory > memory else ""


@dataclass
class Bench:
    """One case at work: where, how often, and what has failed."""

    name: str
    home: Path
    count: int
    seconds: float
    tried: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)
    slowest: float = 0.0
    peak: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.name)
        self._ends = time.monotonic() + self.seconds

    def numbers(self, count: int | None = None) -> Iterator[int]:
        """Numbers of inputs to try, as long as there is time."""
        for number in range(self.count if count is None else count):
            if time.monotonic() > self._ends:
                return
            self.tried += 1
            yield number

    def fail(self, kind: str, label: str, detail: str = "") -> None:
        """Count a failure; the label says how to make it again."""
        self.failures.append({"kind": kind, "input": label, "detail": detail[-2 * SHOWN :]})
        print(f"  {self.name}: {kind}: {label}", file=sys.stderr, flush=True)

    def command(
        self,
        label: str,
        *arguments: object,
        seconds: float = HANG,
        memory: int = DOCUMENT_MEMORY,
        stdin: bytes = b"",
    ) -> Attempt:
        """Run a command of contrasent and judge it."""
        process = Process(lambda: contrasent(*arguments), stdin=stdin)
        return self.judge(f"{label}: {arguments[0]}", process.result(seconds), memory)

    def call(
        self,
        label: str,
        function: Callable[[], object],
        *,
        seconds: float = HANG,
        memory: int = DOCUMENT_MEMORY,
    ) -> Attempt:
        """Call a function in a process of its own and judge it."""
        return self.judge(label, Process(function).result(seconds), memory)

    def judge(
        self,
        label: str,
        attempt: Attempt,
        memory: int = DOCUMENT_MEMORY,
        *,
        stopped: bool = False,
    ) -> Attempt:
        """Count what is wrong with an attempt; an error must be one line."""
        self.slowest = max(self.slowest, attempt.seconds)
        self.peak = max(self.peak, attempt.memory)
        kind = attempt.fault(memory, stopped)
        if not kind and attempt.status == 2 and "\n" in attempt.err.strip():
            kind = "more than a line"
        if kind:
            detail = (attempt.out + attempt.err).strip()
            self.fail(kind, label, f"status {attempt.status}: {detail[-SHOWN:]}")
        return attempt

    def row(self) -> dict[str, Any]:
        """The case for the table."""
        kept = {"case": self.name, "count": self.count, "tried": self.tried}
        return kept | {
            "failed": len(self.failures),
            "slowest_seconds": round(self.slowest, 2),
            "peak_mb": self.peak >> 20,
            "failures": self.failures,
        }


class Process:
    """A function that runs in a fork of this process, in a group of its own."""

    def __init__(self, function: Callable[[], object], *, stdin: bytes = b"") -> None:
        self._base, self._began = resident(), time.monotonic()
        self.files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115
        self.files[0].write(stdin)
        self.files[0].seek(0)
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            for number, file in enumerate(self.files):
                os.dup2(file.fileno(), number)
            _run(function)
        self.usage: resource.struct_rusage | None = None
        self.status = 0

    def ended(self) -> bool:
        """Whether it has ended."""
        if self.usage is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.usage, self.status = usage, os.waitstatus_to_exitcode(status)
        return self.usage is not None

    def output(self, number: int = 1) -> str:
        """What it has written so far; 1 is its standard output, 2 its errors."""
        size = os.fstat(self.files[number].fileno()).st_size
        return os.pread(self.files[number].fileno(), size, 0).decode("utf-8", "replace")

    def wait(self, seconds: float) -> bool:
        """Whether it ends in time."""
        until = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < until:
            time.sleep(0.005)
        return self.ended()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to it and to what it started."""
        if not self.ended():
            os.killpg(self.pid, number)

    def result(self, seconds: float = HANG) -> Attempt:
        """What it left behind, ended by force if it takes too long for the load of the machine."""
        ends = time.monotonic() + seconds
        while not (over := self.wait(1)) and time.monotonic() < ends + seconds * (load() - 1):
            pass
        hung = not over
        if hung:
            self.kill()
            self.wait(HANG)
        taken, out, err = time.monotonic() - self._began, self.output(1), self.output(2)
        for file in self.files:
            file.close()
        most = self.usage.ru_maxrss << 10 if self.usage else 0
        return Attempt(self.status, out, err, taken, max(0, most - self._base), hung)


def _run(function: Callable[[], object]) -> NoReturn:
    """The whole life of a fork."""
    status = 70  # a status that no command has
    try:
        function()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def contrasent(*arguments: object) -> None:
    """Run a command in this process."""
    from contrasent.cli import main

    sys.argv = ["contrasent", *map(str, arguments)]
    main()


def warm() -> None:
    """Import what commands import, so that each fork need not."""
    import torch
    import uvicorn  # noqa: F401

    import contrasent.cli.app
    import contrasent.encoder.encoder
    import contrasent.indexing.following
    import contrasent.model.numpy_model
    import contrasent.search.doctor
    import contrasent.search.index
    import contrasent.serve.app  # noqa: F401

    torch.set_num_threads(1)


def load() -> float:
    """How many processes want each processor; 1 at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds."""
    pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    return int(pages) * resource.getpagesize()


def done(function: Callable[[], object], seconds: float = 600) -> Attempt:
    """Prepare something in a process of its own; it must succeed."""
    attempt = Process(function).result(seconds)
    if attempt.status or attempt.hung:
        raise RuntimeError(f"the preparation failed: {attempt.out}{attempt.err}")
    return attempt


def tiny_model(folder: Path) -> Path:
    """A model with random weights, by the tests' own makers."""

    def make() -> None:
        from contrasent.encoder.encoder import TorchEncoder
        from tiny_models import write_backbone, write_tokenizer

        bare = folder.with_name(f"{folder.name}-bare")
        write_backbone("bert", bare, write_tokenizer("bert", bare))
        TorchEncoder.load(bare, pooling="mean", normalize=True).save(folder)

    done(make)
    return folder


def notes(folder: Path, count: int = 12) -> Path:
    """A folder of short documents."""
    from tiny_models import made_sentences

    folder.mkdir(parents=True, exist_ok=True)
    rows = made_sentences()
    for number in range(count):
        text = "\n\n".join(rows[number * 8 : number * 8 + 8])
        (folder / f"note{number:02}.md").write_text(f"# Note {number}\n\n{text}\n")
    return folder


def hits(text: str | bytes) -> Any:
    """The ids, texts and scores in the JSON of a search; the text itself if it is no such JSON."""
    try:
        results = json.loads(text)["results"]
        return [[(hit["id"], hit["text"], hit["score"]) for hit in r["hits"]] for r in results]
    except (ValueError, KeyError, TypeError):
        return text


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of cases as a table of Markdown."""
    lines = [
        "| case | tried | failed | slowest, s | most memory, MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        short = f" of {row['count']:,}" if row["tried"] < row["count"] else ""
        lines.append(
            f"| {row['case']} | {row['tried']:,}{short} | {row['failed']} | "
            f"{row['slowest_seconds']:.1f} | {row['peak_mb']:,} |"
        )
    return "\n".join(lines)


def failure_row(name: str, count: int, text: str) -> dict[str, Any]:
    """The row of a case that itself broke."""
    bench = Bench(name, Path(), count, 0)
    bench.fail("broken bench", name, text)
    return bench.row()
