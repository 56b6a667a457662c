"""One table of operations: the routes that serve and the API's description are both made from it, so they agree."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from chassis.errors import DomainError
from employee_api.activities import Actor
from employee_api.auth import Access, Policy
from employee_api.errors import AuthenticationRequired, BadRequest, LeadersOnly
from employee_api.schemas import Input

MAX_BODY_BYTES = 64 * 1024
CSV = "text/csv; charset=utf-8"


@dataclass
class Call:
    """A request that was let in: whose it is, what it holds, and headers for its answer."""

    request: Request
    actor: Actor | None
    headers: dict[str, str] = field(default_factory=dict)
    body_bytes: int = 0


@dataclass(frozen=True)
class Operation:
    """A method on a path.

    The handler takes the call, then the body and the query when the operation has such. It returns what `answer` says,
    or a Response of its own for CSV. `bad_request` is the operation's only text for input that can't be used; without
    it the text names the fields.
    """

    method: str
    path: str
    summary: str
    handler: Callable[..., Awaitable[Any]]
    answer: Any
    status: HTTPStatus = HTTPStatus.OK
    access: Access = Access.OPEN
    body: type[Input] | None = None
    query: type[Input] | None = None
    bad_request: str | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    failures: tuple[DomainError, ...] = ()
    enforced_failures: tuple[DomainError, ...] = ()

    @property
    def name(self) -> str:
        """The handler's name, unique over the API."""
        name: str = self.handler.__name__
        return name

    @property
    def tag(self) -> str:
        """The group it is described in."""
        parts = self.path.split("/")
        return parts[2] if parts[1] == "api" else "process"

    def possible_failures(self, *, enforced: bool) -> list[DomainError]:
        """Every error a caller can get, besides the unforeseen one."""
        failures = list(self.failures)
        if self.body is not None or self.query is not None:
            failures.insert(0, BadRequest(self.bad_request) if self.bad_request else BadRequest())
        if enforced:
            failures += self.enforced_failures
            failures += [AuthenticationRequired()] if self.access is not Access.OPEN else []
            failures += [LeadersOnly()] if self.access is Access.LEADER else []
        return failures


class Endpoint:
    """Serves one operation: admits, reads, handles, writes."""

    def __init__(self, operation: Operation, policy: Policy) -> None:
        self.operation = operation
        self._policy = policy
        self._answer: TypeAdapter[Any] | None = None if operation.answer == CSV else TypeAdapter(operation.answer)

    async def serve(self, request: Request) -> Response:
        """Answer a request. Raises the operation's failures."""
        operation = self.operation
        actor = await self._policy.admit(request, operation.access, operation.name)
        call = Call(request, actor)
        arguments: list[Input] = []
        if operation.body is not None:
            raw = await _read(request, operation)
            call.body_bytes = len(raw)
            arguments.append(_validated(operation.body, _parsed(raw, operation), operation))
        if operation.query is not None:
            arguments.append(_validated(operation.query, _single_values(request, operation), operation))
        result = await operation.handler(call, *arguments)
        if self._answer is None:
            response: Response = result
            return response
        content = self._answer.dump_json(result)
        return Response(content, int(operation.status), call.headers, "application/json")


async def _read(request: Request, operation: Operation) -> bytes:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > operation.max_body_bytes:
            raise BadRequest(operation.bad_request or "Request body too large")
    return bytes(raw)


def _parsed(raw: bytes, operation: Operation) -> Any:
    try:
        # Refuses NaN, numbers beyond a double, invalid UTF-8, lone surrogates and nesting beyond 1,024.
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(operation.bad_request or "Request body must be JSON") from error


def _single_values(request: Request, operation: Operation) -> dict[str, str]:
    """The query's parameters; one that is given twice has no meaning."""
    known = operation.query.model_fields if operation.query else {}
    given = [(name, value) for name, value in request.query_params.multi_items() if name in known]
    values = dict(given)
    if len(values) < len(given):
        raise BadRequest(operation.bad_request or "A parameter was given twice")
    return values


def _validated(schema: type[Input], value: Any, operation: Operation) -> Input:
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        # The value stays out of the text, and so does a field's name unless it is one of ours.
        fields = {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]} & set(schema.model_fields)
        text = f"Invalid value for {', '.join(sorted(fields))}" if fields else "Unknown field, or not an object"
        raise BadRequest(operation.bad_request or text) from error
