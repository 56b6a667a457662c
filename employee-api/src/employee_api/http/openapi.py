"""Generates the OpenAPI 3.1 document of the API from its operations and their models."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from chassis.errors import DomainError
from employee_api.access import SESSION_COOKIE, Access
from employee_api.errors import INTERNAL, http_status
from employee_api.http import openapi_document as document
from employee_api.http.inputs import JsonBody, QueryParameters
from employee_api.http.openapi_document import JsonSchema
from employee_api.http.operations import Operation, OperationDescription
from employee_api.http.outputs import JSON, JsonOutput
from employee_api.schemas import Error

_REFERENCE = "#/components/schemas/{model}"
_SECURITY_SCHEMES = {
    "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
    "bearer": {"type": "http", "scheme": "bearer"},
}


def describe(
    operations: Sequence[OperationDescription], *, enforced: bool, common: Sequence[DomainError] = ()
) -> document.Document:
    """Describe the operations.

    Args:
        operations: what to describe.
        enforced: adds the responses and security schemes of enforced authorization.
        common: errors that every operation of the API can return.
    """
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, document.Operation]] = {}
    for operation in operations:
        described = _operation(operation, schemas, common, enforced=enforced)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    components: document.Components = {"schemas": schemas.definitions}
    if enforced:
        components["securitySchemes"] = _SECURITY_SCHEMES
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Employees and tasks",
            "version": "1.0.0",
            "description": "Employees, their tasks and comments, a log of all changes, and CSV exports.",
        },
        "paths": paths,
        "components": components,
    }


class _Schemas:
    """The JSON Schemas of all bodies, as references to `definitions`, which contains each model once."""

    def __init__(self, operations: Iterable[OperationDescription]) -> None:
        inputs = [operation.input for operation in operations]
        outputs = [operation.output for operation in operations]
        adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            *(
                (str(body.model), "validation", TypeAdapter(body.model))
                for body in inputs
                if isinstance(body, JsonBody)
            ),
            *((str(out.result_type), "serialization", out.adapter) for out in outputs if isinstance(out, JsonOutput)),
            (str(Error), "serialization", TypeAdapter(Error)),
        ]
        self._schemas, generated = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCE)
        self.definitions: dict[str, JsonSchema] = generated["$defs"]

    def of_input(self, model: type[Any]) -> JsonSchema:
        return dict(self._schemas[str(model), "validation"])

    def of_output(self, result_type: type[Any]) -> JsonSchema:
        return dict(self._schemas[str(result_type), "serialization"])


def _operation(
    operation: OperationDescription, schemas: _Schemas, common: Sequence[DomainError], *, enforced: bool
) -> document.Operation:
    described: document.Operation = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, schemas, common, enforced=enforced),
    }
    if parameters := [*_path_parameters(operation), *_query_parameters(operation)]:
        described["parameters"] = parameters
    if isinstance(operation.input, JsonBody):
        content = {JSON: _media_type(schemas.of_input(operation.input.model))}
        described["requestBody"] = {"required": True, "content": content}
    if enforced and operation.access is not Access.OPEN:
        described["security"] = [{"session": []}, {"bearer": []}]
    return described


def _path_parameters(operation: OperationDescription) -> list[document.Parameter]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": "A UUID"}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]


def _query_parameters(operation: OperationDescription) -> list[document.Parameter]:
    if not isinstance(operation.input, QueryParameters):
        return []
    schema = operation.input.model.model_json_schema()
    definitions = schema.get("$defs", {})
    return [_query_parameter(name, dict(field), definitions) for name, field in schema["properties"].items()]


def _query_parameter(name: str, field: JsonSchema, definitions: dict[str, JsonSchema]) -> document.Parameter:
    # An optional parameter is omitted, never null.
    choices = [choice for choice in field.pop("anyOf", [field]) if choice.get("type") != "null"]
    schema = {key: value for key, value in (field | choices[0]).items() if key not in ("title", "description")}
    if schema.get("default", "") is None:
        del schema["default"]
    if reference := schema.pop("$ref", None):
        schema = definitions[reference.rpartition("/")[2]] | schema
    parameter: document.Parameter = {"name": name, "in": "query", "required": False, "schema": schema}
    if "description" in field:
        parameter["description"] = field["description"]
    return parameter


def _responses(
    operation: OperationDescription, schemas: _Schemas, common: Sequence[DomainError], *, enforced: bool
) -> dict[str, document.Response]:
    failures: dict[int, list[str]] = {}
    # The chassis serves the probes: they are described only.
    shared = common if isinstance(operation, Operation) else ()
    for failure in (*operation.documented_failures(enforced=enforced), *shared):
        failures.setdefault(http_status(failure), []).append(failure.message)
    failures[HTTPStatus.INTERNAL_SERVER_ERROR] = [INTERNAL]
    return {str(int(operation.output.status)): _success(operation, schemas)} | {
        str(int(status)): _failure(messages, schemas) for status, messages in sorted(failures.items())
    }


def _success(operation: OperationDescription, schemas: _Schemas) -> document.Response:
    output = operation.output
    if isinstance(output, JsonOutput):
        content = {JSON: _media_type(schemas.of_output(output.result_type))}
        return {"description": output.status.phrase, "content": content}
    disposition: document.Header = {
        "schema": {"type": "string"},
        "description": "`attachment`, with a file name of the table and the month",
    }
    return {
        "description": "RFC 4180",
        "headers": {"Content-Disposition": disposition},
        "content": {"text/csv": _media_type({"type": "string"})},
    }


def _failure(messages: Sequence[str], schemas: _Schemas) -> document.Response:
    messages = list(dict.fromkeys(messages))
    media_type = _media_type(schemas.of_output(Error))
    media_type["examples"] = {
        f"text{number}": {"value": {"error": message}} for number, message in enumerate(messages, 1)
    }
    return {"description": "; ".join(messages), "content": {JSON: media_type}}


def _media_type(schema: JsonSchema) -> document.MediaType:
    return {"schema": schema}
