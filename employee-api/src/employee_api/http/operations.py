"""Operations: routes and the API description are both made from them, so they always agree."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from employee_api import errors
from employee_api.access import Access, Actor, Scope
from employee_api.fields import parse_id
from employee_api.http.authorization import Authorizer
from employee_api.http.etags import etag, is_unchanged
from employee_api.http.idempotency import StoredResponses, identify
from employee_api.http.inputs import JsonBody, QueryParameters, RequestInput
from employee_api.http.problems import JSON

T = TypeVar("T")
InputT = TypeVar("InputT")

_MAX_USER_AGENT_LENGTH = 300


@dataclass
class Call(Generic[InputT]):
    """An authorized request with its validated input; `response_headers` and `cookies` are added to a JSON response."""

    request: Request
    actor: Actor | None
    input: InputT
    response_headers: dict[str, str] = field(default_factory=dict)
    cookies: list[str] = field(default_factory=list)

    @property
    def user(self) -> Actor:
        """The user of an operation with the access SELF, which always has one."""
        if self.actor is None:
            raise errors.AuthenticationRequired
        return self.actor

    def path_id(self, not_found: errors.ApiError, name: str = "id") -> uuid.UUID:
        """Return an id that the path contains. Raises `not_found` if it is not a UUID, which no resource has."""
        parsed = parse_id(self.request.path_params[name])
        if parsed is None:
            raise not_found
        return parsed

    @property
    def origin(self) -> dict[str, str]:
        """The client's address, and what it says of its program, cut to a sane length."""
        client = self.request.client
        user_agent = self.request.headers.get("user-agent", "")[:_MAX_USER_AGENT_LENGTH]
        return {"address": client.host if client else "", "user_agent": user_agent}

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that may have to wait, and cancel it when the client disconnects. Raises ClientDisconnect."""
        working = asyncio.create_task(work)
        leaving = asyncio.create_task(_disconnected(self.request))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnect
            return working.result()
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    @property
    def if_match(self) -> str | None:
        """The entity tags of which the client requires one, for `require_match`; None if it requires none."""
        return _joined(self.request, "if-match")


@dataclass(frozen=True)
class Operation:
    """A method on a path. The handler's annotations are its input and output.

    Attributes:
        named: its name, unique in the API, unless that is the handler's.
        reads: makes the input from its model, where that is not the query of a GET, or else a JSON body.
        status: of success.
        headers: the headers of its success, besides the ones that every response has. An `ETag` is made of the output,
            and a GET with it takes `If-None-Match`.
        csv_example: makes an example of the file for the description, if the handler returns one instead of JSON.
        repeatable: whether a repetition with the same Idempotency-Key gets the stored response. The response must not
            contain a secret, and every change must be made in a `transaction`.
        failures: the errors it can raise in any mode, besides invalid input. With PreconditionFailed it takes
            `If-Match`.
        enforced_failures: further errors that it can raise when authorization is enforced.
        served: whether the application serves it, or the chassis.
    """

    method: str
    path: str
    summary: str
    handler: Callable[[Call[Any]], Awaitable[Any]]
    access: Access = Access.OPEN
    _: KW_ONLY
    named: str = ""
    reads: Callable[[type[BaseModel] | None], RequestInput] | None = None
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[str, ...] = ()
    csv_example: Callable[[], str] | None = None
    repeatable: bool = False
    failures: tuple[errors.ApiError, ...] = ()
    enforced_failures: tuple[errors.ApiError, ...] = ()
    served: bool = True

    @property
    def name(self) -> str:
        return self.named or self.handler.__name__

    @cached_property
    def input(self) -> RequestInput:
        """What it reads from a request."""
        call, _result = get_type_hints(self.handler).values()
        model = get_args(call)[0]
        if model is type(None):
            return (self.reads or RequestInput)(None)
        return (self.reads or (QueryParameters if self.method == "GET" else JsonBody))(model)

    @cached_property
    def output(self) -> TypeAdapter[Any]:
        """The type of its JSON."""
        return TypeAdapter(get_type_hints(self.handler)["return"])

    @property
    def scope(self) -> Scope | None:
        """The scope that an API token needs; None if the operation requires no session, or no token will do."""
        if self.access in (Access.OPEN, Access.SELF):
            return None
        resource = "users" if self.tag == "auth" else self.tag
        return Scope(f"{resource}:{'read' if self.method == 'GET' else 'write'}")

    @property
    def tag(self) -> str:
        """The heading under which it is described."""
        parts = self.path.split("/")
        return parts[2] if parts[1] == "api" else "process"

    @property
    def revalidates(self) -> bool:
        """Whether clients that have a copy can find out that it is unchanged, without a body."""
        return self.method == "GET" and "ETag" in self.headers

    def documented_failures(self, *, enforced: bool) -> list[errors.ApiError]:
        """Return every error that a client can get, except unexpected ones."""
        failures = list(self.failures)
        if self.input.model is not None:
            failures.insert(0, self.input.error())
        elif not self.input.ignores_query:
            failures.insert(0, errors.BadRequest())
        failures += [errors.IdempotencyKeyReused()] if self.repeatable else []
        if self.access is Access.SELF:
            failures += [errors.AuthenticationRequired(), errors.SessionRequired()]
        if enforced:
            failures += self.enforced_failures
            if self.scope is not None:
                failures += [
                    errors.AuthenticationRequired(),
                    errors.ScopeRequired(self.scope),
                    errors.ApprovalRequired(),
                ]
            if self.access in (Access.MANAGEMENT, Access.SUBORDINATE):
                failures.append(errors.ManagementRoleRequired())
            failures += [errors.HigherRoleRequired()] if self.access is Access.SUBORDINATE else []
        return failures

    async def respond(self, request: Request, authorizer: Authorizer, stored: StoredResponses) -> Response:
        """Authorize the request and run the handler. Raises the documented failures."""
        actor = await authorizer.authorize(request, self.name, self.access, self.scope)
        call = Call(request, actor, await self.input.read(request))
        if self.repeatable and (repeatable := identify(request, self.name, actor, call.input)):
            return await stored.respond_once(repeatable, lambda: self._handle(call))
        return await self._handle(call)

    async def _handle(self, call: Call[Any]) -> Response:
        result = await self.handler(call)
        if isinstance(result, Response):
            return result
        if "ETag" in self.headers:
            call.response_headers["etag"] = tag = etag(result)
            if self.method == "GET" and is_unchanged(_joined(call.request, "if-none-match"), tag):
                return Response(None, HTTPStatus.NOT_MODIFIED, call.response_headers)
        response = Response(self.output.dump_json(result), int(self.status), call.response_headers, JSON)
        for cookie in call.cookies:
            response.headers.append("set-cookie", cookie)
        return response


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _joined(request: Request, header: str) -> str | None:
    # A list may be spread over several header lines.
    lines = request.headers.getlist(header)
    return ", ".join(lines) if lines else None
