"""Generates the OpenAPI 3.1 document of the API from its operations and their models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from employee_api.access import Access
from employee_api.errors import ApiError, AuthenticationRequired, UnexpectedError
from employee_api.http.idempotency import REPLAYED
from employee_api.http.inputs import JsonBody
from employee_api.http.openapi_parts import Json, Schemas, example_of, parameters
from employee_api.http.operations import Operation
from employee_api.http.problems import JSON, PROBLEM_JSON, problem
from employee_api.schemas import Error, Problem
from employee_api.settings import AuthMode

_KIBIBYTE = 1024
_BASE = Path(__file__).with_name("openapi_base.json")  # what is the same whatever is served
_ACCESS = {
    Access.OPEN: "Anyone may use it.",
    Access.SELF: "Requires a session: an API token will not do.",
    Access.SESSION: "Requires a session, or an API token with the scope `{scope}`.",
    Access.MANAGEMENT: (
        "Requires a session, or an API token with the scope `{scope}`, of a management role: `ceo`, `cto` or `manager`."
    ),
}


@dataclass(frozen=True)
class _Api:
    """What the descriptions of all operations depend on."""

    schemas: Schemas
    mode: AuthMode
    common: Sequence[ApiError]


def describe(operations: Sequence[Operation], mode: AuthMode, common: Sequence[ApiError] = ()) -> Json:
    """Return the document for this mode; every operation of the API can return the `common` errors."""
    api = _Api(Schemas(operations), mode, common)
    document: Json = orjson.loads(_BASE.read_bytes())
    for operation in operations:
        document["paths"].setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, api)
    used = {operation.tag for operation in operations}
    document["tags"] = [tag for tag in document["tags"] if tag["name"] in used]
    document["components"]["schemas"] = api.schemas.definitions
    if mode is AuthMode.OFF:
        del document["components"]["securitySchemes"]
    return document


def _operation(operation: Operation, api: _Api) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": _required_access(operation, api.mode),
        "tags": [operation.tag],
        "responses": _responses(operation, api),
    }
    if found := parameters(operation, api.schemas):
        described["parameters"] = found
    if isinstance(operation.input, JsonBody):
        described["requestBody"] = {
            "required": True,
            "description": f"At most {operation.input.max_bytes // _KIBIBYTE} KiB",
            "content": {JSON: _media_type(api.schemas.of_input(operation), api)},
        }
    if api.mode is not AuthMode.OFF and operation.access is not Access.OPEN:
        optional = api.mode is AuthMode.OBSERVE and operation.access is not Access.SELF
        required: list[Json] = [{"session": []}, {"bearer": [operation.scope] if operation.scope else []}]
        described["security"] = [{}, *required] if optional else required
    return described


def _required_access(operation: Operation, mode: AuthMode) -> str:
    text = _ACCESS[operation.access].format(scope=operation.scope)
    if mode is AuthMode.ENFORCE or operation.access is Access.OPEN:
        return text
    if operation.access is not Access.SELF:
        return f"{text.removesuffix('.')} once `AUTH_MODE` is `enforce`."
    return "Requires a session: there are none while `AUTH_MODE` is `off`." if mode is AuthMode.OFF else text


def _responses(operation: Operation, api: _Api) -> Json:
    # The probes, which the chassis serves, have no problem documents, and other errors.
    common = api.common if operation.served else ()
    failures: dict[int, list[ApiError]] = {}
    for failure in (*operation.documented_failures(enforced=api.mode is AuthMode.ENFORCE), *common):
        failures.setdefault(failure.status, []).append(failure)
    failures[HTTPStatus.INTERNAL_SERVER_ERROR] = [UnexpectedError()]
    responses = {int(operation.status): _success(operation, api)}
    if operation.revalidates:
        responses[HTTPStatus.NOT_MODIFIED] = _response("Unchanged", operation.headers)
    for status, errors in sorted(failures.items()):
        responses[status] = _failure(errors, api, with_problems=operation.served)
    return {str(int(status)): response for status, response in responses.items()}


def _response(description: str, headers: Iterable[str], content: Json | None = None) -> Json:
    """Describe a response with these headers, and with those that every response has."""
    names = sorted({*headers, "X-Request-ID"})
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {"description": description, "headers": references} | ({"content": content} if content else {})


def _success(operation: Operation, api: _Api) -> Json:
    headers = {"Location"} if operation.status is HTTPStatus.CREATED else set()
    headers |= {REPLAYED} if operation.repeatable else set()
    headers |= {name for name in operation.headers if name != "Set-Cookie" or api.mode is not AuthMode.OFF}
    if operation.csv_example is not None:
        csv = {"schema": {"type": "string"}, "example": operation.csv_example}
        return _response("RFC 4180", headers | {"Content-Disposition"}, {"text/csv": csv})
    media_type = _media_type(api.schemas.of_output(operation.name), api)
    return _response(operation.status.phrase, headers, {JSON: media_type})


def _failure(failures: Sequence[ApiError], api: _Api, *, with_problems: bool) -> Json:
    headers = set()
    if any(failure.retry_after_seconds is not None for failure in failures):
        headers.add("Retry-After")
    if any(isinstance(failure, AuthenticationRequired) for failure in failures):
        headers.add("WWW-Authenticate")
    errors = {failure.reason: {"value": {"error": failure.message}} for failure in failures}
    content: Json = {JSON: {"schema": api.schemas.of_output(Error.__name__), "examples": errors}}
    if with_problems:
        problems = {failure.reason: {"value": problem(failure).model_dump()} for failure in failures}
        content[PROBLEM_JSON] = {"schema": api.schemas.of_output(Problem.__name__), "examples": problems}
    return _response("; ".join(dict.fromkeys(failure.message for failure in failures)), headers, content)


def _media_type(schema: Json, api: _Api) -> dict[str, Any]:
    return {"schema": schema, "example": example_of(schema, api.schemas.definitions)}
