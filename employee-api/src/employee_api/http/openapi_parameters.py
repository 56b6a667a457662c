"""Describes the parameters of operations: in the path, in the query and in headers."""

import re

from employee_api.errors import PreconditionFailed
from employee_api.http.idempotency import IDEMPOTENCY_KEY, KEY_PATTERN
from employee_api.http.inputs import QueryParameters
from employee_api.http.openapi_document import JsonSchema, Parameter
from employee_api.http.openapi_examples import EXAMPLE_ID, example_of
from employee_api.http.openapi_schemas import Schemas
from employee_api.http.operations import OperationDescription

_EXAMPLE_KEY = "0f8a5a3e-7a4d-4c0e-9a55-6f1f3f6c2b17"
_EXAMPLE_TAG = '"9f86d081884c7d65"'


def parameters(operation: OperationDescription, schemas: Schemas) -> list[Parameter]:
    return [*_path_parameters(operation), *_query_parameters(operation, schemas), *_header_parameters(operation)]


def _path_parameters(operation: OperationDescription) -> list[Parameter]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "description": "A UUID",
            "example": EXAMPLE_ID,
        }
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]


def _query_parameters(operation: OperationDescription, schemas: Schemas) -> list[Parameter]:
    if not isinstance(operation.input, QueryParameters):
        return []
    query = schemas.of_query(operation.input.model)
    required = query.get("required", [])
    return [
        _query_parameter(name, dict(field), schemas, required=name in required)
        for name, field in query["properties"].items()
    ]


def _query_parameter(name: str, field: JsonSchema, schemas: Schemas, *, required: bool) -> Parameter:
    example = example_of(field, schemas.definitions)
    # An optional parameter is omitted, never null.
    choices = [choice for choice in field.pop("anyOf", [field]) if choice.get("type") != "null"]
    schema = {key: value for key, value in (field | choices[0]).items() if key not in ("title", "description")}
    if schema.get("default", "") is None:
        del schema["default"]
    parameter: Parameter = {"name": name, "in": "query", "required": required, "schema": schema}
    if "description" in field:
        parameter["description"] = field["description"]
    if example is not None:
        parameter["example"] = example
    return parameter


def _header_parameters(operation: OperationDescription) -> list[Parameter]:
    found: list[Parameter] = []
    if operation.repeatable:
        key = {"type": "string", "pattern": f"^{KEY_PATTERN}$"}
        meaning = (
            "A repetition with the same key and input within 24 hours gets the first response, and changes nothing"
        )
        found.append(_header(IDEMPOTENCY_KEY, meaning, key, _EXAMPLE_KEY))
    if any(isinstance(failure, PreconditionFailed) for failure in operation.failures):
        found.append(_header("If-Match", "Entity tags: fail with 412 if the current one is not among them"))
    if operation.revalidates:
        found.append(
            _header("If-None-Match", "Entity tags: answer 304 without a body if the current one is among them")
        )
    return found


def _header(name: str, description: str, schema: JsonSchema | None = None, example: str = _EXAMPLE_TAG) -> Parameter:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "schema": schema or {"type": "string"},
        "description": description,
        "example": example,
    }
