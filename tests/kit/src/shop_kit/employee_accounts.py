"""Users of the employee API who are logged in, for tests of accounts, sessions and API tokens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from employee_api.access import SESSION_COOKIE
from shop_kit.employee_api import PASSWORD, Api, StartApi

MODES = ("off", "observe", "enforce")
NO_SESSION = (401, {"error": "Authentication required"})
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


async def log_in(api: Api, email: str, password: str = PASSWORD) -> dict[str, str]:
    """Log in and return the session as a header; none if the mode is `off`."""
    response = await api.client.post("/api/auth/login", json={"email": email, "password": password})
    response.raise_for_status()
    api.client.cookies.clear()
    token = response.cookies.get(SESSION_COOKIE)
    return {"authorization": f"Bearer {token}"} if token else {}


@asynccontextmanager
async def started_with(
    start_api: StartApi, mode: str, *roles: str, **settings: Any
) -> AsyncIterator[tuple[Api, list[dict[str, Any]]]]:
    """Start an API with users of these roles; its client has a session of the first, if the mode has sessions."""
    async with start_api() as api:
        users = [await api.add_user(f"User {number}", f"{number}@x", role=role) for number, role in enumerate(roles)]
    async with start_api(auth_mode=mode, **settings) as api:
        api.client.headers.update(await log_in(api, users[0]["email"]))
        yield api, users


def status_and_body(response: httpx2.Response) -> tuple[int, Any]:
    return response.status_code, response.json()


def path(user: dict[str, Any], action: str = "") -> str:
    """Return the path of a user, or of an action on them."""
    return f"/api/auth/users/{user['id']}{action}"
