import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
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
from starlette.routing import Route

from chassis.http.server import HttpService
from chassis.sql.engine import open_engine
from chassis.telemetry.instruments import Telemetry
from employee_api import app
from employee_api.access import SESSION_COOKIE
from employee_api.health import check_database
from employee_api.http.openapi import EXAMPLE_ID
from employee_api.settings import AuthMode, EmployeeApiSettings
from shop_kit.employee_api import PASSWORD, Api, StartApi, password_hasher

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


async def test_every_route_is_described(api_on_sqlite: Api) -> None:
    described = (await api_on_sqlite.client.get("/openapi.json")).json()["paths"]
    routes = {route.path: route.methods or set() for route in api_on_sqlite.asgi.routes if isinstance(route, Route)}
    served = {(path, method.lower()) for path, methods in routes.items() for method in methods if method != "HEAD"} - {
        ("/", "get"),
        ("/docs", "get"),
        ("/openapi.json", "get"),
    }
    served |= {("/healthz", "get"), ("/readyz", "get")}  # by the chassis
    assert served == {(path, method) for path, methods in described.items() for method in methods}


@pytest.mark.parametrize(
    ("mode", "path", "method", "statuses"),
    [
        ("off", "/api/auth/login", "post", "200 400 401 403 500 503"),
        ("observe", "/api/auth/login", "post", "200 400 401 403 500 503"),
        ("enforce", "/api/auth/login", "post", "200 400 401 403 415 429 500 503"),
        ("off", "/api/auth/register", "post", "201 400 403 409 422 500 503"),
        ("off", "/api/auth/users", "get", "200 500"),
        ("enforce", "/api/auth/users", "get", "200 401 403 500 503"),
        ("off", "/api/auth/users/{id}", "delete", "200 403 404 500"),
        ("enforce", "/api/auth/users/{id}", "delete", "200 401 403 404 409 500 503"),
        ("off", "/api/export/tasks", "get", "200 400 429 500"),
        ("off", "/readyz", "get", "200 500 503"),
    ],
)
async def test_every_status_of_an_operation_is_described(
    start_api_on_sqlite: StartApi, mode: str, path: str, method: str, statuses: str
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        operation = (await api.client.get("/openapi.json")).json()["paths"][path][method]
    assert " ".join(sorted(operation["responses"])) == statuses


@pytest.mark.parametrize(
    ("mode", "security"),
    [
        ("off", None),
        ("observe", [{}, {"session": []}, {"bearer": ["tasks:read"]}]),
        ("enforce", [{"session": []}, {"bearer": ["tasks:read"]}]),
    ],
)
async def test_the_document_is_valid_and_describes_the_credentials_that_an_operation_takes(
    start_api_on_sqlite: StartApi, mode: str, security: object
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        document = (await api.client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()
    assert document["paths"]["/api/tasks"]["get"].get("security") == security
    assert "security" not in document["paths"]["/api/auth/login"]["post"]
    assert set(document["components"].get("securitySchemes", {})) == (set() if mode == "off" else {"session", "bearer"})


@dataclass(frozen=True)
class Target:
    """An API under test: schemathesis' session and schema, and the ids of what exists, by path segment."""

    session: Any
    schema: Any
    ids: dict[str, str]


@contextmanager
def target(sqlite_url: str, mode: str) -> Iterator[Target]:
    engine, hasher = open_engine(sqlite_url), password_hasher()
    service = HttpService(EmployeeApiSettings(auth_mode=AuthMode(mode)), Telemetry())
    service.add_readiness_check(partial(check_database, engine))
    api = app.build(EmployeeApiSettings(auth_mode=AuthMode(mode)), engine, hasher, service.telemetry)

    @asynccontextmanager
    async def close_connections(_app: object) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    api.router.lifespan_context = close_connections
    wrapped = service.wrap(api)

    # The chassis passes on no lifespan events.
    async def served(scope: Any, receive: Any, send: Any) -> None:
        await (api if scope["type"] == "lifespan" else wrapped)(scope, receive, send)

    with asgi.get_client(served) as session:
        schema = schemathesis.openapi.from_dict(session.get("/openapi.json").json())
        schema.app = served
        yield Target(session, schema, log_in_with_a_task(session, sqlite_url))
    hasher.close()


def log_in_with_a_task(session: Any, sqlite_url: str) -> dict[str, str]:
    """Log in as a user with a management role, create one of everything else, and return the ids."""
    new = {"name": "Ada", "email": "ada@x", "password": PASSWORD}
    user = session.post("/api/auth/register", json=new).json()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE users SET role = 'ceo', approved = TRUE")
        connection.commit()
    cookie = session.post("/api/auth/login", json=new).cookies.get(SESSION_COOKIE)
    session.headers["authorization"] = f"Bearer {cookie}"
    task = session.post("/api/tasks", json={"title": "Water"}).json()
    comment = session.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done"}).json()
    invitation = session.post("/api/auth/invitations", json={"role": "qa"}).json()
    ids = {"users": user["id"], "tasks": task["id"], "comments": comment["id"]}
    return ids | {"invitations": invitation.get("id", "unknown")}


POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


# What is invalid does not depend on the mode.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mode", "generation"), [("off", POSITIVE), ("observe", POSITIVE), ("enforce", POSITIVE), ("enforce", NEGATIVE)]
)
def test_every_response_conforms_to_the_document(sqlite_url: str, mode: str, generation: GenerationMode) -> None:
    with target(sqlite_url, mode) as api:
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
