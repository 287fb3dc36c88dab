"""Filters on metadata, as :mod:`contrasent.search.filters` has them, in Milvus's language.

Values are quoted as JSON, and what Milvus could take for more than a value is refused.
"""

import json
from collections.abc import Sequence
from typing import Any

from contrasent.errors import OptionError
from contrasent.search.filters import Where, operators


def ids_in(ids: Sequence[str]) -> str:
    """Rows with one of these ids."""
    return f"id in [{', '.join(_literal(name) for name in ids)}]"


def expression(where: Where) -> str:
    """A filter in Milvus's language."""
    parts = [_condition(key, value) for key, value in where.items()]
    return " and ".join(f"({part})" for part in parts)


def _condition(key: str, value: Any) -> str:
    if key == "$not":
        return f"not ({expression(value)})"
    if key in ("$and", "$or"):
        return f" {key[1:]} ".join(f"({expression(part)})" for part in value)
    field = "metadata" + "".join(f"[{_literal(part)}]" for part in key.split("."))
    return " and ".join(f"({_test(field, op, want)})" for op, want in operators(value).items())


def _test(field: str, op: str, want: Any) -> str:
    signs = {"$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
    if op in signs:
        return f"{field} {signs[op]} {_literal(want)}"
    if op == "$ne":
        return f"(not (exists {field})) or ({field} != {_literal(want)})"
    if op == "$in":
        return " or ".join(f"({field} == {_literal(one)})" for one in want) or "id == ''"
    if op == "$nin":
        return " and ".join(f"({_test(field, '$ne', one)})" for one in want) or "id != ''"
    if op == "$exists":
        return f"exists {field}" if want else f"not (exists {field})"
    return f"json_contains({field}, {_literal(want)})"


def _literal(value: Any) -> str:
    if not isinstance(value, str | int | float | bool):
        raise OptionError("where", value, "Milvus compares with texts, numbers and truth only")
    if isinstance(value, str) and any(ord(letter) < 32 for letter in value):
        raise OptionError("where", value, "holds a control character")
    return json.dumps(value, ensure_ascii=False)
