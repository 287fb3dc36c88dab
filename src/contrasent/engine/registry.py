"""Methods by name, alone or joined by "+": their parameters, checked and completed. No torch."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.engine.methods import OPTION, Method, locate
from contrasent.engine.methods import names as names
from contrasent.engine.named_models import check_guide, check_masked_model
from contrasent.engine.parameters import (
    GuideName,
    MaskedModelName,
    Parameter,
    Plain,
    check_values,
)
from contrasent.errors import OptionError

if TYPE_CHECKING:
    from contrasent.engine.objective import Objective
    from contrasent.model.encoder import Encoder


def parts(name: str) -> list[str]:
    """The names that a name joins by "+", such as "esimcse+simcse_plus_plus"."""
    return [part.strip() for part in name.split("+")]


def methods(name: str) -> list[Method]:
    """The methods whose names a name joins."""
    found = [locate(part) for part in parts(name)]
    for method in found:
        if sum(other.source == method.source for other in found) > 1:
            raise OptionError(OPTION, name, f"names {method.name} twice")
    return found


def parameters(name: str) -> dict[str, Parameter]:
    """The parameters of a method, read from its source.

    Of a combination, the parameters of all its methods; where two have the same, the first says
    its type and default, unless its default is ``Plain`` and another's is not. Those of one name
    and different types are different things: each keeps its default, a stated value is for both.
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
    """
    sets = [dict(method.attribute("published", {})) for method in methods(name)]
    if len(sets) == 1:
        return sets[0]
    sets = [found for found in sets if found]
    departing = [found for found in sets if found != published("simcse")]
    chosen = next(iter(departing or sets), {})
    return {key: value for key, value in chosen.items() if key != "grad_cache_rows"}


def needs_pairs(name: str) -> bool:
    """Whether a method, or one of a combination, learns from pairs that belong together."""
    return any(method.attribute("labelled", False) for method in methods(name))


def needs_scores(name: str) -> bool:
    """Whether a method, or one of a combination, learns from scores of pairs."""
    return any(method.attribute("graded", False) for method in methods(name))


def described(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Name and all parameters, as logs and model cards show them."""
    found = methods(name)
    digests = {k: v for method in found for k, v in method.digest.items()}
    if len(found) > 1:
        digests = {f"{k} of {method.name}": v for method in found for k, v in method.digest.items()}
    defaults = {key: parameter.default for key, parameter in parameters(name).items()}
    return {"name": "+".join(m.name for m in found), **digests, **defaults, **given}


def _check_defaults(name: str, given: Iterable[str]) -> None:
    """Refuse a combination whose methods by default do different things in the same place."""
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
    """Refuse parameters of a method before any weights are loaded."""
    _check_defaults(name, given)
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
    _check_defaults(name, given)
    parts = [method.load()(encoder, **_values(method, name, given)) for method in methods(name)]
    return Combination(encoder, parts, described(name, given))


def _values(method: Method, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a method that is part of a name: stated, shared, or its own defaults."""
    shared = parameters(name)
    return {
        key: given.get(key, shared[key].default if shared[key].hint == own.hint else own.default)
        for key, own in method.parameters.items()
    }
