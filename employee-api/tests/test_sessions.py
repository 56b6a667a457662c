"""Sessions: users list and end their own, management those of others."""

from datetime import timedelta

import pytest

from shop_kit.employee_accounts import MODES, NO_SESSION, UNKNOWN_ID, log_in, path, started_with, status_and_body
from shop_kit.employee_api import StartApi

SESSIONS = "/api/auth/sessions"
NOT_FOUND = (404, {"error": "Session not found"})


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_users_list_their_sessions_newest_first(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "qa", "qa") as (api, [user, other]):
        await log_in(api, other["email"])
        api.client.headers["user-agent"] = "Other/1.0"
        second = await log_in(api, user["email"])
        newest, oldest = (await api.client.get(SESSIONS)).json()
        assert (newest["current"], oldest["current"]) == (False, True)
        assert (newest["user_agent"], newest["address"]) == ("Other/1.0", "127.0.0.1")
        assert newest["created_at"] > oldest["created_at"]
        assert second["authorization"].split()[1] not in str(newest)
        assert [item["current"] for item in (await api.client.get(SESSIONS, headers=second)).json()] == [True, False]


async def test_sessions_that_have_expired_are_not_listed(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, [user]):
        for _ in range(3):
            api.clock.now += timedelta(hours=5)
            await api.client.get("/api/auth/me")
        [current] = (await api.client.get(SESSIONS)).json()
        assert current["last_seen_at"] > current["created_at"]
        api.clock.now += timedelta(hours=9)
        assert len((await api.client.get(SESSIONS, headers=await log_in(api, user["email"]))).json()) == 1


async def test_ending_a_session_refuses_its_token(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo") as (api, [user]):
        second = await log_in(api, user["email"])
        newest, _ = (await api.client.get(SESSIONS)).json()
        response = await api.client.delete(f"{SESSIONS}/{newest['id']}")
        assert status_and_body(response) == (200, {"success": True, "id": newest["id"]})
        assert status_and_body(await api.client.get(SESSIONS, headers=second)) == NO_SESSION
        assert status_and_body(await api.client.delete(f"{SESSIONS}/{newest['id']}")) == NOT_FOUND
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"]) == ("ended_session", user["id"])


async def test_ending_all_others_keeps_this_session_and_those_of_other_users(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [user, other]):
        others = [await log_in(api, user["email"]) for _ in range(2)]
        foreign = await log_in(api, other["email"])
        assert status_and_body(await api.client.delete(SESSIONS)) == (200, {"success": True, "ended": 2})
        assert status_and_body(await api.client.delete(SESSIONS)) == (200, {"success": True, "ended": 0})
        for session in others:
            assert status_and_body(await api.client.get(SESSIONS, headers=session)) == NO_SESSION
        assert len((await api.client.get(SESSIONS)).json()) == 1
        assert (await api.client.get(SESSIONS, headers=foreign)).status_code == 200
        assert [activity["action"] for activity in await api.activities()].count("ended_sessions") == 1


async def test_sessions_of_other_users_cannot_be_found(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, other]):
        foreign = await log_in(api, other["email"])
        [session] = (await api.client.get(SESSIONS, headers=foreign)).json()
        for session_id in (session["id"], UNKNOWN_ID, "x"):
            assert status_and_body(await api.client.delete(f"{SESSIONS}/{session_id}")) == NOT_FOUND
        assert (await api.client.get(SESSIONS, headers=foreign)).status_code == 200


@pytest.mark.parametrize("mode", MODES)
async def test_management_lists_and_ends_the_sessions_of_a_user(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, "enforce", "qa", "ceo") as (api, [user, _]):
        session = dict(api.client.headers)
    async with start_api(auth_mode=mode) as api:
        api.client.headers.update(await log_in(api, "1@x"))
        [listed] = (await api.client.get(path(user, "/sessions"))).json()
        assert listed["current"] is False
        ended = await api.client.delete(path(user, "/sessions"))
        assert status_and_body(ended) == (200, {"success": True, "ended": 1})
        assert (await api.activities())[0]["subject_id"] == user["id"]
    async with start_api(auth_mode="enforce") as api:
        response = await api.client.get(SESSIONS, headers={"authorization": session["authorization"]})
        assert status_and_body(response) == NO_SESSION
