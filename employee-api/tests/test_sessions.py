"""Sessions, and who may do what with them: users list and end their own, management those of others."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE
from employee_api.models import Session
from shop_kit.employee_api import NO_SESSION, UNKNOWN_ID, StartApi, path, started_with

SESSIONS = "/api/auth/sessions"


async def test_an_invalid_token_is_refused(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        for token in ("", "x", "\xe9", "x" * 5000, "shop_", "shop_x", "shop_\xe9", "shop_" + "x" * 5000):
            answer = await api.client.get("/api/tasks", headers={b"authorization": f"Bearer {token}".encode("latin-1")})
            assert (answer.status_code, answer.json()) == NO_SESSION


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_login_sets_strict_cookies_and_logout_ends_the_session(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "qa") as (api, [user]):
        response = await api.attempt_login(user["email"])
        assert await api.answer("POST /api/auth/logout") == (200, {"success": True})
        assert await api.answer("GET /api/auth/me") == NO_SESSION
    lifetimes = {SESSION_COOKIE: 7 * 86400, DEVICE_COOKIE: 365 * 86400}
    assert [cookie.partition("; ")[::2] for cookie in response.headers.get_list("set-cookie")] == [
        (f"{name}={response.cookies[name]}", f"Max-Age={seconds}; Path=/; HttpOnly; Secure; SameSite=Strict")
        for name, seconds in lifetimes.items()
    ]


@pytest.mark.parametrize(("steps_hours", "alive"), [([7, 7, 7], True), ([9], False), ([7] * 26, False)])
async def test_a_session_ends_when_idle_or_old(start_api: StartApi, steps_hours: list[int], alive: bool) -> None:
    lifetimes = {"session_idle_seconds": 8 * 3600, "session_absolute_seconds": 7 * 86400}
    async with started_with(start_api, "enforce", "qa", **lifetimes) as (api, [user]):
        for hours in steps_hours:
            api.clock.now += timedelta(hours=hours)
            status, _ = await api.answer("GET /api/auth/users")
        assert (status == 200) is alive
        session = await api.log_in(user["email"])  # deletes expired sessions
        assert len(await api.execute(select(Session))) == 1 + alive
        assert len(await api.fetch(f"GET {SESSIONS}", headers=session)) == 1 + alive


async def test_activities_record_the_user_of_the_session(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo") as (api, [user]):
        me = user["id"]
        task = await api.add_task()
        await api.fetch(f"POST /api/tasks/{task['id']}/comments", {"body": "x", "author_id": UNKNOWN_ID})
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
        newest, oldest = await api.fetch(f"GET {SESSIONS}")
        assert (newest["current"], oldest["current"]) == (False, True)
        assert (newest["user_agent"], newest["address"]) == ("Other/1.0", "127.0.0.1")
        assert newest["created_at"] > oldest["created_at"]
        assert second["authorization"].split()[1] not in str(newest)
        assert [item["current"] for item in await api.fetch(f"GET {SESSIONS}", headers=second)] == [True, False]
        api.clock.now += timedelta(hours=5)
        await api.fetch("GET /api/auth/me")
        assert (await api.fetch(f"GET {SESSIONS}"))[1]["last_seen_at"] > newest["last_seen_at"]


async def test_sessions_are_ended_by_their_user_or_by_management(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [user, other]):
        second, *others = [await api.log_in(user["email"]) for _ in range(3)]
        foreign = await api.log_in(other["email"])
        ended = (await api.fetch(f"GET {SESSIONS}"))[2]["id"]
        [of_other] = await api.fetch(f"GET {path(other)}/sessions")
        assert of_other["current"] is False
        assert await api.answer(f"DELETE {SESSIONS}/{ended}") == (200, {"success": True, "id": ended})
        assert await api.answer(f"GET {SESSIONS}", headers=second) == NO_SESSION
        for session_id in (ended, of_other["id"], UNKNOWN_ID, "x"):
            assert await api.answer(f"DELETE {SESSIONS}/{session_id}") == (404, {"error": "Session not found"})
        for count in (2, 0):
            assert await api.answer(f"DELETE {SESSIONS}") == (200, {"success": True, "ended": count})
        for session in others:
            assert await api.answer(f"GET {SESSIONS}", headers=session) == NO_SESSION
        assert [len(await api.fetch(f"GET {SESSIONS}", headers=session)) for session in ({}, foreign)] == [1, 1]
        assert await api.answer(f"DELETE {path(other)}/sessions") == (200, {"success": True, "ended": 1})
        assert await api.answer(f"GET {SESSIONS}", headers=foreign) == NO_SESSION
        recorded = [(item["action"], item["actor_id"], item["subject_id"]) for item in (await api.activities())[:3]]
        assert recorded == [
            ("ended_sessions", user["id"], other["id"]),
            ("ended_sessions", user["id"], user["id"]),
            ("ended_session", user["id"], user["id"]),
        ]
