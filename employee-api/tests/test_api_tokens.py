"""API tokens: their lifecycle, and that no token does more than its scopes and its user's rights allow."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from employee_api.access import Scope
from employee_api.models import ApiToken, Device
from shop_kit.employee_api import NO_SESSION, PASSWORD, UNKNOWN_ID, Api, StartApi, path, started_with

TOKENS = "/api/auth/tokens"
ALL_SCOPES = [str(scope) for scope in Scope]
NEW = {"name": "nightly report", "scopes": ["tasks:read"], "current_password": PASSWORD}


async def create_token(api: Api, *scopes: str, **more: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Create a token, of all scopes by default, and return it as a header and as the response."""
    token = await api.fetch(f"POST {TOKENS}", NEW | {"scopes": scopes or ALL_SCOPES} | more)
    return {"authorization": f"Bearer {token['token']}"}, token


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_a_token_acts_for_its_user_until_it_is_revoked(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "cto") as (api, [user]):
        bearer, token = await create_token(api, "tasks:write", "tasks:write", "tasks:read")
        assert token["token"].startswith("shop_")
        assert token["scopes"] == ["tasks:read", "tasks:write"]
        assert (await api.fetch("POST /api/tasks", {"title": "x"}, bearer))["reporter_id"] == user["id"]
        assert await api.answer(f"DELETE {TOKENS}/{token['id']}") == (200, {"success": True, "id": token["id"]})
        assert await api.answer("GET /api/auth/me", headers=bearer) == NO_SESSION
        assert await api.fetch(f"GET {TOKENS}") == []
        revoked, _, created = (await api.activities())[:3]
        assert [revoked["action"], created["action"]] == ["revoked_token", "created_token"]
        assert {revoked["actor_id"], created["actor_id"], created["subject_id"]} == {user["id"]}
        assert created["changes"]["scopes"] == {"before": None, "after": "tasks:read tasks:write"}


async def test_a_secret_is_shown_once_stored_as_a_hash_and_no_cookie(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo") as (api, _):
        bearer, token = await create_token(api, expires_at="2026-04-30T12:00:00+01:00")
        secret, uses = token.pop("token"), []
        for seconds in (0, 50, 50):
            api.clock.now += timedelta(seconds=seconds)
            await api.fetch("GET /api/tasks", headers=bearer)
            [listed] = await api.fetch(f"GET {TOKENS}")
            assert listed | {"last_used_at": None} == token
            uses.append(listed["last_used_at"])
        assert uses[0] == uses[1] < uses[2]  # it is stored once a minute
        assert token["expires_at"] == "2026-04-30T11:00:00.000000Z"
        assert secret not in f"{await api.execute(select(ApiToken))} {await api.activities()}"
        del api.client.headers["authorization"]
        assert await api.answer("GET /api/tasks", headers={"cookie": f"__Host-session={secret}"}) == NO_SESSION


@pytest.mark.parametrize("days", [1, 90, None])
async def test_a_token_expires_after_90_days_at_the_latest(start_api: StartApi, days: int | None) -> None:
    long = {"session_idle_seconds": 1e7, "session_absolute_seconds": 1e7}
    async with started_with(start_api, "enforce", "qa", **long) as (api, _):
        expires = {} if days is None else {"expires_at": (api.clock.now + timedelta(days=days)).isoformat()}
        bearer, token = await create_token(api, **expires)
        expiry = datetime.fromisoformat(token["expires_at"])
        assert timedelta(0) <= api.clock.now + timedelta(days=days or 90) - expiry < timedelta(seconds=1)
        api.clock.now = expiry - timedelta(seconds=1)
        await api.fetch("GET /api/tasks", headers=bearer)
        api.clock.now = expiry
        assert await api.answer("GET /api/tasks", headers=bearer) == NO_SESSION


async def test_a_user_has_at_most_50_tokens_that_have_not_expired(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):
        soon = (api.clock.now + timedelta(minutes=1)).isoformat()
        for _ in range(50):
            await create_token(api, expires_at=soon)
        assert await api.answer(f"POST {TOKENS}", NEW) == (409, {"error": "Too many API tokens: revoke one first"})
        api.clock.now += timedelta(minutes=2)
        await create_token(api)
        assert len(await api.fetch(f"GET {TOKENS}")) == 1


async def test_only_management_finds_tokens_of_other_users_and_revokes_them(start_api: StartApi) -> None:
    not_found = (404, {"error": "API token not found"})
    async with started_with(start_api, "enforce", "qa", "qa", "ceo") as (api, [user, other, ceo]):
        bearer, token = await create_token(api)
        api.client.headers.update(await api.log_in(other["email"]))
        assert await api.fetch(f"GET {TOKENS}") == []
        for token_id in (token["id"], UNKNOWN_ID, "x"):
            assert await api.answer(f"DELETE {TOKENS}/{token_id}") == not_found
        await api.fetch("GET /api/tasks", headers=bearer)
        api.client.headers.update(await api.log_in(ceo["email"]))
        [listed] = await api.fetch(f"GET {path(user)}/tokens")
        assert (listed["id"], "token" in listed) == (token["id"], False)
        await api.fetch(f"DELETE {path(user)}/tokens/{token['id']}")
        assert await api.answer(f"DELETE {path(user)}/tokens/{token['id']}") == not_found
        assert await api.answer("GET /api/tasks", headers=bearer) == NO_SESSION


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("UPDATE users SET role = 'qa' WHERE role = 'cto'", (403, {"error": "Not allowed"})),
        ("UPDATE users SET approved = false WHERE role = 'cto'", (403, {"error": "Your account awaits approval"})),
        ("UPDATE users SET deactivated_at = created_at WHERE role = 'cto'", NO_SESSION),
        ("DELETE FROM users WHERE role = 'cto'", NO_SESSION),
    ],
)
async def test_sessions_and_tokens_lose_rights_with_a_user(start_api: StartApi, statement: str, refusal: Any) -> None:
    async with started_with(start_api, "enforce", "cto", "ceo") as (api, _):
        bearer, _ = await create_token(api)
        assert (await api.client.get("/api/export/users", headers=bearer)).status_code == 200
        await api.execute(statement)
        for credentials in (bearer, None):
            assert await api.answer("GET /api/export/users", headers=credentials) == refusal


@pytest.mark.parametrize("end", ["change", "reset", "deactivation"])
@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_nothing_made_by_a_stolen_session_outlives_the_password(start_api: StartApi, mode: str, end: str) -> None:
    new = "nine brown otters swim"
    async with started_with(start_api, mode, "cto", "ceo", "qa", registration="invite") as (api, [user, ceo, other]):
        bearer, _ = await create_token(api)
        invitation = (await api.invite("manager"))["token"]
        stolen = await api.fetch(f"POST {path(other)}/password-reset")
        if end == "change":
            await api.fetch("PUT /api/auth/me/password", {"current_password": PASSWORD, "new_password": new})
        api.client.headers.update(await api.log_in(ceo["email"]))
        if end == "reset":
            allowed = await api.fetch(f"POST {path(user)}/password-reset")
            await api.fetch("POST /api/auth/password-reset", {"token": allowed["token"], "password": new})
        if end == "deactivation":
            for action in ("deactivate", "reactivate"):
                await api.fetch(f"POST {path(user)}/{action}")
        assert (await api.register(invite=invitation))[0] == 403
        reset = {"token": stolen["token"], "password": new}
        assert (await api.answer("POST /api/auth/password-reset", reset))[0] == 403
        assert await api.execute(select(Device).where(col(Device.user_id) == uuid.UUID(user["id"]))) == []
        assert await api.fetch(f"GET {path(user)}/tokens") == []
        assert await api.answer("GET /api/auth/me", headers=bearer) == NO_SESSION


async def secured_operations(api: Api) -> list[tuple[str, str | None]]:
    """Return the request line and the scope of every operation that requires a session; SELF has no scope."""
    return [
        (f"{method} {path.replace('{id}', UNKNOWN_ID)}", next(iter(operation["security"][-1]["bearer"]), None))
        for method, path, operation in await api.operations()
        if "security" in operation
    ]


async def test_every_operation_accepts_only_a_token_with_its_scope(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo") as (api, _):
        only = {scope: await create_token(api, scope) for scope in ALL_SCOPES}
        without = {scope: await create_token(api, *(set(ALL_SCOPES) - {scope})) for scope in ALL_SCOPES}
        operations = await secured_operations(api)
        assert {scope for _, scope in operations} == {None, *ALL_SCOPES}
        for request_line, scope in operations:
            if scope is not None:
                refused = await api.answer(request_line, headers=without[scope][0])
                assert (request_line, refused) == (
                    request_line,
                    (403, {"error": f"The API token lacks the scope {scope}"}),
                )
                method, url = request_line.split()
                accepted = await api.client.request(method, url, headers=only[scope][0])  # a file, perhaps
                assert (request_line, accepted.status_code in (200, 400, 404)) == (request_line, True)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_no_token_can_do_what_concerns_only_its_user(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo") as (api, _):
        bearer, _ = await create_token(api)
        own = [request_line for request_line, scope in await secured_operations(api) if scope is None]
        assert f"POST {TOKENS}" in own
        for request_line in own:
            refused = await api.answer(request_line, NEW, bearer)
            assert refused == (403, {"error": "Log in for this: API tokens can't do it"}), request_line
