"""Sessions, and who may do what with them."""

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE
from employee_api.models import Session
from shop_lab.world.employee_accounts import NO_SESSION, UNKNOWN_ID, log_in, started_with, status_and_body
from shop_lab.world.employee_api import PASSWORD, Api, StartApi

MANAGEMENT_ROLES = ("ceo", "cto", "manager")
NOT_ALLOWED = (403, {"error": "Not allowed"})


def requests(lines: str) -> list[list[str]]:
    return [line.split() for line in lines.strip().splitlines()]


OPEN = requests("""
    POST /api/auth/login
    POST /api/auth/logout
    POST /api/auth/register
    POST /api/auth/password-reset
    GET /healthz
    GET /readyz
""")
SELF = requests("""
    GET /api/auth/me
    PATCH /api/auth/me
    PUT /api/auth/me/password
    GET /api/auth/sign-ins
    GET /api/auth/sessions
    DELETE /api/auth/sessions
    DELETE /api/auth/sessions/{id}
    GET /api/auth/tokens
    POST /api/auth/tokens
    DELETE /api/auth/tokens/{id}
""")
SESSION = requests("""
    GET /api/auth/users
    GET /api/auth/users/{id}
    GET /api/tasks
    POST /api/tasks
    POST /api/tasks/assign
    GET /api/tasks/{id}
    PATCH /api/tasks/{id}
    GET /api/tasks/{id}/comments
    POST /api/tasks/{id}/comments
    GET /api/tasks/{id}/comments/{comment_id}
    PATCH /api/tasks/{id}/comments/{comment_id}
    DELETE /api/tasks/{id}/comments/{comment_id}
    GET /api/activities
""")
MANAGEMENT = requests("""
    POST /api/auth/users
    PATCH /api/auth/users/{id}
    DELETE /api/auth/users/{id}
    POST /api/auth/users/{id}/deactivate
    POST /api/auth/users/{id}/reactivate
    POST /api/auth/users/{id}/password-reset
    GET /api/auth/users/{id}/sign-ins
    GET /api/auth/users/{id}/sessions
    DELETE /api/auth/users/{id}/sessions
    GET /api/auth/users/{id}/tokens
    DELETE /api/auth/users/{id}/tokens/{token_id}
    POST /api/auth/invitations
    GET /api/auth/invitations
    DELETE /api/auth/invitations/{id}
    DELETE /api/tasks/{id}
    GET /api/export/tasks
    GET /api/export/users
    GET /api/export/activities
""")


async def answers(api: Api, requests: list[list[str]]) -> dict[str, tuple[int, Any]]:
    """Send requests without a body for what does not exist, and return status and body of the responses."""
    found = {}
    for method, path in requests:
        response = await api.client.request(method, re.sub("{.*?}", UNKNOWN_ID, path))
        is_json = response.headers["content-type"] == "application/json"
        found[f"{method} {path}"] = (response.status_code, response.json() if is_json else None)
    return found


async def test_the_access_to_every_operation_is_tested_here(api_on_sqlite: Api) -> None:
    described = (await api_on_sqlite.client.get("/openapi.json")).json()["paths"]
    operations = sorted([method.upper(), path] for path, methods in described.items() for method in methods)
    assert operations == sorted([*OPEN, *SELF, *SESSION, *MANAGEMENT])


@pytest.mark.parametrize(
    ("mode", "refused"), [("off", SELF), ("observe", SELF), ("enforce", [*SELF, *SESSION, *MANAGEMENT])]
)
async def test_requests_without_a_session_are_refused(
    start_api_on_sqlite: StartApi, mode: str, refused: list[list[str]]
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        found = await answers(api, refused)
        assert found == dict.fromkeys(found, NO_SESSION)
        assert (await api.client.get("/api/auth/me")).headers["www-authenticate"] == "Bearer"


async def test_any_session_may_work_on_tasks_but_not_manage(start_api_on_sqlite: StartApi) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "tech_lead") as (api, _):
        found = await answers(api, MANAGEMENT)
        assert found == dict.fromkeys(found, NOT_ALLOWED)
        assert {status for status, _ in (await answers(api, SESSION)).values()} == {200, 400, 404}


@pytest.mark.parametrize("role", MANAGEMENT_ROLES)
async def test_management_roles_may_make_every_request(start_api_on_sqlite: StartApi, role: str) -> None:
    async with started_with(start_api_on_sqlite, "enforce", role) as (api, _):
        assert {status for status, _ in (await answers(api, SESSION + MANAGEMENT)).values()} == {200, 400, 404}


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_every_request_is_allowed_unless_authorization_is_enforced(
    start_api_on_sqlite: StartApi, mode: str
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        assert {status for status, _ in (await answers(api, SESSION + MANAGEMENT)).values()} == {200, 400, 404}


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
