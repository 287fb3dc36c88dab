"""A model of three dimensions that workers can open, and that ends its process where it is told."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contrasent.encoding.job import Opened


def vectors(texts):
    """A vector that says which text it is of."""
    found = [[len(t), int(t.split()[1]), 1 / (1 + int(t.split()[1]))] for t in texts]
    return np.array(found, np.float32)


@dataclass(frozen=True)
class Numbers:
    """Opens that model.

    Attributes:
        fatal: a text at which the process ends, as ``how`` says: "exit", "kill" or "always".
        home: a folder in which a file says that it has happened.
        pause: seconds a call.
    """

    fatal: str = ""
    how: str = ""
    home: str = ""
    pause: float = 0.0
    identity: str = "numbers"

    def __call__(self):
        return Opened(self.encode, self.identity, 3, lambda: 0, {"model": self.identity})

    def encode(self, texts):
        if self.home:
            with Path(self.home, "log").open("a") as log:
                log.write(f"{os.getpid()} {texts[0]}\n")
        if self.fatal in texts:
            happened = Path(self.home, "happened")
            if self.how == "always" or not happened.exists():
                happened.touch()
                if self.how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                os._exit(3)
        time.sleep(self.pause)
        return vectors(texts)
