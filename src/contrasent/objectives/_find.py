"""Finding objectives: the file in this folder is the registry.

Names, parameters and defaults are read from the source text, so that a command line or a recipe is
checked before anything heavy is imported.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.objectives._base import Objective

HERE = Path(__file__).parent
PLAIN = {"view": "dropout", "positives": "noisy", "negatives": "noisy"}
"""Parameters whose plain value gives way to another method's in a combination."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A keyword-only parameter of an objective.

    Attributes:
        name: the key in recipes and ``--set``.
        annotation: its type, as written.
        default: its default value.
    """

    name: str
    annotation: str
    default: Any


def names() -> list[str]:
    """Names of all objectives, sorted."""
    return sorted(m.name for m in iter_modules([str(HERE)]) if not m.name.startswith("_"))


def methods(name: str) -> tuple[str, ...]:
    """The methods that a name joins by "+", such as "esimcse+simcse_plus_plus".

    Raises:
        OptionError: one of them does not exist, or is named twice.
    """
    found = tuple(part.strip() for part in name.split("+"))
    for part in found:
        if part not in names():
            raise OptionError("--objective", part, "no such objective", choices=names())
        if found.count(part) > 1:
            raise OptionError("--objective", name, f"names {part} twice")
    return found


@cache
def parameters(name: str) -> dict[str, Parameter]:
    """The parameters of an objective, read from its source.

    Of a combination, the parameters of all its methods; where two have the same, the first says
    its type and default, unless its default is the plain one of ``PLAIN`` and another's is not.

    Raises:
        OptionError: no such objective; the nearest name is suggested.
    """
    joined = methods(name)
    if len(joined) > 1:
        shared: dict[str, Parameter] = {}
        for part in joined:
            for key, parameter in parameters(part).items():
                if key not in shared or shared[key].default == PLAIN.get(key, ...):
                    shared[key] = parameter
        return shared
    function = _constructor(_class(name))
    pairs = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    found = {}
    for argument, default in pairs:
        if argument.annotation is None or default is None:
            raise TypeError(f"{name}: parameter {argument.arg} needs a type and a default")
        found[argument.arg] = Parameter(
            argument.arg, ast.unparse(argument.annotation), ast.literal_eval(default)
        )
    return found


@cache
def published(name: str) -> dict[str, Any]:
    """The settings of a run that an objective was published with, read from its source.

    Of a combination, those of the first method whose settings are not plain SimCSE's: a learning
    rate belongs to its batch, so they stay together. Chunks are left out there, since the other
    methods may not allow them.

    Raises:
        OptionError: no such objective; the nearest name is suggested.
    """
    joined = methods(name)
    if len(joined) > 1:
        sets = [found for part in joined if (found := published(part))]
        departing = [found for found in sets if found != published("simcse")]
        chosen = next(iter(departing or sets), {})
        return {key: value for key, value in chosen.items() if key != "chunk"}
    return dict(_attribute(name, "published", {}))


def needs_pairs(name: str) -> bool:
    """Whether an objective, or one of a combination, learns from pairs that belong together.

    Raises:
        OptionError: no such objective; the nearest name is suggested.
    """
    return any(_attribute(part, "labelled", False) for part in methods(name))


def described(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Name and all parameters, as logs and model cards show them.

    Args:
        name: of an objective.
        given: the parameters that are set; the others have their defaults.
    """
    defaults = {key: parameter.default for key, parameter in parameters(name).items()}
    return {"name": "+".join(methods(name)), **defaults, **given}


def agree(name: str, given: Iterable[str]) -> None:
    """Refuse a combination whose methods by default do different things in the same place.

    Args:
        name: of the combination.
        given: the parameters that are set, which settles them.

    Raises:
        OptionError: a parameter has to be set.
    """
    for key, plain in PLAIN.items():
        defaults = [
            parameters(part)[key].default for part in methods(name) if key in parameters(part)
        ]
        departing = sorted({str(default) for default in defaults if default != plain})
        if len(departing) > 1 and key not in given:
            problem = f"its methods differ in {key} ({' and '.join(departing)}); set {key}"
            raise OptionError("--objective", name, problem)


def find(name: str) -> Callable[..., "Objective"]:
    """The class of an objective, or what makes a combination of several.

    Call it with an encoder and keyword parameters.

    Raises:
        OptionError: no such objective; the nearest name is suggested.
    """
    joined = methods(name)
    if len(joined) > 1:
        from contrasent.objectives._combine import Combination

        return partial(Combination, methods=joined)
    module = import_module(f"contrasent.objectives.{name}")
    return getattr(module, _class(name).name)  # type: ignore[no-any-return]


def _attribute(name: str, attribute: str, default: Any) -> Any:
    """A literal that an objective's class says of itself."""
    for item in _class(name).body:
        if isinstance(item, ast.Assign | ast.AnnAssign):
            target = item.targets[0] if isinstance(item, ast.Assign) else item.target
            if ast.unparse(target) == attribute and item.value is not None:
                return ast.literal_eval(item.value)
    return default


def _class(name: str) -> ast.ClassDef:
    tree = ast.parse((HERE / f"{name}.py").read_text("utf-8"))
    own = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Objective" for base in node.bases)
    ]
    if len(own) != 1:
        raise TypeError(f"objectives/{name}.py must define one Objective, it defines {len(own)}")
    return own[0]


def _constructor(node: ast.ClassDef) -> ast.FunctionDef:
    return next(
        item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    )
