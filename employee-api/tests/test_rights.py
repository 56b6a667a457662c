"""Who may do what: every role, every operation, on oneself and on users of every role."""

import re

import pytest

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_kit.employee_api import MODES, NO_SESSION, PASSWORD, UNKNOWN_ID, Api, StartApi, path, started_with, task_path

RANKS = {"employee": 0, "manager": 1, "cto": 2, "ceo": 3}


def operations(lines: str) -> list[str]:
    found = [line.split() for line in lines.strip().splitlines()]
    return [f"{method} {path}" for *methods, path in found for method in methods]


OPEN = operations("""
    POST /api/auth/login
    POST /api/auth/logout
    POST /api/auth/register
    POST /api/auth/password-reset
    GET /healthz
    GET /readyz
""")
SELF = operations("""
    GET PATCH /api/auth/me
    PUT /api/auth/me/password
    GET /api/auth/sign-ins
    GET DELETE /api/auth/sessions
    DELETE /api/auth/sessions/{id}
    GET POST /api/auth/tokens
    DELETE /api/auth/tokens/{id}
""")
MANAGEMENT = operations("""
    POST /api/auth/users
    GET POST /api/auth/invitations
    DELETE /api/auth/invitations/{id}
    DELETE /api/tasks/{id}
    GET /api/export/tasks
    GET /api/export/users
    GET /api/export/activities
    GET /api/activities
""")
SUBORDINATE = operations("""
    PATCH DELETE /api/auth/users/{id}
    POST /api/auth/users/{id}/deactivate
    POST /api/auth/users/{id}/reactivate
    POST /api/auth/users/{id}/password-reset
    GET /api/auth/users/{id}/sign-ins
    GET DELETE /api/auth/users/{id}/sessions
    GET /api/auth/users/{id}/tokens
    DELETE /api/auth/users/{id}/tokens/{token_id}
""")


async def described(api: Api) -> list[str]:
    return [f"{method} {path}" for method, path, _ in await api.operations()]


async def status(api: Api, operation: str, url: str = "", **headers: str) -> int:
    """Send a request without a body for what does not exist, unless the URL names it; return the response's status."""
    method, template = operation.split()
    response = await api.client.request(method, re.sub("{.*?}", UNKNOWN_ID, url or template), headers=headers)
    if response.status_code == 401:
        assert response.json() == NO_SESSION[1]
        assert response.headers["www-authenticate"] == "Bearer"
    return response.status_code


@pytest.mark.parametrize("mode", MODES)
async def test_requests_without_a_session_are_refused_when_enforced(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        all_operations = await described(api)
        assert {*OPEN, *SELF, *MANAGEMENT, *SUBORDINATE} <= set(all_operations)
        assert {await status(api, operation) for operation in SELF} == {401}
        others = {await status(api, operation) for operation in all_operations if operation not in OPEN + SELF}
        assert others == ({401} if mode == "enforce" else {200, 400, 404})


def may(role: str, operation: str, other: str | None) -> bool:
    """Return whether a role may do something to a user of another role, or to themself if it is None."""
    if operation in MANAGEMENT:
        return RANKS[role] > 0
    if operation not in SUBORDINATE:
        return True
    if operation.endswith("/password-reset") and other is None:
        return False  # which would replace the password without knowing it
    return role == "ceo" or RANKS[role] > RANKS[other or role]


@pytest.mark.parametrize("role", RANKS)
async def test_each_role_may_do_what_the_tables_say_and_nothing_else(start_api: StartApi, role: str) -> None:
    async with start_api(auth_mode="enforce") as api:
        users = {other: await api.store_user(f"{other}@x", other) for other in RANKS}
        own: dict[str, str] = {}
        for number, operation in enumerate(await described(api)):
            if operation in OPEN:
                continue
            for other in (*RANKS, None) if "/users/{id}" in operation else (None,):
                if not own:
                    me = await api.store_user(f"me{number}@x", role)
                    own = await api.log_in(me["email"])
                url = operation.split()[1].replace("/users/{id}", f"/users/{(users[other] if other else me)['id']}")
                found = await status(api, operation, url, **own)
                assert found in (200, 201, 400, 403, 404)
                assert (operation, other, found != 403) == (operation, other, may(role, operation, other))
                if operation in SUBORDINATE and other is None:
                    own = {}  # who deleted themself, for example
                elif operation.startswith("DELETE") and other is not None and found != 403:
                    users[other] = await api.store_user(f"{other}{number}@x", other)


@pytest.mark.parametrize("role", ["manager", "cto", "ceo"])
async def test_a_role_is_given_only_by_a_higher_one_or_a_ceo(start_api: StartApi, role: str) -> None:
    async with started_with(start_api, "enforce", "ceo", role, "qa", registration="open") as (api, [*_, user]):
        session = await api.log_in("1@x")
        for given in (*RANKS, "any role"):
            new = {"name": "Ada", "email": f"{given}@x", "password": PASSWORD, "role": given}
            answers = [
                await api.answer(request_line, body, session)
                for request_line, body in (
                    ("POST /api/auth/users", new),
                    ("POST /api/auth/invitations", {"role": given}),
                    (f"DELETE /api/auth/invitations/{(await api.invite(given))['id']}", None),
                    (f"PATCH {path(user)}", {"role": given}),
                )
            ]
            refused = role != "ceo" and RANKS[role] <= RANKS.get(given, 0)
            assert (given, [found for found, _ in answers]) == (given, [403] * 4 if refused else [201, 201, 200, 200])
            await api.fetch(f"PATCH {path(user)}", {"role": "qa"})


@pytest.mark.parametrize(
    ("mode", "role", "visible"), [("enforce", "qa", False), ("enforce", "manager", True), ("observe", "qa", True)]
)
async def test_e_mails_of_others_are_for_those_who_may_export_them(
    start_api: StartApi, mode: str, role: str, visible: bool
) -> None:
    async with started_with(start_api, mode, role, "ceo") as (api, [me, ceo]):
        shown = ceo | {"email": ceo["email"] if visible else ""}
        assert await api.fetch("GET /api/auth/users") == [me, shown]
        assert (await api.fetch(f"GET {path(ceo)}")).items() >= shown.items()


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
        comments = f"{task_path(await api.add_task())}/comments"
        new = {"body": "x", "author_id": users[1]["id"]}
        comment = await api.fetch(f"POST {comments}", new, await api.log_in("1@x"))
        for user in users:
            await api.fetch(f"POST {path(user)}/password-reset")
        for method in ("PATCH", "DELETE"):
            await api.fetch(f"{method} {comments}/{comment['id']}", {"body": "Edited"})
        await api.fetch("GET /api/auth/users", headers={"authorization": ""})
        assert (await api.client.get("/api/export/users")).status_code == 200
        assert [(await api.attempt_login("0@x", "wrong")).status_code for _ in range(2)] == [401, 401]
        for email, headers in (("1@y", {}), ("2@y", {"content-type": "text/plain"})):
            registered = await api.register(email, headers, role="cto")
            assert (registered[0], registered[1]["role"]) == (201, "cto")
        assert (await api.register("3@y", {"sec-fetch-site": "cross-site"}))[0] == 403
    keys = (semconv.REFUSED_OPERATION, semconv.REFUSAL_REASON, semconv.REFUSAL_ENFORCED)
    values = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values
    assert {tuple(dict(labels)[key] for key in keys): value for labels, value in values.items()} == {
        (*refused, False): number for refused, number in counted.items()
    }
