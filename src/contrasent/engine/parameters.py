"""What the parameters of a method, and the settings of a run, may be. No torch here.

Type, choices and range stand at the parameter::

    def __init__(self, encoder, *, temperature: Positive = 0.05, masks: Literal["independent",
                 "fixed"] = "independent"): ...

They are read from there by :mod:`contrasent.engine.source`, without running the file.
"""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from contrasent.errors import OptionError

Mark = TypeVar("Mark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Where a number must lie; it must be finite too.

    Attributes:
        above: lower end, excluded.
        least: lower end, included.
        below: upper end, excluded.
        most: upper end, included; that of ``math.inf`` lets infinity in.
    """

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        parts = (
            (self.above, "greater than {:g}"),
            (self.least, "{:g} or more"),
            (self.below, "less than {:g}"),
            (self.most, "at most {:g}"),
        )
        return " and ".join(text.format(end) for end, text in parts if end not in (None, math.inf))

    def __contains__(self, value: float) -> bool:
        return (
            (math.isfinite(value) or value == self.most)
            and (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.below is None or value < self.below)
            and (self.most is None or value <= self.most)
        )


@dataclass(frozen=True, slots=True)
class Plain:
    """Marks a parameter of which one value changes nothing: it gives way in a combination.

    Attributes:
        value: that value.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class MaskedModelName:
    """Marks a parameter that names a masked language model with the encoder's vocabulary."""


@dataclass(frozen=True, slots=True)
class GuideName:
    """Marks a parameter that names a guide, a sentence encoder that must be there."""


Positive = Annotated[float, Range(above=0)]
Weight = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(above=0, below=1)]
Count = Annotated[int, Range(least=1)]
Size = Annotated[int, Range(least=0)]
MaskedModelFolder = Annotated[str | None, MaskedModelName()]
GuideFolder = Annotated[str | None, GuideName()]
Projector = Literal["none", "tanh", "batchnorm"]
ResampleViews = Literal["epoch", "static"]
"""Whether views are drawn anew in every epoch, or once for the whole run."""

Fresh = ResampleViews
"""Its former name; deprecated."""

RENAMED = {"chunk": "grad_cache_rows", "fresh": "resample_views"}
"""Former names of settings and parameters, which ``--set``, recipes and stored runs may have."""


@dataclass(frozen=True)
class Parameter:
    """A keyword-only parameter of a method, or a setting of a run.

    Attributes:
        hint: its type: int, float, str, bool, None, ``Literal``, unions and ``Annotated`` of these.
    """

    name: str
    hint: Any
    default: Any

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """The types of values, and None where that is one."""
        kinds = tuple(dict.fromkeys(kind for kind, _ in _spread(self.hint)))
        # The text "none" may be a choice; it stands for None only where it is none.
        return tuple(k for k in kinds if k is not None or "none" not in self.choices)

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """The values of a ``Literal``; none where any value of the type will do."""
        return tuple(choice for _, choices in _spread(self.hint) for choice in choices)

    def mark(self, kind: type[Mark]) -> Mark | None:
        """What an ``Annotated`` says of a kind, such as ``Range``."""
        return next((m for m in _marks(self.hint) if isinstance(m, kind)), None)

    def read(self, value: Any) -> Any:
        """A value from a text or from TOML, as the type wanted."""
        text = str(value)
        if None in self.kinds and (value is None or text.lower() in {"none", "null"}):
            return None
        for kind in self.kinds:
            if kind is bool:
                if text.lower() in {"true", "false"}:
                    return text.lower() == "true"
            elif kind is str and isinstance(value, str):
                return value
            elif kind in (int, float) and not isinstance(value, bool):
                try:
                    return kind(text)
                except ValueError:
                    continue
        raise OptionError(self.name, value, f"must be of type {self._wanted}")

    def check(self, value: Any) -> None:
        """Refuse a value that the parameter cannot have."""
        if value is None and any(kind is None for kind, _ in _spread(self.hint)):
            return
        if self.choices and value not in self.choices:
            choices = map(str, self.choices)
            raise OptionError(self.name, value, "no such value", choices=choices)
        bounds = self.mark(Range)
        if bounds is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise OptionError(self.name, value, f"must be of type {self._wanted}")
        if value not in bounds:
            raise OptionError(self.name, value, f"must be {bounds}")

    @property
    def _wanted(self) -> str:
        return " or ".join("none" if k is None else k.__name__ for k in self.kinds)


def check_values(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> None:
    """Refuse values that parameters cannot have; those of other names are left alone."""
    for parameter in parameters:
        if parameter.name in values:
            parameter.check(values[parameter.name])


def renamed(values: Mapping[str, Any], known: Iterable[str] = ()) -> dict[str, Any]:
    """Values under today's names of their settings."""
    own = set(known)
    return {k if k in own else RENAMED.get(k, k): v for k, v in values.items()}


def parameters_of(kind: type) -> dict[str, Parameter]:
    """The keyword-only parameters of a class, and of its base where it passes them on."""
    function = kind.__init__  # type: ignore[misc]
    found: dict[str, Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if isinstance(hint, str):
            hint = eval(hint, function.__globals__)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found[name] = Parameter(name, hint, parameter.default)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            owner = next(k for k in kind.__mro__ if "__init__" in k.__dict__)
            found = parameters_of(owner.__mro__[1]) | found
    return found


def _spread(hint: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The types that a hint joins, None included, each with its choices."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _spread(get_args(hint)[0])
    elif origin in (Union, UnionType):
        for part in get_args(hint):
            yield from _spread(part)
    elif origin is Literal:
        for value in get_args(hint):
            yield type(value), (value,)
    else:
        yield None if hint in (None, NoneType) else hint, ()


def _marks(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    if get_origin(hint) in (Annotated, Union, UnionType):
        for part in get_args(hint):
            yield from _marks(part)
