from datetime import timedelta
from typing import Any

import pytest
import structlog
from opentelemetry.trace import SpanKind
from sqlalchemy import select

from employee_api.models import SignIn
from shop_kit.employee_api import MODES, PASSWORD, Api, StartApi, on_each_database, path
from shop_kit.serving import Recorded

USER_AGENT = "Firefox"


async def log_in(api: Api, password: str = PASSWORD, email: str = "ada@x") -> int:
    credentials = {"email": email, "password": password}
    return (await api.client.post("/api/auth/login", json=credentials, headers={"user-agent": USER_AGENT})).status_code


async def attempts(api: Api) -> list[tuple[Any, ...]]:
    """Return outcomes, addresses and user agents, oldest first."""
    rows = await api.execute(select(SignIn).order_by(SignIn.created_at))  # type: ignore[arg-type]
    return [(row["outcome"], row["address"], row["user_agent"]) for row in rows]


@pytest.mark.parametrize("mode", MODES)
async def test_attempts_are_recorded_with_outcome_address_and_user_agent(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        await api.store_user("ada@x")
        assert [await log_in(api, "wrong"), await log_in(api)] == [401, 200]
        assert await log_in(api, "wrong", "unknown@x") == 401
        expected = [(outcome, "127.0.0.1", USER_AGENT) for outcome in ("wrong_password", "success")]
        assert await attempts(api) == ([] if mode == "off" else expected)


async def test_a_deactivated_user_gets_the_answer_to_a_wrong_password(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", failed_logins_per_email=2) as api:
        await api.store_user("ada@x")
        await api.execute("UPDATE users SET deactivated_at = created_at")
        wrong = await api.client.post("/api/auth/login", json={"email": "ada@x", "password": "wrong"})
        right = await api.client.post("/api/auth/login", json={"email": "ada@x", "password": PASSWORD})
        assert (right.status_code, right.content) == (wrong.status_code, wrong.content)
        assert "set-cookie" not in right.headers
        assert await log_in(api) == 429
        assert [row[0] for row in await attempts(api)] == ["wrong_password", "deactivated", "limited"]


async def test_limited_attempts_are_recorded_once_in_a_window(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", failed_logins_per_email=1) as api:
        await api.store_user("ada@x")
        assert [await log_in(api, "wrong") for _ in range(5)] == [401, 429, 429, 429, 429]
        api.clock.now += timedelta(minutes=15)
        assert [await log_in(api, "wrong") for _ in range(3)] == [401, 429, 429]
        outcomes = [row[0] for row in await attempts(api)]
        assert outcomes == ["wrong_password", "limited", "wrong_password", "limited"]


@on_each_database
async def test_attempts_are_deleted_after_90_days_and_with_their_user(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api, start_api() as open_api:
        user = await api.store_user("ada@x")
        await log_in(api, "wrong")
        api.clock.now += timedelta(days=90)
        await log_in(api)
        assert [row[0] for row in await attempts(api)] == ["success"]
        assert (await open_api.client.delete(path(user))).status_code == 200
        assert await attempts(api) == []


async def test_users_list_the_attempts_to_sign_in_to_their_own_account_and_management_those_of_others(
    start_api: StartApi,
) -> None:
    async with start_api(auth_mode="enforce") as api:
        user = await api.store_user("ada@x")
        await api.store_user("ceo@x", "ceo")
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
        assert (await api.client.get(path(user, "/sign-ins"))).json()["items"] == items


async def test_log_lines_of_a_request_have_the_user_and_the_clients_address(start_api: StartApi) -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with start_api(auth_mode="enforce") as api:
            user_id = (await api.store_user("ada@x"))["id"]
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
    async with start_api(telemetry=recorded.telemetry, auth_mode="enforce", failed_logins_per_email=limit) as api:
        await api.store_user("ada@x")
        statements = []
        for email in ("ada@x", "nobody@x"):
            recorded.exporter.clear()
            await log_in(api, "wrong", email)
            await log_in(api, "wrong", email)
            statements.append([span.name for span in recorded.spans() if span.kind is SpanKind.CLIENT])
        assert statements[0] == statements[1]
        assert "INSERT sign_ins" in statements[0]
