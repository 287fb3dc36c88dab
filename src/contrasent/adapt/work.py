"""The state of an adaptation on disk, so that a killed one goes on where it was.

Each stage writes its result, by one rename, when it is complete; a stage that is there is not done
again. The configuration of the run is stored with them, and a run with another is an error.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.candidates import encode_all
from contrasent.errors import OutputError
from contrasent.files import atomic_file, write_json
from contrasent.types import EncodeFn, Vectors


class Work:
    """The folder of one adaptation's stages."""

    def __init__(self, folder: Path, config: dict[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self.earlier = 0.0
        self._began = time.monotonic()
        self._config = folder / "config.json"
        if self._config.is_file():
            if not resume:
                raise OutputError(
                    f"{folder.parent}: holds an adaptation that was not finished; --resume goes on "
                    "with it, --overwrite begins anew"
                )
            before = json.loads(self._config.read_text("utf-8"))
            config = json.loads(json.dumps(config))
            changed = sorted(
                k for k in {*before, *config} if k != "seconds" and before.get(k) != config.get(k)
            )
            if changed:
                name = changed[0]
                raise OutputError(
                    f"{folder.parent}: was begun with {name} {before.get(name)!r}, not "
                    f"{config.get(name)!r}; give the same, or --overwrite begins anew"
                )
            self.earlier = float(self.stage_seconds())
        else:
            write_json(self._config, config)

    def seconds(self) -> float:
        """Seconds of computing so far, earlier parts of the run included."""
        return self.earlier + time.monotonic() - self._began

    def stage_seconds(self) -> float:
        """When the last complete stage ended, in seconds of computing."""
        clocks = [
            float(json.loads(path.read_text("utf-8"))["seconds"])
            for path in self.folder.glob("*.stage.json")
        ]
        return max(clocks, default=0.0)

    def stage(self, name: str, make: Callable[[], Any]) -> Any:
        """The JSON result of a stage, made now if it is not there."""
        path = self.folder / f"{name}.stage.json"
        if path.is_file():
            return json.loads(path.read_text("utf-8"))["result"]
        result = make()
        write_json(path, {"seconds": self.seconds(), "result": result})
        return json.loads(json.dumps(result))

    def vectors(self, name: str, make: Callable[[], Vectors]) -> Vectors:
        """(n, d) vectors of a stage, made now if they are not there."""
        path = self.folder / f"{name}.npy"
        if not path.is_file():
            made = make()
            with atomic_file(path, "wb") as stream:
                np.save(stream, made, allow_pickle=False)
        loaded: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        return loaded

    def encode(self, name: str, encode: EncodeFn, texts: Sequence[str]) -> Vectors:
        """(n, d) vectors of texts, kept block by block with progress: a kill loses the last one."""
        numbers = count()

        def kept(block: Sequence[str]) -> Vectors:
            return self._block(f"{name}.block{next(numbers)}", encode, block)

        vectors = self.vectors(name, lambda: encode_all(kept, texts))
        for path in self.folder.glob(f"{name}.block*.npy"):
            path.unlink()
        return vectors

    def _block(self, name: str, encode: EncodeFn, texts: Sequence[str]) -> Vectors:
        began = self.seconds()
        vectors = self.vectors(name, lambda: encode(texts))
        self.stage(name, lambda: self.seconds() - began)
        return vectors

    def encoding_seconds(self, name: str) -> float:
        """Seconds that :meth:`encode` took, those of a killed run included."""
        paths = self.folder.glob(f"{name}.block*.stage.json")
        return sum(float(json.loads(path.read_text("utf-8"))["result"]) for path in paths)

    def discard(self) -> None:
        """Delete the folder: the run is complete, or was never begun."""
        discard(self.folder)


def discard(folder: Path) -> None:
    """Delete a folder of work; renamed first, so that a kill leaves all of it or no run."""
    aside = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
