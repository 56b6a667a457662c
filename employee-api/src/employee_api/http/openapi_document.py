"""Types of the parts of an OpenAPI 3.1 document that this API uses."""

from typing import Any, NotRequired, TypedDict

# pydantic generates JSON Schemas without a more precise type.
JsonSchema = dict[str, Any]

# `$ref` can't be an attribute of a class.
Reference = TypedDict("Reference", {"$ref": str})


class Example(TypedDict):
    value: dict[str, Any]


class MediaType(TypedDict):
    schema: JsonSchema
    example: NotRequired[Any]
    examples: NotRequired[dict[str, Example]]


class Header(TypedDict):
    schema: JsonSchema
    description: str
    example: Any


# `in` can't be an attribute of a class.
Parameter = TypedDict(
    "Parameter",
    {
        "name": str,
        "in": str,
        "required": bool,
        "schema": JsonSchema,
        "description": NotRequired[str],
        "example": NotRequired[Any],
    },
)


class RequestBody(TypedDict):
    required: bool
    description: str
    content: dict[str, MediaType]


class Response(TypedDict):
    description: str
    headers: dict[str, Reference]
    content: NotRequired[dict[str, MediaType]]


class Operation(TypedDict):
    operationId: str
    summary: str
    description: str
    tags: list[str]
    responses: dict[str, Response]
    parameters: NotRequired[list[Parameter]]
    requestBody: NotRequired[RequestBody]
    security: NotRequired[list[dict[str, list[str]]]]


class Info(TypedDict):
    title: str
    version: str
    description: str


class Server(TypedDict):
    url: str
    description: str


class Tag(TypedDict):
    name: str
    description: str


class Components(TypedDict):
    schemas: dict[str, JsonSchema]
    headers: dict[str, Header]
    securitySchemes: NotRequired[dict[str, dict[str, str]]]


class Document(TypedDict):
    openapi: str
    info: Info
    servers: list[Server]
    tags: list[Tag]
    paths: dict[str, dict[str, Operation]]
    components: Components
