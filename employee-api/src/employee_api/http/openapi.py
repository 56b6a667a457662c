"""Generates the API's OpenAPI 3.1 document from the operations and their models."""

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from employee_api.access import Access
from employee_api.errors import ApiError, AuthenticationRequired, PreconditionFailed, UnexpectedError
from employee_api.http.idempotency import IDEMPOTENCY_KEY, REPLAYED
from employee_api.http.inputs import MAX_BODY_BYTES, JsonBody, QueryParameters
from employee_api.http.operations import Operation
from employee_api.http.problems import JSON, PROBLEM_JSON, problem
from employee_api.schemas import Error, Problem
from employee_api.settings import AuthMode

Json = dict[str, Any]

EXAMPLE_ID = "3f1c8a6e-52d0-4b7e-9a44-0c6d1f2e7b58"
_EXAMPLES_BY_FORMAT = {"uuid": EXAMPLE_ID, "date": "2026-03-31", "date-time": "2026-03-14T15:09:26.000000Z"}
_EXAMPLES_BY_TYPE = {"boolean": True, "integer": 1, "number": 1.0, "string": "text", "null": None}
# openapi_base.json has three keys: `document` is the constant part of the API description, including the probes;
# `access` (texts about permissions) and `parameters` (ids and headers) are copied into operations that need them.
_BASE: Json = orjson.loads(Path(__file__).with_name("openapi_base.json").read_bytes())


def describe(operations: Sequence[Operation], mode: AuthMode, common: Sequence[ApiError] = ()) -> Json:
    """Return the OpenAPI document for this `AUTH_MODE`. Every operation can also return the `common` errors."""
    base: Json = _BASE["document"]
    description = _Description(operations, mode, common)
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = description.of_operation(operation)
    schemas = base["components"]["schemas"] | description.definitions
    components = base["components"] | {"schemas": dict(sorted(schemas.items()))}
    if mode is AuthMode.OFF:
        del components["securitySchemes"]
    return base | {"paths": paths | base["paths"], "components": components}


class _Description:
    """Describes operations. Their JSON Schemas refer to `definitions`, which contains each model once."""

    def __init__(self, operations: Sequence[Operation], mode: AuthMode, common: Sequence[ApiError]) -> None:
        self._mode = mode
        self._common = common
        models = {operation.input.model for operation in operations}
        adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            *((model.__name__, "validation", TypeAdapter(model)) for model in sorted(filter(None, models), key=str)),
            *((found.name, "serialization", found.output) for found in operations if found.csv_example is None),
            *((model.__name__, "serialization", TypeAdapter(model)) for model in (Error, Problem)),
        ]
        self._schemas, generated = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")
        self._all: dict[str, Json] = generated["$defs"]
        # Query models need no definition, because each of their fields is described as a parameter.
        queries = {operation.input.model for operation in operations if isinstance(operation.input, QueryParameters)}
        unused = {model.__name__ for model in filter(None, queries)}
        self.definitions = {name: schema for name, schema in self._all.items() if name not in unused}

    def of_operation(self, operation: Operation) -> Json:
        described: Json = {
            "operationId": operation.name,
            "summary": operation.summary,
            "description": self._required_access(operation),
            "tags": [operation.tag],
            "responses": self._responses(operation),
        }
        ids = [_BASE["parameters"]["id"] | {"name": name} for name in operation.path_ids]
        headers = [_BASE["parameters"][name] for name in _header_parameters(operation)]
        if parameters := [*ids, *self._query_parameters(operation), *headers]:
            described["parameters"] = parameters
        if isinstance(operation.input, JsonBody):
            described["requestBody"] = {
                "required": True,
                "description": f"At most {MAX_BODY_BYTES // 1024} KiB",
                "content": {JSON: self._media_type(self._input(operation))},
            }
        if self._mode is not AuthMode.OFF and operation.access is not Access.OPEN:
            optional = self._mode is AuthMode.OBSERVE and operation.access is not Access.SELF
            required: list[Json] = [{"session": []}, {"bearer": [operation.scope] if operation.scope else []}]
            described["security"] = [{}, *required] if optional else required
        return described

    def _required_access(self, operation: Operation) -> str:
        text: str = _BASE["access"][operation.access.value].format(scope=operation.scope)
        if self._mode is AuthMode.ENFORCE or operation.access is Access.OPEN:
            return text
        if operation.access is not Access.SELF:
            return f"{text.removesuffix('.')} once `AUTH_MODE` is `enforce`."
        return "Requires a session: there are none while `AUTH_MODE` is `off`." if self._mode is AuthMode.OFF else text

    def _responses(self, operation: Operation) -> Json:
        failures: dict[int, list[ApiError]] = {}
        for failure in (*operation.documented_failures(enforced=self._mode is AuthMode.ENFORCE), *self._common):
            failures.setdefault(failure.status, []).append(failure)
        failures[HTTPStatus.INTERNAL_SERVER_ERROR] = [UnexpectedError()]
        responses = {int(operation.status): self._success(operation)}
        if operation.revalidates:
            responses[HTTPStatus.NOT_MODIFIED] = _response("Unchanged", {"ETag"})
        for status, errors in sorted(failures.items()):
            responses[status] = self._failure(errors)
        return {str(int(status)): response for status, response in responses.items()}

    def _success(self, operation: Operation) -> Json:
        headers = {"Location"} if operation.creates else set()
        headers |= {REPLAYED} if operation.repeatable else set()
        headers |= {"ETag"} if operation.tagged else set()
        headers |= {"Set-Cookie"} if operation.sets_cookies and self._mode is not AuthMode.OFF else set()
        if operation.csv_example is not None:
            csv = {"schema": {"type": "string"}, "example": operation.csv_example()}
            return _response("RFC 4180", headers | {"Content-Disposition"}, {"text/csv": csv})
        return _response(operation.status.phrase, headers, {JSON: self._media_type(self._output(operation.name))})

    def _failure(self, failures: Sequence[ApiError]) -> Json:
        headers = set()
        if any(failure.retry_after_seconds is not None for failure in failures):
            headers.add("Retry-After")
        if any(isinstance(failure, AuthenticationRequired) for failure in failures):
            headers.add("WWW-Authenticate")
        errors = {failure.reason: {"value": {"error": failure.message}} for failure in failures}
        problems = {failure.reason: {"value": problem(failure).model_dump()} for failure in failures}
        content = {
            JSON: {"schema": self._output(Error.__name__), "examples": errors},
            PROBLEM_JSON: {"schema": self._output(Problem.__name__), "examples": problems},
        }
        return _response("; ".join(dict.fromkeys(failure.message for failure in failures)), headers, content)

    def _query_parameters(self, operation: Operation) -> Iterator[Json]:
        if not isinstance(operation.input, QueryParameters):
            return
        query = self._all[self._input(operation)["$ref"].rpartition("/")[2]]
        for name, described in query["properties"].items():
            field, example = dict(described), _example(described, self.definitions)
            # An optional parameter may be omitted, but it can't be null.
            choices = [choice for choice in field.pop("anyOf", [field]) if choice.get("type") != "null"]
            schema = {key: value for key, value in (field | choices[0]).items() if key not in ("title", "description")}
            if schema.get("default", "") is None:
                del schema["default"]
            parameter = {"name": name, "in": "query", "required": name in query.get("required", []), "schema": schema}
            if "description" in field:
                parameter["description"] = field["description"]
            yield parameter | ({} if example is None else {"example": example})

    def _input(self, operation: Operation) -> Json:
        assert operation.input.model is not None  # noqa: S101 - only called if the operation reads input
        return dict(self._schemas[operation.input.model.__name__, "validation"])

    def _output(self, name: str) -> Json:
        return dict(self._schemas[name, "serialization"])

    def _media_type(self, schema: Json) -> Json:
        return {"schema": schema, "example": _example(schema, self.definitions)}


def _response(description: str, headers: Iterable[str], content: Json | None = None) -> Json:
    """Describe a response that has these headers and X-Request-ID."""
    names = sorted({*headers, "X-Request-ID"})
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {"description": description, "headers": references} | ({"content": content} if content else {})


def _example(schema: Json, definitions: dict[str, Json]) -> Any:
    """Return the schema's own example, or else an arbitrary value of its type. Look up references in `definitions`."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | schema
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if "anyOf" in schema:
        example = _example(schema["anyOf"][0], definitions)
        # Use null where it is allowed, because it's a better example than an arbitrary string or id.
        unknown = example in (_EXAMPLES_BY_TYPE["string"], EXAMPLE_ID)
        return None if unknown and {"type": "null"} in schema["anyOf"] else example
    if schema.get("type") == "array":
        return [_example(schema["items"], definitions)]
    if schema.get("type") == "object":
        return {name: _example(field, definitions) for name, field in schema.get("properties", {}).items()}
    return _EXAMPLES_BY_FORMAT.get(schema.get("format", ""), _EXAMPLES_BY_TYPE.get(schema.get("type", "")))


def _header_parameters(operation: Operation) -> Iterator[str]:
    if operation.repeatable:
        yield IDEMPOTENCY_KEY
    if any(isinstance(failure, PreconditionFailed) for failure in operation.failures):
        yield "If-Match"
    if operation.revalidates:
        yield "If-None-Match"
