from datetime import timedelta
from typing import Any

import pytest
import structlog
from opentelemetry.trace import SpanKind
from sqlalchemy import func, select

from employee_api.models import SignIn
from shop_kit.employee_api import PASSWORD, Api, StartApi
from shop_kit.serving import Recorded

USER_AGENT = "Firefox"


async def add_user(start_api: StartApi, email: str = "ada@x", role: str = "qa") -> str:
    async with start_api() as api:
        user_id: str = (await api.add_user(email=email, role=role))["id"]
    return user_id


async def log_in(api: Api, password: str = PASSWORD, email: str = "ada@x") -> int:
    credentials = {"email": email, "password": password}
    return (await api.client.post("/api/auth/login", json=credentials, headers={"user-agent": USER_AGENT})).status_code


async def attempts(api: Api) -> list[tuple[Any, ...]]:
    """Return outcomes, addresses and user agents, oldest first."""
    query = select(SignIn.outcome, SignIn.address, SignIn.user_agent).order_by(SignIn.created_at)  # type: ignore[call-overload]
    async with api.engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(query)]


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
async def test_attempts_are_recorded_with_outcome_address_and_user_agent(start_api: StartApi, mode: str) -> None:
    await add_user(start_api)
    async with start_api(auth_mode=mode) as api:
        assert [await log_in(api, "wrong"), await log_in(api)] == [401, 200]
        assert await log_in(api, "wrong", "unknown@x") == 401
        expected = [(outcome, "127.0.0.1", USER_AGENT) for outcome in ("wrong_password", "success")]
        assert await attempts(api) == ([] if mode == "off" else expected)


async def test_a_deactivated_user_gets_the_answer_to_a_wrong_password(start_api: StartApi) -> None:
    user_id = await add_user(start_api)
    async with start_api() as api:
        assert (await api.client.post(f"/api/auth/users/{user_id}/deactivate")).status_code == 200
        assert await log_in(api) == 401
    async with start_api(auth_mode="enforce", failed_logins_per_email=2) as api:
        wrong = await api.client.post("/api/auth/login", json={"email": "ada@x", "password": "wrong"})
        right = await api.client.post("/api/auth/login", json={"email": "ada@x", "password": PASSWORD})
        assert (right.status_code, right.content) == (wrong.status_code, wrong.content)
        assert "set-cookie" not in right.headers
        assert await log_in(api) == 429
        assert [row[0] for row in await attempts(api)] == ["wrong_password", "deactivated", "limited"]


async def test_limited_attempts_are_recorded_once_in_a_window(start_api: StartApi) -> None:
    await add_user(start_api)
    async with start_api(auth_mode="enforce", failed_logins_per_email=1) as api:
        assert [await log_in(api, "wrong") for _ in range(5)] == [401, 429, 429, 429, 429]
        api.clock.now += timedelta(minutes=15)
        assert [await log_in(api, "wrong") for _ in range(3)] == [401, 429, 429]
        outcomes = [row[0] for row in await attempts(api)]
        assert outcomes == ["wrong_password", "limited", "wrong_password", "limited"]


async def test_attempts_are_deleted_after_90_days(start_api: StartApi) -> None:
    await add_user(start_api)
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, "wrong")
        api.clock.now += timedelta(days=90)
        await log_in(api)
        assert [row[0] for row in await attempts(api)] == ["success"]


async def test_users_list_the_attempts_to_sign_in_to_their_own_account_and_management_those_of_others(
    start_api: StartApi,
) -> None:
    user_id = await add_user(start_api)
    await add_user(start_api, "ceo@x", "ceo")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, email="ceo@x")
        await log_in(api, "wrong")
        await log_in(api)
        first = (await api.client.get("/api/auth/sign-ins?limit=1")).json()
        second = (await api.client.get(f"/api/auth/sign-ins?limit=1&cursor={first['next']}")).json()
        items = first["items"] + second["items"]
        assert [item["outcome"] for item in items] == ["success", "wrong_password"]
        assert second["next"] is None
        assert set(items[0]) == {"id", "outcome", "address", "user_agent", "created_at"}
        await log_in(api, email="ceo@x")
        assert (await api.client.get(f"/api/auth/users/{user_id}/sign-ins")).json()["items"] == items


async def test_attempts_are_deleted_with_their_user(start_api: StartApi) -> None:
    user_id = await add_user(start_api)
    async with start_api(auth_mode="enforce") as api:
        await log_in(api)
    async with start_api() as api:
        assert (await api.client.delete(f"/api/auth/users/{user_id}")).status_code == 200
        async with api.engine.connect() as connection:
            assert (await connection.execute(select(func.count()).select_from(SignIn))).scalar_one() == 0


@pytest.mark.parametrize(
    ("proxies", "statuses", "addresses"),
    [
        ({"trusted_proxies": "127.0.0.1"}, [401, 429, 401], ["198.51.100.7", "198.51.100.7", "198.51.100.8"]),
        ({}, [401, 429, 429], ["127.0.0.1", "127.0.0.1"]),
    ],
)
async def test_the_address_is_that_which_a_trusted_proxy_reports(
    start_api_on_sqlite: StartApi, proxies: dict[str, str], statuses: list[int], addresses: list[str]
) -> None:
    await add_user(start_api_on_sqlite)
    limited: dict[str, Any] = {"auth_mode": "enforce", "failed_logins_per_address": 1}
    async with start_api_on_sqlite(**limited, **proxies) as api:
        found = []
        for client in ("198.51.100.7", "192.0.2.66, 198.51.100.7", "198.51.100.8"):
            api.client.headers["x-forwarded-for"] = client
            found.append(await log_in(api, "wrong"))
        assert found == statuses
        assert [row[1] for row in await attempts(api)] == addresses


async def test_log_lines_of_a_request_have_the_user_and_the_clients_address(start_api_on_sqlite: StartApi) -> None:
    user_id = await add_user(start_api_on_sqlite)
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with start_api_on_sqlite(auth_mode="enforce") as api:
            await log_in(api, "wrong")
            await log_in(api)
            await api.client.get("/api/tasks")
            api.client.cookies.clear()
            await api.client.get("/api/tasks")
    requests = [line for line in lines if line["event"] == "request"]
    assert [line.get("user.id") for line in requests] == [None, user_id, user_id, None]
    assert {line["client.address"] for line in requests} == {"127.0.0.1"}


@pytest.mark.parametrize("limit", [1, 9])
async def test_a_failed_login_makes_the_same_statements_whether_the_email_is_known(
    start_api: StartApi, recorded: Recorded, limit: int
) -> None:
    await add_user(start_api)
    enforced: dict[str, Any] = {"auth_mode": "enforce", "failed_logins_per_email": limit}
    async with start_api(telemetry=recorded.telemetry, **enforced) as api:
        statements = []
        for email in ("ada@x", "nobody@x"):
            recorded.exporter.clear()
            await log_in(api, "wrong", email)
            await log_in(api, "wrong", email)
            statements.append([span.name for span in recorded.spans() if span.kind is SpanKind.CLIENT])
        assert statements[0] == statements[1]
        assert "INSERT sign_ins" in statements[0]
