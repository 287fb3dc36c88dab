"""The state of an adaptation on disk, so that a killed one resumes where it was.

Each stage writes its result, by one rename, when it is complete, and is then not run again. The
configuration of the run is stored with the results; a run with another one is an error.
"""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import OutputError
from contrasent.files import atomic_file, remove, write_json
from contrasent.types import Vectors


class Work:
    """The folder of one adaptation's stages."""

    def __init__(self, folder: Path, config: dict[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self._began, self._earlier = time.monotonic(), 0.0
        path = folder / "config.json"
        if not path.is_file():
            write_json(path, config)
            return
        before, config = json.loads(path.read_text("utf-8")), json.loads(json.dumps(config))
        if not resume or before.get("update") != config.get("update"):
            goes_on = "--update" if before.get("update") else "--resume"
            again = "" if config.get("update") else ", --overwrite starts again"
            raise OutputError(
                f"{folder.parent}: contains an unfinished adaptation; {goes_on} continues it{again}"
            )
        changed = sorted(k for k in {*before, *config} if before.get(k) != config.get(k))
        if changed:
            name = changed[0]
            again = "" if config.get("update") else ", or --overwrite starts again"
            raise OutputError(
                f"{folder.parent}: was started with {name} {before.get(name)!r}, not "
                f"{config.get(name)!r}; give the same{again}"
            )
        clocks = (json.loads(clock.read_text("utf-8")) for clock in folder.glob("*.stage.json"))
        self._earlier = max((float(clock["seconds"]) for clock in clocks), default=0.0)

    def seconds(self) -> float:
        """Seconds of computing so far, with earlier parts of the run up to their last stage."""
        return self._earlier + time.monotonic() - self._began

    def stage(self, name: str, make: Callable[[], Any]) -> Any:
        """The JSON result of a stage, computed if it is not stored."""
        path = self.folder / f"{name}.stage.json"
        if path.is_file():
            return json.loads(path.read_text("utf-8"))["result"]
        result = make()
        write_json(path, {"seconds": self.seconds(), "result": result})
        return json.loads(json.dumps(result))

    def vectors(self, name: str, make: Callable[[], Vectors]) -> Vectors:
        """The array of a stage, computed if it is not stored."""
        path = self.folder / f"{name}.npy"
        if not path.is_file():
            array = make()
            with atomic_file(path, "wb") as stream:
                np.save(stream, array, allow_pickle=False)
        loaded: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        return loaded

    def forget(self, *prefixes: str) -> None:
        """Delete the results of the stages whose names begin with a prefix."""
        for path in self.folder.iterdir():
            if path.name.startswith(prefixes):
                remove(path)

    def discard(self) -> None:
        """Delete the folder; renamed first, so that a kill leaves all of it or no run."""
        aside = self.folder.with_name(f".{self.folder.name}.contrasent-old")
        shutil.rmtree(aside, ignore_errors=True)
        self.folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
