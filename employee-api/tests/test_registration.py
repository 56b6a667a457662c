"""Who may register, and with which rights: `REGISTRATION`, invitations, approval."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import select

from employee_api.models import SingleUseLink
from shop_kit.employee_api import MODES, StartApi, on_each_database, path, started_with

INVITATIONS = "/api/auth/invitations"
CLOSED = (403, {"error": "Registration is closed"})
REQUIRED = (403, {"error": "An invitation is required"})
INVALID = (403, {"error": "Invitation is invalid or used"})
UNAPPROVED = (403, {"error": "Your account awaits approval"})


@pytest.mark.parametrize("mode", MODES)
async def test_registration_is_closed_or_by_invitation_in_every_mode(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", registration="invite") as (api, _):
        token = (await api.invite())["token"]
        assert await api.register() == await api.register(invite="") == REQUIRED
        assert await api.register(invite="guessed") == INVALID
    async with start_api(auth_mode=mode, registration="closed") as api:
        assert await api.register() == await api.register(invite=token) == CLOSED


async def test_registration_closes_by_default_with_the_first_management_user(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        assert (await api.register("first@x"))[0] == 201
    async with started_with(start_api, "enforce", "ceo") as (api, _):
        assert await api.register() == await api.answer(f"POST {INVITATIONS}", {"role": "qa"}) == CLOSED
        await api.execute("UPDATE users SET approved = FALSE")  # one who can't manage does not close it
        assert (await api.register())[0] == 201


async def test_who_registers_openly_sees_only_themself_until_they_get_a_role(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="open") as (api, _):
        _, user = await api.register(role="ceo")
        assert user["role"] == "employee"
        session = await api.log_in("new@x")
        me = await api.fetch("GET /api/auth/me", headers=session)
        assert (me["id"], me["approved"]) == (user["id"], False)
        for url in ("/api/auth/users", path(user), "/api/tasks", "/api/activities", "/api/export/users"):
            assert await api.answer(f"GET {url}", headers=session) == UNAPPROVED
        assert (await api.fetch(f"PATCH {path(user)}", {"name": "Ada"}))["approved"] is False
        assert (await api.fetch(f"PATCH {path(user)}", {"role": "employee"}))["approved"] is True
        assert (await api.activities())[0]["changes"] == {"approved": {"before": False, "after": True}}
        await api.fetch("GET /api/tasks", headers=session)


@pytest.mark.parametrize("mode", MODES)
async def test_an_invitation_gives_its_role_once(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", registration="invite") as (api, _):
        invitation = await api.invite("cto", dept="IT")
        token = invitation["token"]
        assert (await api.register("0@x", invite=token))[0] == 409  # which leaves it usable
        status, user = await api.register(role="ceo", dept="Board", invite=token)
        assert (status, user["role"], user["dept"]) == (201, "cto", "IT")
        assert (await api.fetch(f"GET {path(user)}"))["approved"]
        assert await api.register("second@x", invite=token) == INVALID
        activities = await api.activities()
        assert activities[0]["changes"]["invitation_id"] == {"before": None, "after": invitation["id"]}
        assert len(token) == 43
        assert token not in f"{await api.execute(select(SingleUseLink))} {activities}"


@on_each_database
async def test_one_of_ten_concurrent_registrations_with_an_invitation_succeeds(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        token = (await api.invite())["token"]
        answers = await asyncio.gather(*(api.register(f"new{number}@x", invite=token) for number in range(10)))
        assert sorted(status for status, _ in answers) == [201] + [403] * 9
        assert len(await api.fetch("GET /api/auth/users")) == 2


async def test_an_invitation_expires_and_is_deleted_with_the_next_one(start_api: StartApi) -> None:
    settings = {"registration": "invite", "session_idle_seconds": 40 * 86400}
    async with started_with(start_api, "enforce", "ceo", **settings) as (api, _):
        first, second = await api.invite(expires_in_days=1), await api.invite()
        api.clock.now += timedelta(days=1)
        assert await api.register(invite=first["token"]) == INVALID
        assert (await api.register(invite=second["token"]))[0] == 201
        assert [item["id"] for item in await api.fetch(f"GET {INVITATIONS}")] == [second["id"]]
        await api.invite()
        assert len(await api.execute(select(SingleUseLink))) == 2


async def test_invitations_are_listed_until_they_are_withdrawn_or_expire(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", registration="invite") as (api, _):
        used, unused, withdrawn = await api.invite(), await api.invite("cto"), await api.invite()
        withdrawal = f"DELETE {INVITATIONS}/{withdrawn['id']}"
        assert await api.answer(withdrawal) == (200, {"success": True, "id": withdrawn["id"]})
        assert await api.register(invite=withdrawn["token"]) == INVALID
        assert (await api.register(invite=used["token"]))[0] == 201
        for gone in (withdrawal, f"DELETE {INVITATIONS}/{used['id']}"):
            assert await api.answer(gone) == (404, {"error": "Invitation not found"})
        listed = await api.fetch(f"GET {INVITATIONS}")
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
        token = (await api.invite("ceo"))["token"]
        await api.execute(statement)
        assert await api.register(invite=token) == INVALID
