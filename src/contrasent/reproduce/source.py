"""TOML read strictly: a complaint names the file, the line, what is wrong and the nearest name."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Never

from contrasent.errors import InputError, suggestion

Place = tuple[str | int, ...]
"""Where a value stands: keys of tables, positions in arrays."""

REQUIRED: Any = object()

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")

KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "flag": ((bool,), "true or false"),
    "count": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "value": ((str, bool, int, float), "a text, a number, or true or false"),
    "list": ((list,), "a list"),
    "table": ((dict,), "a table"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A TOML file and the lines that its values stand on.

    Attributes:
        path: the file, as it is named in messages.
        text: its text.
        lines: the line of each key that has a line of its own, from 1.
    """

    path: Path
    text: str
    lines: dict[Place, int]

    def line(self, at: Place) -> int | None:
        """The line of a value, or of the nearest thing around it whose line is known."""
        for length in range(len(at), 0, -1):
            found = self.lines.get(at[:length])
            if found is not None:
                return self._inside(found, at[length:])
        return None

    def _inside(self, line: int, rest: Place) -> int:
        """The first line from ``line`` on that holds a key of an inline table."""
        name = next((part for part in rest if isinstance(part, str)), None)
        if name is None:
            return line
        lines = self.text.splitlines()
        for number in range(line, len(lines) + 1):
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lines[number - 1]):
                return number
            if number > line and (_HEADER.match(lines[number - 1]) or _KEY.match(lines[number])):
                break
        return line

    def refuse(self, at: Place, problem: str) -> Never:
        """Complain about a value.

        Raises:
            InputError: always.
        """
        raise InputError(self.path, problem, line=self.line(at))


def read(path: Path) -> "Table":
    """Read a TOML file.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
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
    return Table(Source(path, text, _lines(text)), data, ())


def _lines(text: str) -> dict[Place, int]:
    """Where headers and keys stand; values inside inline tables are searched when asked for."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    here: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            at = _under(_parts(header.group(2)), counts)
            if header.group(1) == "[[":
                counts[at] = counts.get(at, -1) + 1
                at = (*at, counts[at])
            here = at
            lines.setdefault(at, number)
            continue
        key = _KEY.match(line)
        if key:
            lines.setdefault((*here, *_parts(key.group(1))), number)
    return lines


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _under(parts: list[str], counts: Mapping[Place, int]) -> Place:
    """A dotted name with the positions of the arrays of tables that it leads through."""
    at: Place = ()
    for i, part in enumerate(parts):
        at = (*at, part)
        if i < len(parts) - 1 and at in counts:
            at = (*at, counts[at])
    return at


class Table:
    """A table of which every key is taken once; what is left over at the end is refused.

    Args:
        source: the file.
        data: what tomllib read.
        at: where the table stands in the file.
    """

    def __init__(self, source: Source, data: Mapping[str, Any], at: Place) -> None:
        self.source, self.at = source, at
        self._left = dict(data)
        self._known: set[str] = set()

    def take(self, key: str, kind: str, default: Any = REQUIRED) -> Any:
        """A value of a kind named in ``KINDS``.

        Raises:
            InputError: it is missing, or of another kind.
        """
        self._known.add(key)
        if key not in self._left:
            if default is REQUIRED:
                self._missing(key)
            return default
        value = self._left.pop(key)
        kinds, said = KINDS[kind]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.refuse(key, f"{key} must be {said}, it is {value!r}")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts."""
        value = self.take(key, "list", list(default))
        for item in value:
            if not isinstance(item, str):
                self.refuse(key, f"{key} must be a list of texts, one of it is {item!r}")
        return tuple(value)

    def choice(self, key: str, choices: Iterable[str], default: Any = REQUIRED) -> str:
        """One of some texts."""
        value: str = self.take(key, "text", default)
        known = list(choices)
        if value is not default and value not in known:
            self.refuse(key, f"{key} {value!r}: unknown{suggestion(value, known)}")
        return value

    def values(self, key: str) -> dict[str, Any]:
        """A table of single values, such as settings."""
        table = self.take(key, "table", {})
        for name, value in table.items():
            if not isinstance(value, str | bool | int | float):
                self.refuse(key, f"{key}.{name} must be a single value, it is {value!r}", name)
        return dict(table)

    def table(self, key: str) -> "Table":
        """A table, empty if it is not there."""
        return Table(self.source, self.take(key, "table", {}), (*self.at, key))

    def named(self, key: str) -> dict[str, "Table"]:
        """Tables by name, in the file's order."""
        found = self.take(key, "table", {})
        for name, value in found.items():
            if not isinstance(value, dict):
                self.refuse(key, f"{key}.{name} must be a table, it is {value!r}", name)
        return {n: Table(self.source, v, (*self.at, key, n)) for n, v in found.items()}

    def several(self, key: str) -> list["Table"]:
        """An array of tables."""
        found = self.take(key, "list", [])
        for value in found:
            if not isinstance(value, dict):
                self.refuse(key, f"{key} must be tables ([[{key}]]), one is {value!r}")
        return [Table(self.source, v, (*self.at, key, i)) for i, v in enumerate(found)]

    def __contains__(self, key: str) -> bool:
        """Whether a key is there and was not taken yet."""
        return key in self._left

    def refuse(self, key: str, problem: str, *deeper: str | int) -> Never:
        """Complain about a key, or something below it."""
        self.source.refuse((*self.at, key, *deeper), problem)

    def done(self) -> None:
        """Refuse the keys that nobody asked for.

        Raises:
            InputError: there is one; the nearest known key is named.
        """
        for key in self._left:
            self.refuse(key, f"no such key {key!r}{suggestion(key, self._known)}")

    def _missing(self, key: str) -> Never:
        """A key that is missing may be there under a misspelt name."""
        near = get_close_matches(key, list(self._left), n=1)
        if near:
            self.refuse(near[0], f"no such key {near[0]!r}; did you mean {key!r}?")
        self.source.refuse(self.at, f"{key} is missing")
