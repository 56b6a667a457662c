from datetime import timedelta
from typing import Any

import pytest
import structlog
from opentelemetry.trace import SpanKind
from sqlalchemy import select

from employee_api.models import SignIn
from shop_kit.employee_api import MODES, PASSWORD, Api, StartApi, on_each_database, path
from shop_kit.serving import Recorded

EMAIL, USER_AGENT = "ada@x", "Firefox"


async def attempts(api: Api) -> list[str]:
    """Return outcomes, oldest first."""
    rows = await api.execute(select(SignIn).order_by(SignIn.created_at))  # type: ignore[arg-type]
    return [row["outcome"] for row in rows]


async def log_in(api: Api, *passwords: str, email: str = EMAIL) -> list[int]:
    return [(await api.attempt_login(email, password)).status_code for password in passwords]


@pytest.mark.parametrize("mode", MODES)
async def test_attempts_are_recorded_with_outcome_address_and_user_agent(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        await api.store_user(EMAIL)
        api.client.headers["user-agent"] = USER_AGENT
        assert await log_in(api, "wrong", PASSWORD) == [401, 200]
        assert await log_in(api, "wrong", email="unknown@x") == [401]
        assert await attempts(api) == ([] if mode == "off" else ["wrong_password", "success"])
        origins = {(row["address"], row["user_agent"]) for row in await api.execute(select(SignIn))}
        assert origins == (set() if mode == "off" else {("127.0.0.1", USER_AGENT)})


async def test_a_deactivated_user_gets_the_answer_to_a_wrong_password(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", failed_logins_per_email=2) as api:
        await api.store_user(EMAIL)
        await api.execute("UPDATE users SET deactivated_at = created_at")
        wrong, right, limited = [await api.attempt_login(EMAIL, password) for password in ("wrong", PASSWORD, PASSWORD)]
        assert (right.status_code, right.content) == (wrong.status_code, wrong.content)
        assert "set-cookie" not in right.headers
        assert limited.status_code == 429
        assert await attempts(api) == ["wrong_password", "deactivated", "limited"]


async def test_limited_attempts_are_recorded_once_in_a_window(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce", failed_logins_per_email=1) as api:
        await api.store_user(EMAIL)
        assert await log_in(api, *["wrong"] * 4) == [401, 429, 429, 429]
        api.clock.now += timedelta(minutes=15)
        assert await log_in(api, *["wrong"] * 3) == [401, 429, 429]
        assert await attempts(api) == ["wrong_password", "limited"] * 2


@on_each_database
async def test_attempts_are_deleted_after_90_days_and_with_their_user(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api, start_api() as open_api:
        user = await api.store_user(EMAIL)
        await log_in(api, "wrong")
        api.clock.now += timedelta(days=90)
        await log_in(api, PASSWORD)
        assert await attempts(api) == ["success"]
        await open_api.fetch(f"DELETE {path(user)}")
        assert await attempts(api) == []


async def test_users_list_their_sign_ins_and_management_those_of_others(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        user = await api.store_user(EMAIL)
        await api.store_user("ceo@x", "ceo")
        await log_in(api, "wrong")
        api.client.headers.update(await api.log_in(EMAIL))
        first, second = await api.pages("/api/auth/sign-ins", limit=1)
        assert [item["outcome"] for item in first + second] == ["success", "wrong_password"]
        assert set(first[0]) == {"id", "outcome", "address", "user_agent", "created_at"}
        api.client.headers.update(await api.log_in("ceo@x"))
        assert (await api.fetch(f"GET {path(user)}/sign-ins"))["items"] == first + second


async def test_log_lines_of_a_request_have_the_user_and_the_clients_address(start_api: StartApi) -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with start_api(auth_mode="enforce") as api:
            user_id = (await api.store_user(EMAIL))["id"]
            await log_in(api, "wrong")
            session = await api.log_in(EMAIL)
            for headers in (session, {}):
                await api.answer("GET /api/tasks", headers=headers)
    requests = [line for line in lines if line["event"] == "request"]
    assert [line.get("user.id") for line in requests] == [None, user_id, user_id, None]
    assert {line["client.address"] for line in requests} == {"127.0.0.1"}


@pytest.mark.parametrize("limit", [1, 9])
async def test_no_statement_shows_if_an_email_is_known(start_api: StartApi, recorded: Recorded, limit: int) -> None:
    async with start_api(telemetry=recorded.telemetry, auth_mode="enforce", failed_logins_per_email=limit) as api:
        await api.store_user(EMAIL)
        statements: list[Any] = []
        for email in (EMAIL, "nobody@x"):
            recorded.exporter.clear()
            await log_in(api, "wrong", "wrong", email=email)
            statements.append([span.name for span in recorded.spans() if span.kind is SpanKind.CLIENT])
        assert statements[0] == statements[1]
        assert "INSERT sign_ins" in statements[0]
