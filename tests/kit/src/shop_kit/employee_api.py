"""Runs the employee API in the test process, with a clock that tests set and cheap password hashes."""

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2
import pytest
from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette

from chassis.http import server as http_server
from chassis.http.server import HttpService
from chassis.sql.engine import open_engine
from chassis.telemetry.instruments import Telemetry
from employee_api import app
from employee_api.access import SESSION_COOKIE
from employee_api.database import transaction
from employee_api.settings import EmployeeApiSettings
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import add_user
from employee_api.users.schemas import UserInput
from shop_kit.settings import load_settings

PASSWORD = "correct horse"
MODES = ("off", "observe", "enforce")
NO_SESSION = (401, {"error": "Authentication required"})
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"

on_each_database = pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)

LOCAL: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "drain_seconds": 0}


@dataclass
class Clock:
    """Advances by a millisecond with each reading, so that creation times are distinct."""

    now: datetime = field(default_factory=lambda: datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC))

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


@dataclass(frozen=True)
class Api:
    """A running API with a client, and the requests that most tests need."""

    client: httpx2.AsyncClient
    asgi: Starlette
    engine: AsyncEngine
    clock: Clock
    service: HttpService
    hasher: PasswordHasher

    async def execute(self, statement: str | Executable) -> list[Any]:
        """Execute a statement past the API, in a transaction of its own, and return its rows."""
        async with self.engine.begin() as connection:
            if isinstance(statement, str):
                result = await connection.exec_driver_sql(statement)
            else:
                result = await connection.execute(statement)
            return list(result.mappings()) if result.returns_rows else []

    async def store_user(self, email: str, role: str = "employee", name: str = "Ada Lovelace") -> dict[str, Any]:
        """Add a user with PASSWORD past the API, which may need a session for it, and return them."""
        new = UserInput(name=name, email=email, password=PASSWORD, role=role)
        async with transaction(self.engine) as connection:
            user = await add_user(connection, new, await self.hasher.hash(PASSWORD), None, self.clock())
        return user.model_dump(mode="json")

    async def answer(
        self, request_line: str, body: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> tuple[int, Any]:
        """Send a request, such as `GET /readyz`, and return the status and the body of the response."""
        method, _, url = request_line.partition(" ")
        return status_and_body(await self.client.request(method, url, json=body, headers=headers, **options))

    async def fetch(self, request_line: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send a request that must succeed, and return the body of the response."""
        status, fetched = await self.answer(request_line, body, headers)
        assert status < 300, fetched
        return fetched

    async def attempt_login(self, email: str, password: str = PASSWORD, **headers: str) -> httpx2.Response:
        """Try to log in without the session of the client, which does not store the cookies either."""
        credentials = {"email": email, "password": password}
        response = await self.client.post("/api/auth/login", json=credentials, headers={"authorization": ""} | headers)
        self.client.cookies.clear()
        return response

    async def log_in(self, email: str, password: str = PASSWORD) -> dict[str, str]:
        """Log in and return the session as a header; none if the mode is `off`."""
        response = await self.attempt_login(email, password)
        response.raise_for_status()
        token = response.cookies.get(SESSION_COOKIE)
        return {"authorization": f"Bearer {token}"} if token else {}

    async def register(
        self, email: str = "new@x", headers: Mapping[str, str] | None = None, **more: Any
    ) -> tuple[int, Any]:
        """Try to register a user with PASSWORD, without the session of the client; return status and body."""
        fields = {"name": "New", "email": email, "password": PASSWORD} | more
        return await self.answer("POST /api/auth/register", fields, {"authorization": ""} | dict(headers or {}))

    async def add_user(self, name: str = "Ada Lovelace", email: str | None = None, **more: Any) -> dict[str, Any]:
        """Add a user with PASSWORD and return them."""
        fields = {"name": name, "email": email or f"{uuid.uuid4().hex}@example.com", "password": PASSWORD} | more
        user: dict[str, Any] = await self.fetch("POST /api/auth/users", fields)
        return user

    async def add_task(self, title: str = "Write it down", **more: Any) -> dict[str, Any]:
        """Create a task and return it."""
        task: dict[str, Any] = await self.fetch("POST /api/tasks", {"title": title} | more)
        return task

    async def invite(self, role: str = "qa", **more: Any) -> dict[str, Any]:
        """Create an invitation and return it, with its token."""
        invitation: dict[str, Any] = await self.fetch("POST /api/auth/invitations", {"role": role} | more)
        return invitation

    async def activities(self, **filters: str) -> list[dict[str, Any]]:
        """Return the newest activities, newest first."""
        items: list[dict[str, Any]] = (await self.client.get("/api/activities", params=filters)).json()["items"]
        return items

    async def pages(self, path: str, **parameters: Any) -> list[list[Any]]:
        """Fetch a list page by page."""
        found: list[list[Any]] = []
        cursor: dict[str, str] = {}
        while True:
            response = await self.client.get(path, params=parameters | cursor)
            response.raise_for_status()
            page = response.json()
            found.append(page["items"])
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    async def operations(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return method, path and description of every operation."""
        paths = (await self.fetch("GET /openapi.json"))["paths"]
        return [(method.upper(), path, paths[path][method]) for path in paths for method in paths[path]]


StartApi = Callable[..., AbstractAsyncContextManager[Api]]


@asynccontextmanager
async def serving(api: AbstractAsyncContextManager[Api]) -> AsyncIterator[tuple[Api, str]]:
    """Serve an API on a port, with the settings LOCAL, and yield it with its address."""
    async with api as running:

        @asynccontextmanager
        async def resources() -> AsyncIterator[Starlette]:
            yield running.asgi

        async with http_server.serving(running.service, resources()) as ports:
            yield running, f"http://127.0.0.1:{ports['port']}"


def password_hasher() -> PasswordHasher:
    """Return a hasher with the lowest cost."""
    return PasswordHasher(threads=2, memory_kib=8, passes=1)


def api_starter(database_url: str, clock: Clock) -> StartApi:
    """Return a function that runs the API on a database; it takes the settings to change, and telemetry."""

    @asynccontextmanager
    async def start(*, telemetry: Telemetry | None = None, **settings: Any) -> AsyncIterator[Api]:
        telemetry = telemetry or Telemetry()
        engine = open_engine(database_url, telemetry)
        hasher = password_hasher()
        loaded = load_settings(EmployeeApiSettings, settings)
        service = HttpService(loaded, telemetry)
        service.readiness_checks.append(partial(app.check_database, engine))
        asgi = app.build(loaded, engine, hasher, service.telemetry, clock)
        transport = httpx2.ASGITransport(service.wrap(asgi))
        try:
            async with httpx2.AsyncClient(transport=transport, base_url="https://api.test") as client:
                yield Api(client, asgi, engine, clock, service, hasher)
        finally:  # a connection that a failed test leaves open is an error of a later one
            hasher.close()
            await engine.dispose()

    return start


@asynccontextmanager
async def started_with(
    start_api: StartApi, mode: str, *roles: str, **settings: Any
) -> AsyncIterator[tuple[Api, list[dict[str, Any]]]]:
    """Start an API with users of these roles; its client has a session of the first, if the mode has sessions."""
    async with start_api(auth_mode=mode, **settings) as api:
        users = [await api.store_user(f"{number}@x", role, f"User {number}") for number, role in enumerate(roles)]
        api.client.headers.update(await api.log_in(users[0]["email"]))
        yield api, users


def status_and_body(response: httpx2.Response) -> tuple[int, Any]:
    return response.status_code, response.json()


def path(user: dict[str, Any]) -> str:
    return f"/api/auth/users/{user['id']}"


def task_path(task: dict[str, Any]) -> str:
    return f"/api/tasks/{task['id']}"
