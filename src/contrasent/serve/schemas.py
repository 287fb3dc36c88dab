"""The forms of requests and answers, which FastAPI describes at /openapi.json."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
)


def reply(data: Any) -> Response:
    """An answer in JSON, vectors included."""
    try:
        body = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # metadata may hold whole numbers of more than 64 bits
        body = json.dumps(data, default=lambda array: array.tolist()).encode()
    return Response(body, media_type="application/json")


def explain(error: RequestValidationError) -> tuple[str, str]:
    """The fault of a request in a sentence, and its place; never the value, a user's text."""
    # A value that may have several forms gives an error for each; the place names the form, and the
    # one that fits furthest is meant.
    faults = [
        (_place(part["loc"][1:], error.body, part["type"] == "missing"), part)
        for part in error.errors()
    ]
    where, first = max(faults, key=lambda pair: (len(pair[0]), not _of_type(pair[1])))
    if first["type"] == "json_invalid":
        return f"the body is not JSON ({first['ctx']['error']})", ""
    same = [part for place, part in faults if place == where and _of_type(part)]
    messages = [part["msg"] for part in same] if _of_type(first) else [first["msg"]]
    start, *others = dict.fromkeys(messages)
    alternatives = [message.removeprefix("Input should be ") for message in others]
    problem = " or ".join([start, *alternatives]).replace("Input should be", "must be")
    problem = problem.removeprefix("Value error, ")
    shown = ".".join(map(str, where))[:100]
    return f"{shown or 'the body'}: {problem}"[:300], shown


def _of_type(part: Mapping[str, Any]) -> bool:
    return str(part["type"]).endswith("_type")


def _place(location: Sequence[int | str], body: Any, missing: bool) -> list[int | str]:
    """The keys and places of an error's location that are in the body, or missing from it."""
    place: list[int | str] = []
    for part in location:
        if isinstance(body, dict) and isinstance(part, str) and (missing or part in body):
            place, body = [*place, part], body.get(part)
        elif isinstance(body, list) and isinstance(part, int) and part < len(body):
            place, body = [*place, part], body[part]
    return place


def _no_surrogate(text: str) -> str:
    """Reject half a surrogate pair, which JSON can write and no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("the text contains a lone surrogate, which is not a character") from error
    return text


def _whole(value: Any) -> Any:
    """Take 21.0 for 21, as JSON does, and neither true nor "21"."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Lists are read up to their first fault: each fault of a long one would be a record in memory.
Text = Annotated[StrictStr, AfterValidator(_no_surrogate)]
Texts = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
TokenId = Annotated[StrictInt, Field(ge=0), BeforeValidator(_whole)]
Ids = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
Count = Annotated[StrictInt, Field(ge=1), BeforeValidator(_whole)]
Hits = Annotated[StrictInt, Field(ge=1, le=1000), BeforeValidator(_whole)]


class RequestBody(BaseModel):
    """A request body; unknown keys are errors, so that a misspelled option is not lost."""

    model_config = ConfigDict(extra="forbid")


class EmbeddingRequest(RequestBody):
    """As OpenAI's ``POST /v1/embeddings``."""

    input: Text | Texts | Ids | Annotated[list[Ids], Field(min_length=1, fail_fast=True)] = Field(
        description="A text, texts, token ids, or lists of token ids. Use this model's tokenizer, "
        "without special tokens."
    )
    model: Text | None = Field(None, description="The served model's name, see /v1/models.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="base64 is little-endian float32."
    )
    dimensions: Count | None = Field(
        None,
        description="Number of leading dimensions to keep; vectors are scaled to length one again.",
    )
    prompt_name: Text | None = Field(
        None, description="Name of the model's prompt to prepend to each text, such as query."
    )
    user: StrictStr | None = Field(None, description="Ignored.")


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were encoded, special ones included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    """As OpenAI's; ``truncated`` is ours: how many inputs were cut at the longest input."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    truncated: int


class ModelInfo(BaseModel):
    """A model; beyond OpenAI's fields, those needed to use it right."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    dimension: int
    max_seq_length: int
    identity: str
    prompts: dict[str, str]
    nested_dimensions: list[int]


class ModelList(BaseModel):
    """The models served: one."""

    object: Literal["list"]
    data: list[ModelInfo]


class SimilarityRequest(RequestBody):
    """Texts to compare: each of ``a`` with each of ``b``, or with each other if there is no b."""

    a: Text | Texts
    b: Text | Texts | None = None


class SimilarityResponse(BaseModel):
    """Cosines; ``scores[i][j]`` is that of ``a[i]`` and ``b[j]``."""

    scores: list[list[float]]
    model: str
    truncated: int


class SearchRequest(RequestBody):
    """Queries for the server's index."""

    query: Text | Texts
    k: Hits = 10
    threshold: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = Field(
        None, description="Lowest confidence, in percent."
    )
    exact: StrictBool = Field(False, description="Whether to leave typing errors uncorrected.")
    where: dict[str, Any] | None = Field(
        None, description='Filter on metadata, such as {"year": {"$gte": 2000}}.'
    )
    answers: StrictBool = Field(False, description="Whether to return the sentence that answers.")
    documents: StrictBool = Field(False, description="Whether k counts documents instead of texts.")


class FoundAnswer(BaseModel):
    """The sentence of a hit that answers; offsets are characters of the hit's text."""

    text: str
    start: int
    end: int
    marks: list[tuple[int, int]] = Field(description="Start and end of each word of the query.")
    cut: tuple[bool, bool] = Field(description="Whether the sentence continues before and after.")
    headings: list[str] = Field(description="Headings above it in its document, outermost first.")
    page: int | None = Field(description="Its page in its document.")
    listed: bool = Field(description="Whether it is a task or an entry of a table of contents.")


class FoundHit(BaseModel):
    """One text found."""

    id: str
    text: str
    score: float
    cosine: float
    bm25: float
    confidence: float | None = Field(
        description="Probability in percent that it answers, where known."
    )
    metadata: Any
    answer: FoundAnswer | None = None


class Result(BaseModel):
    """The hits of one query, best first."""

    query: str
    searched: str = Field(description="The query without typing errors.")
    no_match: bool = Field(description="Whether all matches are weak.")
    hits: list[FoundHit]


class SearchResponse(BaseModel):
    """The hits of each query."""

    results: list[Result]
    texts: int
    seconds: float
    bm25_only: str = Field(
        description='Empty, or "BM25 only: 12 % encoded" while only BM25 searches the index.'
    )


class Health(BaseModel):
    """Whether the server works, and what it serves."""

    status: Literal["ok"]
    model: str
    dimension: int
    max_seq_length: int
    texts: int | None
    key_needed: bool


class FacetsResponse(BaseModel):
    """Fields that the texts of the index can be filtered by, with their few values."""

    facets: dict[str, list[str | float | bool]]


class Problem(BaseModel):
    """An error's message, kind and code."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """As OpenAI's errors."""

    error: Problem


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": ErrorResponse,
        "description": "400: invalid request. 401: an API key is required. 404: unknown model or "
        "no index. 408: the body did not arrive in time. 413: too large. "
        "415: the body is not application/json. 429: busy; Retry-After says when to try again.",
    },
    503: {
        "model": ErrorResponse,
        "description": "Not done in time, or the index cannot be read.",
    },
}
