"""Reading files in a process of its own, so that no file can hang or kill the run.

The process gets a file's place as a line of JSON and answers with lines: its documents, what is to
be reported, and the end. If a file takes too long or too much memory, or leaves memory in
use, a new process continues.
"""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from contrasent.documents.archives import Entry, Reason, Skip, may_pass
from contrasent.documents.parsers import documents
from contrasent.documents.sections import Document, Section
from contrasent.processes import address_space, limit_memory
from contrasent.text.sources import ExpansionError

MEMORY = 1 << 30  # bytes of address space beyond those that the process has when it starts
# Each thread, and each arena of its allocations, counts towards the address space.
_FEW = dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "MALLOC_ARENA_MAX": "2", **_FEW}
BLOCK = 1 << 16  # bytes of answers that are written together


class FileReader:
    """Reads files by another process, until it is closed."""

    command = (sys.executable, "-P", "-m", "contrasent.documents.worker")
    seconds = 20.0  # between two answers about one file

    def __init__(self, columns: Sequence[str] | None, most: int, encoding: str = "") -> None:
        self.columns, self.most, self.encoding = columns, most, encoding
        self._process: subprocess.Popen[bytes] | None = None
        self._due = math.inf  # when the process must have answered

    def read(self, entry: Entry) -> Iterator[tuple[Any, ...]]:
        """What a file holds: ("document", document), and what ``Tell`` reports."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | ENVIRONMENT,
            )
            threading.Thread(target=self._watch, args=[self._process], daemon=True).start()
        process, ready = self._process, False  # for the next file
        assert process.stdin is not None
        assert process.stdout is not None
        order = [asdict(entry), self.columns, self.most, self.encoding]
        with suppress(OSError):  # one that has ended gives no answer
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        try:
            while True:
                self._due = time.monotonic() + self.seconds
                line = process.stdout.readline()
                late, self._due = time.monotonic() > self._due, math.inf
                if not line.endswith(b"\n"):
                    raise Skip(Reason.TIMED_OUT if late else Reason.ENDED)
                kind, *values = json.loads(line)
                if kind == "end":
                    ready, *reason = values
                    if reason:
                        raise Skip(Reason(reason[0]), *reason[1:])
                    return
                yield (kind, _document(*values)) if kind == "document" else (kind, *values)
        finally:
            if not ready:
                self.close()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        """End a process that gives no answer in time; Windows cannot wait for a pipe so long."""
        while process.poll() is None:
            if time.monotonic() > self._due:
                process.kill()
            time.sleep(0.1)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # what it has not read may remain to be written
                pass


def _document(data: dict[str, Any]) -> Document:
    sections = (
        Section(tuple(one["headings"]), tuple(one["paragraphs"]), one["page"])
        for one in data.pop("sections")
    )
    return Document(sections=tuple(sections), **data)


def serve() -> None:
    """Answer the orders on standard input until it ends."""
    limit_memory(MEMORY)
    start = address_space()
    out = os.fdopen(os.dup(1), "wb", BLOCK)
    os.dup2(2, 1)  # what a library prints is not an answer

    def answer(kind: str, *values: Any) -> None:
        out.write(json.dumps([kind, *values]).encode() + b"\n")
        if kind in ("alive", "end"):
            out.flush()

    for line in sys.stdin.buffer:
        entry, *given = json.loads(line)
        reason = _read(Entry(**entry), given, answer)
        # What one file leaves in memory would be lacking for the next; the libraries of all parsers
        # take half of it.
        ready = Reason.MEMORY not in reason and address_space() < start + MEMORY * 3 // 4
        answer("end", ready, *reason)


def _read(entry: Entry, given: Sequence[Any], answer: Any) -> Sequence[Any]:
    """Answer with the documents of a file; why it, or its rest, is skipped."""
    columns, most, encoding = given
    try:
        for document in documents(entry, columns, most, encoding, answer):
            answer("document", asdict(document))
    except Skip as skip:
        return skip.args
    except ExpansionError:
        return [Reason.EXPANDS]
    except (MemoryError, RecursionError):
        return [Reason.MEMORY]
    except Exception as error:  # whatever a parser raises for a broken file
        return [Reason.UNREADABLE if may_pass(error) else Reason.BROKEN]
    return []


if __name__ == "__main__":
    serve()
