"""Sessions, and who may do what with them."""

from datetime import timedelta

import pytest
from sqlalchemy import func, select

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE
from employee_api.models import Session
from shop_kit.employee_accounts import NO_SESSION, UNKNOWN_ID, log_in, started_with, status_and_body
from shop_kit.employee_api import PASSWORD, StartApi

NOT_ALLOWED = (403, {"error": "Not allowed"})


@pytest.mark.parametrize(
    "token",
    [
        prefix + rest
        for prefix in ("", "shop_")
        for rest in ("", "x", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 5000)
    ],
)
async def test_an_invalid_token_is_refused(start_api_on_sqlite: StartApi, token: str) -> None:
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        header = {b"authorization": b"Bearer " + token.encode("latin-1")}
        assert status_and_body(await api.client.get("/api/auth/users", headers=header)) == NO_SESSION


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_login_sets_cookies_that_scripts_and_plain_http_cannot_read(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "qa") as (api, [user]):
        response = await api.client.post("/api/auth/login", json={"email": user["email"], "password": PASSWORD})
        assert list(response.json()) == ["id", "name", "role", "email", "color", "avatar", "dept"]
    lifetimes = {SESSION_COOKIE: 7 * 86400, DEVICE_COOKIE: 365 * 86400}
    assert [cookie.partition("; ")[::2] for cookie in response.headers.get_list("set-cookie")] == [
        (f"{name}={response.cookies[name]}", f"Max-Age={seconds}; Path=/; HttpOnly; Secure; SameSite=Strict")
        for name, seconds in lifetimes.items()
    ]


async def test_a_changed_role_applies_to_the_next_request(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, _):
        assert (await api.client.get("/api/export/users")).status_code == 200
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("UPDATE users SET role = 'qa' WHERE role = 'ceo'")
        assert status_and_body(await api.client.get("/api/export/users")) == NOT_ALLOWED


@pytest.mark.parametrize(("steps_hours", "alive"), [([7, 7, 7], True), ([9], False), ([7] * 26, False)])
async def test_a_session_ends_when_idle_and_at_its_maximum_age(
    start_api: StartApi, steps_hours: list[int], alive: bool
) -> None:
    lifetimes = {"session_idle_seconds": 8 * 3600, "session_absolute_seconds": 7 * 86400}
    async with started_with(start_api, "enforce", "qa", **lifetimes) as (api, [user]):
        for hours in steps_hours:
            api.clock.now += timedelta(hours=hours)
            response = await api.client.get("/api/auth/users")
        assert (response.status_code == 200) is alive
        await log_in(api, user["email"])
        async with api.engine.connect() as connection:  # a login deletes expired sessions
            assert (await connection.execute(select(func.count()).select_from(Session))).scalar_one() == 1 + alive


async def test_logout_ends_the_session(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):
        assert (await api.client.get("/api/auth/users")).status_code == 200
        assert status_and_body(await api.client.post("/api/auth/logout")) == (200, {"success": True})
        assert status_and_body(await api.client.get("/api/auth/users")) == NO_SESSION


async def test_activities_record_the_user_of_the_session(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo") as (api, [user]):
        me = user["id"]
        task = await api.add_task()
        await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x", "author_id": UNKNOWN_ID})
        await api.add_user()
        assert [item["actor_id"] for item in (await api.activities())[:3]] == [me, me, me]
        assert task["reporter_id"] == me


async def test_users_who_delete_themselves_are_recorded_as_deleted_without_an_actor(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [user, other]):
        me = user["id"]
        assert (await api.client.delete(f"/api/auth/users/{me}")).status_code == 200
        assert status_and_body(await api.client.get("/api/auth/users")) == NO_SESSION
        activities = await api.client.get("/api/activities", headers=await log_in(api, other["email"]))
        activity = activities.json()["items"][0]
        assert (activity["action"], activity["actor_id"], activity["subject_id"]) == ("deleted", None, me)


async def test_observe_mode_allows_every_request_and_counts_those_it_would_refuse(
    start_api_on_sqlite: StartApi,
) -> None:
    telemetry = Telemetry()
    async with started_with(start_api_on_sqlite, "observe", "qa", telemetry=telemetry) as (api, _):
        assert (await api.client.get("/api/auth/users", headers={"authorization": ""})).status_code == 200
        assert (await api.client.get("/api/auth/users")).status_code == 200
        assert (await api.client.get("/api/export/users")).status_code == 200
    keys = (semconv.REFUSED_OPERATION, semconv.REFUSAL_REASON, semconv.REFUSAL_ENFORCED)
    counted = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values
    refused = {("export_users", "LEADERS_ONLY", False): 1, ("list_users", "AUTHENTICATION_REQUIRED", False): 1}
    assert {tuple(dict(labels)[key] for key in keys): value for labels, value in counted.items()} == refused
