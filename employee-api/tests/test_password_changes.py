"""Changing one's password, and setting a forgotten one with a link from a management user."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from employee_api.models import ApiToken, Session, SingleUseLink
from shop_kit.employee_api import MODES, NO_SESSION, PASSWORD, Api, StartApi, on_each_database, path, started_with

NEW = "nine brown otters swim"
CHANGE_PASSWORD, CREATE_TOKEN = "PUT /api/auth/me/password", "POST /api/auth/tokens"
SUCCESS = (200, {"success": True})
WRONG = (403, {"error": "Current password is wrong"})
INVALID = (403, {"error": "Password reset is invalid or used"})
CHANGE = {"current_password": PASSWORD, "new_password": NEW}
TOKEN = {"current_password": PASSWORD, "name": "x", "scopes": ["tasks:read"]}


async def login_status(api: Api, email: str, password: str = PASSWORD) -> int:
    return (await api.attempt_login(email, password)).status_code


async def allow_reset(api: Api, user: dict[str, Any]) -> str:
    return str((await api.fetch(f"POST {path(user)}/password-reset"))["token"])


async def reset(api: Api, token: str, password: str = NEW) -> tuple[int, Any]:
    new = {"token": token, "password": password}
    return await api.answer("POST /api/auth/password-reset", new, {"authorization": ""})


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_a_changed_password_ends_the_other_sessions_and_not_this_one(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, _):
        this, other = await api.log_in("1@x"), await api.log_in("1@x")
        assert await api.answer(CHANGE_PASSWORD, CHANGE, this) == SUCCESS
        for session in (this, {}):  # {}: of another user
            await api.fetch("GET /api/auth/me", headers=session)
        assert await api.answer("GET /api/auth/me", headers=other) == NO_SESSION
        assert [await login_status(api, "1@x", password) for password in (PASSWORD, NEW)] == [401, 200]


@pytest.mark.parametrize(("request_line", "body"), [(CHANGE_PASSWORD, CHANGE), (CREATE_TOKEN, TOKEN)])
@pytest.mark.parametrize(("mode", "last"), [("observe", 403), ("enforce", 429)])
async def test_a_stolen_session_needs_the_password_and_does_not_help_to_guess_it(
    start_api: StartApi, mode: str, last: int, request_line: str, body: dict[str, Any]
) -> None:
    async with started_with(start_api, mode, "qa", failed_logins_per_email=3) as (api, _):
        wrong = [body | {"current_password": password} for password in ("wrong", NEW, "x" * 5000, "wrong")]
        answers = [await api.answer(request_line, guess) for guess in wrong]
        assert answers[:3] == [WRONG] * 3
        assert answers[3][0] == last
        assert await api.execute(select(ApiToken)) == []
        sign_ins = (await api.fetch("GET /api/auth/sign-ins"))["items"]
        assert [item["outcome"] for item in sign_ins].count("wrong_password") == (3 if last == 429 else 4)
        assert await login_status(api, "0@x") == (429 if mode == "enforce" else 200)


async def test_a_new_password_must_conform_to_the_policy(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        refused = (400, {"error": "Password must have at least 12 characters"})
        assert await api.answer(CHANGE_PASSWORD, CHANGE | {"new_password": "short"}) == refused
        assert await reset(api, await allow_reset(api, user), "short") == refused


@pytest.mark.parametrize("mode", MODES)
async def test_a_link_sets_a_password_once_and_ends_all_sessions(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        session = await api.log_in("1@x")
        token = await allow_reset(api, user)
        assert await reset(api, token) == SUCCESS
        assert await api.answer("GET /api/auth/me", headers=session) == NO_SESSION
        assert [await login_status(api, "1@x", password) for password in (PASSWORD, NEW)] == [401, 200]
        assert await reset(api, token, "another good password") == INVALID
        assert await login_status(api, "0@x") == 200


@on_each_database
async def test_a_new_link_voids_the_older_ones_even_if_both_are_made_at_once(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        tokens = await asyncio.gather(*(allow_reset(api, user) for _ in range(5)))
        results = [await reset(api, token) for token in tokens]
        assert sorted(status for status, _ in results) == [200] + [403] * 4


async def expire(api: Api) -> None:
    api.clock.now += timedelta(hours=24)


async def change_password(api: Api) -> None:
    await api.fetch(CHANGE_PASSWORD, CHANGE, await api.log_in("1@x"))


def executing(statement: str) -> Callable[[Api], Awaitable[Any]]:
    return lambda api: api.execute(statement)


EVENTS = {
    "it expires": expire,
    "the password changes": change_password,
    "its creator is demoted": executing("UPDATE users SET role = 'qa'"),
    "its user is promoted": executing("UPDATE users SET role = CASE email WHEN '1@x' THEN 'cto' ELSE 'manager' END"),
    "it has no creator": executing("UPDATE single_use_links SET creator_id = NULL"),  # made without authorization
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
async def test_a_link_becomes_invalid_when(start_api: StartApi, event: Callable[[Api], Awaitable[Any]]) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        token = await allow_reset(api, user)
        await event(api)
        assert await reset(api, token) == INVALID


async def test_the_token_of_an_invitation_sets_no_password_and_the_reverse(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa", registration="invite") as (api, [_, user]):
        assert await reset(api, (await api.invite("ceo"))["token"]) == INVALID
        assert (await api.register(invite=await allow_reset(api, user)))[0] == 403


@pytest.mark.parametrize(
    ("request_line", "body", "status"),
    [("POST /api/auth/login", {"email": "0@x", "password": PASSWORD}, 401), (CREATE_TOKEN, TOKEN, 403)],
)
async def test_what_a_password_gives_is_not_made_if_it_changes_meanwhile(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch, request_line: str, body: dict[str, Any], status: int
) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):

        async def verify_and_change(*_: Any) -> tuple[bool, None]:
            await api.execute("UPDATE users SET password_hash = 'another'")
            return True, None

        monkeypatch.setattr("employee_api.users.passwords.PasswordHasher.verify", verify_and_change)
        assert (await api.answer(request_line, body))[0] == status
        assert len(await api.execute(select(Session))) == 1
        assert await api.execute(select(ApiToken)) == []


async def test_changes_of_passwords_are_recorded_without_secrets(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        await change_password(api)
        token = await allow_reset(api, user)
        [link] = await api.execute(select(SingleUseLink))
        await reset(api, token, NEW + NEW)
        activities = (await api.activities())[:3]
        assert [(item["action"], item["actor_id"] == user["id"]) for item in activities] == [
            *(("reset_password", False), ("allowed_password_reset", False), ("changed_password", True))
        ]
        assert {item["subject_id"] for item in activities} == {user["id"]}
        assert [secret for secret in (PASSWORD, NEW, token) if secret in f"{activities} {link}"] == []
