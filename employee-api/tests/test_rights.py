"""Who may do what: every role, every operation, on oneself and on users of every role."""

import json
import re
from typing import Any

import pytest

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_kit.employee_api import MODES, NO_SESSION, PASSWORD, UNKNOWN_ID, Api, StartApi, path, started_with

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


async def described(api: Api) -> list[list[str]]:
    paths = (await api.client.get("/openapi.json")).json()["paths"]
    return [[method.upper(), path] for path, methods in paths.items() for method in methods]


async def answers(api: Api, requests: list[list[str]]) -> dict[str, tuple[int, Any]]:
    """Send requests without a body for what does not exist, and return status and body of the responses."""
    found = {}
    for method, url in requests:
        response = await api.client.request(method, re.sub("{.*?}", UNKNOWN_ID, url))
        is_json = response.headers["content-type"] == "application/json"
        found[f"{method} {url}"] = (response.status_code, response.json() if is_json else None)
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_requests_without_a_session_are_refused_where_authorization_is_enforced(
    start_api: StartApi, mode: str
) -> None:
    async with start_api(auth_mode=mode) as api:
        operations = await described(api)
        assert [request for request in OPEN + SELF + MANAGEMENT + SUBORDINATE if request not in operations] == []
        found = await answers(api, SELF)
        others = await answers(api, [request for request in operations if request not in OPEN + SELF])
        if mode == "enforce":
            found |= others
        else:
            assert {status for status, _ in others.values()} == {200, 400, 404}
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


@pytest.mark.parametrize("role", RANKS)
async def test_each_role_may_make_the_requests_of_the_table_and_no_other(start_api: StartApi, role: str) -> None:
    async with start_api(auth_mode="enforce") as api:
        others = {other: await api.store_user(f"{other}@x", other) for other in RANKS}
        own: dict[str, str] = {}
        for number, request in enumerate(await described(api)):
            if request in OPEN:
                continue
            for other in (*RANKS, None) if "/users/{id}" in request[1] else (None,):
                if not own:
                    me = await api.store_user(f"me{number}@x", role)
                    own = await api.log_in(me["email"])
                target = me if other is None else others[other]
                path = re.sub("{.*?}", UNKNOWN_ID, request[1].replace("/users/{id}", f"/users/{target['id']}"))
                response = await api.client.request(request[0], path, headers=own)
                allowed = response.status_code in (200, 201, 400, 404)
                assert allowed or response.status_code == 403, response.text
                assert (request, other, allowed) == (request, other, may(role, request, other))
                if request in SUBORDINATE and other is None:
                    own = {}  # who deleted themself, for example
                elif request[0] == "DELETE" and other is not None and allowed:
                    others[other] = await api.store_user(f"{other}{number}@x", other)


@pytest.mark.parametrize("role", ["manager", "cto", "ceo"])
async def test_a_role_is_given_only_by_a_higher_one_or_a_ceo(start_api: StartApi, role: str) -> None:
    async with started_with(start_api, "enforce", "ceo", role, "qa", registration="open") as (api, users):
        ceo, session = dict(api.client.headers), await api.log_in("1@x")
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


LIMITS = {"failed_logins_per_email": 1, "registrations_per_address": 1}
WOULD_REFUSE = {
    ("list_users", "AUTHENTICATION_REQUIRED"): 1,
    ("export_users", "LEADERS_ONLY"): 1,
    ("allow_password_reset", "LEADERS_ONLY"): 2,
    ("allow_password_reset", "HIGHER_ROLE_REQUIRED"): 3,  # the own one twice
    ("edit_comment", "NOT_THE_AUTHOR"): 1,
    ("delete_comment", "NOT_THE_AUTHOR"): 1,
    ("login", "TOO_MANY_FAILED_LOGINS"): 1,
    ("register", "REGISTRATION_CLOSED"): 2,
    ("register", "TOO_MANY_REGISTRATIONS"): 1,
    ("register", "JSON_REQUIRED"): 1,
    ("register", "CROSS_SITE_REQUEST"): 1,
}


@pytest.mark.parametrize(("mode", "counted"), [("off", {}), ("observe", WOULD_REFUSE)])
async def test_without_enforcement_requests_are_allowed_and_those_that_it_would_refuse_counted(
    start_api: StartApi, mode: str, counted: dict[tuple[str, str], int]
) -> None:
    telemetry = Telemetry()
    async with started_with(start_api, mode, "qa", "ceo", telemetry=telemetry, **LIMITS) as (api, users):
        comments = f"/api/tasks/{(await api.add_task())['id']}/comments"
        new = {"body": "x", "author_id": users[1]["id"]}
        comment = (await api.client.post(comments, json=new, headers=await api.log_in("1@x"))).headers["location"]
        for method, url in (
            ("GET", "/api/export/users"),
            *(("POST", path(user, "/password-reset")) for user in users),
            ("PATCH", comment),
            ("DELETE", comment),
        ):
            assert (await api.client.request(method, url, json={"body": "Edited"})).status_code == 200
        assert (await api.client.get("/api/auth/users", headers={"authorization": ""})).status_code == 200
        credentials = {"name": "New", "email": "0@x", "password": "wrong words here", "role": "cto"}
        for _ in range(2):
            assert (await api.client.post("/api/auth/login", json=credentials)).status_code == 401
        for number, headers in enumerate(
            ({"content-type": "application/json"}, {"content-type": "text/plain"}, {"sec-fetch-site": "cross-site"})
        ):
            body = json.dumps(credentials | {"email": f"new{number}@x"})
            response = await api.client.post("/api/auth/register", content=body, headers=headers)
            assert (response.status_code, response.json().get("role")) == ((403, None) if number == 2 else (201, "cto"))
    keys = (semconv.REFUSED_OPERATION, semconv.REFUSAL_REASON, semconv.REFUSAL_ENFORCED)
    values = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values
    assert {tuple(dict(labels)[key] for key in keys): value for labels, value in values.items()} == {
        (*refused, False): number for refused, number in counted.items()
    }
