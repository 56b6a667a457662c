"""Sessions, and who may do what with them: users list and end their own, management those of others."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE
from employee_api.models import Session
from shop_kit.employee_api import NO_SESSION, PASSWORD, UNKNOWN_ID, StartApi, path, started_with, status_and_body

SESSIONS = "/api/auth/sessions"
NOT_FOUND = (404, {"error": "Session not found"})


async def test_an_invalid_token_is_refused(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        for token in ("", "x", "\xe9", "x" * 5000, "shop_", "shop_x", "shop_\xe9", "shop_" + "x" * 5000):
            header = {b"authorization": b"Bearer " + token.encode("latin-1")}
            assert status_and_body(await api.client.get("/api/auth/users", headers=header)) == NO_SESSION


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_login_sets_cookies_that_scripts_and_plain_http_cannot_read(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "qa") as (api, [user]):
        response = await api.client.post("/api/auth/login", json={"email": user["email"], "password": PASSWORD})
    lifetimes = {SESSION_COOKIE: 7 * 86400, DEVICE_COOKIE: 365 * 86400}
    assert [cookie.partition("; ")[::2] for cookie in response.headers.get_list("set-cookie")] == [
        (f"{name}={response.cookies[name]}", f"Max-Age={seconds}; Path=/; HttpOnly; Secure; SameSite=Strict")
        for name, seconds in lifetimes.items()
    ]


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
        session = await api.log_in(user["email"])  # deletes expired sessions
        assert len(await api.execute(select(Session))) == 1 + alive
        assert len((await api.client.get(SESSIONS, headers=session)).json()) == 1 + alive


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
        assert len(await api.activities(actor=me)) == 3
        assert await api.activities(actor=UNKNOWN_ID) == []


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_users_list_their_sessions_newest_first(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "qa", "qa") as (api, [user, other]):
        await api.log_in(other["email"])
        api.client.headers["user-agent"] = "Other/1.0"
        second = await api.log_in(user["email"])
        newest, oldest = (await api.client.get(SESSIONS)).json()
        assert (newest["current"], oldest["current"]) == (False, True)
        assert (newest["user_agent"], newest["address"]) == ("Other/1.0", "127.0.0.1")
        assert newest["created_at"] > oldest["created_at"]
        assert second["authorization"].split()[1] not in str(newest)
        assert [item["current"] for item in (await api.client.get(SESSIONS, headers=second)).json()] == [True, False]
        api.clock.now += timedelta(hours=5)
        await api.client.get("/api/auth/me")
        oldest = (await api.client.get(SESSIONS)).json()[1]
        assert oldest["last_seen_at"] > newest["last_seen_at"]


async def test_ending_a_session_refuses_its_token_and_finds_none_of_another_user(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [user, other]):
        second, foreign = await api.log_in(user["email"]), await api.log_in(other["email"])
        newest, _ = (await api.client.get(SESSIONS)).json()
        [of_other] = (await api.client.get(SESSIONS, headers=foreign)).json()
        response = await api.client.delete(f"{SESSIONS}/{newest['id']}")
        assert status_and_body(response) == (200, {"success": True, "id": newest["id"]})
        assert status_and_body(await api.client.get(SESSIONS, headers=second)) == NO_SESSION
        for session_id in (newest["id"], of_other["id"], UNKNOWN_ID, "x"):
            assert status_and_body(await api.client.delete(f"{SESSIONS}/{session_id}")) == NOT_FOUND
        assert (await api.client.get(SESSIONS, headers=foreign)).status_code == 200
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"]) == ("ended_session", user["id"])


async def test_ending_all_others_keeps_this_session_and_those_of_other_users(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [user, other]):
        others = [await api.log_in(user["email"]) for _ in range(2)]
        foreign = await api.log_in(other["email"])
        assert status_and_body(await api.client.delete(SESSIONS)) == (200, {"success": True, "ended": 2})
        assert status_and_body(await api.client.delete(SESSIONS)) == (200, {"success": True, "ended": 0})
        for session in others:
            assert status_and_body(await api.client.get(SESSIONS, headers=session)) == NO_SESSION
        assert len((await api.client.get(SESSIONS)).json()) == 1
        assert (await api.client.get(SESSIONS, headers=foreign)).status_code == 200
        assert [activity["action"] for activity in await api.activities()].count("ended_sessions") == 1


async def test_management_lists_and_ends_the_sessions_of_a_user(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa", "ceo") as (api, [user, ceo]):
        manager = await api.log_in(ceo["email"])
        [listed] = (await api.client.get(path(user, "/sessions"), headers=manager)).json()
        assert listed["current"] is False
        ended = await api.client.delete(path(user, "/sessions"), headers=manager)
        assert status_and_body(ended) == (200, {"success": True, "ended": 1})
        assert status_and_body(await api.client.get(SESSIONS)) == NO_SESSION
