"""The command line: one command a file, which parses, calls and prints.

Heavy imports happen inside the commands, so that ``--help`` answers at once.
"""

import os
import sys

from contrasent.errors import LostProcessError, UserError


def main() -> None:
    """Run the command line; a ``UserError`` becomes one line and exit code 2."""
    from contrasent.cli.app import app

    try:
        app()
    except LostProcessError as error:
        _say(f"contrasent: {error}")
        sys.stdout.flush()
        sys.stderr.flush()
        # An orderly end may last for ever: torch waits, with the interpreter's lock in hand, for a
        # thread of the broken group that wants the lock.
        os._exit(2)
    except UserError as error:
        _say(f"contrasent: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("contrasent: interrupted")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _say(line: str) -> None:
    sys.stderr.write(" ".join(line.split("\n")) + "\n")
