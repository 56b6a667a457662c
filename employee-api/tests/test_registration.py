"""Who may register, and with which rights: `REGISTRATION`, invitations, approval."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from employee_api.models import SingleUseLink
from shop_kit.employee_accounts import MODES, log_in, started_with, status_and_body
from shop_kit.employee_api import PASSWORD, Api, StartApi

REGISTER, INVITATIONS, LOGIN = "/api/auth/register", "/api/auth/invitations", "/api/auth/login"
CLOSED = (403, {"error": "Registration is closed"})
REQUIRED = (403, {"error": "An invitation is required"})
INVALID = (403, {"error": "Invitation is invalid or used"})


async def register(api: Api, email: str = "new@x", **more: Any) -> httpx2.Response:
    new = {"name": "New", "email": email, "password": PASSWORD} | more
    return await api.client.post(REGISTER, json=new, headers={"authorization": ""})


async def invite(api: Api, **more: Any) -> dict[str, Any]:
    response = await api.client.post(INVITATIONS, json={"role": "qa"} | more)
    assert response.status_code == 201, response.text
    invitation: dict[str, Any] = response.json()
    return invitation


@pytest.mark.parametrize("mode", MODES)
async def test_closed_registration_and_registration_by_invitation_are_so_in_every_mode(
    start_api_on_sqlite: StartApi, mode: str
) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "ceo", registration="open") as (api, _):
        token = (await invite(api))["token"]
    async with start_api_on_sqlite(auth_mode=mode, registration="closed") as api:
        assert status_and_body(await register(api)) == CLOSED
        assert status_and_body(await register(api, invite=token)) == CLOSED
    async with start_api_on_sqlite(auth_mode=mode, registration="invite") as api:
        assert status_and_body(await register(api)) == REQUIRED
        assert status_and_body(await register(api, invite="")) == REQUIRED
        assert status_and_body(await register(api, invite="guessed")) == INVALID


async def test_registration_closes_by_default_with_the_first_management_user(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        assert (await register(api, "first@x")).status_code == 201
    async with started_with(start_api, "enforce", "ceo") as (api, _):
        assert status_and_body(await register(api)) == CLOSED
        assert status_and_body(await api.client.post(INVITATIONS, json={"role": "qa"})) == CLOSED
        async with api.engine.begin() as connection:  # one who can't manage does not close it
            await connection.exec_driver_sql("UPDATE users SET approved = FALSE")
        assert (await register(api)).status_code == 201


async def test_observe_mode_counts_registrations_that_would_be_refused(start_api_on_sqlite: StartApi) -> None:
    telemetry = Telemetry()
    async with started_with(start_api_on_sqlite, "observe", "ceo", telemetry=telemetry) as (api, _):
        response = await register(api, role="cto")
        assert (response.status_code, response.json()["role"]) == (201, "cto")
    [labels] = [dict(labels) for labels in telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values]
    assert (labels[semconv.REFUSED_OPERATION], labels[semconv.REFUSAL_REASON]) == ("register", "REGISTRATION_CLOSED")


async def test_who_registers_openly_sees_only_themself_until_they_get_a_role(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="open") as (api, _):
        user = (await register(api, role="ceo")).json()
        assert user["role"] == "employee"
        session = await log_in(api, "new@x")
        me = (await api.client.get("/api/auth/me", headers=session)).json()
        assert (me["id"], me["approved"]) == (user["id"], False)
        for path in ("/api/auth/users", "/api/tasks", "/api/activities", "/api/export/users"):
            response = await api.client.get(path, headers=session)
            assert status_and_body(response) == (403, {"error": "Your account awaits approval"})
        response = await api.client.patch(f"/api/auth/users/{user['id']}", json={"role": "employee"})
        assert response.status_code == 200
        assert (await api.client.get("/api/tasks", headers=session)).status_code == 200


@pytest.mark.parametrize("mode", MODES)
async def test_an_invitation_gives_its_role_once(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", registration="invite") as (api, _):
        invitation = await invite(api, role="cto", dept="IT")
        response = await register(api, role="ceo", dept="Board", invite=invitation["token"])
        user = response.json()
        assert (response.status_code, user["role"], user["dept"]) == (201, "cto", "IT")
        assert (await api.client.get(f"/api/auth/users/{user['id']}")).json()["approved"]
        assert status_and_body(await register(api, "second@x", invite=invitation["token"])) == INVALID
        created = (await api.activities())[0]
        assert created["changes"]["invitation_id"] == {"before": None, "after": invitation["id"]}


async def test_one_of_ten_concurrent_registrations_with_an_invitation_succeeds(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        token = (await invite(api))["token"]
        responses = await asyncio.gather(*(register(api, f"new{number}@x", invite=token) for number in range(10)))
        assert sorted(response.status_code for response in responses) == [201] + [403] * 9
        assert len((await api.client.get("/api/auth/users")).json()) == 2


async def test_a_registration_that_fails_leaves_the_invitation_usable(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        token = (await invite(api))["token"]
        assert (await register(api, "0@x", invite=token)).status_code == 409
        assert (await register(api, invite=token)).status_code == 201


async def test_an_invitation_expires_and_is_deleted_with_the_next_one(start_api: StartApi) -> None:
    settings = {"registration": "invite", "session_idle_seconds": 40 * 86400}
    async with started_with(start_api, "enforce", "ceo", **settings) as (api, _):
        first, second = await invite(api, expires_in_days=1), await invite(api)
        api.clock.now += timedelta(days=1)
        assert status_and_body(await register(api, invite=first["token"])) == INVALID
        assert (await register(api, invite=second["token"])).status_code == 201
        await invite(api)
        async with api.engine.connect() as connection:
            assert len((await connection.execute(select(SingleUseLink))).all()) == 2


async def test_invitations_are_listed_until_they_are_withdrawn_or_expire(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        used, unused, withdrawn = await invite(api), await invite(api, role="cto"), await invite(api)
        path = f"{INVITATIONS}/{withdrawn['id']}"
        assert status_and_body(await api.client.delete(path)) == (200, {"success": True, "id": withdrawn["id"]})
        assert status_and_body(await register(api, invite=withdrawn["token"])) == INVALID
        assert (await register(api, invite=used["token"])).status_code == 201
        for gone in (path, f"{INVITATIONS}/{used['id']}"):
            assert status_and_body(await api.client.delete(gone)) == (404, {"error": "Invitation not found"})
        listed = (await api.client.get(INVITATIONS)).json()
        assert [item["id"] for item in listed] == [unused["id"], used["id"]]
        assert [item["used_at"] is None for item in listed] == [True, False]
        assert all("token" not in item for item in listed)


async def test_invitations_of_users_who_may_no_longer_invite_are_invalid(start_api: StartApi) -> None:
    for statement in (
        "UPDATE users SET role = 'qa' WHERE role = 'ceo'",
        "UPDATE users SET deactivated_at = '2026-01-01 00:00:00' WHERE role = 'ceo'",
        "DELETE FROM users WHERE role = 'ceo'",
    ):
        async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
            token = (await invite(api, role="ceo"))["token"]
            async with api.engine.begin() as connection:
                await connection.exec_driver_sql(statement)
            assert status_and_body(await register(api, invite=token)) == INVALID
            async with api.engine.begin() as connection:
                await connection.exec_driver_sql("DELETE FROM users")


async def test_invitations_from_a_time_without_authorization_are_invalid(start_api: StartApi) -> None:
    async with start_api() as api:
        token = (await invite(api, role="ceo"))["token"]
        assert len(token) == 43
        async with api.engine.connect() as connection:
            [row] = (await connection.execute(select(SingleUseLink))).mappings().all()
        assert token not in f"{dict(row)} {await api.activities()}"
    async with start_api(auth_mode="enforce", registration="invite") as api:
        assert status_and_body(await register(api, invite=token)) == INVALID


@pytest.mark.parametrize(
    ("field", "value"),
    [("role", ""), ("role", 1), ("expires_in_days", 0), ("expires_in_days", 31), ("expires_in_days", "7")],
)
async def test_an_invalid_invitation_is_refused_by_field(api_on_sqlite: Api, field: str, value: Any) -> None:
    response = await api_on_sqlite.client.post(INVITATIONS, json={"role": "qa"} | {field: value})
    assert response.status_code == 400
    assert field in response.json()["error"]
