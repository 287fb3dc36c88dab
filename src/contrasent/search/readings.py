"""What values of metadata read as: numbers and dates, so that filters compare them as such."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

Date = tuple[int, ...]
"""Year, month, day, hour, minute and second, as many as are known."""

_SIGNS = r"[$€£¥%\s\u00a0\u202f]"
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_COMMAS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")  # 1,200.50
_POINTS = re.compile(  # 1.200,5
    r"[+-]?(?:\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2})"
)
_PARTS = re.compile(r"(\d{4})(?:[-/](\d{1,2}))?|(\d{4})([-/.])(\d{1,2})\4(\d{1,2})")
_DAY_FIRST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})")
_MONTH_NAMED = re.compile(r"([^\W\d]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})")
_DAY_NAMED = re.compile(
    r"(\d{1,2})(?:\.|st|nd|rd|th)?[ -](?:de )?([^\W\d]{3,9})\.?[ -](?:de )?(\d{4})"
)
_TIME = re.compile(r"(.*?\d)(?:T|,? )(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?")
_MONTHS = (
    "jan gen ene", "feb fév fev", "mar mär mrz maa", "apr avr abr", "may mai mag mei maj",
    "jun juin giu", "jul juil lug", "aug août aou ago", "sep set", "oct okt ott out", "nov",
    "dec dez déc dic des",
)  # fmt: skip
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}


class UnlikeError(Exception):
    """A number or a date that is to be compared with something else."""


@lru_cache(maxsize=4096)
def number(value: str | float) -> float | int | None:
    """The number that a value reads as: 12, "12", "1,200", "1.200,50", "9 €"; None if none."""
    if not isinstance(value, str):
        return value
    text = re.sub(_SIGNS, "", value)
    if _COMMAS.fullmatch(text):
        text = text.replace(",", "")
    elif _POINTS.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    if len(text) > 400 or not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


@lru_cache(maxsize=4096)
def date(value: str | float) -> Date | None:
    """The date that a value reads as; 03/05/2024, which may be of March or May, is none.

    Times with a zone are in UTC.
    """
    text = str(value).strip()
    if len(text) > 60 or not text[:1].isalnum():
        return None
    if len(text) > 10 and text[4:5] == "-":
        with suppress(ValueError):
            read = datetime.fromisoformat(text)
            return (read.astimezone(UTC) if read.tzinfo else read).timetuple()[:6]
    clock: Date = ()
    if match := _TIME.fullmatch(text):
        text, clock = match[1], tuple(int(part) for part in match.groups()[1:] if part)
    found: tuple[Any, ...] = ()
    if match := _PARTS.fullmatch(text):
        found = tuple(int(part) for part in match.groups() if part and part.isdigit())
    elif match := _DAY_FIRST.fullmatch(text):
        first, sign, second, year = int(match[1]), match[2], int(match[3]), int(match[4])
        if sign == "." or first > 12:
            found = year, second, first
        elif second > 12:
            found = year, first, second
    elif match := _MONTH_NAMED.fullmatch(text):
        found = int(match[3]), _month(match[1]), int(match[2])
    elif match := _DAY_NAMED.fullmatch(text):
        found = int(match[3]), _month(match[2]), int(match[1])
    if not found or (clock and len(found) < 3):
        return None
    with suppress(ValueError):
        datetime(*(*found, *(1, 1)[len(found) - 1 :], *clock))
        return (*found, *clock)
    return None


def _month(name: str) -> int:
    plain = name.lower()
    return next((n for n, some in enumerate(_MONTHS, 1) if plain.startswith((*some.split(),))), 0)


def compares(have: str | float, op: str, want: str | float) -> bool:
    """Whether a value is smaller or larger than another, both as numbers, dates or texts.

    As far as the wanted date goes: of 2024 and of March 2024 are all its days.

    Raises:
        UnlikeError: one is a number or a date, and the other is not.
    """
    one, other = number(have), number(want)
    if one is not None and other is not None:
        return _OPERATORS[op](one, other)
    then, when = date(have), date(want)
    if then is not None and when is not None:
        whole = (*then, *(0, 1, 1, 0, 0, 0)[len(then) :])
        return _OPERATORS[op](whole[: len(when)], when)
    if (one, other, then, when) != (None,) * 4:
        raise UnlikeError
    return _OPERATORS[op](have, want)
