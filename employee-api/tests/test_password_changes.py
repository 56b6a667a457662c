"""Changing one's password, and setting a forgotten one with a link from a management user."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import func, select

from employee_api.models import Session, SingleUseLink
from shop_kit.employee_accounts import MODES, NO_SESSION, log_in, path, started_with, status_and_body
from shop_kit.employee_api import PASSWORD, Api, StartApi

NEW = "nine brown otters swim"
OWN, RESET, LOGIN = "/api/auth/me/password", "/api/auth/password-reset", "/api/auth/login"
SUCCESS = (200, {"success": True})
WRONG = (403, {"error": "Current password is wrong"})
INVALID = (403, {"error": "Password reset is invalid or used"})
CHANGE = {"current_password": PASSWORD, "new_password": NEW}


async def try_login(api: Api, email: str, password: str = PASSWORD) -> httpx2.Response:
    response = await api.client.post(LOGIN, json={"email": email, "password": password}, headers={"authorization": ""})
    api.client.cookies.clear()
    return response


async def allow_reset(api: Api, user: dict[str, Any]) -> str:
    response = await api.client.post(path(user, "/password-reset"))
    assert response.status_code == 200, response.text
    token: str = response.json()["token"]
    return token


async def reset(api: Api, token: str, password: str = NEW) -> tuple[int, Any]:
    new = {"token": token, "password": password}
    return status_and_body(await api.client.post(RESET, json=new, headers={"authorization": ""}))


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_a_changed_password_ends_the_other_sessions_and_not_this_one(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, _):
        this, other = await log_in(api, "1@x"), await log_in(api, "1@x")
        assert status_and_body(await api.client.put(OWN, json=CHANGE, headers=this)) == SUCCESS
        assert (await api.client.get("/api/auth/me", headers=this)).status_code == 200
        assert status_and_body(await api.client.get("/api/auth/me", headers=other)) == NO_SESSION
        assert (await api.client.get("/api/auth/me")).status_code == 200  # of another user
        assert (await try_login(api, "1@x")).status_code == 401
        assert (await try_login(api, "1@x", NEW)).status_code == 200


async def test_a_wrong_current_password_changes_nothing(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, _):
        session = await log_in(api, "1@x")
        for wrong in ("wrong", NEW, "x" * 5000):
            change = CHANGE | {"current_password": wrong}
            assert status_and_body(await api.client.put(OWN, json=change, headers=session)) == WRONG
        assert (await try_login(api, "1@x")).status_code == 200


async def test_a_stolen_session_does_not_help_to_guess_the_password(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa", failed_logins_per_email=3) as (api, _):
        session = await log_in(api, "1@x")
        wrong = CHANGE | {"current_password": "wrong"}
        statuses = [(await api.client.put(OWN, json=wrong, headers=session)).status_code for _ in range(4)]
        assert statuses == [403, 403, 403, 429]
        assert (await api.client.put(OWN, json=CHANGE, headers=session)).status_code == 429
        assert (await try_login(api, "1@x")).status_code == 429
        sign_ins = (await api.client.get("/api/auth/sign-ins", headers=session)).json()["items"]
        assert [item["outcome"] for item in sign_ins].count("wrong_password") == 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"new_password": "short"}, "Password must have at least 12 characters"),
        ({"new_password": "x" * 4097}, "new_password is too long: at most 4096 characters"),
        ({"new_password": ""}, "new_password must not be empty"),
        ({"current_password": 1}, "current_password must be text"),
    ],
)
async def test_a_new_password_must_conform_to_the_policy(
    start_api_on_sqlite: StartApi, change: dict[str, Any], field: str
) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "ceo", "qa") as (api, [_, user]):
        response = await api.client.put(OWN, json=CHANGE | change)
        assert status_and_body(response) == (400, {"error": field})
        if field.startswith("Password"):
            assert await reset(api, await allow_reset(api, user), "short") == (400, {"error": field})


@pytest.mark.parametrize("mode", MODES)
async def test_a_link_sets_a_password_once_and_ends_all_sessions(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        session = await log_in(api, "1@x")
        token = await allow_reset(api, user)
        assert await reset(api, token) == SUCCESS
        assert status_and_body(await api.client.get("/api/auth/me", headers=session)) == NO_SESSION
        assert (await try_login(api, "1@x")).status_code == 401
        assert (await try_login(api, "1@x", NEW)).status_code == 200
        assert await reset(api, token, "another good password") == INVALID
        assert (await try_login(api, "0@x")).status_code == 200


async def test_a_new_link_voids_the_older_ones_even_if_both_are_made_at_once(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        tokens = await asyncio.gather(*(allow_reset(api, user) for _ in range(5)))
        results = [await reset(api, token) for token in tokens]
        assert sorted(status for status, _ in results) == [200] + [403] * 4


async def expire(api: Api) -> None:
    api.clock.now += timedelta(hours=24)


async def change_password(api: Api) -> None:
    session = await log_in(api, "1@x")
    assert (await api.client.put(OWN, json=CHANGE, headers=session)).status_code == 200


async def demote_creators(api: Api) -> None:
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE users SET role = 'qa'")


async def promote_user(api: Api) -> None:
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE users SET role = CASE email WHEN '1@x' THEN 'cto' ELSE 'manager' END")


@pytest.mark.parametrize("event", [expire, change_password, demote_creators, promote_user])
async def test_a_link_becomes_invalid(start_api: StartApi, event: Callable[[Api], Awaitable[None]]) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        token = await allow_reset(api, user)
        await event(api)
        assert await reset(api, token) == INVALID


async def test_links_from_a_time_without_authorization_are_invalid(start_api: StartApi) -> None:
    async with start_api() as api:
        token = await allow_reset(api, await api.add_user(role="ceo"))
    async with start_api(auth_mode="enforce") as api:
        assert await reset(api, token) == INVALID


async def test_the_token_of_an_invitation_sets_no_password_and_the_reverse(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa", registration="invite") as (api, [_, user]):
        invitation = (await api.client.post("/api/auth/invitations", json={"role": "ceo"})).json()["token"]
        assert await reset(api, invitation) == INVALID
        new = {"name": "New", "email": "new@x", "password": NEW, "invite": await allow_reset(api, user)}
        assert (await api.client.post("/api/auth/register", json=new)).status_code == 403


async def test_a_reset_does_not_reactivate_a_user(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        await api.client.post(path(user, "/deactivate"))
        assert await reset(api, await allow_reset(api, user)) == SUCCESS
        assert (await try_login(api, "1@x", NEW)).status_code == 401


async def test_a_login_with_a_password_that_changes_meanwhile_gets_no_session(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        token = await allow_reset(api, user)
        verify = "employee_api.users.passwords.PasswordHasher.verify"

        async def verify_and_reset(*_: Any) -> tuple[bool, None]:
            assert await reset(api, token) == SUCCESS
            return True, None

        with monkeypatch.context() as patched:
            patched.setattr(verify, verify_and_reset)
            assert (await try_login(api, "1@x")).status_code == 401
        async with api.engine.connect() as connection:
            sessions = (await connection.execute(select(func.count()).select_from(Session))).scalar_one()
        assert sessions == 1  # of 0@x


async def test_changes_of_passwords_are_recorded_without_secrets(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        session = await log_in(api, "1@x")
        await api.client.put(OWN, json=CHANGE, headers=session)
        token = await allow_reset(api, user)
        async with api.engine.connect() as connection:
            [link] = (await connection.execute(select(SingleUseLink))).mappings().all()
        await reset(api, token, NEW + NEW)
        activities = (await api.activities())[:3]
        actions = ["reset_password", "allowed_password_reset", "changed_password"]
        assert [(item["action"], item["subject_id"]) for item in activities] == [
            (action, user["id"]) for action in actions
        ]
        assert [item["actor_id"] == user["id"] for item in activities] == [False, False, True]
        for secret in (PASSWORD, NEW, token):
            assert secret not in str(activities)
            assert secret not in str(dict(link))
