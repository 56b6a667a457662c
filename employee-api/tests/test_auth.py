import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from employee_api.access import SESSION_COOKIE
from employee_api.models import Session
from shop_lab.world.employee_accounts import NO_SESSION, UNKNOWN_ID, status_and_body
from shop_lab.world.employee_api import PASSWORD, Api, StartApi

MANAGEMENT_ROLES = ("ceo", "cto", "manager")
NOT_ALLOWED = (403, {"error": "Not allowed"})
SESSION_REQUESTS = [
    ("GET", "/api/auth/users"),
    ("GET", "/api/tasks"),
    ("POST", "/api/tasks"),
    ("POST", "/api/tasks/assign"),
    ("GET", f"/api/tasks/{UNKNOWN_ID}"),
    ("PATCH", f"/api/tasks/{UNKNOWN_ID}"),
    ("GET", f"/api/tasks/{UNKNOWN_ID}/comments"),
    ("POST", f"/api/tasks/{UNKNOWN_ID}/comments"),
    ("GET", f"/api/tasks/{UNKNOWN_ID}/comments/{UNKNOWN_ID}"),
    ("PATCH", f"/api/tasks/{UNKNOWN_ID}/comments/{UNKNOWN_ID}"),
    ("DELETE", f"/api/tasks/{UNKNOWN_ID}/comments/{UNKNOWN_ID}"),
    ("GET", "/api/activities"),
]
MANAGEMENT_REQUESTS = [
    ("POST", "/api/auth/users"),
    ("DELETE", f"/api/auth/users/{UNKNOWN_ID}"),
    ("DELETE", f"/api/tasks/{UNKNOWN_ID}"),
    ("GET", "/api/export/tasks"),
    ("GET", "/api/export/users"),
    ("GET", "/api/export/activities"),
]


async def log_in(api: Api, email: str, password: str = PASSWORD) -> str:
    """Log in and return the token, which the client also stores as a cookie."""
    response = await api.client.post("/api/auth/login", json={"email": email, "password": password})
    assert response.status_code == 200, response.text
    return response.cookies[SESSION_COOKIE]


async def add_staff(start_api: StartApi, *roles: str) -> list[str]:
    """Add users with these roles while authorization is off, and return their e-mails."""
    async with start_api() as api:
        return [
            (await api.add_user(role=role, email=f"{role}{number}@x"))["email"] for number, role in enumerate(roles)
        ]


@pytest.mark.parametrize(("method", "path"), SESSION_REQUESTS + MANAGEMENT_REQUESTS)
async def test_requests_without_a_session_are_refused(start_api_on_sqlite: StartApi, method: str, path: str) -> None:
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        response = await api.client.request(method, path)
        assert status_and_body(response) == NO_SESSION
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path"), MANAGEMENT_REQUESTS)
async def test_management_requests_without_a_management_role_are_refused(
    start_api_on_sqlite: StartApi, method: str, path: str
) -> None:
    [email] = await add_staff(start_api_on_sqlite, "tech_lead")
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        await log_in(api, email)
        assert status_and_body(await api.client.request(method, path)) == NOT_ALLOWED


@pytest.mark.parametrize(("method", "path"), SESSION_REQUESTS)
async def test_any_session_may_list_and_work_on_tasks(start_api_on_sqlite: StartApi, method: str, path: str) -> None:
    [email] = await add_staff(start_api_on_sqlite, "qa")
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        await log_in(api, email)
        assert (await api.client.request(method, path)).status_code in (200, 400, 404)


@pytest.mark.parametrize("role", MANAGEMENT_ROLES)
@pytest.mark.parametrize(("method", "path"), MANAGEMENT_REQUESTS)
async def test_management_roles_may_make_management_requests(
    start_api_on_sqlite: StartApi, role: str, method: str, path: str
) -> None:
    [email] = await add_staff(start_api_on_sqlite, role)
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        await log_in(api, email)
        assert (await api.client.request(method, path)).status_code in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), [*SESSION_REQUESTS, *MANAGEMENT_REQUESTS])
async def test_every_request_is_allowed_when_authorization_is_off(
    start_api_on_sqlite: StartApi, method: str, path: str
) -> None:
    async with start_api_on_sqlite(auth_mode="off") as api:
        assert (await api.client.request(method, path)).status_code in (200, 400, 404)


async def test_registration_is_open_but_ignores_the_requested_role(start_api: StartApi) -> None:
    async with start_api(auth_mode="enforce") as api:
        new = {"name": "Ada", "email": "ada@x", "password": PASSWORD, "role": "ceo"}
        response = await api.client.post("/api/auth/register", json=new)
        assert (response.status_code, response.json()["role"]) == (201, "employee")


async def test_the_session_token_is_accepted_as_a_bearer_token(start_api: StartApi) -> None:
    [email] = await add_staff(start_api, "qa")
    async with start_api(auth_mode="enforce") as api:
        token = await log_in(api, email)
        api.client.cookies.clear()
        response = await api.client.get("/api/auth/users", headers={"authorization": f"Bearer {token}"})
        assert response.status_code == 200


@pytest.mark.parametrize("token", ["", "x", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 5000])
async def test_an_invalid_token_is_refused(start_api_on_sqlite: StartApi, token: str) -> None:
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        header = {b"authorization": b"Bearer " + token.encode("latin-1")}
        assert status_and_body(await api.client.get("/api/auth/users", headers=header)) == NO_SESSION


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_login_sets_a_cookie_that_scripts_and_plain_http_cannot_read(start_api: StartApi, mode: str) -> None:
    [email] = await add_staff(start_api, "qa")
    async with start_api(auth_mode=mode) as api:
        response = await api.client.post("/api/auth/login", json={"email": email, "password": PASSWORD})
        assert list(response.json()) == ["id", "name", "role", "email", "color", "avatar", "dept"]
        name_and_value, *attributes = response.headers["set-cookie"].split("; ")
        assert name_and_value.startswith(f"{SESSION_COOKIE}=")
        assert set(attributes) >= {"Path=/", "HttpOnly", "Secure", "SameSite=Strict"}


async def test_the_database_stores_no_token(start_api: StartApi) -> None:
    [email] = await add_staff(start_api, "qa")
    async with start_api(auth_mode="enforce") as api:
        token = await log_in(api, email)
        async with api.engine.connect() as connection:
            [row] = (await connection.execute(select(Session))).mappings().all()
        assert len(row["token_hash"]) == 32
        assert token.encode() not in row["token_hash"]


async def test_a_changed_role_applies_to_the_next_request(start_api: StartApi) -> None:
    email, _ = await add_staff(start_api, "ceo", "cto")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, email)
        assert (await api.client.get("/api/export/users")).status_code == 200
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("UPDATE users SET role = 'qa' WHERE role = 'ceo'")
        assert status_and_body(await api.client.get("/api/export/users")) == NOT_ALLOWED


@pytest.mark.parametrize(("steps_hours", "alive"), [([7, 7, 7], True), ([9], False), ([7] * 26, False)])
async def test_a_session_ends_when_idle_and_at_its_maximum_age(
    start_api: StartApi, steps_hours: list[int], alive: bool
) -> None:
    [email] = await add_staff(start_api, "qa")
    async with start_api(auth_mode="enforce", session_idle_seconds=8 * 3600, session_absolute_seconds=7 * 86400) as api:
        await log_in(api, email)
        for hours in steps_hours:
            api.clock.now += timedelta(hours=hours)
            response = await api.client.get("/api/auth/users")
        assert (response.status_code == 200) is alive


async def test_login_deletes_expired_sessions(start_api: StartApi) -> None:
    [email] = await add_staff(start_api, "qa")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, email)
        api.clock.now += timedelta(days=30)
        await log_in(api, email)
        async with api.engine.connect() as connection:
            assert (await connection.execute(select(func.count()).select_from(Session))).scalar_one() == 1


async def test_logout_ends_the_session(start_api: StartApi) -> None:
    [email] = await add_staff(start_api, "qa")
    async with start_api(auth_mode="enforce") as api:
        token = await log_in(api, email)
        assert status_and_body(await api.client.post("/api/auth/logout")) == (200, {"success": True})
        bearer = {"authorization": f"Bearer {token}"}
        assert status_and_body(await api.client.get("/api/auth/users", headers=bearer)) == NO_SESSION


async def test_deleting_a_user_ends_their_sessions(start_api: StartApi) -> None:
    leaving, manager = await add_staff(start_api, "qa", "ceo")
    async with start_api(auth_mode="enforce") as api:
        token = await log_in(api, leaving)
        await log_in(api, manager)
        users = (await api.client.get("/api/auth/users")).json()
        [user_id] = [user["id"] for user in users if user["email"] == leaving]
        assert (await api.client.delete(f"/api/auth/users/{user_id}")).status_code == 200
        api.client.cookies.clear()
        bearer = {"authorization": f"Bearer {token}"}
        assert status_and_body(await api.client.get("/api/auth/users", headers=bearer)) == NO_SESSION


async def management_ids(api: Api) -> list[str]:
    users = (await api.client.get("/api/auth/users")).json()
    return [user["id"] for user in users if user["role"] in MANAGEMENT_ROLES]


async def test_one_management_user_remains_when_all_are_deleted_at_once(start_api: StartApi) -> None:
    emails = await add_staff(start_api, "ceo", "cto", "manager")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, emails[0])
        user_ids = await management_ids(api)
        await asyncio.gather(*(api.client.delete(f"/api/auth/users/{user_id}") for user_id in user_ids))
        async with api.engine.connect() as connection:
            remaining = (await connection.exec_driver_sql("SELECT count(*) FROM users")).scalar_one()
        assert remaining >= 1


async def test_activities_record_the_user_of_the_session(start_api: StartApi) -> None:
    [email] = await add_staff(start_api, "ceo")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, email)
        [me] = await management_ids(api)
        task = await api.add_task()
        await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x", "author_id": UNKNOWN_ID})
        await api.add_user()
        assert [item["actor_id"] for item in (await api.activities())[:3]] == [me, me, me]
        assert task["reporter_id"] == me


async def test_users_who_delete_themselves_are_recorded_as_deleted_without_an_actor(start_api: StartApi) -> None:
    emails = await add_staff(start_api, "ceo", "cto")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, emails[0])
        me, _ = await management_ids(api)
        assert (await api.client.delete(f"/api/auth/users/{me}")).status_code == 200
        await log_in(api, emails[1])
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"], activity["subject_id"]) == ("deleted", None, me)


def counted_refusals(telemetry: Telemetry) -> list[tuple[tuple[str | int, ...], float]]:
    """Return operation, reason and whether it was enforced, each with its number."""
    keys = (semconv.REFUSED_OPERATION, semconv.REFUSAL_REASON, semconv.REFUSAL_ENFORCED)
    values = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values
    return sorted((tuple(dict(labels)[key] for key in keys), value) for labels, value in values.items())


async def test_observe_mode_allows_every_request_and_counts_those_it_would_refuse(
    start_api_on_sqlite: StartApi,
) -> None:
    telemetry = Telemetry()
    [email] = await add_staff(start_api_on_sqlite, "qa")
    async with start_api_on_sqlite(auth_mode="observe", telemetry=telemetry) as api:
        assert (await api.client.get("/api/auth/users")).status_code == 200
        await log_in(api, email)
        assert (await api.client.get("/api/auth/users")).status_code == 200
        assert (await api.client.get("/api/export/users")).status_code == 200
    refusals = [
        (("export_users", "LEADERS_ONLY", False), 1),
        (("list_users", "AUTHENTICATION_REQUIRED", False), 1),
    ]
    assert counted_refusals(telemetry) == refusals
