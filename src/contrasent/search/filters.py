"""Choosing rows by their metadata; docs/searching.md has the operators.

A filter is JSON. Each key names a field of the metadata object (``a.b`` reaches into objects), and
all keys must match. Values are equal as JSON: 1 equals 1.0, true does not equal 1.
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from contrasent.errors import OptionError, UserError
from contrasent.types import forms_of

Where = dict[str, Any]

_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_LISTS = ("$in", "$nin")
_WANTED: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(_ORDER, (int | float | str | np.number, "a number or a string")),
    **dict.fromkeys(_LISTS, (list, "a list")),
    "$exists": (bool, "true or false"),
}
OPERATORS = ("$eq", "$ne", "$contains", *_WANTED)
_JOINS = ("$and", "$or", "$not")
DEPTH = 10  # nested filters; the SQL parser allows only about twenty
PARTS, LETTERS = 16, 1000  # dotted parts of a field's name, and its characters
CHECKED = 16  # up to this many fields in a filter, each must exist
NAMES, VALUES = 1024, 10_000  # field names in a filter, and values to compare with
FEW, SHORT = 20, 60  # distinct values of a facet, and the characters of each
_SHORT = re.compile(r"\s*([^<>=!~\s](?:[^<>=!~]*[^<>=!~\s])?)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*")
_SIGNS = {"=": "$eq", "!=": "$ne", "~": "$contains", **{s: name for name, s in _ORDER.items()}}
_NUMBERS = "'integer', 'real'"  # the types that SQLite gives them in JSON
NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # in JSON, where SQLite's functions end a text
_MISSING = {"$nin": "$in", "$ne": "$eq"}
"""Tests that are true where the field is missing, and what they deny."""


Date = tuple[int, ...]
"""Year, month, day, hour, minute and second, as many as are known."""

_CURRENCY = r"[$€£¥%\s\u00a0\u202f]"
_PLAIN = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_COMMAS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")  # 1,200.50
_POINTS = re.compile(  # 1.200,5
    r"[+-]?(?:\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2})"
)
_YEAR_FIRST = re.compile(r"(\d{4})(?:[-/](\d{1,2}))?|(\d{4})([-/.])(\d{1,2})\4(\d{1,2})")
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
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def operators(value: Any) -> dict[str, Any]:
    """The tests of one field: {"$eq": value} for a plain value."""
    if isinstance(value, dict) and any(str(key).startswith("$") for key in value):
        return value
    return {"$eq": value}


def check_where(where: Where) -> Where:
    """Reject a filter that cannot be evaluated or is too large; returns it in types of JSON."""
    names = values = 0
    for field, op, want in _tests(where, 0):
        names += field.count(".") + 1
        values += len(want) if op in _LISTS else 1
        if names > NAMES or values > VALUES:
            problem = f"has more than {NAMES:,} names of fields or {VALUES:,} values"
            raise OptionError("where", where, problem)
    try:
        plain: Where = json.loads(canonical(where).encode())
    except UnicodeEncodeError as error:
        problem = "contains a lone surrogate, which is not a character"
        raise OptionError("where", where, problem) from error
    return plain


def _tests(where: Any, depth: int) -> Iterator[tuple[str, str, Any]]:
    """The fields, operators and values of a filter, each in a form that can be evaluated."""
    if not isinstance(where, dict) or {*map(type, where)} - {str}:
        raise OptionError("where", where, "a filter is a JSON object, such as {'lang': 'en'}")
    if depth > DEPTH:
        raise OptionError("where", "...", f"is nested deeper than {DEPTH}")
    for key, value in where.items():
        if key in ("$and", "$or") and not (isinstance(value, list) and value):
            raise OptionError("where", value, f"{key} takes a list of filters")
        if key in _JOINS:
            for part in value if key != "$not" else [value]:
                yield from _tests(part, depth + 1)
        elif key.startswith("$"):
            raise OptionError("where", key, "is not a field", choices=_JOINS)
        elif '"' in key or any(ord(letter) < 32 for letter in key):
            problem = "field names cannot contain quotes or control characters"
            raise OptionError("where", key, problem)
        elif len(key) > LETTERS or key.count(".") >= PARTS:
            problem = f"a field has at most {LETTERS:,} characters, and {PARTS} names between dots"
            raise OptionError("where", key, problem)
        else:
            names = value if isinstance(value, dict) else ()
            if bare := [name for name in names if f"${name}" in OPERATORS]:
                raise OptionError("where", bare[0], f"did you mean '${bare[0]}'?")
            for op, want in operators(value).items():
                _check_test(op, want)
                yield key, op, want


def _check_test(op: str, want: Any) -> None:
    if op not in OPERATORS:
        raise OptionError("where", op, "is not an operator", choices=OPERATORS)
    kinds, named = _WANTED.get(op, (object, ""))
    if not isinstance(want, kinds) or (isinstance(want, bool) and op in _ORDER):
        raise OptionError("where", want, f"{op} takes {named}")


def check_fields(where: Where, has: Callable[[Where], bool], some: Iterable[Any]) -> None:
    """Reject a field that no row has, except for ``$exists``; ``some`` has the known ones."""
    fields = {field for field, op, _ in _tests(where, 0) if op != "$exists"}
    for field in sorted(fields) if len(fields) <= CHECKED else ():
        if not has({field: {"$exists": True}}):
            known = sorted({name for facts in some for name in _names(facts)})
            raise OptionError("where", field, "is not a field of any row", choices=known)


def _names(facts: Any, above: str = "") -> Iterator[str]:
    """The fields of metadata, including those of nested objects."""
    deep = above.count(".") >= PARTS
    for name, value in facts.items() if isinstance(facts, dict) and not deep else ():
        yield above + name
        yield from _names(value, f"{above}{name}.")


def parse_where(conditions: Sequence[str]) -> Where | None:
    """A filter from the command line: JSON, or ``field=value``, joined by and; None for none."""
    parts = [_condition(text) for text in conditions]
    return check_where({"$and": parts} if len(parts) > 1 else parts[0]) if parts else None


def _condition(text: str) -> Where:
    if text.lstrip().startswith("{"):
        try:
            return check_where(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise OptionError("--where", text, f"is not JSON ({error})") from error
    match = _SHORT.fullmatch(text)
    if match is None:
        raise OptionError("--where", text, "is neither JSON nor field=value (= != < <= > >= ~)")
    field, sign, value = match.groups()
    # A value that is JSON, such as 2000 or true, is also a string, as cells of a csv are.
    op, values = _SIGNS[sign], [value]
    with suppress(ValueError, RecursionError, UserError):  # what is not JSON is a string
        canonical(read := json.loads(value))
        if op not in _ORDER or isinstance(read, str):
            values = [read] if isinstance(read, str) else [read, value]
    parts: list[Where] = [{field: {op: one}} for one in values]
    return {"$and" if op == "$ne" else "$or": parts} if len(parts) > 1 else parts[0]


def canonical(value: Any) -> str:
    """JSON as the store keeps it: keys sorted, no spaces, so that equal values are equal texts."""
    try:
        text = json.dumps(
            value,
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
            default=_native,
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{reprlib.repr(value)} is not JSON ({error})") from error
    if "\\u0000" in text and NUL.search(text):
        raise UserError(f"{reprlib.repr(value)} contains a NUL, which ends a text; remove it")
    return text


def _native(value: Any) -> Any:
    """A number of numpy as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} in it")


Join = Callable[[str, list[str]], str]
"""Conditions joined by "and" or "or"."""


def _joined(where: Where, field: Callable[[str, dict[str, Any]], str], join: Join) -> str:
    """A filter in SQL or in Milvus's language, as ``field`` writes; "" if everything matches."""
    parts = []
    for key, value in where.items():
        if key == "$not":
            parts.append(f"not ({_joined(value, field, join) or join('and', [])})")
        elif key in ("$and", "$or"):
            inner = [_joined(part, field, join) or join("and", []) for part in value]
            parts.append(join(key[1:], inner))
        else:
            parts.append(field(key, operators(value)))
    return join("and", parts) if parts else ""


class _Values(dict[str, Any]):
    """The parameters of an SQL condition by their names."""

    def add(self, value: Any) -> str:
        """The place of a value in the condition."""
        name = f"v{len(self)}"
        self[name] = value
        return f":{name}"


def sql_condition(where: Where) -> tuple[str, dict[str, Any]]:
    """A condition on the column ``metadata``, which may stand between others, and parameters."""
    values = _Values()

    def field(name: str, tests: dict[str, Any]) -> str:
        place = f"metadata, {_path(name, values)}"
        return _sql_join("and", [_test(place, op, want, values) for op, want in tests.items()])

    return f"({_joined(where, field, _sql_join) or '1'})", values


def _sql_join(word: str, parts: list[str]) -> str:
    # A chain of "a or b or c" is a tree as deep as it is long, and SQLite's depth is limited, as is
    # that of its brackets.
    if len(parts) == 1:
        return parts[0]
    sign = "1 in" if word == "or" else "0 not in"
    return f"{sign} ({', '.join(parts)})" if parts else "1"


def _path(field: str, values: _Values) -> str:
    """Where a field is; a key that contains dots is tried before the path it may mean."""
    parts = field.split(".")
    readings = ((*parts[:n], ".".join(parts[n:])) for n in range(len(parts)))
    # In the text of JSON a backslash in a name is two.
    *others, last = (values.add(".".join(["$", *map(canonical, names)])) for names in readings)
    cases = "".join(f" when json_type(metadata, {path}) not null then {path}" for path in others)
    return f"case{cases} else {last} end" if others else last


def _test(place: str, op: str, want: Any, values: _Values) -> str:
    """One test, true or false and never null; ``place``: the arguments of SQL's JSON functions."""
    kind, have = f"json_type({place})", f"json_extract({place})"
    if op == "$exists":
        return f"{kind} {'not null' if want else 'is null'}"
    if op in _MISSING:
        return f"not ({_test(place, _MISSING[op], want, values)})"
    if op == "$contains":
        parts = [values.add(form) for form in _forms(want) if isinstance(form, str)]
        part = " or ".join(f"instr({have}, {part})" for part in parts) or "0"
        inside = _one_of("metadata, json_each.fullkey", [want], values)
        return (
            f"({kind} = 'text' and ({part})) is true or {kind} is 'array' and "
            f"exists (select 1 from json_each({place}) where {inside})"
        )
    if op in _ORDER:
        return f"compares({kind}, {have}, {values.add(op)}, {values.add(_stored(want)[1])})"
    same = _one_of(place, want if op == "$in" else [want], values)
    inside = same.replace(place, "metadata, json_each.fullkey")
    return (
        f"{same} or {kind} is 'array' and exists (select 1 from json_each({place}) where {inside})"
    )


def _one_of(place: str, wanted: Sequence[Any], values: _Values) -> str:
    """True if a value equals one of several, as JSON."""
    parts, by_kind = [], dict[str, list[str]]()
    for want in chain.from_iterable(map(_forms, wanted)):
        kinds, value = _stored(want)
        by_kind.setdefault(kinds, []).extend([] if value is None else [values.add(value)])
    for kinds, names in by_kind.items():
        same = f"json_type({place}) in ({kinds})"
        same += f" and json_extract({place}) in ({', '.join(names)})" if names else ""
        parts.append(f"({same}) is true")
    return _sql_join("or", parts) if parts else "0"


def _forms(want: Any) -> list[Any]:
    """A value in the forms that it may be stored in: the names of files have that of their disk."""
    return forms_of(want) if isinstance(want, str) else [want]


def _stored(want: Any) -> tuple[str, Any]:
    """The types that SQLite gives a JSON value, and its value there; None for null and booleans."""
    if want is None or isinstance(want, bool):
        return f"'{canonical(want)}'", None
    if isinstance(want, str):
        return "'text'", want
    if isinstance(want, list | dict):
        return "'array'" if isinstance(want, list) else "'object'", canonical(want)
    if abs(want) < 1 << 63:
        return _NUMBERS, want
    try:
        return _NUMBERS, float(want)
    except OverflowError:
        return _NUMBERS, math.inf if want > 0 else -math.inf


def ids_in(ids: Sequence[str]) -> str:
    """Rows of Milvus with one of these ids."""
    return f"id in [{', '.join(_quoted(name) for name in ids)}]"


def milvus_expression(where: Where) -> str:
    """A filter in Milvus's language; values are quoted as JSON."""

    def field(name: str, tests: dict[str, Any]) -> str:
        place = "metadata" + "".join(f"[{_quoted(part)}]" for part in name.split("."))
        return " and ".join(f"({_milvus_test(place, op, want)})" for op, want in tests.items())

    def join(word: str, parts: list[str]) -> str:
        return f" {word} ".join(f"({part})" for part in parts) or "id != ''"

    return _joined(where, field, join)


def _milvus_test(field: str, op: str, want: Any) -> str:
    """One test; a comparison with a missing field would be neither true nor false in Milvus."""
    if op == "$exists":
        return f"exists {field}" if want else f"not (exists {field})"
    if op in _MISSING:
        return f"not ({_milvus_test(field, _MISSING[op], want)})"
    return f"(exists {field}) and ({_milvus_comparison(field, op, want)})"


def _milvus_comparison(field: str, op: str, want: Any) -> str:
    if op in _ORDER and isinstance(want, str):
        with suppress(ValueError, RecursionError):  # a number is asked for as both, as by "="
            if isinstance(number := json.loads(want), int | float):
                return f"({field} {_ORDER[op]} {number}) or ({field} {_ORDER[op]} {_quoted(want)})"
    if op in _ORDER:
        return f"{field} {_ORDER[op]} {_quoted(want)}"
    if op == "$in":
        parts = [f"({_milvus_comparison(field, '$eq', one)})" for one in want]
        return " or ".join(parts) or "id == ''"
    inside = f"json_contains({field}, {_quoted(want)})"
    if op == "$eq":
        return f"({field} == {_quoted(want)}) or {inside}"
    if not isinstance(want, str):
        return inside
    if {*want} & {*"%_\\"}:  # which Milvus's "like" gives another meaning
        problem = "Milvus finds no part of a text with %, _ or a backslash; = finds items of lists"
        raise OptionError("where", want, problem)
    return f"({field} like {_quoted(f'%{want}%')}) or {inside}"


def _quoted(value: Any) -> str:
    if not isinstance(value, str | int | float | bool):
        raise OptionError("where", value, "Milvus compares only texts, numbers and booleans")
    if isinstance(value, str) and any(ord(letter) < 32 for letter in value):
        raise OptionError("where", value, "contains a control character")
    return json.dumps(value, ensure_ascii=False)


def facets(metadata: Iterable[Any]) -> dict[str, list[Any]]:
    """Fields to filter rows by, those with few distinct short values, and the values."""
    fields: dict[str, dict[str, Any]] = {}
    objects = (facts for facts in metadata if isinstance(facts, dict))
    for field, value in chain.from_iterable(facts.items() for facts in objects):
        values = fields.setdefault(field, {})
        if len(values) <= FEW:
            values[canonical(value)] = value
    for name in ("title", "body", "page", "sections") if "document" in fields else ():
        fields.pop(name, None)  # these locate a passage
    return {
        field: sorted(values.values(), key=lambda v: (isinstance(v, str), v))
        for field, values in sorted(fields.items())
        if 1 < len(values) <= FEW
        and not any(isinstance(v, list | dict) or v is None for v in values.values())
        and all(len(v) <= SHORT for v in values.values() if isinstance(v, str))
        and field.isprintable()
        and not field.startswith("$")
        and not {*'."'} & {*field}
    }


# ---------------------------------------------------------------------- numbers and dates


@lru_cache(maxsize=4096)
def number(value: str | float) -> float | int | None:
    """The number that a value reads as: 12, "12", "1,200", "1.200,50", "9 €"; None if none."""
    if not isinstance(value, str):
        return value
    text = re.sub(_CURRENCY, "", value).replace("\u2212", "-")  # a minus of typesetters
    if _COMMAS.fullmatch(text):
        text = text.replace(",", "")
    elif _POINTS.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    if len(text) > 400 or not _PLAIN.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


@lru_cache(maxsize=4096)
def date(value: str | float) -> Date | None:
    """The date that a value reads as, in UTC; 03/05/2024, which may be of March or May, is none."""
    text = str(value).strip()
    if len(text) > 60 or not text[:1].isalnum():
        return None
    if len(text) > 10 and text[4:5] == "-":
        with suppress(ValueError):
            read = datetime.fromisoformat(text)
            with suppress(OverflowError):  # within a day of the calendar's first or last
                read = read.astimezone(UTC) if read.tzinfo else read
            return read.timetuple()[:6]
    clock: Date = ()
    if match := _TIME.fullmatch(text):
        text, clock = match[1], tuple(int(part) for part in match.groups()[1:] if part)
    found: tuple[Any, ...] = ()
    if match := _YEAR_FIRST.fullmatch(text):
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
    """Whether a value is smaller or larger than another, both as numbers, dates or texts."""
    one, other = number(have), number(want)
    if one is not None and other is not None:
        return _OPERATORS[op](one, other)
    then, when = date(have), date(want)
    if then is not None and when is not None:
        # As far as the wanted date goes: all days of March 2024 are of 2024.
        whole = (*then, *(0, 1, 1, 0, 0, 0)[len(then) :])
        return _OPERATORS[op](whole[: len(when)], when)
    if (one, other, then, when) != (None,) * 4:
        problem = f"a row has {have!r} there, which is not comparable; "
        raise OptionError("where", want, f"{problem}correct the row, or use = or ~")
    return _OPERATORS[op](have, want)
