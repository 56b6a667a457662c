"""The API's description (OpenAPI 3.1), made from the operations that serve and the models they read and write."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from employee_api.auth import SESSION_COOKIE, Access
from employee_api.errors import INTERNAL, status_of
from employee_api.operations import CSV, Operation
from employee_api.schemas import Error

_REFERENCE = "#/components/schemas/{model}"
_JSON = "application/json"


def describe(operations: Sequence[Operation], *, enforced: bool) -> dict[str, Any]:
    """Describe an API of these operations; `enforced` tells whether it refuses callers without a session or role."""
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, schemas, enforced=enforced)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Employees and tasks",
            "version": "1.0.0",
            "description": "Employees, their tasks, what they said and did, and exports of all of it.",
        },
        "paths": paths,
        "components": {"schemas": schemas.definitions} | ({"securitySchemes": _SECURITY_SCHEMES} if enforced else {}),
    }


_SECURITY_SCHEMES = {
    "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
    "bearer": {"type": "http", "scheme": "bearer"},
}


class _Schemas:
    """JSON Schemas of every model, each defined once."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        inputs = [(operation.body, "validation") for operation in operations if operation.body]
        answers = [(operation.answer, "serialization") for operation in operations if operation.answer != CSV]
        wanted = dict.fromkeys([*inputs, *answers, (Error, "serialization")])
        adapters: Any = [(str(model), mode, TypeAdapter(model).core_schema) for model, mode in wanted]
        found, definitions = GenerateJsonSchema(ref_template=_REFERENCE).generate_definitions(adapters)
        self.definitions = definitions
        self._by_model = {name: schema for (name, _), schema in found.items()}

    def __getitem__(self, model: Any) -> dict[str, Any]:
        return dict(self._by_model[str(model)])


def _operation(operation: Operation, schemas: _Schemas, *, enforced: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, schemas, enforced=enforced),
    }
    if parameters := [*_path_parameters(operation), *_query_parameters(operation)]:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": schemas[operation.body]}}}
    if enforced and operation.access is not Access.OPEN:
        described["security"] = [{"session": []}, {"bearer": []}]
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": "A UUID"}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema()
    definitions = schema.get("$defs", {})
    return [_query_parameter(name, dict(field), definitions) for name, field in schema["properties"].items()]


def _query_parameter(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """An optional parameter is left out, never null."""
    choices = [choice for choice in field.pop("anyOf", [field]) if choice.get("type") != "null"]
    schema = {key: value for key, value in (field | choices[0]).items() if key not in ("title", "description")}
    if schema.get("default", "") is None:
        del schema["default"]
    if reference := schema.pop("$ref", None):
        schema = definitions[reference.rpartition("/")[2]] | schema
    parameter = {"name": name, "in": "query", "required": False, "schema": schema}
    return parameter | ({"description": field["description"]} if "description" in field else {})


def _responses(operation: Operation, schemas: _Schemas, *, enforced: bool) -> dict[str, Any]:
    failures: dict[int, list[str]] = {}
    for failure in operation.possible_failures(enforced=enforced):
        failures.setdefault(status_of(failure), []).append(failure.message)
    failures[HTTPStatus.INTERNAL_SERVER_ERROR] = [INTERNAL]
    return {str(int(operation.status)): _success(operation, schemas)} | {
        str(int(status)): _failure(texts, schemas) for status, texts in sorted(failures.items())
    }


def _success(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    if operation.answer == CSV:
        disposition = {"schema": {"type": "string"}, "description": "attachment, with a name that tells kind and month"}
        content: dict[str, Any] = {"text/csv": {"schema": {"type": "string"}}}
        return {"description": "RFC 4180", "headers": {"Content-Disposition": disposition}, "content": content}
    return {"description": operation.status.phrase, "content": {_JSON: {"schema": schemas[operation.answer]}}}


def _failure(texts: Sequence[str], schemas: _Schemas) -> dict[str, Any]:
    examples = {f"text{number}": {"value": {"error": text}} for number, text in enumerate(dict.fromkeys(texts), 1)}
    return {
        "description": "; ".join(dict.fromkeys(texts)),
        "content": {_JSON: {"schema": schemas[Error], "examples": examples}},
    }
