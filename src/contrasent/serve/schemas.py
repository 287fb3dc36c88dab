"""What requests and answers look like; the OpenAPI page is made of this."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
)


def whole(text: str) -> str:
    """Refuse half a surrogate pair, which JSON can write and no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("the text holds a lone surrogate, which is no character") from error
    return text


def number(value: Any) -> Any:
    """Take 21.0 for 21, as JSON does, and neither true nor "21"."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Whole = Annotated[StrictInt, BeforeValidator(number)]
Text = Annotated[StrictStr, AfterValidator(whole)]
Ids = Annotated[list[Whole], Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]


class RequestBody(BaseModel):
    """A request body; unknown keys are refused, so that a misspelt option is not lost."""

    model_config = ConfigDict(extra="forbid")


class EmbeddingRequest(RequestBody):
    """As OpenAI's ``POST /v1/embeddings``."""

    input: Text | Texts | Ids | Annotated[list[Ids], Field(min_length=1)] = Field(
        description="A text, texts, token ids, or lists of token ids. Ids are those of this "
        "model's tokenizer, without special tokens."
    )
    model: Text | None = Field(None, description="The served model's name, see /v1/models.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="base64 is little-endian float32."
    )
    dimensions: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="Keep the first so many dimensions, scaled to length one again."
    )
    prompt_name: Text | None = Field(
        None, description="Prompt of the model to put before each text, such as query."
    )
    user: StrictStr | None = Field(None, description="Ignored.")


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were encoded, special ones included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    """As OpenAI's; ``truncated`` is ours: how many inputs were cut at the longest input."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage
    truncated: int


class ModelInfo(BaseModel):
    """A model; beyond OpenAI's fields, what is needed to use it right."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    dimension: int
    max_tokens: int
    identity: str
    prompts: dict[str, str]
    nested_dimensions: list[int]


class ModelList(BaseModel):
    """The models served: one."""

    object: Literal["list"] = "list"
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
    k: Annotated[Whole, Field(ge=1)] = 10
    threshold: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    where: dict[str, Any] | None = Field(
        None, description='Filter on metadata, such as {"year": {"$gte": 2000}}.'
    )


class FoundHit(BaseModel):
    """One text found."""

    id: str
    text: str
    score: float
    metadata: Any


class Result(BaseModel):
    """What one query found, best first."""

    query: str
    hits: list[FoundHit]


class SearchResponse(BaseModel):
    """What each query found."""

    results: list[Result]
    texts: int
    seconds: float


class CompareRequest(RequestBody):
    """A query for the server's index and the one beside it."""

    query: Text
    k: Annotated[Whole, Field(ge=1)] = 10
    where: dict[str, Any] | None = Field(None, description="Filter on metadata, as of /search.")


class ComparedHit(FoundHit):
    """A text found, and its rank from 1 in the other list, null if that is not so deep."""

    other: int | None


class CompareResponse(BaseModel):
    """What both indexes find, best first; ``overlap`` is the share of the two lists in common."""

    old: list[ComparedHit]
    new: list[ComparedHit]
    overlap: float
    rank_biased_overlap: float


class Health(BaseModel):
    """Whether the server works, and what it serves."""

    status: Literal["ok"]
    model: str
    dimension: int
    max_tokens: int
    texts: int | None
    compare: str | None = Field(description="Name of the index beside it, if there is one.")
    key_needed: bool


class Point(BaseModel):
    """A text of the index and its place on the map."""

    id: str
    text: str
    x: float
    y: float


class MapResponse(BaseModel):
    """A flat picture of the index."""

    points: list[Point]
    texts: int
    explained: float = Field(description="Share of the variance that the plane shows, 0 to 1.")


class Problem(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(BaseModel):
    """As OpenAI's errors."""

    error: Problem
