"""The OpenAPI description: FastAPI's, with the limits of this model and server written in."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from contrasent.serve.settings import Served, Settings

_ORDERED = {"type": ["string", "number"]}
_FILTERS = {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Where"}}
WHERE: dict[str, Any] = {
    "type": "object",
    "description": "A filter on metadata; all its keys must match.",
    "propertyNames": {"pattern": r"^(?!\$)|^\$(and|or|not)$"},
    "properties": {
        "$and": _FILTERS,
        "$or": _FILTERS,
        "$not": {"$ref": "#/components/schemas/Where"},
    },
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number", "boolean", "null", "array"]},
            {"type": "object", "propertyNames": {"pattern": r"^(?!\$)"}},
            {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "properties": {
                    **{name: {} for name in ("$eq", "$ne", "$contains")},
                    **{name: _ORDERED for name in ("$gt", "$gte", "$lt", "$lte")},
                    **{name: {"type": "array"} for name in ("$in", "$nin")},
                    "$exists": {"type": "boolean"},
                },
            },
        ]
    },
}


def describe(app: FastAPI, model: Served, limits: Settings) -> None:
    """Describe this server in ``app.openapi``: 400 instead of FastAPI's 422, and the limits."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            parts = schema["components"]["schemas"]
            for name in ("HTTPValidationError", "ValidationError"):
                parts.pop(name, None)
            _limit(parts, model, limits)
            if limits.api_key:
                schema["components"]["securitySchemes"] = {
                    "key": {"type": "http", "scheme": "bearer"}
                }
                schema["security"] = [{"key": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _limit(parts: dict[str, Any], model: Served, limits: Settings) -> None:
    parts["Where"] = WHERE
    parts["SearchRequest"]["properties"]["where"] = {
        "anyOf": [{"$ref": "#/components/schemas/Where"}, {"type": "null"}]
    }
    embedding = parts["EmbeddingRequest"]["properties"]
    for choice in embedding["dimensions"]["anyOf"]:
        if choice.get("type") == "integer":
            choice.update(minimum=1, maximum=model.dimension)
    parts["SearchRequest"]["properties"]["k"].update(minimum=1, maximum=limits.max_k)
    most = {
        "EmbeddingRequest": limits.max_inputs,
        "SimilarityRequest": limits.max_compared,
        "SearchRequest": limits.max_inputs,
    }
    for name, items in most.items():
        for field in parts[name]["properties"].values():
            for choice in field.get("anyOf", []):
                _limit_array(choice, model, items)


def _limit_array(choice: dict[str, Any], model: Served, most: int) -> None:
    items = choice.get("items")
    if items is None:
        return
    if items.get("type") == "integer":
        items.update(minimum=0, maximum=model.vocabulary - 1)
    else:
        choice["maxItems"] = most
        _limit_array(items, model, most)
