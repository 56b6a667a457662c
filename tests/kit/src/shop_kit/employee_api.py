"""Runs the employee API in the test process, with a clock that tests set and cheap password hashes."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette

from chassis.http import server as http_server
from chassis.http.server import HttpService
from chassis.sql.engine import open_engine
from chassis.telemetry.instruments import Telemetry
from employee_api import app
from employee_api.health import check_database
from employee_api.settings import EmployeeApiSettings
from employee_api.users.passwords import PasswordHasher
from shop_kit.settings import load_settings

PASSWORD = "correct horse"

LOCAL = {"host": "127.0.0.1", "port": 0, "drain_seconds": 0}


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

    async def add_user(self, name: str = "Ada Lovelace", email: str | None = None, **more: Any) -> dict[str, Any]:
        """Add a user with PASSWORD and return them."""
        fields = {"name": name, "email": email or f"{uuid.uuid4().hex}@example.com", "password": PASSWORD} | more
        response = await self.client.post("/api/auth/users", json=fields)
        response.raise_for_status()
        user: dict[str, Any] = response.json()
        return user

    async def add_task(self, title: str = "Write it down", **more: Any) -> dict[str, Any]:
        """Create a task and return it."""
        response = await self.client.post("/api/tasks", json={"title": title} | more)
        response.raise_for_status()
        task: dict[str, Any] = response.json()
        return task

    async def activities(self) -> list[dict[str, Any]]:
        """Return the newest activities, newest first."""
        items: list[dict[str, Any]] = (await self.client.get("/api/activities")).json()["items"]
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
        service.add_readiness_check(partial(check_database, engine))
        asgi = app.build(loaded, engine, hasher, service.telemetry, clock)
        transport = httpx2.ASGITransport(service.wrap(asgi))
        try:
            async with httpx2.AsyncClient(transport=transport, base_url="https://api.test") as client:
                yield Api(client, asgi, engine, clock, service)
        finally:  # a connection that a failed test leaves open is an error of a later one
            hasher.close()
            await engine.dispose()

    return start
