"""Types of the parts of an OpenAPI 3.1 document that this API uses."""

from typing import Any, NotRequired, TypedDict

# pydantic generates JSON Schemas without a more precise type.
JsonSchema = dict[str, Any]


class Example(TypedDict):
    value: dict[str, str]


class MediaType(TypedDict):
    schema: JsonSchema
    examples: NotRequired[dict[str, Example]]


class Header(TypedDict):
    schema: JsonSchema
    description: str


# `in` can't be an attribute of a class.
Parameter = TypedDict(
    "Parameter", {"name": str, "in": str, "required": bool, "schema": JsonSchema, "description": NotRequired[str]}
)


class RequestBody(TypedDict):
    required: bool
    content: dict[str, MediaType]


class Response(TypedDict):
    description: str
    headers: NotRequired[dict[str, Header]]
    content: dict[str, MediaType]


class Operation(TypedDict):
    operationId: str
    summary: str
    tags: list[str]
    responses: dict[str, Response]
    parameters: NotRequired[list[Parameter]]
    requestBody: NotRequired[RequestBody]
    security: NotRequired[list[dict[str, list[str]]]]


class Info(TypedDict):
    title: str
    version: str
    description: str


class Components(TypedDict):
    schemas: dict[str, JsonSchema]
    securitySchemes: NotRequired[dict[str, dict[str, str]]]


class Document(TypedDict):
    openapi: str
    info: Info
    paths: dict[str, dict[str, Operation]]
    components: Components
