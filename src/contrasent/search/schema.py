"""The tables and the description of an index, to validate an untrusted one."""

import json
import math
import re
import sqlite3
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from contrasent.search.learned import TABLE

if TYPE_CHECKING:
    from pydantic import BaseModel

TABLES = """
CREATE TABLE facts (one INTEGER PRIMARY KEY CHECK (one = 1), json TEXT, sum INTEGER);
CREATE TABLE rows (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL,
    metadata TEXT NOT NULL, vector_sum INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE dead (row INTEGER PRIMARY KEY);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, count INTEGER NOT NULL,
    vector_sum INTEGER NOT NULL, lengths BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE postings (first INTEGER, term TEXT, held BLOB NOT NULL, counts BLOB NOT NULL,
    sum INTEGER NOT NULL, PRIMARY KEY (first, term)) WITHOUT ROWID;
CREATE TABLE documents (name TEXT PRIMARY KEY, facts TEXT NOT NULL)
"""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_TABLES = 50


def _plain(sql: str) -> str:
    return " ".join(sql.replace("IF NOT EXISTS ", "").split())


_KNOWN = {_plain(sql) for sql in (*TABLES.split(";"), TABLE)}


def foreign_part(connection: sqlite3.Connection) -> str:
    """Anything in a database that is not one of our tables, such as a view in its place, or ""."""
    sql = f"SELECT type, name, sql FROM sqlite_master LIMIT {_MOST_TABLES}"
    for kind, name, stated in connection.execute(sql):
        automatic = kind == "index" and stated is None  # for a table's key
        if not automatic and _plain(str(stated)) not in _KNOWN:
            return f"the {str(kind)[:20]} {str(name)[:60]!r} is none of an index"
    return ""


def parse_stored(text: object) -> Any:
    """JSON that an index stores; a ``ValueError`` for anything our writer does not write."""
    if not isinstance(text, str) or _SURROGATE.search(text):
        raise ValueError("is no JSON text")
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no JSON")
    return value


def wrong_facts(data: Any) -> str:
    """The first invalid entry of a description, or ""."""
    from pydantic import ValidationError

    try:
        for part, model in _models().items():
            value = data.get(part) if part else data
            if not part or value:
                model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, (part, *first['loc'])))}: {first['msg']}".lstrip(".")
    rows, dimension, codes = data["rows"], data["dimension"], data["codes"]
    if data["dead"] > rows or (rows and not dimension):
        return f"{rows} rows of {dimension} dimensions, {data['dead']} of them deleted"
    if codes and (codes["rows"] > rows or len(codes["centre"]) != dimension):
        return "codes are of other vectors"
    return ""


@cache
def _models() -> "dict[str, type[BaseModel]]":
    from pydantic import ConfigDict, Field, create_model

    number = Annotated[int, Field(ge=0, lt=1 << 31)]
    total = Annotated[int, Field(ge=0, lt=1 << 62)]
    path = Annotated[str, Field(pattern=r"^[^\x00]*$")]
    facts: dict[str, Any] = {
        "format": int,
        "identity": str,
        "generation": total,
        "model": str,
        "source": path,
        "metric": str,
        "dimension": number,
        "vectors": Annotated[str, Field(pattern=r"^vectors-[0-9]{6}\.f32$")],
        "rows": number,
        "dead": number,
        "next_id": total,
        "language": str,
        "ranker": dict[str, float],
        "settings": dict[str, str | int | float | None],
        "codes": dict[str, Any],
        "origin": dict[str, Any],
        "encoding": (dict[str, Any], {}),  # only while it continues
    }
    codes: dict[str, Any] = {
        "file": Annotated[str, Field(pattern=r"^codes-[0-9]{6}\.u64$")],
        "rows": Annotated[int, Field(ge=1, lt=1 << 31)],
        "sum": int,
        "centre": list[float],
    }
    origin: dict[str, Any] = {
        "kind": str,
        "path": path,
        "root": path,
        "columns": list[str] | None,
        "max_file_text": Annotated[int, Field(ge=1)],
        # Earlier versions did not write these.
        "listed": (total, 0),
        "as_text": (list[str], None),
        "exclude": (list[str], None),
        "include": (list[str], None),
        "gitignore": (bool, False),
        "encoding": (str, ""),
    }
    settings: dict[str, Any] = {
        "pooler": (str | None, None),
        "max_tokens": (Annotated[int, Field(ge=1)] | None, None),
        "uri": (path, None),
        "collection": (str, None),
    }
    encoding: dict[str, Any] = {"rows": number, "source": path}
    parts = {"": facts, "codes": codes, "origin": origin, "settings": settings}
    parts["encoding"] = encoding
    models = {}
    for name, keys in parts.items():
        fields: Any = {
            key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in keys.items()
        }
        extra: Any = "ignore" if name == "settings" else "forbid"
        config = ConfigDict(strict=True, extra=extra, allow_inf_nan=False)
        models[name] = create_model(name or "facts", __config__=config, **fields)
    return models
