"""Types of the parameters of a method and of the settings of a run; no torch here."""

import hashlib
import inspect
import math
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union

from contrasent.errors import OptionError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Mark = TypeVar("Mark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The range of a number, which must be finite.

    Attributes:
        most: upper end, included; ``math.inf`` allows infinity.
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

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: float | None) -> float | None:
        if value is not None and value not in self:
            raise ValueError(f"must be {self}")
        return value


@dataclass(frozen=True, slots=True)
class Neutral:
    """A value of a parameter that has no effect; in a combination another method's value is used.

    Attributes:
        value: the value, such as "dropout" for ``view``.
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
"""Folder or name of a masked language model with the encoder's vocabulary."""
GuideFolder = Annotated[str | None, GuideName()]  # folder or name of a guide, a sentence encoder
Projector = Literal["none", "tanh", "batchnorm"]  # network on top of the vectors in training
ResampleViews = Literal["epoch", "static"]
"""Whether views are drawn in every epoch, or once for the whole run."""


@dataclass(frozen=True)
class Parameter:
    """A keyword-only parameter of a method, or a setting of a run, and its type."""

    name: str
    hint: Any
    default: Any

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """The types of values, including None if it is allowed."""
        # The text "none" may be a choice; otherwise it means None.
        kinds = dict.fromkeys(kind for kind, _, _ in _spread(self.hint))
        return tuple(kind for kind in kinds if kind is not None or "none" not in self.choices)

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """The values of a ``Literal``; empty if any value of the type will do."""
        return tuple(choice for _, choices, _ in _spread(self.hint) for choice in choices)

    def mark(self, kind: type[Mark]) -> Mark | None:
        """The metadata of a kind in the hint's ``Annotated``, such as its ``Range``."""
        marks = (mark for _, _, marks in _spread(self.hint) for mark in marks)
        return next((mark for mark in marks if isinstance(mark, kind)), None)

    def read(self, value: Any) -> Any:
        """A value from a text, from TOML or from Python, validated."""
        if not isinstance(value, str):
            return self.check(value)
        text, named = value.strip(), {str(choice): choice for choice in self.choices}
        if None in self.kinds and text.lower() in {"none", "null"}:
            return None
        if str in self.kinds and not named:  # free text, such as a prompt
            return value
        return named[text] if text in named else self.check(text, text=True)

    def check(self, value: Any, *, text: bool = False) -> Any:
        """Validate a value from Python, or a text that stands for one."""
        from pydantic import ValidationError

        try:
            if text:
                return _adapter(self.hint).validate_strings(value)
            return _adapter(self.hint).validate_python(value)
        except ValidationError as error:
            if outside := [e["ctx"]["error"] for e in error.errors() if e["type"] == "value_error"]:
                raise OptionError(self.name, value, str(outside[0])) from error
            if self.choices and (text or type(value) in self.kinds):
                choices = map(str, self.choices)
                raise OptionError(self.name, value, "unknown value", choices=choices) from error
            kinds = " or ".join("none" if k is None else k.__name__ for k in self.kinds)
            raise OptionError(self.name, value, f"must be of type {kinds}") from error


def check_values(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> None:
    """Validate the values of parameters; those of other names are left alone."""
    for parameter in parameters:
        if parameter.name in values:
            parameter.check(values[parameter.name])


def parameters_of(kind: type) -> dict[str, Parameter]:
    """The keyword-only parameters of a constructor, and of its base's if it passes them on."""
    owner = next(k for k in kind.__mro__ if "__init__" in k.__dict__)
    function = vars(owner)["__init__"]
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: dict[str, Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and owner is not object:
            parameters = parameters_of(owner.__mro__[1]) | parameters
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if name not in hints or parameter.default is inspect.Parameter.empty:
                raise TypeError(f"the parameter {name} needs a type and a default")
            parameters[name] = Parameter(name, hints[name], parameter.default)
            if not set(parameters[name].kinds) <= {int, float, str, bool, None}:
                raise TypeError(
                    f"the type of the parameter {name} must be int, float, str, bool, None, a "
                    "Literal, or Annotated from these"
                )
    return parameters


def source_digest(kind: type) -> dict[str, str]:
    """The sha256 of a class's file, if that is not this library's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file or Path(file).is_relative_to(Path(__file__).parents[1]):
        return {}
    return {"source_sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}


@cache
def _adapter(hint: Any) -> "TypeAdapter[Any]":
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(hint, config=ConfigDict(strict=True))


def _spread(hint: Any, marks: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """The types in a union, None included, each with its choices and metadata."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        yield from _spread(inner[0], (*marks, *hint.__metadata__))
    elif origin in (Union, UnionType):
        for part in inner:
            yield from _spread(part, marks)
    elif origin is Literal:
        for value in inner:
            yield type(value), (value,), marks
    else:
        yield None if hint in (None, NoneType) else hint, (), marks
