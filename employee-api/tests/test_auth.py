import asyncio
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import func, select

from chassis.telemetry import Telemetry
from employee_api.auth import SESSION_COOKIE, FailedLogins
from employee_api.models import Session
from shop_testkit.employee_api import PASSWORD, Api, Start

LEADERS = ("ceo", "cto", "manager")
NO_SESSION = (401, {"error": "Authentication required"})
NO_LEADER = (403, {"error": "Not allowed"})
UNKNOWN = "00000000-0000-4000-8000-000000000000"
FOR_SESSIONS = [
    ("GET", "/api/auth/users"),
    ("GET", "/api/tasks"),
    ("POST", "/api/tasks"),
    ("GET", f"/api/tasks/{UNKNOWN}"),
    ("PATCH", f"/api/tasks/{UNKNOWN}"),
    ("GET", f"/api/tasks/{UNKNOWN}/comments"),
    ("POST", f"/api/tasks/{UNKNOWN}/comments"),
    ("GET", "/api/activities"),
]
FOR_LEADERS = [
    ("POST", "/api/auth/users"),
    ("DELETE", f"/api/auth/users/{UNKNOWN}"),
    ("DELETE", f"/api/tasks/{UNKNOWN}"),
    ("GET", "/api/export/tasks"),
    ("GET", "/api/export/users"),
    ("GET", "/api/export/activities"),
]


async def log_in(api: Api, email: str, password: str = PASSWORD) -> str:
    """Log in; the token that a bearer shows, which the client keeps as a cookie too."""
    answer = await api.client.post("/api/auth/login", json={"email": email, "password": password})
    assert answer.status_code == 200, answer.text
    return answer.cookies[SESSION_COOKIE]


async def staff(start: Start, *roles: str) -> list[str]:
    """Users of these roles, added before the policy is enforced; their e-mails."""
    async with start() as api:
        return [(await api.user(role=role, email=f"{role}{number}@x"))["email"] for number, role in enumerate(roles)]


async def told(answer: Any) -> tuple[int, Any]:
    return answer.status_code, answer.json()


@pytest.mark.parametrize(("method", "path"), FOR_SESSIONS + FOR_LEADERS)
async def test_without_a_session_nothing_is_listed_or_changed(start_on_sqlite: Start, method: str, path: str) -> None:
    async with start_on_sqlite(auth_mode="enforce") as api:
        answer = await api.client.request(method, path)
        assert await told(answer) == NO_SESSION
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path"), FOR_LEADERS)
async def test_a_session_without_a_leading_role_may_not_lead(start_on_sqlite: Start, method: str, path: str) -> None:
    [email] = await staff(start_on_sqlite, "tech_lead")
    async with start_on_sqlite(auth_mode="enforce") as api:
        await log_in(api, email)
        assert await told(await api.client.request(method, path)) == NO_LEADER


@pytest.mark.parametrize(("method", "path"), FOR_SESSIONS)
async def test_any_session_may_work_on_tasks(start_on_sqlite: Start, method: str, path: str) -> None:
    [email] = await staff(start_on_sqlite, "qa")
    async with start_on_sqlite(auth_mode="enforce") as api:
        await log_in(api, email)
        assert (await api.client.request(method, path)).status_code in (200, 400, 404)


@pytest.mark.parametrize("role", LEADERS)
@pytest.mark.parametrize(("method", "path"), FOR_LEADERS)
async def test_leaders_may_lead(start_on_sqlite: Start, role: str, method: str, path: str) -> None:
    [email] = await staff(start_on_sqlite, role)
    async with start_on_sqlite(auth_mode="enforce") as api:
        await log_in(api, email)
        assert (await api.client.request(method, path)).status_code in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), [*FOR_SESSIONS, *FOR_LEADERS])
async def test_with_the_policy_off_nobody_is_refused(start_on_sqlite: Start, method: str, path: str) -> None:
    async with start_on_sqlite(auth_mode="off") as api:
        assert (await api.client.request(method, path)).status_code in (200, 400, 404)


async def test_registering_is_open_but_makes_employees_only(start: Start) -> None:
    async with start(auth_mode="enforce") as api:
        new = {"name": "Ada", "email": "ada@x", "password": PASSWORD, "role": "ceo"}
        answer = await api.client.post("/api/auth/register", json=new)
        assert (answer.status_code, answer.json()["role"]) == (201, "employee")


async def test_the_token_works_as_a_bearer_too(start: Start) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode="enforce") as api:
        token = await log_in(api, email)
        api.client.cookies.clear()
        answer = await api.client.get("/api/auth/users", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200


@pytest.mark.parametrize("token", ["", "x", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 5000])
async def test_an_invented_token_is_none(start_on_sqlite: Start, token: str) -> None:
    async with start_on_sqlite(auth_mode="enforce") as api:
        header = {"authorization": b"Bearer " + token.encode("latin-1")}
        assert await told(await api.client.get("/api/auth/users", headers=header)) == NO_SESSION


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_login_sets_a_cookie_that_only_browsers_over_https_see(start: Start, mode: str) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode=mode) as api:
        answer = await api.client.post("/api/auth/login", json={"email": email, "password": PASSWORD})
        assert list(answer.json()) == ["id", "name", "role", "email", "color", "avatar", "dept"]
        name_and_value, *attributes = answer.headers["set-cookie"].split("; ")
        assert name_and_value.startswith(f"{SESSION_COOKIE}=")
        assert set(attributes) >= {"Path=/", "HttpOnly", "Secure", "SameSite=Strict"}


async def test_the_database_never_sees_a_token(start: Start) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode="enforce") as api:
        token = await log_in(api, email)
        async with api.engine.connect() as connection:
            [row] = (await connection.execute(select(Session))).mappings().all()
        assert len(row["token_hash"]) == 32
        assert token.encode() not in row["token_hash"]


async def test_a_role_taken_away_is_gone_at_the_next_request(start: Start) -> None:
    email, _ = await staff(start, "ceo", "cto")
    async with start(auth_mode="enforce") as api:
        await log_in(api, email)
        assert (await api.client.get("/api/export/users")).status_code == 200
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("UPDATE users SET role = 'qa' WHERE role = 'ceo'")
        assert await told(await api.client.get("/api/export/users")) == NO_LEADER


@pytest.mark.parametrize(("steps_hours", "alive"), [([7, 7, 7], True), ([9], False), ([7] * 26, False)])
async def test_a_session_ends_when_idle_and_at_last_in_any_case(
    start: Start, steps_hours: list[int], alive: bool
) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode="enforce", session_idle_seconds=8 * 3600, session_absolute_seconds=7 * 86400) as api:
        await log_in(api, email)
        for hours in steps_hours:
            api.clock.now += timedelta(hours=hours)
            answer = await api.client.get("/api/auth/users")
        assert (answer.status_code == 200) is alive


async def test_sessions_that_have_ended_are_swept_away_at_a_login(start: Start) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode="enforce") as api:
        await log_in(api, email)
        api.clock.now += timedelta(days=30)
        await log_in(api, email)
        async with api.engine.connect() as connection:
            assert (await connection.execute(select(func.count()).select_from(Session))).scalar_one() == 1


async def test_logging_out_ends_the_session(start: Start) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode="enforce") as api:
        token = await log_in(api, email)
        assert await told(await api.client.post("/api/auth/logout")) == (200, {"success": True})
        bearer = {"authorization": f"Bearer {token}"}
        assert await told(await api.client.get("/api/auth/users", headers=bearer)) == NO_SESSION


async def test_a_deleted_users_sessions_are_gone_with_them(start: Start) -> None:
    leaving, leader = await staff(start, "qa", "ceo")
    async with start(auth_mode="enforce") as api:
        token = await log_in(api, leaving)
        await log_in(api, leader)
        users = (await api.client.get("/api/auth/users")).json()
        [user_id] = [user["id"] for user in users if user["email"] == leaving]
        assert (await api.client.delete(f"/api/auth/users/{user_id}")).status_code == 200
        api.client.cookies.clear()
        bearer = {"authorization": f"Bearer {token}"}
        assert await told(await api.client.get("/api/auth/users", headers=bearer)) == NO_SESSION


async def leader_ids(api: Api) -> list[str]:
    users = (await api.client.get("/api/auth/users")).json()
    return [user["id"] for user in users if user["role"] in LEADERS]


async def test_the_last_leader_stays(start: Start) -> None:
    [email] = await staff(start, "manager")
    async with start(auth_mode="enforce") as api:
        await log_in(api, email)
        [leader] = await leader_ids(api)
        answer = await api.client.delete(f"/api/auth/users/{leader}")
        assert await told(answer) == (409, {"error": "The last leader can't be deleted"})


async def test_of_leaders_who_are_all_deleted_at_once_one_stays(start: Start) -> None:
    emails = await staff(start, "ceo", "cto", "manager")
    async with start(auth_mode="enforce") as api:
        await log_in(api, emails[0])
        leaders = await leader_ids(api)
        await asyncio.gather(*(api.client.delete(f"/api/auth/users/{leader}") for leader in leaders))
        async with api.engine.connect() as connection:
            left = (await connection.exec_driver_sql("SELECT count(*) FROM users")).scalar_one()
        assert left >= 1


async def test_what_is_done_in_a_session_is_recorded_with_its_user(start: Start) -> None:
    [email] = await staff(start, "ceo")
    async with start(auth_mode="enforce") as api:
        await log_in(api, email)
        [me] = await leader_ids(api)
        task = await api.task()
        await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x", "author_id": UNKNOWN})
        await api.user()
        assert [item["actor_id"] for item in (await api.activities())[:3]] == [me, me, me]
        assert task["reporter_id"] == me


async def test_a_leader_who_deletes_themselves_leaves_an_activity_of_nobody(start: Start) -> None:
    emails = await staff(start, "ceo", "cto")
    async with start(auth_mode="enforce") as api:
        await log_in(api, emails[0])
        me, _ = await leader_ids(api)
        assert (await api.client.delete(f"/api/auth/users/{me}")).status_code == 200
        await log_in(api, emails[1])
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"], activity["subject_id"]) == ("deleted", None, me)


def counted(reader: InMemoryMetricReader) -> list[tuple[str, str, int]]:
    data = reader.get_metrics_data()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
    points = [p for metric in metrics if metric.name == "employee_api.auth.refusals" for p in metric.data.data_points]
    return sorted((str(p.attributes["operation"]), str(p.attributes["reason"]), p.value) for p in points)


async def test_observing_refuses_nobody_and_counts_what_it_would_have_refused(start_on_sqlite: Start) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    [email] = await staff(start_on_sqlite, "qa")
    async with start_on_sqlite(auth_mode="observe", telemetry=Telemetry(meter=meters.get_meter("test"))) as api:
        assert (await api.client.get("/api/auth/users")).status_code == 200
        await log_in(api, email)
        assert (await api.client.get("/api/auth/users")).status_code == 200
        assert (await api.client.get("/api/export/users")).status_code == 200
    refused = [("export_users", "LEADERS_ONLY", 1), ("list_users", "AUTHENTICATION_REQUIRED", 1)]
    assert counted(reader) == refused


async def test_failed_logins_for_an_email_are_limited_when_enforced(start: Start) -> None:
    [email] = await staff(start, "qa")
    async with start(auth_mode="enforce", failed_logins_per_email=3) as api:
        wrong = {"email": email, "password": "wrong"}
        statuses = [(await api.client.post("/api/auth/login", json=wrong)).status_code for _ in range(4)]
        assert statuses == [401, 401, 401, 429]
        answer = await api.client.post("/api/auth/login", json={"email": email, "password": PASSWORD})
        assert await told(answer) == (429, {"error": "Too many failed logins"})
        assert 0 < int(answer.headers["retry-after"]) <= 900


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_failed_logins_are_not_limited_otherwise(start_on_sqlite: Start, mode: str) -> None:
    async with start_on_sqlite(auth_mode=mode, failed_logins_per_email=1) as api:
        wrong = {"email": "ada@x", "password": "wrong"}
        statuses = [(await api.client.post("/api/auth/login", json=wrong)).status_code for _ in range(4)]
        assert statuses == [401] * 4


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def failed_logins(time: Time) -> FailedLogins:
    return FailedLogins(per_email=2, per_address=4, window_seconds=60, time=time)


def test_attempts_from_one_address_for_many_emails_are_limited(failed_logins: FailedLogins) -> None:
    for number in range(4):
        failed_logins.attempted(f"{number}@x", "1.2.3.4")
    assert failed_logins.exceeded("new@x", "1.2.3.4")
    assert not failed_logins.exceeded("new@x", "5.6.7.8")


def test_a_limit_ends_with_its_window(failed_logins: FailedLogins, time: Time) -> None:
    for _ in range(2):
        failed_logins.attempted("ada@x", "1.2.3.4")
    time.now += 59
    exceeded = failed_logins.exceeded("ada@x", "1.2.3.4")
    assert exceeded
    assert exceeded.retry_after_seconds == 1
    time.now += 1
    assert not failed_logins.exceeded("ada@x", "1.2.3.4")


def test_successes_count_for_nothing(failed_logins: FailedLogins) -> None:
    for _ in range(20):
        failed_logins.attempted("ada@x", "1.2.3.4")
        failed_logins.succeeded("ada@x", "1.2.3.4")
    assert not failed_logins.exceeded("ada@x", "1.2.3.4")


def test_failures_are_not_remembered_without_end(failed_logins: FailedLogins) -> None:
    for number in range(30_000):
        failed_logins.attempted(f"{number}@x", f"{number}")
    assert len(failed_logins._failures) <= 10_000


def test_of_a_long_email_only_a_little_is_remembered(failed_logins: FailedLogins) -> None:
    failed_logins.attempted("x" * 60_000, "1.2.3.4")
    assert max(len(key) for _, key in failed_logins._failures) < 100
