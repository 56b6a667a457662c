import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from employee_api.fields import month_range, parse_id
from employee_api.models import Comment, Task, User
from employee_api.users.rules import COLORS, avatar, email_key
from shop_kit.employee_api import PASSWORD, Api, on_each_database, path, status_and_body

REGISTER, USERS = "/api/auth/register", "/api/auth/users"
USER_FIELDS = ["id", "name", "role", "email", "color", "avatar", "dept"]


@pytest.mark.parametrize("url", [REGISTER, USERS])
async def test_a_created_user_has_exactly_the_documented_fields(api: Api, url: str) -> None:
    response = await api.client.post(url, json={"name": "Ada Lovelace", "email": "ada@x", "password": "p"})
    user = response.json()
    assert (response.status_code, list(user)) == (201, USER_FIELDS)
    assert response.headers["location"] == path(user)
    assert str(uuid.UUID(user["id"])) == user.pop("id")
    assert user.pop("color") in COLORS
    assert user == {"name": "Ada Lovelace", "role": "employee", "email": "ada@x", "avatar": "AL", "dept": ""}
    for role, stored in (("", "employee"), (None, "employee"), ("ceo", "ceo"), ("juggler", "juggler")):
        new = {"name": "A", "email": f"{role}@x", "password": "p", "role": role, "dept": "Ops"}
        user = (await api.client.post(url, json=new)).json()
        assert (user["role"], user["dept"]) == (stored, "Ops")


@on_each_database
@pytest.mark.parametrize("url", [REGISTER, USERS])
async def test_an_email_can_be_registered_once_in_any_case(api: Api, url: str) -> None:
    await api.add_user(email="ada@example.com")
    for second in ("ada@example.com", "ADA@Example.com", " ada@example.com\t"):
        response = await api.client.post(url, json={"name": "B", "email": second, "password": "p"})
        assert status_and_body(response) == (409, {"error": "Email already registered"})


@on_each_database
async def test_one_of_50_concurrent_registrations_with_one_email_succeeds(api: Api) -> None:
    new = {"name": "A", "email": "a@x", "password": "p"}
    responses = await asyncio.gather(*(api.client.post(REGISTER, json=new) for _ in range(50)))
    assert sorted(response.status_code for response in responses) == [201] + [409] * 49


async def test_login_returns_the_user_and_sets_no_cookie_or_does_not_say_what_is_wrong(api: Api) -> None:
    user = await api.add_user(email="Ada@x")
    for email in ("aDA@X", " Ada@x "):
        response = await api.client.post("/api/auth/login", json={"email": email, "password": PASSWORD})
        assert status_and_body(response) == (200, user)
        assert "set-cookie" not in response.headers
    for email, password in [("ada@x", "wrong"), ("unknown@x", PASSWORD)]:
        response = await api.client.post("/api/auth/login", json={"email": email, "password": password})
        assert status_and_body(response) == (401, {"error": "Invalid email or password"})


async def test_users_are_listed_oldest_first(api: Api) -> None:
    assert (await api.client.get(USERS)).json() == []
    users = [await api.add_user(f"User {number}") for number in range(5)]
    assert status_and_body(await api.client.get(USERS)) == (200, users)


async def test_passwords_are_stored_as_argon2id_hashes_only(api: Api) -> None:
    await api.add_user(email="ada@x")
    [row] = await api.execute(select(User))
    assert row["password_hash"].startswith("$argon2id$")
    assert PASSWORD not in str(row)


@on_each_database
async def test_deleting_a_user_clears_them_from_tasks_and_comments(api: Api) -> None:
    deleted, remaining = await api.add_user(), await api.add_user()
    task = await api.add_task(assignee_id=deleted["id"], reporter_id=remaining["id"])
    other = await api.add_task(assignee_id=remaining["id"], reporter_id=deleted["id"])
    await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done", "author_id": deleted["id"]})
    assert status_and_body(await api.client.delete(path(deleted))) == (200, {"success": True, "id": deleted["id"]})
    assert (await api.client.get(USERS)).json() == [remaining]
    tasks = {str(row["id"]): (row["assignee_id"], row["reporter_id"]) for row in await api.execute(select(Task))}
    remaining_id = uuid.UUID(remaining["id"])
    assert tasks == {task["id"]: (None, remaining_id), other["id"]: (remaining_id, None)}
    assert [(row["author_id"], row["body"]) for row in await api.execute(select(Comment))] == [(None, "Done")]
    activities = await api.activities()
    cleared = {item["subject_id"]: item["changes"] for item in activities if item["action"] == "updated"}
    change = {"before": deleted["id"], "after": None}
    assert cleared == {task["id"]: {"assignee_id": change}, other["id"]: {"reporter_id": change}}


@on_each_database
async def test_a_deletion_that_fails_changes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await api.add_user()
    task = await api.add_task(assignee_id=user["id"])

    async def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("employee_api.users.accounts.record", fail)
    assert (await api.client.delete(path(user))).status_code == 500
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert (await api.client.get(USERS)).json() == [user]


@on_each_database
async def test_users_who_share_tasks_can_be_deleted_concurrently_and_each_once(api: Api) -> None:
    users = [await api.add_user() for _ in range(6)]
    for number in range(30):
        await api.add_task(assignee_id=users[number % 6]["id"], reporter_id=users[(number * 5 + 1) % 6]["id"])
    responses = await asyncio.gather(*(api.client.delete(path(user)) for user in [*users, users[0]]))
    assert sorted(response.status_code for response in responses) == [200] * 6 + [404]


async def test_creating_and_deleting_a_user_are_recorded(api: Api) -> None:
    user = await api.add_user("Ada", role="ceo")
    await api.client.delete(path(user))
    deleted, created = await api.activities()
    assert (created["action"], created["changes"]["role"]) == ("created", {"before": None, "after": "ceo"})
    assert (deleted["action"], deleted["subject_name"], deleted["subject_id"]) == ("deleted", "Ada", user["id"])


@pytest.mark.parametrize("month", ["2026-12", "2024-02", "0001-01"])
def test_a_month_ends_a_microsecond_before_the_next_one_begins(month: str) -> None:
    first, last = month_range(month)
    following = last + timedelta(microseconds=1)
    assert (first.day, following.day, following.hour) == (1, 1, 0)
    assert (first.month % 12) + 1 == following.month
    assert month_range("9999-12")[1] == datetime.max.replace(tzinfo=UTC)


def test_only_the_canonical_form_of_an_id_is_parsed_in_any_case() -> None:
    canonical = "cf828672-551f-4468-b46b-28bfc63de735"
    assert str(parse_id(canonical.upper())) == canonical
    for text in ("", "1", f"{{{canonical}}}", canonical.replace("-", ""), "' OR 1=1 --"):
        assert parse_id(text) is None


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


def test_emails_are_compared_without_case_white_space_around_them_and_unicode_composition() -> None:
    for spelling in ("Ada@Example.COM", " ada@example.com", "ada@example.com\n", "\u00a0ada@example.com\t"):
        assert email_key(spelling) == "ada@example.com"
    assert email_key("e\u0301mile@x") == email_key("\u00e9mile@x")
