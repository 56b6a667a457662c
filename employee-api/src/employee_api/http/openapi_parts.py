"""Parts of the OpenAPI document: schemas, examples, parameters and headers."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from employee_api.errors import PreconditionFailed
from employee_api.http.idempotency import IDEMPOTENCY_KEY, KEY_PATTERN
from employee_api.http.inputs import JsonBody, QueryParameters
from employee_api.http.operations import Operation
from employee_api.schemas import Error, Problem

Json = dict[str, Any]

EXAMPLE_ID = "3f1c8a6e-52d0-4b7e-9a44-0c6d1f2e7b58"
_EXAMPLE_TAG = '"9f86d081884c7d65"'
_TEXT = {"type": "string"}
_EXAMPLES_BY_FORMAT = {"uuid": EXAMPLE_ID, "date": "2026-03-31", "date-time": "2026-03-14T15:09:26.000000Z"}
_EXAMPLES_BY_TYPE = {"boolean": True, "integer": 1, "number": 1.0, "string": "text", "null": None}


class Schemas:
    """The JSON Schemas of all operations, as references to definitions that contain each model once."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        operations = list(operations)
        bodies = {operation.input.model for operation in operations if isinstance(operation.input, JsonBody)}
        queries = {operation.input.model for operation in operations if isinstance(operation.input, QueryParameters)}
        models = sorted(filter(None, bodies | queries), key=str)
        adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            *((model.__name__, "validation", TypeAdapter(model)) for model in models),
            *((found.name, "serialization", found.output) for found in operations if found.csv_example is None),
            *((model.__name__, "serialization", TypeAdapter(model)) for model in (Error, Problem)),
        ]
        self._schemas, generated = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")
        self._all: dict[str, Json] = generated["$defs"]
        # Parameters are described one by one.
        unused = {model.__name__ for model in filter(None, queries - bodies)}
        self.definitions = {name: schema for name, schema in self._all.items() if name not in unused}

    def of_input(self, operation: Operation) -> Json:
        """Return the schema of a body."""
        assert operation.input.model is not None  # noqa: S101 - it has a body
        return dict(self._schemas[operation.input.model.__name__, "validation"])

    def of_query(self, operation: Operation) -> Json:
        """Return the schema of a query, an object of its parameters."""
        return self._all[self.of_input(operation)["$ref"].rpartition("/")[2]]

    def of_output(self, name: str) -> Json:
        """Return the schema of an operation's output, or of an error's model."""
        return dict(self._schemas[name, "serialization"])


def example_of(schema: Json, definitions: dict[str, Json]) -> Any:
    """Return a value that conforms to the schema: its own example, or else one for its type.

    References of the schema lead to `definitions`.
    """
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | schema
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if "anyOf" in schema:
        example = example_of(schema["anyOf"][0], definitions)
        # Nothing is known about a text that has no example, so null is the better one where it is allowed.
        return None if example == _EXAMPLES_BY_TYPE["string"] and {"type": "null"} in schema["anyOf"] else example
    if schema.get("type") == "array":
        return [example_of(schema["items"], definitions)]
    if schema.get("type") == "object":
        return {name: example_of(field, definitions) for name, field in schema.get("properties", {}).items()}
    return _EXAMPLES_BY_FORMAT.get(schema.get("format", ""), _EXAMPLES_BY_TYPE.get(schema.get("type", "")))


def parameters(operation: Operation, schemas: Schemas) -> list[Json]:
    """Describe the parameters of an operation in its path, query and headers."""
    names = re.findall(r"\{(\w+)\}", operation.path)
    in_path = [_parameter(name, "path", "A UUID", _TEXT, EXAMPLE_ID) | {"required": True} for name in names]
    return [*in_path, *_query_parameters(operation, schemas), *_header_parameters(operation)]


def _parameter(name: str, location: str, description: str, schema: Json, example: str) -> Json:
    return {
        "name": name,
        "in": location,
        "required": False,
        "schema": schema,
        "description": description,
        "example": example,
    }


def _query_parameters(operation: Operation, schemas: Schemas) -> Iterator[Json]:
    if not isinstance(operation.input, QueryParameters):
        return
    query = schemas.of_query(operation)
    for name, described in query["properties"].items():
        field, example = dict(described), example_of(described, schemas.definitions)
        # An optional parameter is omitted, never null.
        choices = [choice for choice in field.pop("anyOf", [field]) if choice.get("type") != "null"]
        schema = {key: value for key, value in (field | choices[0]).items() if key not in ("title", "description")}
        if schema.get("default", "") is None:
            del schema["default"]
        parameter = {"name": name, "in": "query", "required": name in query.get("required", []), "schema": schema}
        if "description" in field:
            parameter["description"] = field["description"]
        yield parameter | ({} if example is None else {"example": example})


def _header_parameters(operation: Operation) -> Iterator[Json]:
    if operation.repeatable:
        key = {"type": "string", "pattern": f"^{KEY_PATTERN}$"}
        text = "A repetition with the same key and input within 24 hours gets the first response, and changes nothing"
        yield _parameter(IDEMPOTENCY_KEY, "header", text, key, "0f8a5a3e-7a4d-4c0e-9a55-6f1f3f6c2b17")
    if any(isinstance(failure, PreconditionFailed) for failure in operation.failures):
        text = "Entity tags: fail with 412 if the current one is not among them"
        yield _parameter("If-Match", "header", text, _TEXT, _EXAMPLE_TAG)
    if operation.revalidates:
        text = "Entity tags: answer 304 without a body if the current one is among them"
        yield _parameter("If-None-Match", "header", text, _TEXT, _EXAMPLE_TAG)
