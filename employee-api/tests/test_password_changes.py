"""Changing one's password, and setting a forgotten one with a link from a management user."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from employee_api.models import ApiToken, Session, SingleUseLink
from shop_kit.employee_api import (
    NO_SESSION,
    PASSWORD,
    Api,
    StartApi,
    on_each_database,
    path,
    started_with,
    status_and_body,
)

NEW = "nine brown otters swim"
OWN, RESET, LOGIN, TOKENS = "/api/auth/me/password", "/api/auth/password-reset", "/api/auth/login", "/api/auth/tokens"
SUCCESS = (200, {"success": True})
WRONG = (403, {"error": "Current password is wrong"})
INVALID = (403, {"error": "Password reset is invalid or used"})
CHANGE = {"current_password": PASSWORD, "new_password": NEW}
TOKEN = {"current_password": PASSWORD, "name": "x", "scopes": ["tasks:read"]}


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
        this, other = await api.log_in("1@x"), await api.log_in("1@x")
        assert status_and_body(await api.client.put(OWN, json=CHANGE, headers=this)) == SUCCESS
        assert (await api.client.get("/api/auth/me", headers=this)).status_code == 200
        assert status_and_body(await api.client.get("/api/auth/me", headers=other)) == NO_SESSION
        assert (await api.client.get("/api/auth/me")).status_code == 200  # of another user
        assert (await try_login(api, "1@x")).status_code == 401
        assert (await try_login(api, "1@x", NEW)).status_code == 200


@pytest.mark.parametrize(("request_line", "body"), [(("PUT", OWN), CHANGE), (("POST", TOKENS), TOKEN)])
@pytest.mark.parametrize(("mode", "last"), [("observe", 403), ("enforce", 429)])
async def test_a_stolen_session_needs_the_password_and_does_not_help_to_guess_it(
    start_api: StartApi, mode: str, last: int, request_line: tuple[str, str], body: dict[str, Any]
) -> None:
    async with started_with(start_api, mode, "qa", failed_logins_per_email=3) as (api, _):
        wrong = [body | {"current_password": password} for password in ("wrong", NEW, "x" * 5000, "wrong")]
        answers = [status_and_body(await api.client.request(*request_line, json=guess)) for guess in wrong]
        assert answers[:3] == [WRONG] * 3
        assert answers[3][0] == last
        assert await api.execute(select(ApiToken)) == []
        sign_ins = (await api.client.get("/api/auth/sign-ins")).json()["items"]
        assert [item["outcome"] for item in sign_ins].count("wrong_password") == (3 if last == 429 else 4)
        assert (await try_login(api, "0@x")).status_code == (429 if mode == "enforce" else 200)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"new_password": "short"}, "Password must have at least 12 characters"),
        ({"new_password": "x" * 4097}, "new_password is too long: at most 4096 characters"),
        ({"new_password": ""}, "new_password must not be empty"),
        ({"current_password": 1}, "current_password must be text"),
    ],
)
async def test_a_new_password_must_conform_to_the_policy(
    start_api: StartApi, change: dict[str, Any], text: str
) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        assert status_and_body(await api.client.put(OWN, json=CHANGE | change)) == (400, {"error": text})
        if text.startswith("Password"):
            assert await reset(api, await allow_reset(api, user), "short") == (400, {"error": text})


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
async def test_a_link_sets_a_password_once_and_ends_all_sessions(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        session = await api.log_in("1@x")
        token = await allow_reset(api, user)
        assert await reset(api, token) == SUCCESS
        assert status_and_body(await api.client.get("/api/auth/me", headers=session)) == NO_SESSION
        assert (await try_login(api, "1@x")).status_code == 401
        assert (await try_login(api, "1@x", NEW)).status_code == 200
        assert await reset(api, token, "another good password") == INVALID
        assert (await try_login(api, "0@x")).status_code == 200


@on_each_database
async def test_a_new_link_voids_the_older_ones_even_if_both_are_made_at_once(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        tokens = await asyncio.gather(*(allow_reset(api, user) for _ in range(5)))
        results = [await reset(api, token) for token in tokens]
        assert sorted(status for status, _ in results) == [200] + [403] * 4


async def expire(api: Api) -> None:
    api.clock.now += timedelta(hours=24)


async def change_password(api: Api) -> None:
    assert (await api.client.put(OWN, json=CHANGE, headers=await api.log_in("1@x"))).status_code == 200


async def demote_creators(api: Api) -> None:
    await api.execute("UPDATE users SET role = 'qa'")


async def promote_user(api: Api) -> None:
    await api.execute("UPDATE users SET role = CASE email WHEN '1@x' THEN 'cto' ELSE 'manager' END")


async def forget_creators(api: Api) -> None:  # as from a time without authorization
    await api.execute("UPDATE single_use_links SET creator_id = NULL")


@pytest.mark.parametrize("event", [expire, change_password, demote_creators, promote_user, forget_creators])
async def test_a_link_becomes_invalid(start_api: StartApi, event: Callable[[Api], Awaitable[None]]) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        token = await allow_reset(api, user)
        await event(api)
        assert await reset(api, token) == INVALID


async def test_the_token_of_an_invitation_sets_no_password_and_the_reverse(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa", registration="invite") as (api, [_, user]):
        invitation = (await api.client.post("/api/auth/invitations", json={"role": "ceo"})).json()["token"]
        assert await reset(api, invitation) == INVALID
        new = {"name": "New", "email": "new@x", "password": NEW, "invite": await allow_reset(api, user)}
        assert (await api.client.post("/api/auth/register", json=new)).status_code == 403


@pytest.mark.parametrize(
    ("url", "body", "status"), [(LOGIN, {"email": "0@x", "password": PASSWORD}, 401), (TOKENS, TOKEN, 403)]
)
async def test_what_a_password_gives_is_not_made_if_it_changes_meanwhile(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch, url: str, body: dict[str, Any], status: int
) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):

        async def verify_and_change(*_: Any) -> tuple[bool, None]:
            await api.execute("UPDATE users SET password_hash = 'another'")
            return True, None

        monkeypatch.setattr("employee_api.users.passwords.PasswordHasher.verify", verify_and_change)
        assert (await api.client.post(url, json=body)).status_code == status
        assert len(await api.execute(select(Session))) == 1
        assert await api.execute(select(ApiToken)) == []


async def test_changes_of_passwords_are_recorded_without_secrets(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        await api.client.put(OWN, json=CHANGE, headers=await api.log_in("1@x"))
        token = await allow_reset(api, user)
        [link] = await api.execute(select(SingleUseLink))
        await reset(api, token, NEW + NEW)
        activities = (await api.activities())[:3]
        actions = ["reset_password", "allowed_password_reset", "changed_password"]
        assert [(item["action"], item["subject_id"]) for item in activities] == [
            (action, user["id"]) for action in actions
        ]
        assert [item["actor_id"] == user["id"] for item in activities] == [False, False, True]
        assert [secret for secret in (PASSWORD, NEW, token) if secret in f"{activities} {link}"] == []
