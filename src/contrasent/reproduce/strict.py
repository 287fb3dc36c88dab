"""Strict reading of TOML: every key is known, nothing is converted, and a problem says where."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from contrasent import files
from contrasent.errors import InputError, suggestion

HERE = Path(__file__).parent / "items"  # the package's own items
Names = tuple[str, ...]


def _single(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise PydanticCustomError("single", "must be a single value")
    return value


Value = Annotated[str | bool | int | float, PlainValidator(_single)]
"""A single value, such as that of a setting."""


class Strict(BaseModel):
    """A table of a TOML file: every key is known, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) and cls.model_config["extra"] == "forbid" else ():
            if key not in cls.model_fields:
                problem = f"unknown key {key!r}{suggestion(key, cls.model_fields)}"
                raise PydanticCustomError("unknown", "{problem}", {"problem": problem})
        return data


Model = TypeVar("Model", bound=Strict)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; its lists are tuples."""
    table: dict[str, Any] = _tuples(files.read_toml(path))
    return table


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def shared_file(folder: Path, name: str) -> Path:
    """A folder's own file of a name, else the package's."""
    brought = folder / name
    return brought if brought.is_file() else HERE / name


class Problem(ValueError):
    """What is wrong with a file that is being read, without its name."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file of a problem."""
    try:
        yield
    except Problem as error:
        raise InputError(path, str(error)) from error


def check_names(where: str, known: Iterable[str], *names: str) -> None:
    """Reject an unknown name."""
    some = tuple(known)
    for name in names:
        if name not in some:
            raise Problem(f"{where} {name!r}: unknown{suggestion(name, some)}")


def decode(kind: type[Model], data: Any, *where: str) -> Model:
    """A table as a model; problems name the key, its value and the nearest name."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        value, problem = first["input"], first["msg"].removeprefix("Value error, ")
        shown = f" {value!r}" if isinstance(value, str | bool | int | float | tuple) else ""
        if first["type"] == "missing":
            shown, problem = "", "is missing"
        elif first["type"] == "literal_error":
            choices = re.findall(r"'([^']*)'", first["ctx"]["expected"])
            problem = f"unknown{suggestion(str(value), choices)}"
        place = ".".join((*where, *_named(data, first["loc"])))
        problem = f"{place}{shown}: {problem[0].lower()}{problem[1:]}".lstrip(": ")
        raise Problem(problem) from error


def _named(data: Any, keys: tuple[int | str, ...]) -> Iterator[str]:
    """The keys of a place in a table, with rows and claims by their names."""
    for key in keys:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            data = None
        name = data.get("name", key) if isinstance(data, dict) and isinstance(key, int) else key
        yield str(name)
