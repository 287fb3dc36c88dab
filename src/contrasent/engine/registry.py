"""Methods by name, alone or joined by "+": their classes and validated parameters.

A name is a file's in objectives/, path/to/file.py[:Class], package.module:Class, or an entry
point of the group ``contrasent.objectives``. It is looked up without torch.
"""

import hashlib
import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from contrasent.elsewhere import OBJECTIVES
from contrasent.engine.parameters import (
    GuideName,
    MaskedModelName,
    Neutral,
    Parameter,
    check_values,
    parameters_of,
    source_digest,
)
from contrasent.errors import MissingExtraError, OptionError
from contrasent.files import read_object

if TYPE_CHECKING:
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.engine.objective import Objective

GROUP = "contrasent.objectives"
OPTION = "--objective"
METHODS = {
    file.name.removesuffix(".py"): file.read_text("utf-8").split('"""')[1].partition("\n")[0]
    for file in sorted(files("contrasent.objectives").iterdir(), key=lambda file: file.name)
    if file.name.endswith(".py") and not file.name.startswith("_")
}
"""The methods in ``objectives/``, and the first line of each module's docstring."""

SHAPE = ("model_type", "num_hidden_layers", "hidden_size")
RECIPE_ONLY = ("generator", "eval_steps")
"""Settings of a recipe that do not come with a base: it has a generator by name only."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method: its name in logs and cards, which has no folders, its class and its parameters."""

    name: str
    kind: "type[Objective]"
    parameters: Mapping[str, Parameter]


def summaries() -> dict[str, str]:
    """A line on each method that is installed, read without importing it."""
    points = {p.name: f"from {p.dist.name}" if p.dist else "" for p in entry_points(group=GROUP)}
    return points | METHODS


def parts(name: str) -> list[str]:
    """The parts of a name joined by "+", such as "esimcse+simcse_plus_plus"."""
    return [part.strip() for part in name.replace("simcse++", "simcse_plus_plus").split("+")]


def methods(name: str) -> list[Method]:
    """The methods of a name or of names joined by "+"."""
    chosen = [_method(part) for part in parts(name)]
    for method in chosen:
        if sum(other.kind is method.kind for other in chosen) > 1:
            raise OptionError(OPTION, name, f"names {method.name} twice")
    return chosen


def parameters(name: str) -> dict[str, Parameter]:
    """The parameters of a method.

    For a combination, the parameters of all its methods; where two have the same, the first says
    its type and default, unless its default is ``Neutral`` and another's is not. Those of one name
    and different types are different things: each keeps its default, a stated value is for both.
    """
    shared: dict[str, Parameter] = {}
    for method in methods(name):
        for key, parameter in method.parameters.items():
            if key not in shared or shared[key].mark(Neutral) == Neutral(shared[key].default):
                shared[key] = parameter
    return shared


def published(name: str, base: str | None = None) -> dict[str, Any]:
    """The settings of a run that a method was published with, for BERT base or a named base.

    For a combination, those of the first method whose settings are not plain SimCSE's: a learning
    rate belongs to its batch, so they stay together. Cached gradients are left out there, since the
    other methods may not allow them.
    """
    sets = [{**m.kind.published, **settings_for(m.name, base)} for m in methods(name)]
    if len(sets) == 1:
        return sets[0]
    sets = [values for values in sets if values]
    plain = published("simcse", base)
    departing = [values for values in sets if any(values.get(k) != v for k, v in plain.items())]
    chosen = next(iter(departing or sets), {})
    return {key: value for key, value in chosen.items() if key != "mini_batch_size"}


def needs_pairs(name: str) -> bool:
    """Whether a method, or one of a combination, learns from pairs that belong together."""
    return any(method.kind.labeled for method in methods(name))


def needs_scores(name: str) -> bool:
    """Whether a method, or one of a combination, learns from scores of pairs."""
    return any(method.kind.graded for method in methods(name))


def described(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Name and all parameters, as logs and model cards show them."""
    chosen = methods(name)
    digests = {
        f"{key} of {method.name}" if len(chosen) > 1 else key: value
        for method in chosen
        for key, value in source_digest(method.kind).items()
    }
    defaults = {key: parameter.default for key, parameter in parameters(name).items()}
    return {"name": "+".join(m.name for m in chosen), **digests, **defaults, **given}


def resolve(name: str, given: Mapping[str, Any]) -> list[tuple[Method, dict[str, Any]]]:
    """Each method of a name with all its parameters: stated, shared, or its own defaults."""
    shared, chosen = parameters(name), methods(name)
    for option in given:
        if option not in shared:
            problem = f"unknown parameter of {name}"
            raise OptionError("parameter", option, problem, choices=shared)
    departing: dict[str, set[str]] = {}
    for method in chosen:
        for key, parameter in method.parameters.items():
            neutral = parameter.mark(Neutral)
            if key not in given and neutral is not None and parameter.default != neutral.value:
                departing.setdefault(key, set()).add(str(parameter.default))
    for key, defaults in departing.items():
        if len(defaults) > 1:
            problem = f"its methods differ in {key} ({' and '.join(sorted(defaults))}); set {key}"
            raise OptionError(OPTION, name, problem)
    resolved = []
    for method in chosen:
        own = method.parameters.items()
        values = {k: shared[k].default if shared[k].hint == p.hint else p.default for k, p in own}
        resolved.append((method, values | {k: given[k] for k in values if k in given}))
    return resolved


def check(
    name: str, given: Mapping[str, Any], *, base: Path | None = None, models: bool = True
) -> None:
    """Validate the parameters of a method before any weights are loaded."""
    for method, values in resolve(name, given):
        check_values(method.parameters.values(), values)
        for rule in method.kind.checks:
            rule(values)
        if models:
            _check_models(method, values, base)


def find(name: str) -> "Callable[..., Objective]":
    """The class of a method, or a function that combines several."""
    chosen = methods(name)
    return partial(_combine, name) if len(chosen) > 1 else chosen[0].kind


def _combine(name: str, encoder: "TorchEncoder", **given: Any) -> "Objective":
    from contrasent.engine.combination import Combination

    parts = [method.kind(encoder, **values) for method, values in resolve(name, given)]
    return Combination(encoder, parts, described(name, given))


def _method(name: str) -> Method:
    """The method of a name: runs its file or module and finds the class."""
    head, colon, wanted = name.rpartition(":") if ":" in name else (name, "", "")
    file = Path(head if head.endswith(".py") else name)
    if name in METHODS:
        module = _imported(name, f"contrasent.objectives.{name}")
    elif file.suffix == ".py":
        module = _run(name, file.expanduser().resolve())
        wanted = wanted if colon and head.endswith(".py") else ""
    else:
        point = next(iter(entry_points(group=GROUP, name=name)), None)
        if name in OBJECTIVES:
            raise OptionError(OPTION, name, f"is called {OBJECTIVES[name]} here")
        if point is None and ":" not in name:
            raise OptionError(OPTION, name, "unknown objective", choices=summaries())
        point = point or EntryPoint(name, name, GROUP)
        if str(Path.cwd()) not in sys.path and not point.dist:
            sys.path.append(str(Path.cwd()))  # as ``python -m`` finds the modules there
        module, wanted = _imported(name, point.module), point.attr
    kind, several = _class(name, module, wanted)
    shown = name
    if file.suffix == ".py":
        shown = f"{file.name}:{kind.__name__}" if several else file.name
    kind.method_name = shown
    try:
        return Method(shown, kind, parameters_of(kind))
    except (TypeError, NameError) as error:
        raise OptionError(OPTION, name, str(error)) from error


def _imported(name: str, module: str) -> ModuleType:
    try:
        return import_module(module)
    except Exception as error:  # a user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise OptionError(OPTION, name, f"module {module!r} not found") from error
        raise _broken(name, error) from error


def _run(name: str, file: Path) -> ModuleType:
    """A file as a module named by its content, so that an edited file is reloaded."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise OptionError(OPTION, name, f"cannot be read ({error.strerror})") from error
    unique = f"contrasent_method_{file.stem}_{hashlib.sha256(text).hexdigest()[:12]}"
    if unique in sys.modules and sys.modules[unique].__file__ == str(file):
        return sys.modules[unique]
    sys.modules[unique] = module = ModuleType(unique)
    module.__file__ = str(file)
    try:
        exec(compile(text, str(file), "exec"), vars(module))
    except BaseException as error:
        del sys.modules[unique]
        if not isinstance(error, Exception):
            raise
        raise _broken(name, error) from error
    return module


def _broken(name: str, error: Exception) -> OptionError:
    if isinstance(error, SyntaxError):
        return OptionError(OPTION, name, f"line {error.lineno}: not valid Python ({error})")
    missing = isinstance(error, ImportError) and error.name in ("torch", "transformers")
    if missing or isinstance(error, MissingExtraError):
        raise error  # the library's own, not the method's
    problem = f"cannot be imported ({type(error).__name__}: {error})"
    return OptionError(OPTION, name, problem.replace("\n", " "))


def _class(name: str, module: ModuleType, wanted: str) -> "tuple[type[Objective], bool]":
    """The objective that a module defines, or that of a name, and whether it defines several."""
    from contrasent.engine.objective import Objective

    classes = {
        key: kind
        for key, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, Objective)
        and kind.__module__ == module.__name__
    }
    public = [key for key in classes if not key.startswith("_")]
    chosen = [key for key in (classes if wanted else public) if wanted in ("", key)]
    if len(chosen) == 1:
        return classes[chosen[0]], len(public) > 1
    if not public:
        raise OptionError(OPTION, name, "defines no Objective")
    problem = f"has no Objective {wanted!r}" if wanted else f"defines {len(public)} Objectives"
    problem += f"; choose one with {Path(str(module.__file__)).name}:Class"
    raise OptionError(OPTION, name, problem, choices=public)


def _check_models(method: Method, values: Mapping[str, Any], base: Path | None) -> None:
    from contrasent.engine.masked_models import check_guide, check_masked_model

    for key, parameter in method.parameters.items():
        if values[key] and parameter.mark(MaskedModelName):
            check_masked_model(key, values[key], base)
        if parameter.mark(GuideName):
            check_guide(key, values[key])


@cache
def _recipe_file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))


def recipes() -> dict[str, dict[str, Any]]:
    """Method, base and settings of every model of the papers, by its name, and the source."""
    chosen = {"evaluate": "stsb", "keep": "trained"}
    return {
        name: {**recipe, **chosen, "settings": dict(recipe["settings"])}
        for name, recipe in _recipe_file().items()
        if name != "shapes"
    }


def base_shape(folder: Path) -> str | None:
    """The published base with the architecture, layers and width of a bare encoder, or None."""
    config = read_object(folder / "config.json")
    shape = [config.get(key) for key in SHAPE]
    return next((name for name, known in _recipe_file()["shapes"].items() if known == shape), None)


def settings_for(method: str, base: str | None) -> dict[str, Any]:
    """A method's published settings for a base, for similarity; or none."""
    for recipe in recipes().values():
        if (recipe["objective"], recipe["base"]) == (method, base):
            return {k: v for k, v in recipe["settings"].items() if k not in RECIPE_ONLY}
    return {}
