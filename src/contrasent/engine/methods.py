"""One method: where it stands, what its source text says of it, and how it is loaded. No torch.

A name is that of a file in ``objectives/``; ``path/to/file.py``, with ``:Class`` if the file has
several; ``package.module:Class``; or one that an installed package declares in the entry-point
group ``contrasent.objectives``. Parameters, defaults and attributes are read from the source text,
so that a command line is checked before anything heavy is loaded.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.engine.parameters import Parameter
from contrasent.engine.source import (
    HOME,
    ClassSource,
    SourceError,
    classes,
    module_file,
    source_digest,
)
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.engine.objective import Objective

BUILT_IN = HOME / "objectives"
BASE = HOME / "engine" / "objective.py"
GROUP = "contrasent.objectives"
OPTION = "--objective"


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Attributes:
        name: as logs and cards have it: without folders, whatever was written.
        source: its class, as the file has it.
        module: to import it from; None for a file, which is run by itself.
    """

    name: str
    source: ClassSource
    module: str | None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Its parameters by name."""
        found: dict[str, Parameter] = self._read(self.source.parameters)
        return found

    def attribute(self, name: str, default: Any) -> Any:
        """A literal that the class says of itself."""
        return self._read(lambda: self.source.attribute(name, default))

    @property
    def digest(self) -> dict[str, str]:
        """Of a file that is not this library's, what stands for its content; else nothing."""
        return source_digest(self.source.file)

    def load(self) -> "type[Objective]":
        """The class itself."""
        name, module = self.source.node.name, self.module
        if module is None:
            digest = hashlib.sha256(self.source.file.read_bytes()).hexdigest()[:12]
            module = f"contrasent_method_{self.source.file.stem}_{digest}"
        try:
            if self.module is None and module not in sys.modules:
                _run_file(self.source.file, module)
            kind: type[Objective] = getattr(import_module(module), name)
        except Exception as error:  # whatever a file of others raises while it is run
            problem = f"cannot be imported ({type(error).__name__}: {error})"
            raise OptionError(OPTION, self.name, problem.replace("\n", " ")) from error
        kind.method_name = self.name
        return kind

    def _read(self, value: Callable[[], Any]) -> Any:
        try:
            return value()
        except SourceError as error:
            raise OptionError(OPTION, self.name, str(error)) from error


def names() -> list[str]:
    """Names of all methods that are installed, sorted."""
    built_in = [path.stem for path in BUILT_IN.glob("[!_]*.py")]
    return sorted({*built_in, *(point.name for point in entry_points(group=GROUP))})


def locate(name: str) -> Method:
    """The method of a name."""
    if name.isidentifier() and not name.startswith("_") and (BUILT_IN / f"{name}.py").is_file():
        return _built_in(name)
    head, colon, kind = name.rpartition(":") if ".py:" in name else (name, "", "")
    if head.endswith(".py"):
        file = Path(head).expanduser().resolve()
        return _method(name, None, file, kind if colon else None, None)
    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None and ":" in name:
        point = EntryPoint(name, name, GROUP)
    if point is None:
        raise OptionError(OPTION, name, "no such objective", choices=names())
    if str(Path.cwd()) not in sys.path and not point.dist:
        sys.path.append(str(Path.cwd()))  # as ``python -m`` finds the modules beside it
    located = module_file(point.module, BASE)
    if located is None:
        raise OptionError(OPTION, name, f"there is no module {point.module!r} with a source file")
    return _method(name, name, located, point.attr, point.module)


@lru_cache
def _built_in(name: str) -> Method:
    return _method(name, name, BUILT_IN / f"{name}.py", None, f"contrasent.objectives.{name}")


def _method(
    said: str, name: str | None, file: Path, kind: str | None, module: str | None
) -> Method:
    """A method in a file; its name is the file's, and the class's where there are several."""
    try:
        found = [c for c in classes(file) if c.derives_from(BASE, "Objective")]
    except OSError as error:
        raise OptionError(OPTION, said, f"cannot be read ({error.strerror})") from error
    except SourceError as error:
        raise OptionError(OPTION, said, str(error)) from error
    public = [c for c in found if not c.node.name.startswith("_")]
    chosen = [c for c in (found if kind else public) if kind in (None, c.node.name)]
    if len(chosen) != 1:
        known = [c.node.name for c in public]
        wanted = f"has no Objective {kind!r}" if kind else f"defines {len(known)} Objectives"
        problem = f"{wanted}; name one as {file.name}:Class" if known else "defines no Objective"
        raise OptionError(OPTION, said, problem, choices=known)
    if name is None:
        name = file.name if len(public) == 1 else f"{file.name}:{chosen[0].node.name}"
    return Method(name, chosen[0], module)


def _run_file(file: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
