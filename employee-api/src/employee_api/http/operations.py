"""Defines operations. Both the routes and the API description are generated from them, so the two always agree."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chassis.values.cards import mask_cards
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
HandlerT = TypeVar("HandlerT", bound=Callable[..., object])

_MAX_USER_AGENT_LENGTH = 300


@dataclass
class Call(Generic[InputT]):
    """An authorized request. `response_headers` and `cookies` are added to the operation's JSON response."""

    request: Request
    actor: Actor | None
    input: InputT
    ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    response_headers: dict[str, str] = field(default_factory=dict)
    cookies: list[str] = field(default_factory=list)

    @property
    def user(self) -> Actor:
        """The user who makes the request. An operation with `Access.SELF` always has a user."""
        if self.actor is None:
            raise errors.AuthenticationRequired
        return self.actor

    @property
    def id(self) -> uuid.UUID:
        return self.ids["id"]

    @property
    def origin(self) -> dict[str, str]:
        """The client's address, and the first characters of its user agent."""
        client = self.request.client
        user_agent = mask_cards(self.request.headers.get("user-agent", ""))[:_MAX_USER_AGENT_LENGTH]
        return {"address": client.host if client else "", "user_agent": user_agent}

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`. If the client disconnects first, cancel `work` and raise ClientDisconnect."""
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
        return _joined(self.request, "if-match")


@dataclass(frozen=True)
class Operation:
    """An HTTP method on a path. The handler's annotations define the types of its input and output.

    Attributes:
        named: the operation's unique name in the API; by default the handler's name.
        reads: the function that creates a RequestInput from a model; by default QueryParameters for GET, else JsonBody.
        creates: whether a successful response has status 201 and a `Location` header with the new resource's path,
            which is below the operation's path unless the handler sets another.
        tagged: whether a successful response has an `ETag` header. A GET then also supports `If-None-Match`.
        sets_cookies: whether a successful response sets cookies (never if authorization is off).
        csv_example: a function that returns an example for the API description; set only if the handler returns CSV.
        repeatable: whether a repeated request with the same Idempotency-Key gets the stored response. The response must
            not contain a secret, and the handler must make every change in a `transaction`.
        failures: errors that clients can get in any mode, besides invalid input and unknown ids in the path. If they
            include PreconditionFailed, the operation supports `If-Match`.
        enforced_failures: additional errors that clients can get if authorization is enforced.
    """

    method: str
    path: str
    summary: str
    access: Access = Access.OPEN
    _: KW_ONLY
    handler: Callable[[Call[Any]], Awaitable[Any]]
    named: str = ""
    reads: Callable[[type[BaseModel] | None], RequestInput] | None = None
    creates: bool = False
    tagged: bool = False
    sets_cookies: bool = False
    csv_example: Callable[[], str] | None = None
    repeatable: bool = False
    failures: tuple[errors.ApiError, ...] = ()
    enforced_failures: tuple[errors.ApiError, ...] = ()

    @property
    def name(self) -> str:
        return self.named or self.handler.__name__

    @cached_property
    def path_ids(self) -> dict[str, type[errors.ApiError]]:
        """Maps the name of each id in the path to the error for an unknown id."""
        return {name: errors.NOT_FOUND[segment] for segment, name in re.findall(r"(\w+)/\{(\w+)\}", self.path)}

    @cached_property
    def input(self) -> RequestInput:
        call, _result = get_type_hints(self.handler).values()
        model = get_args(call)[0]
        if model is type(None):
            return (self.reads or RequestInput)(None)
        return (self.reads or (QueryParameters if self.method == "GET" else JsonBody))(model)

    @cached_property
    def output(self) -> TypeAdapter[Any]:
        return TypeAdapter(get_type_hints(self.handler)["return"])

    @property
    def scope(self) -> Scope | None:
        """The scope that an API token needs; None if the operation is open or accepts no API tokens."""
        if self.access in (Access.OPEN, Access.SELF):
            return None
        resource = "users" if self.tag == "auth" else self.tag
        return Scope(f"{resource}:{'read' if self.method == 'GET' else 'write'}")

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.CREATED if self.creates else HTTPStatus.OK

    @property
    def tag(self) -> str:
        """The heading under which the API description lists the operation."""
        return self.path.split("/")[2]

    @property
    def revalidates(self) -> bool:
        """Whether clients can check that their copy is current without fetching it again."""
        return self.method == "GET" and self.tagged

    def documented_failures(self, *, enforced: bool) -> list[errors.ApiError]:
        """Return the operation's own errors. The API description adds the errors that all operations share."""
        failures = [*(not_found() for not_found in self.path_ids.values()), *self.failures]
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
                failures += [errors.AuthenticationRequired(), errors.ScopeRequired(self.scope)]
                failures.append(errors.ApprovalRequired())
            if self.access in (Access.MANAGEMENT, Access.SUBORDINATE):
                failures.append(errors.ManagementRoleRequired())
            failures += [errors.HigherRoleRequired()] if self.access is Access.SUBORDINATE else []
        return failures

    async def respond(self, request: Request, authorizer: Authorizer, stored: StoredResponses) -> Response:
        """Authorize the request, and return the handler's response. Raise one of the documented errors on failure."""
        actor = await authorizer.authorize(request, self.name, self.access, self.scope)
        input_ = await self.input.read(request, strict=authorizer.enforced)
        call = Call(request, actor, input_, self._parse_ids(request))
        if self.repeatable and (repeatable := identify(request, self.name, actor, call.input)):
            return await stored.respond_once(repeatable, lambda: self._handle(call))
        return await self._handle(call)

    def _parse_ids(self, request: Request) -> dict[str, uuid.UUID]:
        parsed = {}
        for name, not_found in self.path_ids.items():
            if (row_id := parse_id(request.path_params[name])) is None:
                raise not_found
            parsed[name] = row_id
        return parsed

    async def _handle(self, call: Call[Any]) -> Response:
        result = await self.handler(call)
        if isinstance(result, Response):
            return result
        if self.creates:
            call.response_headers.setdefault("location", f"{self.path.format_map(call.ids)}/{result.id}")
        if self.tagged:
            call.response_headers["etag"] = tag = etag(result)
            if self.revalidates and is_unchanged(_joined(call.request, "if-none-match"), tag):
                return Response(None, HTTPStatus.NOT_MODIFIED, call.response_headers)
        response = Response(self.output.dump_json(result), int(self.status), call.response_headers, JSON)
        for cookie in call.cookies:
            response.headers.append("set-cookie", cookie)
        return response


def operation(
    method: str, path: str, summary: str, access: Access = Access.OPEN, **fields: Any
) -> Callable[[HandlerT], HandlerT]:
    """Return a decorator for methods that handle an operation. `fields` are the Operation's other fields."""

    def decorate(handler: HandlerT) -> HandlerT:
        described = partial(Operation, method, path, summary, access, **fields)
        handler.__dict__.setdefault("operations", []).insert(0, described)  # Python applies the lowest decorator first
        return handler

    return decorate


def operations_of(*groups: object) -> list[Operation]:
    """Return the operations that the objects' methods handle, in the order in which the methods are defined."""
    return [
        describe(handler=getattr(group, name))
        for group in groups
        for name, method in vars(type(group)).items()
        for describe in getattr(method, "operations", ())
    ]


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _joined(request: Request, header: str) -> str | None:
    # A client may split a list of tags across several header lines.
    lines = request.headers.getlist(header)
    return ", ".join(lines) if lines else None
