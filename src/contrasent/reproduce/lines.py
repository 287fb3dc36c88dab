"""The lines of a TOML file that its values stand on, which tomllib does not say."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from contrasent.errors import InputError

Place = tuple[str | int, ...]
"""Where a value stands: keys of tables, positions in arrays."""

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")


@dataclass(frozen=True, slots=True)
class Source:
    """A TOML file and the lines that its values stand on.

    Attributes:
        path: the file, as it is named in messages.
        headers: the line of each [table] and [[element of an array]], from 1.
    """

    path: Path
    lines: list[str]
    headers: dict[Place, int]

    def line(self, at: Place) -> int | None:
        """The line of a value, or of the nearest thing around it whose line is known."""
        depth = next((n for n in range(len(at), 0, -1) if at[:n] in self.headers), 0)
        found, last = self._section(at[:depth])
        for name in (part for part in at[depth:] if isinstance(part, str)):
            found = self._find(name, found, last) or found
        return found or None

    def holds(self, at: Place, name: str) -> bool:
        """Whether a table of the file names something."""
        return at in self.headers and self._find(name, *self._section(at)) is not None

    def _section(self, at: Place) -> tuple[int, int]:
        """The line of a table's header, and the first one after the table."""
        first = self.headers.get(at, 0)
        last = min((n for n in self.headers.values() if n > first), default=len(self.lines) + 1)
        return first, last

    def _find(self, name: str, first: int, last: int) -> int | None:
        """The first line that has a key of its own, one of an inline table, or a value."""
        word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        for pattern in (rf"^\s*\W?{word}\W?\s*[.=]", rf"{word}\W?\s*=", word):
            for number in range(max(first, 1), last):
                if re.search(pattern, self.lines[number - 1]):
                    return number
        return None

    def refuse(self, at: Place, problem: str) -> Never:
        """Complain about a value."""
        raise InputError(self.path, problem, line=self.line(at))


def headers(lines: Iterable[str]) -> dict[Place, int]:
    """Where tables begin; an element of an array of tables is known by its number."""
    found: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    for number, line in enumerate(lines, start=1):
        header = _HEADER.match(line)
        if header:
            at: Place = ()
            for part in header.group(2).split("."):
                at = (*at, counts[at]) if at in counts else at
                at = (*at, part.strip().strip("\"'"))
            if header.group(1) == "[[":
                counts[at] = counts.get(at, -1) + 1
                at = (*at, counts[at])
            found.setdefault(at, number)
    return found
