"""Reading files in a process of its own, so that no file can hang or kill the run.

The process gets a file's place as a line of JSON and answers with its documents, some at a time. If
a file takes too long or too much memory, the process ends and a new one goes on.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from contrasent.documents.archives import Entry, Reason, Skip
from contrasent.documents.parsers import Part, documents
from contrasent.documents.sections import Document, Section
from contrasent.processes import limit_memory
from contrasent.text.sources import ExpansionError

MEMORY = 1 << 30  # bytes of address space beyond those that the process has when it starts
# Each thread, and each arena of its allocations, counts towards the address space.
_FEW = dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "MALLOC_ARENA_MAX": "2", **_FEW}


class FileReader:
    """Reads files by another process, until it is closed."""

    command = (sys.executable, "-P", "-m", "contrasent.documents.worker")
    seconds = 20.0  # between two answers about one file

    def __init__(self, columns: Sequence[str] | None, most: int, encoding: str = "") -> None:
        self.columns, self.most, self.encoding = columns, most, encoding
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, entry: Entry) -> Iterator[Part]:
        """The documents of a file, some at a time, with facts about the file."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._rest, self._process = (
                b"",
                subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=os.environ | ENVIRONMENT,
                ),
            )
        process = self._process
        assert process.stdin is not None
        order = [asdict(entry), self.columns, self.most, self.encoding]
        with suppress(OSError):  # one that has ended gives no answer
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        ready = False  # for the next file
        try:
            while True:
                answer = self._answer(process)
                ready = "documents" not in answer
                if "skip" in answer:
                    reason, *columns = answer["skip"]
                    raise Skip(Reason(reason), *columns)
                if ready and answer["done"]:
                    return
                yield [_document(**data) for data in answer["documents"]], answer["facts"]
        except (KeyError, TypeError, ValueError, AttributeError):  # not a valid answer
            ready = False
            raise Skip(Reason.ENDED) from None
        finally:
            if not ready:
                self.close()

    def _answer(self, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
        """The next line of the process; it is ended where it gives none in time."""
        assert process.stdout is not None
        stream, parts, late = process.stdout.fileno(), [self._rest], threading.Event()

        def end() -> None:  # Windows cannot wait for a pipe for a limited time
            late.set()
            process.kill()

        timer = threading.Timer(self.seconds, end)
        timer.start()
        try:
            while b"\n" not in parts[-1]:
                if not (some := os.read(stream, 1 << 20)):
                    raise Skip(Reason.TIMED_OUT if late.is_set() else Reason.ENDED)
                parts.append(some)
        finally:
            timer.cancel()
        line, _, self._rest = b"".join(parts).partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # what it has not read may remain to be written
                pass


def _document(sections: list[dict[str, Any]], **data: Any) -> Document:
    found = (Section(tuple(s["headings"]), tuple(s["paragraphs"]), s["page"]) for s in sections)
    return Document(sections=tuple(found), **data)


def _answers(entry: dict[str, Any], *given: Any) -> Iterator[dict[str, Any]]:
    try:
        for part, facts in documents(Entry(**entry), *given):
            yield {"documents": [asdict(document) for document in part], "facts": facts}
        yield {"done": True}
    except Skip as skip:
        yield {"skip": skip.args}
    except ExpansionError:
        yield {"skip": [Reason.EXPANDS]}
    except (PermissionError, FileNotFoundError):  # since it was listed
        yield {"skip": [Reason.UNREADABLE]}
    except (MemoryError, RecursionError):
        yield {"skip": [Reason.MEMORY]}
    except Exception:  # whatever a parser raises for a broken file
        yield {"skip": [Reason.BROKEN]}


def serve() -> None:
    """Answer the orders on standard input until it ends."""
    limit_memory(MEMORY)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin.buffer:
        for answer in _answers(*json.loads(line)):
            out.write(json.dumps(answer).encode() + b"\n")
            out.flush()


if __name__ == "__main__":
    serve()
