import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from employee_api.fields import month_range, parse_id
from employee_api.models import Comment, Task, User
from employee_api.users.rules import COLORS, avatar, email_key
from shop_kit.employee_api import PASSWORD, Api

USER_FIELDS = ["id", "name", "role", "email", "color", "avatar", "dept"]


@pytest.fixture(params=["/api/auth/register", "/api/auth/users"])
def creation_path(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


async def test_a_created_user_has_exactly_the_documented_fields(api: Api, creation_path: str) -> None:
    response = await api.client.post(creation_path, json={"name": "Ada Lovelace", "email": "ada@x", "password": "p"})
    user = response.json()
    assert (response.status_code, list(user)) == (201, USER_FIELDS)
    assert user["color"] in COLORS
    assert str(uuid.UUID(user["id"])) == user.pop("id")
    assert user.pop("color")
    assert user == {"name": "Ada Lovelace", "role": "employee", "email": "ada@x", "avatar": "AL", "dept": ""}


@pytest.mark.parametrize(
    ("role", "stored"), [("", "employee"), (None, "employee"), ("ceo", "ceo"), ("juggler", "juggler")]
)
async def test_any_role_is_stored_and_employee_is_the_default(
    api: Api, creation_path: str, role: Any, stored: str
) -> None:
    new = {"name": "A", "email": "a@x", "password": "p", "role": role, "dept": "Ops"}
    user = (await api.client.post(creation_path, json=new)).json()
    assert (user["role"], user["dept"]) == (stored, "Ops")


@pytest.mark.parametrize("second", ["ada@example.com", "ADA@Example.com"])
async def test_an_email_can_be_registered_once_in_any_case(api: Api, creation_path: str, second: str) -> None:
    await api.add_user(email="ada@example.com")
    response = await api.client.post(creation_path, json={"name": "B", "email": second, "password": "p"})
    assert (response.status_code, response.json()) == (409, {"error": "Email already registered"})


async def test_one_of_50_concurrent_registrations_with_one_email_succeeds(api: Api) -> None:
    new = {"name": "A", "email": "a@x", "password": "p"}
    responses = await asyncio.gather(*(api.client.post("/api/auth/register", json=new) for _ in range(50)))
    assert sorted(response.status_code for response in responses) == [201] + [409] * 49


async def test_login_returns_the_user_and_sets_no_cookie_or_does_not_say_what_is_wrong(api: Api) -> None:
    user = await api.add_user(email="Ada@x")
    response = await api.client.post("/api/auth/login", json={"email": "aDA@X", "password": PASSWORD})
    assert (response.status_code, response.json()) == (200, user)
    assert "set-cookie" not in response.headers
    for email, password in [("ada@x", "wrong"), ("unknown@x", PASSWORD)]:
        response = await api.client.post("/api/auth/login", json={"email": email, "password": password})
        assert (response.status_code, response.json()) == (401, {"error": "Invalid email or password"})


async def test_users_are_listed_oldest_first(api: Api) -> None:
    assert (await api.client.get("/api/auth/users")).json() == []
    users = [await api.add_user(f"User {number}") for number in range(5)]
    response = await api.client.get("/api/auth/users")
    assert (response.status_code, response.json()) == (200, users)


async def test_passwords_are_stored_as_argon2id_hashes_only(api: Api) -> None:
    await api.add_user(email="ada@x")
    async with api.engine.connect() as connection:
        row = (await connection.execute(select(User))).mappings().one()
    assert row["password_hash"].startswith("$argon2id$")
    assert PASSWORD not in str(dict(row))


async def test_deleting_a_user_clears_them_from_tasks_and_comments(api: Api) -> None:
    deleted, remaining = await api.add_user(), await api.add_user()
    task = await api.add_task(assignee_id=deleted["id"], reporter_id=remaining["id"])
    other = await api.add_task(assignee_id=remaining["id"], reporter_id=deleted["id"])
    await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done", "author_id": deleted["id"]})
    response = await api.client.delete(f"/api/auth/users/{deleted['id']}")
    assert (response.status_code, response.json()) == (200, {"success": True, "id": deleted["id"]})
    assert (await api.client.get("/api/auth/users")).json() == [remaining]
    async with api.engine.connect() as connection:
        tasks = (await connection.execute(select(col(Task.id), col(Task.assignee_id), col(Task.reporter_id)))).all()
        comments = (await connection.execute(select(col(Comment.author_id), col(Comment.body)))).all()
    remaining_id = uuid.UUID(remaining["id"])
    assert set(tasks) == {(uuid.UUID(task["id"]), None, remaining_id), (uuid.UUID(other["id"]), remaining_id, None)}
    assert comments == [(None, "Done")]
    cleared = {item["subject_id"]: item["changes"] for item in await api.activities() if item["action"] == "updated"}
    change = {"before": deleted["id"], "after": None}
    assert cleared == {task["id"]: {"assignee_id": change}, other["id"]: {"reporter_id": change}}


async def test_a_deletion_that_fails_changes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await api.add_user()
    task = await api.add_task(assignee_id=user["id"])

    async def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("employee_api.users.accounts.record", fail)
    assert (await api.client.delete(f"/api/auth/users/{user['id']}")).status_code == 500
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert (await api.client.get("/api/auth/users")).json() == [user]


async def test_one_of_two_concurrent_deletions_of_a_user_is_a_404(api: Api) -> None:
    user = await api.add_user()
    paths = [f"/api/auth/users/{user['id']}"] * 2
    responses = await asyncio.gather(*(api.client.delete(path) for path in paths))
    assert sorted(response.status_code for response in responses) == [200, 404]


async def test_users_who_share_tasks_can_be_deleted_concurrently(api: Api) -> None:
    users = [await api.add_user() for _ in range(6)]
    for number in range(30):
        await api.add_task(assignee_id=users[number % 6]["id"], reporter_id=users[(number * 5 + 1) % 6]["id"])
    responses = await asyncio.gather(*(api.client.delete(f"/api/auth/users/{user['id']}") for user in users))
    assert [response.status_code for response in responses] == [200] * 6


async def test_creating_and_deleting_a_user_are_recorded(api: Api) -> None:
    user = await api.add_user("Ada", role="ceo")
    await api.client.delete(f"/api/auth/users/{user['id']}")
    deleted, created = await api.activities()
    assert (created["action"], created["changes"]["role"]) == ("created", {"before": None, "after": "ceo"})
    assert (deleted["action"], deleted["subject_name"], deleted["subject_id"]) == ("deleted", "Ada", user["id"])


@pytest.mark.parametrize("month", ["2026-12", "2024-02", "0001-01"])
def test_a_month_ends_a_microsecond_before_the_next_one_begins(month: str) -> None:
    first, last = month_range(month)
    following = last + timedelta(microseconds=1)
    assert (first.day, following.day, following.hour) == (1, 1, 0)
    assert (first.month % 12) + 1 == following.month


def test_the_last_representable_month_ends_with_the_last_timestamp() -> None:
    assert month_range("9999-12")[1] == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "1", "{cf828672-551f-4468-b46b-28bfc63de735}", "cf828672551f4468b46b28bfc63de735", "' OR 1=1 --"]
)
def test_only_the_canonical_form_of_an_id_is_parsed(text: str) -> None:
    assert parse_id(text) is None


def test_an_id_may_be_in_upper_case() -> None:
    text = "cf828672-551f-4468-b46b-28bfc63de735"
    assert str(parse_id(text.upper())) == text


@pytest.mark.parametrize(
    ("name", "initials"),
    [
        ("Ada Lovelace", "AL"),
        ("ada king noel lovelace", "AK"),
        ("ada", "A"),
        ("  ada   lovelace ", "AL"),
        ("ada\tlovelace", "A"),  # only spaces separate words
        ("ßa", "SS"),  # cut first, upper case after
        ("émile zola", "ÉZ"),
        (" ", ""),
    ],
)
def test_an_avatar_is_the_initials_of_the_first_two_words(name: str, initials: str) -> None:
    assert avatar(name) == initials


@pytest.mark.parametrize("spelling", ["Ada@Example.COM", "ada@example.com", "ADA@EXAMPLE.COM"])
def test_emails_are_compared_without_case(spelling: str) -> None:
    assert email_key(spelling) == "ada@example.com"


@pytest.mark.parametrize("spelling", [" ada@example.com", "ada@example.com\n", "\u00a0ada@example.com\t"])
def test_emails_are_compared_without_white_space_around_them(spelling: str) -> None:
    assert email_key(spelling) == "ada@example.com"


def test_emails_are_compared_without_unicode_composition() -> None:
    assert email_key("e\u0301mile@x") == email_key("\u00e9mile@x")
