"""Who may do what: every role, every operation, on oneself and on users of every role."""

import re
from typing import Any

import pytest

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_kit.employee_accounts import NO_SESSION, UNKNOWN_ID, log_in, started_with
from shop_kit.employee_api import PASSWORD, Api, StartApi

RANKS = {"employee": 0, "manager": 1, "cto": 2, "ceo": 3}


def requests(lines: str) -> list[list[str]]:
    return [line.split() for line in lines.strip().splitlines()]


OPEN = requests("""
    POST /api/auth/login
    POST /api/auth/logout
    POST /api/auth/register
    POST /api/auth/password-reset
    GET /healthz
    GET /readyz
""")
SELF = requests("""
    GET /api/auth/me
    PATCH /api/auth/me
    PUT /api/auth/me/password
    GET /api/auth/sign-ins
    GET /api/auth/sessions
    DELETE /api/auth/sessions
    DELETE /api/auth/sessions/{id}
    GET /api/auth/tokens
    POST /api/auth/tokens
    DELETE /api/auth/tokens/{id}
""")
SESSION = requests("""
    GET /api/auth/users
    GET /api/auth/users/{id}
    GET /api/tasks
    POST /api/tasks
    POST /api/tasks/assign
    GET /api/tasks/{id}
    PATCH /api/tasks/{id}
    GET /api/tasks/{id}/comments
    POST /api/tasks/{id}/comments
    GET /api/tasks/{id}/comments/{comment_id}
    PATCH /api/tasks/{id}/comments/{comment_id}
    DELETE /api/tasks/{id}/comments/{comment_id}
""")
MANAGEMENT = requests("""
    POST /api/auth/users
    POST /api/auth/invitations
    GET /api/auth/invitations
    DELETE /api/auth/invitations/{id}
    DELETE /api/tasks/{id}
    GET /api/export/tasks
    GET /api/export/users
    GET /api/export/activities
    GET /api/activities
""")
SUBORDINATE = requests("""
    PATCH /api/auth/users/{id}
    DELETE /api/auth/users/{id}
    POST /api/auth/users/{id}/deactivate
    POST /api/auth/users/{id}/reactivate
    POST /api/auth/users/{id}/password-reset
    GET /api/auth/users/{id}/sign-ins
    GET /api/auth/users/{id}/sessions
    DELETE /api/auth/users/{id}/sessions
    GET /api/auth/users/{id}/tokens
    DELETE /api/auth/users/{id}/tokens/{token_id}
""")
EXCEPT_SELF = SESSION + MANAGEMENT + SUBORDINATE


async def answers(api: Api, requests: list[list[str]]) -> dict[str, tuple[int, Any]]:
    """Send requests without a body for what does not exist, and return status and body of the responses."""
    found = {}
    for method, path in requests:
        response = await api.client.request(method, re.sub("{.*?}", UNKNOWN_ID, path))
        is_json = response.headers["content-type"] == "application/json"
        found[f"{method} {path}"] = (response.status_code, response.json() if is_json else None)
    return found


async def test_the_access_to_every_operation_is_tested_here(api_on_sqlite: Api) -> None:
    described = (await api_on_sqlite.client.get("/openapi.json")).json()["paths"]
    operations = sorted([method.upper(), path] for path, methods in described.items() for method in methods)
    assert operations == sorted([*OPEN, *SELF, *EXCEPT_SELF])


@pytest.mark.parametrize(("mode", "refused"), [("off", SELF), ("observe", SELF), ("enforce", [*SELF, *EXCEPT_SELF])])
async def test_requests_without_a_session_are_refused(
    start_api_on_sqlite: StartApi, mode: str, refused: list[list[str]]
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        found = await answers(api, refused)
        assert found == dict.fromkeys(found, NO_SESSION)
        assert (await api.client.get("/api/auth/me")).headers["www-authenticate"] == "Bearer"


def may(role: str, request: list[str], other: str | None) -> bool:
    """Return whether a role may make a request on a user of another role, or on themself if it is None."""
    if request in MANAGEMENT:
        return RANKS[role] > 0
    if request not in SUBORDINATE:
        return True
    if request[1].endswith("/password-reset") and other is None:
        return False  # which would replace the password without knowing it
    return role == "ceo" or RANKS[role] > RANKS[other or role]


async def test_each_role_may_make_the_requests_of_the_table_and_no_other(start_api_on_sqlite: StartApi) -> None:
    async with start_api_on_sqlite() as open_api, start_api_on_sqlite(auth_mode="enforce") as api:
        for role in RANKS:
            others = {other: await open_api.add_user(role=other) for other in RANKS}
            own: dict[str, str] = {}
            for request in SELF + EXCEPT_SELF:
                for other in (*RANKS, None) if "/users/{id}" in request[1] else (None,):
                    if not own:
                        me = await open_api.add_user(role=role)
                        own = await log_in(api, me["email"])
                    target = me if other is None else others[other]
                    path = re.sub("{.*?}", UNKNOWN_ID, request[1].replace("/users/{id}", f"/users/{target['id']}"))
                    response = await api.client.request(request[0], path, headers=own)
                    allowed = response.status_code in (200, 201, 400, 404)
                    assert allowed or response.status_code == 403, response.text
                    assert (role, request, other, allowed) == (role, request, other, may(role, request, other))
                    if request in SUBORDINATE and other is None:
                        own = {}  # who deleted themself, for example
                    elif request[0] == "DELETE" and other is not None and allowed:
                        others[other] = await open_api.add_user(role=other)


@pytest.mark.parametrize("role", ["manager", "cto", "ceo"])
async def test_a_role_is_given_only_by_a_higher_one_or_a_ceo(start_api_on_sqlite: StartApi, role: str) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "ceo", role, "qa", registration="open") as (api, users):
        ceo, session = dict(api.client.headers), await log_in(api, "1@x")
        for given in (*RANKS, "any role"):
            new = {"name": "Ada", "email": f"{given}@x", "password": PASSWORD, "role": given}
            invitation = await api.client.post("/api/auth/invitations", json={"role": given}, headers=ceo)
            refused = role != "ceo" and RANKS[role] <= RANKS.get(given, 0)
            statuses = [
                (await api.client.request(method, path, json=body, headers=session)).status_code
                for method, path, body in (
                    ("POST", "/api/auth/users", new),
                    ("POST", "/api/auth/invitations", {"role": given}),
                    ("DELETE", f"/api/auth/invitations/{invitation.json()['id']}", None),
                    ("PATCH", f"/api/auth/users/{users[2]['id']}", {"role": given}),
                )
            ]
            assert (given, statuses) == (given, [403] * 4 if refused else [201, 201, 200, 200])
            await api.client.patch(f"/api/auth/users/{users[2]['id']}", json={"role": "qa"}, headers=ceo)


async def test_observe_mode_counts_the_operations_on_higher_roles(start_api_on_sqlite: StartApi) -> None:
    telemetry = Telemetry()
    async with started_with(start_api_on_sqlite, "observe", "manager", "ceo", telemetry=telemetry) as (api, users):
        for user in users:
            response = await api.client.post(f"/api/auth/users/{user['id']}/password-reset")
            assert response.status_code == 200
    counted = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values
    assert {dict(labels)[semconv.REFUSAL_REASON] for labels in counted} == {"HIGHER_ROLE_REQUIRED"}


@pytest.mark.parametrize(
    ("mode", "role", "visible"), [("enforce", "qa", False), ("enforce", "manager", True), ("observe", "qa", True)]
)
async def test_e_mails_of_others_are_for_those_who_may_export_them(
    start_api: StartApi, mode: str, role: str, visible: bool
) -> None:
    async with started_with(start_api, mode, role, "ceo") as (api, [me, ceo]):
        listed = (await api.client.get("/api/auth/users")).json()
        one = (await api.client.get(f"/api/auth/users/{ceo['id']}")).json()
    assert [user["email"] for user in listed] == [me["email"], ceo["email"] if visible else ""]
    assert one.items() >= (ceo | {"email": ceo["email"] if visible else ""}).items()


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_every_request_is_allowed_unless_authorization_is_enforced(
    start_api_on_sqlite: StartApi, mode: str
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        assert {status for status, _ in (await answers(api, SESSION + MANAGEMENT + SUBORDINATE)).values()} == {
            200,
            400,
            404,
        }
