"""API tokens: their lifecycle, and that no token does more than its scopes and its user's rights allow."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from employee_api.access import Scope
from employee_api.models import ApiToken, Device
from shop_kit.employee_api import NO_SESSION, PASSWORD, UNKNOWN_ID, Api, StartApi, path, started_with, status_and_body

TOKENS = "/api/auth/tokens"
ALL_SCOPES = [str(scope) for scope in Scope]
NEW = {"name": "nightly report", "scopes": ["tasks:read"], "current_password": PASSWORD}


async def create_token(api: Api, *scopes: str, **more: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Create a token, of all scopes by default, and return it as a header and as the response."""
    new = NEW | {"scopes": scopes or ALL_SCOPES} | more
    response = await api.client.post(TOKENS, json=new)
    assert response.status_code == 201, response.text
    return {"authorization": f"Bearer {response.json()['token']}"}, response.json()


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_a_token_acts_for_its_user_until_it_is_revoked(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "cto") as (api, [user]):
        bearer, token = await create_token(api, "tasks:write", "tasks:write", "tasks:read")
        assert token["token"].startswith("shop_")
        assert token["scopes"] == ["tasks:read", "tasks:write"]
        task = (await api.client.post("/api/tasks", json={"title": "x"}, headers=bearer)).json()
        assert task["reporter_id"] == user["id"]
        response = await api.client.delete(f"{TOKENS}/{token['id']}")
        assert status_and_body(response) == (200, {"success": True, "id": token["id"]})
        assert status_and_body(await api.client.get("/api/auth/me", headers=bearer)) == NO_SESSION
        assert (await api.client.get(TOKENS)).json() == []
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
            await api.client.get("/api/tasks", headers=bearer)
            [listed] = (await api.client.get(TOKENS)).json()
            assert listed | {"last_used_at": None} == token
            uses.append(listed["last_used_at"])
        assert uses[0] == uses[1] < uses[2]  # it is stored once a minute
        assert token["expires_at"] == "2026-04-30T11:00:00.000000Z"
        assert secret not in str(await api.execute(select(ApiToken)))
        assert secret not in (await api.client.get("/api/activities")).text
        del api.client.headers["authorization"]
        response = await api.client.get("/api/tasks", headers={"cookie": f"__Host-session={secret}"})
        assert status_and_body(response) == NO_SESSION


@pytest.mark.parametrize("days", [1, 90, None])
async def test_a_token_expires_after_90_days_at_the_latest(start_api: StartApi, days: int | None) -> None:
    long = {"session_idle_seconds": 1e7, "session_absolute_seconds": 1e7}
    async with started_with(start_api, "enforce", "qa", **long) as (api, _):
        expires = {} if days is None else {"expires_at": (api.clock.now + timedelta(days=days)).isoformat()}
        bearer, token = await create_token(api, **expires)
        expiry = datetime.fromisoformat(token["expires_at"])
        assert timedelta(0) <= api.clock.now + timedelta(days=days or 90) - expiry < timedelta(seconds=1)
        api.clock.now = expiry - timedelta(seconds=1)
        assert (await api.client.get("/api/tasks", headers=bearer)).status_code == 200
        api.clock.now = expiry
        assert status_and_body(await api.client.get("/api/tasks", headers=bearer)) == NO_SESSION


async def test_a_user_has_at_most_50_tokens_that_have_not_expired(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):
        soon = (api.clock.now + timedelta(minutes=1)).isoformat()
        for _ in range(50):
            await create_token(api, expires_at=soon)
        response = await api.client.post(TOKENS, json=NEW)
        assert status_and_body(response) == (409, {"error": "Too many API tokens: revoke one first"})
        api.clock.now += timedelta(minutes=2)
        await create_token(api)
        assert len((await api.client.get(TOKENS)).json()) == 1


INVALID_VALUES: dict[str, list[Any]] = {
    "name": ["", "x" * 101],
    "scopes": [[], ["admin"], ["tasks:read"] * 7, "tasks:read"],
    "expires_at": [
        *("2020-01-01T00:00:00Z", "2027-01-01T00:00:00", "2027-02-30T00:00:00Z", "0001-01-01T00:00:00+01:00"),
        *("9999-12-31T23:59:59-01:00", 1900000000, "2026-06-13T15:09:26Z"),
    ],
    "token": ["shop_mine"],
    "user_id": [UNKNOWN_ID],
    "current_password": ["", 1, None],
}


async def test_an_invalid_token_is_refused_by_the_name_of_its_field(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):
        for field, value in [(name, value) for name, values in INVALID_VALUES.items() for value in values]:
            response = await api.client.post(TOKENS, json=NEW | {field: value})
            assert (value, response.status_code) == (value, 400)
            assert field in response.json()["error"]
            assert str(value) not in response.json()["error"] or not value


async def test_tokens_of_other_users_cannot_be_found(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, other]):
        bearer, token = await create_token(api)
        api.client.headers.update(await api.log_in(other["email"]))
        assert (await api.client.get(TOKENS)).json() == []
        for token_id in (token["id"], UNKNOWN_ID, "x"):
            response = await api.client.delete(f"{TOKENS}/{token_id}")
            assert status_and_body(response) == (404, {"error": "API token not found"})
        assert (await api.client.get("/api/tasks", headers=bearer)).status_code == 200


async def test_management_lists_and_revokes_the_tokens_of_a_user(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa", "ceo") as (api, [user, ceo]):
        bearer, token = await create_token(api)
        manager = await api.log_in(ceo["email"])
        [listed] = (await api.client.get(path(user, "/tokens"), headers=manager)).json()
        assert listed["id"] == token["id"]
        assert "token" not in listed
        revoked = [await api.client.delete(path(user, f"/tokens/{token['id']}"), headers=manager) for _ in range(2)]
        assert [response.status_code for response in revoked] == [200, 404]
        assert revoked[1].json() == {"error": "API token not found"}
        assert status_and_body(await api.client.get("/api/tasks", headers=bearer)) == NO_SESSION


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("UPDATE users SET role = 'qa' WHERE role = 'cto'", (403, {"error": "Not allowed"})),
        ("UPDATE users SET approved = false WHERE role = 'cto'", (403, {"error": "Your account awaits approval"})),
        ("UPDATE users SET deactivated_at = created_at WHERE role = 'cto'", NO_SESSION),
        ("DELETE FROM users WHERE role = 'cto'", NO_SESSION),
    ],
)
async def test_a_session_and_a_token_lose_their_rights_with_their_user(
    start_api: StartApi, statement: str, refusal: Any
) -> None:
    async with started_with(start_api, "enforce", "cto", "ceo") as (api, _):
        bearer, _ = await create_token(api)
        assert (await api.client.get("/api/export/users", headers=bearer)).status_code == 200
        await api.execute(statement)
        for credentials in (bearer, None):
            assert status_and_body(await api.client.get("/api/export/users", headers=credentials)) == refusal


@pytest.mark.parametrize("end", ["change", "reset", "deactivation"])
@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_nothing_that_a_stolen_session_makes_outlives_the_password(
    start_api: StartApi, mode: str, end: str
) -> None:
    new = "nine brown otters swim"
    async with started_with(start_api, mode, "cto", "ceo", "qa", registration="invite") as (api, [user, ceo, other]):
        bearer, _ = await create_token(api)
        invitation = (await api.client.post("/api/auth/invitations", json={"role": "manager"})).json()["token"]
        stolen = (await api.client.post(path(other, "/password-reset"))).json()["token"]
        if end == "change":
            change = {"current_password": PASSWORD, "new_password": new}
            (await api.client.put("/api/auth/me/password", json=change)).raise_for_status()
        api.client.headers.update(await api.log_in(ceo["email"]))
        if end == "reset":
            allowed = await api.client.post(path(user, "/password-reset"))
            reset = {"token": allowed.json()["token"], "password": new}
            (await api.client.post("/api/auth/password-reset", json=reset)).raise_for_status()
        if end == "deactivation":
            for action in ("/deactivate", "/reactivate"):
                await api.client.post(path(user, action))
        registration = {"name": "Mallory", "email": "mallory@x", "password": new, "invite": invitation}
        assert (await api.client.post("/api/auth/register", json=registration)).status_code == 403
        reset = {"token": stolen, "password": new}
        assert (await api.client.post("/api/auth/password-reset", json=reset)).status_code == 403
        assert await api.execute(select(Device).where(col(Device.user_id) == uuid.UUID(user["id"]))) == []
        assert (await api.client.get(path(user, "/tokens"))).json() == []
        assert status_and_body(await api.client.get("/api/auth/me", headers=bearer)) == NO_SESSION


async def described_operations(api: Api) -> list[tuple[str, str, str | None]]:
    """Return method, path and scope of every operation that requires a session; SELF has no scope."""
    paths = (await api.client.get("/openapi.json")).json()["paths"]
    return [
        (method.upper(), path.replace("{id}", UNKNOWN_ID), next(iter(operation["security"][-1]["bearer"]), None))
        for path, methods in paths.items()
        for method, operation in methods.items()
        if "security" in operation
    ]


async def test_every_operation_accepts_only_a_token_with_its_scope(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo") as (api, _):
        only = {scope: await create_token(api, scope) for scope in ALL_SCOPES}
        without = {scope: await create_token(api, *(set(ALL_SCOPES) - {scope})) for scope in ALL_SCOPES}
        operations = await described_operations(api)
        assert {scope for *_, scope in operations} == {None, *ALL_SCOPES}
        for method, url, scope in operations:
            if scope is not None:
                expected = {"error": f"The API token lacks the scope {scope}"}
                refused = await api.client.request(method, url, headers=without[scope][0])
                assert (method, url, *status_and_body(refused)) == (method, url, 403, expected)
                accepted = await api.client.request(method, url, headers=only[scope][0])
                assert (method, url, accepted.status_code in (200, 400, 404)) == (method, url, True)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_no_token_can_do_what_concerns_only_its_user(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo") as (api, _):
        bearer, _ = await create_token(api)
        operations = [operation[:2] for operation in await described_operations(api) if operation[2] is None]
        assert ("POST", TOKENS) in operations
        for method, url in operations:
            response = await api.client.request(method, url, headers=bearer, json=NEW)
            assert status_and_body(response) == (403, {"error": "Log in for this: API tokens can't do it"})
