"""TOML read strictly: a complaint names the file, the line, what is wrong and the nearest name."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Never,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from contrasent.engine.parameters import Parameter, Range
from contrasent.errors import InputError, OptionError, suggestion
from contrasent.reproduce.lines import Place, Source, headers

HERE = Path(__file__).parent / "items"
"""The package's own items."""

REQUIRED: Any = object()

T = TypeVar("T")
Value = str | bool | int | float
"""A single value, such as that of a setting."""

NAMES: dict[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    dict: ((dict,), "a table"),
}
"""What a value of each type may be read from, and what it is called."""


def read(path: Path) -> "Table":
    """Read a TOML file."""
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else None
        raise InputError(path, f"not valid TOML ({error})", line=line) from error
    except UnicodeDecodeError as error:
        raise InputError(path, "not UTF-8") from error
    lines = text.splitlines()
    return Table(Source(path, lines, headers(lines)), data)


def shared(folder: Path, name: str) -> "Table":
    """A file that a folder of items may bring, else the package's of that name."""
    own = folder / name
    return read(own if own.is_file() else HERE / name)


class Table:
    """A table of which every key is taken once; what is left over at the end is refused."""

    def __init__(self, source: Source, data: Mapping[str, Any], at: Place = ()) -> None:
        self.source, self.data, self.at = source, data, at
        self._left = dict(data)
        self._known: set[str] = set()

    def take(self, key: str, kind: Any, default: Any = REQUIRED) -> Any:
        """A value, checked against its type."""
        self._known.add(key)
        if key in self._left:
            value, bounds = self._left.pop(key), Parameter(key, kind, None).mark(Range)
            value = self._checked(key, value, kind)
            if bounds is not None and value not in bounds:
                self.refuse(key, f"{key} {value!r}: must be {bounds}")
            return value
        if default is not REQUIRED:
            return default
        # It may be there under a misspelt name.
        near = get_close_matches(key, list(self._left), n=1)
        if near:
            self.refuse(near[0], f"no such key {near[0]!r}; did you mean {key!r}?")
        self.source.refuse(self.at, f"{key} is missing")

    def fill(self, kind: type[T], **known: Any) -> T:
        """Make a dataclass whose fields are this table's keys; no other keys may be left."""
        form: Any = kind
        hints = _hints(form)
        for field in fields(form):
            if field.name not in known:
                default = field.default if field.default is not MISSING else REQUIRED
                if field.default_factory is not MISSING:
                    default = field.default_factory()
                known[field.name] = self.take(field.name, hints[field.name], default)
        self.done()
        try:
            return kind(**known)
        except OptionError as error:
            self.refuse(error.option, str(error))

    def tables(self, key: str) -> dict[str, "Table"]:
        """Tables by name, in the file's order."""
        return self.table(key).every_table()

    def every_table(self) -> dict[str, "Table"]:
        """All that is left, as tables by name, in the file's order."""
        left, self._left = self._left, {}
        return {name: self._below(value, name) for name, value in left.items()}

    def several(self, key: str) -> list["Table"]:
        """An array of tables."""
        found = self._left.pop(key, [])
        self._known.add(key)
        if not isinstance(found, list):
            self.refuse(key, f"{key} must be tables ([[{key}]]), it is {found!r}")
        return [self._below(value, key, i) for i, value in enumerate(found)]

    def table(self, key: str) -> "Table":
        """A table, empty if it is not there."""
        self._known.add(key)
        return self._below(self._left.pop(key, {}), key)

    def refuse(self, key: str, problem: str, *deeper: str | int) -> Never:
        """Complain about a key, or something below it."""
        self.source.refuse((*self.at, key, *deeper), problem)

    def check_known(self, key: str, value: str, known: Iterable[str], *deeper: str | int) -> None:
        """Refuse a name that is none of those known; the nearest is named."""
        choices = list(known)
        if value not in choices:
            self.refuse(key, f"{key} {value!r}: unknown{suggestion(value, choices)}", *deeper)

    def done(self) -> None:
        """Refuse the keys that were not taken."""
        for key in self._left:
            self.refuse(key, f"no such key {key!r}{suggestion(key, self._known)}")

    def _below(self, value: Any, *keys: str | int) -> "Table":
        if not isinstance(value, dict):
            self.source.refuse((*self.at, *keys), f"{keys[0]} must be a table, it is {value!r}")
        return Table(self.source, value, (*self.at, *keys))

    def _checked(self, key: str, value: Any, kind: Any, *deeper: str | int) -> Any:
        while get_origin(kind) in (UnionType, Union, Annotated):
            kind = next(k for k in get_args(kind) if k is not NoneType)
        inner = get_args(kind)
        if get_origin(kind) is Literal:
            if not isinstance(value, str):
                self.refuse(key, f"{key} must be a text, it is {value!r}", *deeper)
            self.check_known(key, value, inner, *deeper)
            return value
        if get_origin(kind) is tuple:
            if not isinstance(value, list):
                self.refuse(key, f"{key} must be a list, it is {value!r}", *deeper)
            return tuple(self._checked(key, each, inner[0], i) for i, each in enumerate(value))
        if is_dataclass(kind):
            return self._below(value, key).fill(kind)  # type: ignore[arg-type]
        if get_origin(kind) is dict:
            for name, each in self._below(value, key)._left.items():
                if not isinstance(each, get_args(inner[1])):
                    self.refuse(key, f"{key}.{name} must be a single value, it is {each!r}", name)
            return dict(value)
        types, text = NAMES[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
            self.refuse(key, f"{key} must be {text}, it is {value!r}", *deeper)
        return kind(value)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
