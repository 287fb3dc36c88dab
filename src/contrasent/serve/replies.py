"""What the routes answer with: JSON, and why they refuse."""

from typing import Any

import orjson
from fastapi import Response

from contrasent.serve import schemas

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": words}
    for status, words in {
        400: "The request cannot be answered as it is.",
        401: "A key is needed.",
        404: "There is no such model, no index, or no package that draws such a map.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body is not application/json.",
        429: "The server is busy; Retry-After says when to try again.",
        503: "Not done in time, or the index cannot be read.",
    }.items()
}


def reply(data: Any) -> Response:
    """JSON, vectors included."""
    body = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type="application/json")
