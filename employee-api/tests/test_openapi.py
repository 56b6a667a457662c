import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import booleans
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.applications import Starlette
from starlette.routing import Route

from employee_api.http.openapi import EXAMPLE_ID
from shop_kit.employee_api import Api, StartApi, started_with

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


async def test_every_route_is_described(api: Api) -> None:
    described = (await api.client.get("/openapi.json")).json()["paths"]
    routes = {route.path: route.methods or set() for route in api.asgi.routes if isinstance(route, Route)}
    served = {(path, method.lower()) for path, methods in routes.items() for method in methods if method != "HEAD"} - {
        ("/", "get"),
        ("/docs", "get"),
        ("/openapi.json", "get"),
    }
    served |= {("/healthz", "get"), ("/readyz", "get")}  # by the chassis
    assert served == {(path, method) for path, methods in described.items() for method in methods}


STATUSES = {
    "off": {
        ("/api/auth/login", "post"): "200 400 401 403 500 503",
        ("/api/auth/register", "post"): "201 400 403 409 422 500 503",
        ("/api/auth/users", "get"): "200 500",
        ("/api/auth/users/{id}", "delete"): "200 403 404 500",
        ("/api/export/tasks", "get"): "200 400 429 500",
        ("/readyz", "get"): "200 500 503",
    },
    "observe": {("/api/auth/login", "post"): "200 400 401 403 500 503"},
    "enforce": {
        ("/api/auth/login", "post"): "200 400 401 403 415 429 500 503",
        ("/api/auth/users", "get"): "200 401 403 500 503",
        ("/api/auth/users/{id}", "delete"): "200 401 403 404 409 500 503",
    },
}
CREDENTIALS: list[dict[str, list[str]]] = [{"session": []}, {"bearer": ["tasks:read"]}]


@pytest.mark.parametrize(
    ("mode", "security"), [("off", None), ("observe", [{}, *CREDENTIALS]), ("enforce", CREDENTIALS)]
)
async def test_the_document_is_valid_and_describes_statuses_and_credentials(
    start_api: StartApi, mode: str, security: object
) -> None:
    async with start_api(auth_mode=mode) as api:
        document = (await api.client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()
    assert document["paths"]["/api/tasks"]["get"].get("security") == security
    assert "security" not in document["paths"]["/api/auth/login"]["post"]
    assert set(document["components"].get("securitySchemes", {})) == (set() if mode == "off" else {"session", "bearer"})
    for (path, method), statuses in STATUSES[mode].items():
        assert " ".join(sorted(document["paths"][path][method]["responses"])) == statuses


@dataclass(frozen=True)
class Target:
    """An API under test: schemathesis' session and schema, and the ids of what exists, by path segment."""

    session: Any
    schema: Any
    ids: dict[str, str]


@contextmanager
def target(start_api: StartApi, mode: str) -> Iterator[Target]:
    """Run an API in the event loop of schemathesis' client, which has a management user's session."""
    ids: dict[str, str] = {}

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with started_with(start_api, mode, "ceo") as (api, [user]):
            task = await api.add_task()
            comment = await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done"})
            invitation = await api.client.post("/api/auth/invitations", json={"role": "qa"})
            ids.update(users=user["id"], tasks=task["id"], comments=comment.json()["id"])
            ids.update(invitations=invitation.json().get("id", "unknown"))
            session.headers["authorization"] = api.client.headers.get("authorization", "")
            yield {"served": api.service.wrap(api.asgi)}

    starting = Starlette(lifespan=lifespan)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await (starting if scope["type"] == "lifespan" else scope["state"]["served"])(scope, receive, send)

    session = asgi.get_client(served)
    with session:
        schema = schemathesis.openapi.from_dict(session.get("/openapi.json").json())
        schema.app = served
        yield Target(session, schema, ids)
    asgi.shutdown_lifespans()


POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


# What is invalid does not depend on the mode.
@pytest.mark.timeout(0)  # a loaded machine takes minutes
@pytest.mark.parametrize(
    ("mode", "generation"),
    [
        ("off", POSITIVE),
        pytest.param("observe", POSITIVE, marks=pytest.mark.long),
        ("enforce", POSITIVE),
        ("enforce", NEGATIVE),
    ],
)
def test_every_response_conforms_to_the_document(start_api: StartApi, mode: str, generation: GenerationMode) -> None:
    with target(start_api, mode) as api:
        # Deletions come last, so that the existing user and task are found until then.
        operations = [found.ok() for found in api.schema.get_all_operations()]
        for operation in sorted(operations, key=lambda operation: str(operation.method == "delete")):
            if generation is GenerationMode.POSITIVE or takes_input(operation):
                send_generated_requests(api, operation, generation)


def takes_input(operation: Any) -> bool:
    raw = operation.definition.raw
    return "requestBody" in raw or any(parameter["in"] == "query" for parameter in raw.get("parameters", []))


def send_generated_requests(api: Target, operation: Any, generation: GenerationMode) -> None:
    known = {name: api.ids.get(segment, EXAMPLE_ID) for segment, name in re.findall(r"(\w+)/{(\w+)}", operation.path)}

    @settings(
        max_examples=5,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation), exists=booleans())
    def run(case: Any, exists: bool) -> None:
        if exists and known:
            case.path_parameters = known
        response = case.call(session=api.session)
        case.validate_response(response, checks=CHECKS)

    run()
