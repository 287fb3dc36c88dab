"""Work that is killed at chosen instants, each run a fork of one process that imported all.

Used by scripts that tests start as ``python SCRIPT BASE HOME``; they print JSON.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch

from contrasent import pictures
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings


class Instants:
    """Counts the instants at which a kill could matter, and kills at one of them."""

    def __init__(self, kill_at):
        self.kill_at, self.count = kill_at, 0

    def __call__(self):
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner, name):
        """Before and after a function."""
        function = getattr(owner, name)

        def counted(*args, **kwargs):
            self()
            result = function(*args, **kwargs)
            self()
            return result

        setattr(owner, name, counted)


def fork(function, places, *, kill_at=None, watch=None):
    """Call a function in a fork that may be killed around ``places``, functions of owners."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        instants = Instants(kill_at)
        for owner, name in places:
            instants.around(owner, name)
        if watch is not None:
            watch(instants)
        function()
        Path(sys.argv[2], "count").write_text(str(instants.count))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def passed():
    """How many instants the last whole run passed."""
    return int(Path(sys.argv[2], "count").read_text())


def prepared():
    """(base, home) of the command line; imports what a run does, but for the backward pass."""
    base, home = map(Path, sys.argv[1:3])
    torch.set_num_threads(1)
    os.fsync = lambda handle: None  # a kill loses nothing that the kernel has; this is for speed
    # Each fork would import matplotlib and draw, which takes longer than its run.
    pictures.panels = lambda curves: f"<svg><!-- {json.dumps(curves)} --></svg>"
    prepare(base, "esimcse", {}, Settings()).encoder.encode(["a map"])
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.AdamW([weight], fused=True).step()
    return base, home
