"""Who may register, and with which rights: `REGISTRATION`, invitations, approval."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from employee_api.models import SingleUseLink
from shop_kit.employee_api import MODES, PASSWORD, Api, StartApi, on_each_database, path, started_with, status_and_body

REGISTER, INVITATIONS = "/api/auth/register", "/api/auth/invitations"
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
    start_api: StartApi, mode: str
) -> None:
    async with started_with(start_api, mode, "ceo", registration="invite") as (api, _):
        token = (await invite(api))["token"]
        for invitation, refusal in ({}, REQUIRED), ({"invite": ""}, REQUIRED), ({"invite": "guessed"}, INVALID):
            assert status_and_body(await register(api, **invitation)) == refusal
    async with start_api(auth_mode=mode, registration="closed") as api:
        assert status_and_body(await register(api)) == CLOSED
        assert status_and_body(await register(api, invite=token)) == CLOSED


async def test_registration_closes_by_default_with_the_first_management_user(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        assert (await register(api, "first@x")).status_code == 201
    async with started_with(start_api, "enforce", "ceo") as (api, _):
        assert status_and_body(await register(api)) == CLOSED
        assert status_and_body(await api.client.post(INVITATIONS, json={"role": "qa"})) == CLOSED
        await api.execute("UPDATE users SET approved = FALSE")  # one who can't manage does not close it
        assert (await register(api)).status_code == 201


async def test_who_registers_openly_sees_only_themself_until_they_get_a_role(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="open") as (api, _):
        user = (await register(api, role="ceo")).json()
        assert user["role"] == "employee"
        session = await api.log_in("new@x")
        me = (await api.client.get("/api/auth/me", headers=session)).json()
        assert (me["id"], me["approved"]) == (user["id"], False)
        for url in ("/api/auth/users", "/api/tasks", "/api/activities", "/api/export/users"):
            response = await api.client.get(url, headers=session)
            assert status_and_body(response) == (403, {"error": "Your account awaits approval"})
        assert (await api.client.patch(path(user), json={"role": "employee"})).status_code == 200
        assert (await api.client.get("/api/tasks", headers=session)).status_code == 200


@pytest.mark.parametrize("mode", MODES)
async def test_an_invitation_gives_its_role_once(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", registration="invite") as (api, _):
        invitation = await invite(api, role="cto", dept="IT")
        token = invitation["token"]
        assert (await register(api, "0@x", invite=token)).status_code == 409  # which leaves it usable
        response = await register(api, role="ceo", dept="Board", invite=token)
        user = response.json()
        assert (response.status_code, user["role"], user["dept"]) == (201, "cto", "IT")
        assert (await api.client.get(path(user))).json()["approved"]
        assert status_and_body(await register(api, "second@x", invite=token)) == INVALID
        activities = await api.activities()
        assert activities[0]["changes"]["invitation_id"] == {"before": None, "after": invitation["id"]}
        assert len(token) == 43
        assert token not in f"{await api.execute(select(SingleUseLink))} {activities}"


@on_each_database
async def test_one_of_ten_concurrent_registrations_with_an_invitation_succeeds(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        token = (await invite(api))["token"]
        responses = await asyncio.gather(*(register(api, f"new{number}@x", invite=token) for number in range(10)))
        assert sorted(response.status_code for response in responses) == [201] + [403] * 9
        assert len((await api.client.get("/api/auth/users")).json()) == 2


async def test_an_invitation_expires_and_is_deleted_with_the_next_one(start_api: StartApi) -> None:
    settings = {"registration": "invite", "session_idle_seconds": 40 * 86400}
    async with started_with(start_api, "enforce", "ceo", **settings) as (api, _):
        first, second = await invite(api, expires_in_days=1), await invite(api)
        api.clock.now += timedelta(days=1)
        assert status_and_body(await register(api, invite=first["token"])) == INVALID
        assert (await register(api, invite=second["token"])).status_code == 201
        assert [item["id"] for item in (await api.client.get(INVITATIONS)).json()] == [second["id"]]
        await invite(api)
        assert len(await api.execute(select(SingleUseLink))) == 2


async def test_invitations_are_listed_until_they_are_withdrawn_or_expire(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        used, unused, withdrawn = await invite(api), await invite(api, role="cto"), await invite(api)
        url = f"{INVITATIONS}/{withdrawn['id']}"
        assert status_and_body(await api.client.delete(url)) == (200, {"success": True, "id": withdrawn["id"]})
        assert status_and_body(await register(api, invite=withdrawn["token"])) == INVALID
        assert (await register(api, invite=used["token"])).status_code == 201
        for gone in (url, f"{INVITATIONS}/{used['id']}"):
            assert status_and_body(await api.client.delete(gone)) == (404, {"error": "Invitation not found"})
        listed = (await api.client.get(INVITATIONS)).json()
        assert [item["id"] for item in listed] == [unused["id"], used["id"]]
        assert [item["used_at"] is None for item in listed] == [True, False]
        assert all("token" not in item for item in listed)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE users SET role = 'qa'",
        "UPDATE users SET deactivated_at = created_at",
        "DELETE FROM users",
        "UPDATE single_use_links SET creator_id = NULL",  # as from a time without authorization
    ],
)
async def test_invitations_of_users_who_may_no_longer_invite_are_invalid(start_api: StartApi, statement: str) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        token = (await invite(api, role="ceo"))["token"]
        await api.execute(statement)
        assert status_and_body(await register(api, invite=token)) == INVALID


async def test_an_invalid_invitation_is_refused_by_field(api: Api) -> None:
    for field, value in (("role", ""), ("role", 1), *(("expires_in_days", days) for days in (0, 31, "7"))):
        response = await api.client.post(INVITATIONS, json={"role": "qa", field: value})
        assert (value, response.status_code) == (value, 400)
        assert response.json()["error"].startswith(f"{field} ")
