"""What tests share: an API in this process, with a clock that they set and hashes that cost next to nothing."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette

from chassis import database
from chassis.telemetry import Telemetry
from employee_api.composition import compose
from employee_api.passwords import Passwords
from employee_api.settings import EmployeeApiSettings

PASSWORD = "correct horse"  # noqa: S105 - nobody's


@dataclass
class Clock:
    """Ticks a millisecond at each look, so that what is created later is later."""

    now: datetime = field(default_factory=lambda: datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC))

    def __call__(self) -> datetime:
        """Tell the time."""
        self.now += timedelta(milliseconds=1)
        return self.now


@dataclass(frozen=True)
class Api:
    """A running API and what tests ask of it again and again."""

    client: httpx2.AsyncClient
    app: Starlette
    engine: AsyncEngine
    clock: Clock
    stopping: Callable[[], None]

    async def user(self, name: str = "Ada Lovelace", email: str | None = None, **more: Any) -> dict[str, Any]:
        """Register a user with PASSWORD."""
        fields = {"name": name, "email": email or f"{uuid.uuid4().hex}@example.com", "password": PASSWORD} | more
        answer = await self.client.post("/api/auth/users", json=fields)
        answer.raise_for_status()
        user: dict[str, Any] = answer.json()
        return user

    async def task(self, title: str = "Write it down", **more: Any) -> dict[str, Any]:
        """Create a task."""
        answer = await self.client.post("/api/tasks", json={"title": title} | more)
        answer.raise_for_status()
        task: dict[str, Any] = answer.json()
        return task

    async def activities(self) -> list[dict[str, Any]]:
        """What has happened, newest first."""
        items: list[dict[str, Any]] = (await self.client.get("/api/activities")).json()["items"]
        return items


Start = Callable[..., AbstractAsyncContextManager[Api]]


def start_on(database_url: str, clock: Clock) -> Start:
    """Make the function that starts an API with settings on a database."""

    @asynccontextmanager
    async def start(*, telemetry: Telemetry | None = None, **settings: Any) -> AsyncIterator[Api]:
        engine = database.engine(database_url)
        passwords = Passwords(threads=2, memory_kib=8, passes=1)
        composed = compose(EmployeeApiSettings(**settings), engine, passwords, telemetry or Telemetry(), clock)
        transport = httpx2.ASGITransport(composed.app)
        async with (
            composed.app.router.lifespan_context(composed.app),
            httpx2.AsyncClient(transport=transport, base_url="https://api.test") as client,
        ):
            yield Api(client, composed.app, engine, clock, composed.stopping)

    return start
