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

A filter becomes a condition of SQL over the JSON of each row, or of Milvus.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from contrasent.errors import OptionError, UserError

Where = dict[str, Any]

_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
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


def operators(value: Any) -> dict[str, Any]:
    """The tests of one field: {"$eq": value} for a plain value."""
    if isinstance(value, dict) and any(key.startswith("$") for key in value):
        return value
    return {"$eq": value}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "null"


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
        elif '"' in key or any(ord(letter) < 32 for letter in key):
            raise OptionError("where", key, "a field's name holds no quotes or control characters")
        else:
            _check_tests(operators(value))
    return where


def _check_tests(tests: dict[str, Any]) -> None:
    for op, want in tests.items():
        if op not in OPERATORS:
            raise OptionError("where", op, "is no operator", choices=OPERATORS)
        if op in _LISTS and not isinstance(want, list):
            raise OptionError("where", want, f"{op} takes a list")
        if op in _ORDER and _kind(want) not in ("number", "text"):
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


# ---------------------------------------------------------------------- SQL


def canonical(value: Any) -> str:
    """JSON as the store keeps it: keys sorted, no spaces, so that equal values are equal texts."""
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{str(value)[:60]!r} is not JSON ({error})") from error


def sql_condition(where: Where) -> tuple[str, list[Any]]:
    """A condition on the column ``metadata`` and its parameters."""
    values: list[Any] = []

    def condition(part: Where) -> str:
        return " AND ".join(f"({one(key, value)})" for key, value in part.items()) or "1"

    def one(key: str, value: Any) -> str:
        if key == "$not":
            return f"NOT ({condition(value)})"
        if key in ("$and", "$or"):
            return f" {key[1:].upper()} ".join(f"({condition(part)})" for part in value)
        tests = operators(value)
        return _of_field(key, lambda path: _all_tests(path, tests, values))

    return condition(where), values


def _of_field(field: str, tests: Callable[[str | None], str]) -> str:
    """The tests of a field; a key with dots in it is tried before the path that it may mean."""
    parts = field.split(".")
    paths = [
        "$" + "".join(f'."{name}"' for name in (*parts[:n], ".".join(parts[n:])))
        for n in range(len(parts))
    ]
    if len(paths) == 1:
        return tests(paths[0])
    cases = "".join(
        f" WHEN json_type(metadata, {_text(path)}) IS NOT NULL THEN {tests(path)}" for path in paths
    )
    return f"CASE{cases} ELSE {tests(None)} END"


def _all_tests(path: str | None, tests: dict[str, Any], values: list[Any]) -> str:
    return " AND ".join(f"({_test(path, op, want, values)})" for op, want in tests.items())


def _test(path: str | None, op: str, want: Any, values: list[Any]) -> str:
    """One test; of no path where the field is missing."""
    if path is None:
        return str(int(op in ("$ne", "$nin") or (op == "$exists" and not want)))
    kind = f"COALESCE(json_type(metadata, {_text(path)}), '')"
    have = f"json_extract(metadata, {_text(path)})"
    if op == "$exists":
        return f"{kind} {'!=' if want else '='} ''"
    if op in ("$ne", "$nin"):
        return f"NOT ({_test(path, '$eq' if op == '$ne' else '$in', want, values)})"
    if op == "$in":
        return " OR ".join(f"({_test(path, '$eq', one, values)})" for one in want) or "0"
    if op == "$contains":
        values.extend([want if isinstance(want, str) else None, *_scalar(want)])
        inside = _equal("json_each.type", "json_each.value", want)
        return (
            f"({kind} = 'text' AND COALESCE(instr({have}, ?), 0) > 0) OR ({kind} = 'array' AND "
            f"EXISTS (SELECT 1 FROM json_each(metadata, {_text(path)}) WHERE {inside}))"
        )
    values.extend(_scalar(want))
    if op == "$eq":
        return _equal(kind, have, want)
    return f"{_of_kind(kind, want)} AND {have} {_ORDER[op]} ?"


def _scalar(want: Any) -> list[Any]:
    """The parameters of a comparison with a value."""
    if want is None or isinstance(want, bool):
        return []
    if isinstance(want, list | dict):
        return [canonical(want)]
    return [float(want) if isinstance(want, int) and abs(want) >= 1 << 63 else want]


def _equal(kind: str, have: str, want: Any) -> str:
    same = _of_kind(kind, want)
    return same if want is None or isinstance(want, bool) else f"{same} AND {have} = ?"


def _of_kind(kind: str, want: Any) -> str:
    name = _kind(want)
    return f"{kind} IN ('integer', 'real')" if name == "number" else f"{kind} = '{name}'"


def _text(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


# ---------------------------------------------------------------------- Milvus


def ids_in(ids: Sequence[str]) -> str:
    """Rows of Milvus with one of these ids."""
    return f"id in [{', '.join(_quoted(name) for name in ids)}]"


def milvus_expression(where: Where) -> str:
    """A filter in Milvus's language; values are quoted as JSON."""
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
    signs = {"$eq": "==", **_ORDER}
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
