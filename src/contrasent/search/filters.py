"""Choosing rows by their metadata.

A filter is JSON. Each key names a field of the metadata object (``a.b`` reaches into objects) and
all keys must match::

    {"lang": "en", "year": {"$gte": 2000, "$lt": 2010}}
    {"$or": [{"tags": {"$contains": "draft"}}, {"author": {"$in": ["ann", "bo"]}}]}

============================  =====================================================================
``$eq`` (or the plain value)  equal as JSON: 1 equals 1.0, true does not equal 1
``$ne``, ``$nin``             not equal, not in the list; also true where the field is missing
``$in``                       equal to one of a list
``$gt $gte $lt $lte``         numbers with numbers, strings with strings; else false
``$contains``                 the field is a list with this value, or a string with this part
``$exists``                   true or false: whether the field is there
``$and $or``                  lists of filters;  ``$not``: one filter
============================  =====================================================================

The fields of a filter are read once for each snapshot; what follows is a look-up.
"""

import json
import operator
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.search.segment import Segment

Where = dict[str, Any]
Mask = NDArray[np.bool_]

MISSING = object()
_ORDER = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_LISTS = ("$in", "$nin")
OPERATORS = ("$eq", "$ne", *_ORDER, *_LISTS, "$contains", "$exists")
_JOINS = ("$and", "$or", "$not")
_DEPTH = 32
_SHORT = re.compile(r"\s*([^<>=!~\s]+)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*")
_SIGNS = {
    "=": "$eq",
    "!=": "$ne",
    "<": "$lt",
    "<=": "$lte",
    ">": "$gt",
    ">=": "$gte",
    "~": "$contains",
}


class Columns:
    """Fields of a segment's metadata, each as distinct values and a code a row."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.known: dict[str, tuple[list[Any], NDArray[np.int32]]] = {}

    def column(self, field: str) -> tuple[list[Any], NDArray[np.int32]]:
        """Distinct values of a field, MISSING among them, and (n,) codes of the rows."""
        if field not in self.known:
            codes = np.empty(len(self.segment), dtype=np.int32)
            seen: dict[str, int] = {}
            values: list[Any] = []
            for row in range(len(self.segment)):
                value = _reach(self.segment.metadata_of(row), field)
                key = "" if value is MISSING else json.dumps(value, sort_keys=True)
                if key not in seen:
                    seen[key] = len(values)
                    values.append(value)
                codes[row] = seen[key]
            self.known[field] = (values, codes)
        return self.known[field]

    def mask(self, where: Where) -> Mask:
        """(n,) which rows a checked filter matches."""
        return _all([self._one(key, value) for key, value in where.items()], len(self.segment))

    def _one(self, key: str, value: Any) -> Mask:
        if key == "$not":
            return ~self.mask(value)
        if key == "$and":
            return _all([self.mask(part) for part in value], len(self.segment))
        if key == "$or":
            return ~_all([~self.mask(part) for part in value], len(self.segment))
        values, codes = self.column(key)
        tests = operators(value)
        good = [all(_matches(have, op, want) for op, want in tests.items()) for have in values]
        return np.array(good, dtype=bool)[codes]


def _all(masks: Sequence[Mask], rows: int) -> Mask:
    joined = np.ones(rows, dtype=bool)
    for mask in masks:
        joined &= mask
    return joined


def _reach(value: Any, field: str) -> Any:
    """The value of a field, or MISSING; a key with dots in it is tried before the path."""
    if isinstance(value, dict):
        if field in value:
            return value[field]
        head, dot, rest = field.partition(".")
        if dot and head in value:
            return _reach(value[head], rest)
    return MISSING


def operators(value: Any) -> dict[str, Any]:
    """The tests of one field: {"$eq": value} for a plain value."""
    if isinstance(value, dict) and any(key.startswith("$") for key in value):
        return value
    return {"$eq": value}


def _matches(have: Any, op: str, want: Any) -> bool:
    """Whether a field's value passes one test."""
    if op == "$exists":
        return bool((have is not MISSING) == want)
    if op in ("$ne", "$nin"):
        return not _matches(have, "$eq" if op == "$ne" else "$in", want)
    if have is MISSING:
        return False
    if op == "$eq":
        return _equal(have, want)
    if op == "$in":
        return any(_equal(have, one) for one in want)
    if op == "$contains":
        if isinstance(have, list):
            return any(_equal(one, want) for one in have)
        return isinstance(have, str) and isinstance(want, str) and want in have
    if _kind(have) == _kind(want) and _kind(have) in ("number", "string"):
        return bool(_ORDER[op](have, want))
    return False


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "list"
    return "object" if isinstance(value, dict) else "null"


def _equal(one: Any, two: Any) -> bool:
    if _kind(one) != _kind(two):
        return False
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_equal, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    return bool(one == two)


def check_where(where: Any, depth: int = 0) -> Where:
    """Reject a filter that cannot be evaluated; returns it."""
    if not isinstance(where, dict):
        raise OptionError("where", where, "a filter is a JSON object, such as {'lang': 'en'}")
    if depth > _DEPTH:
        raise OptionError("where", "...", f"is nested deeper than {_DEPTH}")
    for key, value in where.items():
        if key in ("$and", "$or"):
            if not isinstance(value, list) or not value:
                raise OptionError("where", value, f"{key} takes a list of filters")
            for part in value:
                check_where(part, depth + 1)
        elif key == "$not":
            check_where(value, depth + 1)
        elif key.startswith("$"):
            raise OptionError("where", key, "is no field", choices=_JOINS)
        else:
            _check_tests(operators(value))
    return where


def _check_tests(tests: dict[str, Any]) -> None:
    for op, want in tests.items():
        if op not in OPERATORS:
            raise OptionError("where", op, "is no operator", choices=OPERATORS)
        if op in _LISTS and not isinstance(want, list):
            raise OptionError("where", want, f"{op} takes a list")
        if op in _ORDER and _kind(want) not in ("number", "string"):
            raise OptionError("where", want, f"{op} takes a number or a string")
        if op == "$exists" and not isinstance(want, bool):
            raise OptionError("where", want, "$exists takes true or false")


def parse_where(conditions: Sequence[str]) -> Where | None:
    """A filter from the command line: JSON, or ``field=value``, joined by and; None for none.

    ``=  !=  <  <=  >  >=`` compare and ``~`` tests whether a list or string contains a value. A
    value is JSON where it is JSON (``year>=2000``, ``done=true``), else a string.
    """
    parts = [_condition(text) for text in conditions]
    if not parts:
        return None
    return check_where(parts[0] if len(parts) == 1 else {"$and": parts})


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
    with suppress(ValueError):  # what is not JSON is a string
        value = json.loads(value)
    return {field: {_SIGNS[sign]: value}}


def ids_in(ids: Sequence[str]) -> str:
    """Rows of Milvus with one of these ids."""
    return f"id in [{', '.join(_quoted(name) for name in ids)}]"


def milvus_expression(where: Where) -> str:
    """A filter in Milvus's language.

    Values are quoted as JSON, and what Milvus could take for more than a value is refused.
    """
    parts = [_milvus_condition(key, value) for key, value in where.items()]
    return " and ".join(f"({part})" for part in parts)


def _milvus_condition(key: str, value: Any) -> str:
    if key == "$not":
        return f"not ({milvus_expression(value)})"
    if key in ("$and", "$or"):
        return f" {key[1:]} ".join(f"({milvus_expression(part)})" for part in value)
    field = "metadata" + "".join(f"[{_quoted(part)}]" for part in key.split("."))
    return " and ".join(
        f"({_milvus_test(field, op, want)})" for op, want in operators(value).items()
    )


def _milvus_test(field: str, op: str, want: Any) -> str:
    signs = {"$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
    if op in signs:
        return f"{field} {signs[op]} {_quoted(want)}"
    if op == "$ne":
        return f"(not (exists {field})) or ({field} != {_quoted(want)})"
    if op == "$in":
        return " or ".join(f"({field} == {_quoted(one)})" for one in want) or "id == ''"
    if op == "$nin":
        return " and ".join(f"({_milvus_test(field, '$ne', one)})" for one in want) or "id != ''"
    if op == "$exists":
        return f"exists {field}" if want else f"not (exists {field})"
    return f"json_contains({field}, {_quoted(want)})"


def _quoted(value: Any) -> str:
    if not isinstance(value, str | int | float | bool):
        raise OptionError("where", value, "Milvus compares with texts, numbers and truth only")
    if isinstance(value, str) and any(ord(letter) < 32 for letter in value):
        raise OptionError("where", value, "holds a control character")
    return json.dumps(value, ensure_ascii=False)
