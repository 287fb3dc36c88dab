"""Finding methods by name: the files of ``objectives/``, files and modules of others. No torch.

A name is that of a file in ``objectives/``; ``path/to/file.py``, with ``:Class`` if the file has
several; ``package.module:Class``; one that an installed package declares in the entry-point group
``contrasent.objectives``; or several of these joined by "+". Parameters, defaults and attributes
are read from the source text, so that a command line is checked before anything heavy is loaded.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.engine.parameters import (
    GuideName,
    MaskedModelName,
    Parameter,
    Plain,
    check_guide,
    check_masked_model,
    check_values,
)
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
    from contrasent.model.encoder import Encoder

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
        """Its parameters by name.

        Raises:
            OptionError: one of them cannot be read.
        """
        found: dict[str, Parameter] = self._read(self.source.parameters)
        return found

    def attribute(self, name: str, default: Any) -> Any:
        """A literal that the class says of itself.

        Args:
            name: of the attribute.
            default: if it says nothing.

        Returns:
            Its value, or the default.

        Raises:
            OptionError: it is no literal.
        """
        return self._read(lambda: self.source.attribute(name, default))

    @property
    def digest(self) -> dict[str, str]:
        """Of a file that is not this library's, what stands for its content; else nothing."""
        return source_digest(self.source.file)

    def load(self) -> "type[Objective]":
        """The class itself.

        Raises:
            OptionError: its file cannot be run.
        """
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


def methods(name: str) -> list[Method]:
    """The methods that a name joins by "+", such as "esimcse+simcse_plus_plus".

    Args:
        name: see the module.

    Raises:
        OptionError: one of them does not exist, cannot be read, or is named twice.
    """
    found = [_locate(part.strip()) for part in name.split("+")]
    for method in found:
        if sum(other.source == method.source for other in found) > 1:
            raise OptionError(OPTION, name, f"names {method.name} twice")
    return found


def parameters(name: str) -> dict[str, Parameter]:
    """The parameters of a method, read from its source.

    Of a combination, the parameters of all its methods; where two have the same, the first says
    its type and default, unless its default is ``Plain`` and another's is not. Those of one name
    and different types are different things: each keeps its default, a stated value is for both.

    Raises:
        OptionError: no such method; the nearest name is suggested.
    """
    shared: dict[str, Parameter] = {}
    for method in methods(name):
        for key, parameter in method.parameters.items():
            if key not in shared or shared[key].mark(Plain) == Plain(shared[key].default):
                shared[key] = parameter
    return shared


def published(name: str) -> dict[str, Any]:
    """The settings of a run that a method was published with, read from its source.

    Of a combination, those of the first method whose settings are not plain SimCSE's: a learning
    rate belongs to its batch, so they stay together. Cached gradients are left out there, since
    the other methods may not allow them.

    Raises:
        OptionError: no such method; the nearest name is suggested.
    """
    sets = [dict(method.attribute("published", {})) for method in methods(name)]
    if len(sets) == 1:
        return sets[0]
    sets = [found for found in sets if found]
    departing = [found for found in sets if found != published("simcse")]
    chosen = next(iter(departing or sets), {})
    return {key: value for key, value in chosen.items() if key != "grad_cache_rows"}


def needs_pairs(name: str) -> bool:
    """Whether a method, or one of a combination, learns from pairs that belong together.

    Raises:
        OptionError: no such method; the nearest name is suggested.
    """
    return any(method.attribute("labelled", False) for method in methods(name))


def needs_scores(name: str) -> bool:
    """Whether a method, or one of a combination, learns from scores of pairs.

    Raises:
        OptionError: no such method; the nearest name is suggested.
    """
    return any(method.attribute("graded", False) for method in methods(name))


def described(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Name and all parameters, as logs and model cards show them.

    Args:
        name: of a method.
        given: the parameters that are set; the others have their defaults.

    Returns:
        "name", digests of files that are not this library's, and all parameters.

    Raises:
        OptionError: no such method.
    """
    found = methods(name)
    digests = {k: v for method in found for k, v in method.digest.items()}
    if len(found) > 1:
        digests = {f"{k} of {method.name}": v for method in found for k, v in method.digest.items()}
    defaults = {key: parameter.default for key, parameter in parameters(name).items()}
    return {"name": "+".join(m.name for m in found), **digests, **defaults, **given}


def check_agreement(name: str, given: Iterable[str]) -> None:
    """Refuse a combination whose methods by default do different things in the same place.

    Args:
        name: of the combination.
        given: the parameters that are set, which settles them.

    Raises:
        OptionError: a parameter has to be set.
    """
    departing: dict[str, set[str]] = {}
    for method in methods(name):
        for key, parameter in method.parameters.items():
            plain = parameter.mark(Plain)
            if plain is not None and parameter.default != plain.value:
                departing.setdefault(key, set()).add(str(parameter.default))
    for key, defaults in departing.items():
        if len(defaults) > 1 and key not in given:
            problem = f"its methods differ in {key} ({' and '.join(sorted(defaults))}); set {key}"
            raise OptionError(OPTION, name, problem)


def check(
    name: str, given: Mapping[str, Any], *, base: Path | None = None, models: bool = True
) -> None:
    """Refuse parameters of a method before any weights are loaded.

    Args:
        name: of the method.
        given: the parameters that were set.
        base: folder of the encoder, to compare the vocabulary of masked language models with.
        models: look for the masked language models that parameters name.

    Raises:
        OptionError: a value out of range, or one that does not belong with the others.
        ModelError: a model that a parameter names is missing, or has another vocabulary.
    """
    check_agreement(name, given)
    for method in methods(name):
        own = _values(method, name, given)
        check_values(method.parameters.values(), own)
        for rule in method.attribute("checks", ()):
            rule(own)
        for key, parameter in method.parameters.items():
            if models and own[key] and parameter.mark(MaskedModelName):
                check_masked_model(key, own[key], base)
            if models and parameter.mark(GuideName) is not None:
                check_guide(key, own[key])


def find(name: str) -> "Callable[..., Objective]":
    """The class of a method, or what makes a combination of several.

    Call it with an encoder and keyword parameters.

    Raises:
        OptionError: no such method, with the nearest name, or one that cannot be imported.
    """
    found = methods(name)
    if len(found) > 1:
        return partial(_combine, name)
    return found[0].load()


def _combine(name: str, encoder: "Encoder", **given: Any) -> "Objective":
    from contrasent.engine.combination import Combination

    known = parameters(name)
    for option in given:
        if option not in known:
            problem = f"no such parameter of {name}"
            raise OptionError("parameter", option, problem, choices=known)
    check_agreement(name, given)
    parts = [method.load()(encoder, **_values(method, name, given)) for method in methods(name)]
    return Combination(encoder, parts, described(name, given))


def _values(method: Method, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a method that is part of a name: stated, shared, or its own defaults."""
    shared = parameters(name)
    return {
        key: given.get(key, shared[key].default if shared[key].hint == own.hint else own.default)
        for key, own in method.parameters.items()
    }


def _locate(name: str) -> Method:
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
