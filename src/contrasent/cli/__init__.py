"""The command line: one command per file, which parses, calls and prints.

Heavy imports happen inside the commands, so that ``--help`` answers at once.
"""

import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from contrasent.errors import TRAINING, LostProcessError, UserError, brief, install, see
from contrasent.progress import printable

OUT_OF_MEMORY = re.compile("(?i)out of memory|can't allocate memory")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a ``UserError`` becomes one line and exit code 2.

    Args:
        arguments: words after the program's name; those of the process if None.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    _prepare_streams()
    try:
        from contrasent.cli.app import run

        code = run(words)
        if code == 130:  # after Ctrl-C
            _end(code)
        sys.exit(code)
    except UserError as error:
        _say(f"contrasent: {error}")
        if isinstance(error, LostProcessError):
            _end(2)
        sys.exit(2)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in TRAINING:
            raise
        _say(f"contrasent: this needs {error.name}: {install('train')}")
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        # RuntimeError: torch's; its own class of it is for accelerators alone.
        if not isinstance(error, MemoryError) and not OUT_OF_MEMORY.search(str(error)):
            raise
        _say(f"contrasent: out of memory ({brief(error)}){see('out-of-memory')}")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("contrasent: interrupted")
        _end(130)
    except OSError as error:
        sys.exit(_unwritten(error))


def _prepare_streams() -> None:
    # Those that are closed, as for a daemon; another file would get their number.
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):  # not every locale has the letters of every text
        sys.stdout.reconfigure(errors="backslashreplace")


def _unwritten(error: OSError) -> int:
    """Say what could not be read or written; errors that are not about files stay what they are."""
    if error.filename is None:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EPIPE):
            raise error
        # What is left for standard output goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return 141
    _say(f"contrasent: {error.filename or 'standard output'}: {error.strerror or error}")
    return 2


def _end(code: int) -> None:
    """End at once.

    An orderly end takes seconds with torch loaded, and with a broken process group may last
    forever: torch holds the interpreter's lock while it waits for a thread that wants that lock.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _say(line: str) -> None:
    sys.stderr.write(printable(" ".join(line.split("\n"))) + "\n")
