import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from employee_api.fields import email_key, month_range, parse_id
from employee_api.models import Comment, Task
from employee_api.users.repository import COLORS, avatar
from shop_kit.employee_api import PASSWORD, Api, on_each_database, path, task_path

REGISTER, USERS = "POST /api/auth/register", "POST /api/auth/users"
NEW = {"name": "Ada Lovelace", "email": "ada@x", "password": "p"}


@pytest.mark.parametrize("operation", [REGISTER, USERS])
async def test_a_created_user_has_exactly_the_documented_fields(api: Api, operation: str) -> None:
    response = await api.client.post(operation.split()[1], json=NEW)
    user = response.json()
    assert (response.status_code, response.headers["location"]) == (201, path(user))
    assert list(user) == ["id", "name", "role", "email", "color", "avatar", "dept"]
    assert str(uuid.UUID(user["id"])) == user.pop("id")
    assert user.pop("color") in COLORS
    assert user == {"name": "Ada Lovelace", "role": "employee", "email": "ada@x", "avatar": "AL", "dept": ""}
    for role, stored in (("", "employee"), (None, "employee"), ("ceo", "ceo"), ("juggler", "juggler")):
        user = await api.fetch(operation, NEW | {"email": f"{role}@x", "role": role, "dept": "Ops"})
        assert (user["role"], user["dept"]) == (stored, "Ops")


@on_each_database
async def test_an_email_can_be_registered_once_in_any_case(api: Api) -> None:
    await api.add_user(email="ada@example.com")
    for email in ("ada@example.com", "ADA@Example.com", " ada@example.com\t"):
        for operation in (REGISTER, USERS):
            assert await api.answer(operation, NEW | {"email": email}) == (409, {"error": "Email already registered"})


@on_each_database
async def test_one_of_50_concurrent_registrations_with_one_email_succeeds(api: Api) -> None:
    answers = await asyncio.gather(*(api.register() for _ in range(50)))
    assert sorted(status for status, _ in answers) == [201] + [409] * 49


async def test_login_returns_the_user_and_sets_no_cookie_or_does_not_say_what_is_wrong(api: Api) -> None:
    user = await api.add_user(email="Ada@x")
    for email in ("aDA@X", " Ada@x "):
        response = await api.attempt_login(email)
        assert (response.status_code, response.json()) == (200, user)
        assert "set-cookie" not in response.headers
    for email, password in [("ada@x", "wrong"), ("unknown@x", PASSWORD)]:
        response = await api.attempt_login(email, password)
        assert (response.status_code, response.json()) == (401, {"error": "Invalid email or password"})


async def test_users_are_listed_oldest_first(api: Api) -> None:
    assert await api.fetch("GET /api/auth/users") == []
    users = [await api.add_user(f"User {number}") for number in range(5)]
    assert await api.fetch("GET /api/auth/users") == users


@on_each_database
async def test_deleting_a_user_clears_them_from_tasks_and_comments_and_is_recorded(api: Api) -> None:
    deleted, remaining = await api.add_user("Ada", role="ceo"), await api.add_user()
    task = await api.add_task(assignee_id=deleted["id"], reporter_id=remaining["id"])
    other = await api.add_task(assignee_id=remaining["id"], reporter_id=deleted["id"])
    await api.fetch(f"POST {task_path(task)}/comments", {"body": "Done", "author_id": deleted["id"]})
    assert await api.fetch(f"DELETE {path(deleted)}") == {"success": True, "id": deleted["id"]}
    assert await api.fetch("GET /api/auth/users") == [remaining]
    tasks = {str(row["id"]): (row["assignee_id"], row["reporter_id"]) for row in await api.execute(select(Task))}
    remaining_id = uuid.UUID(remaining["id"])
    assert tasks == {task["id"]: (None, remaining_id), other["id"]: (remaining_id, None)}
    assert [(row["author_id"], row["body"]) for row in await api.execute(select(Comment))] == [(None, "Done")]
    activities = await api.activities()
    recorded = [(item["action"], item["subject_name"]) for item in activities if item["subject_id"] == deleted["id"]]
    assert recorded == [("deleted", "Ada"), ("created", "Ada")]
    assert activities[-1]["changes"]["role"] == {"before": None, "after": "ceo"}
    cleared = {item["subject_id"]: item["changes"] for item in activities if item["action"] == "updated"}
    change = {"before": deleted["id"], "after": None}
    assert cleared == {task["id"]: {"assignee_id": change}, other["id"]: {"reporter_id": change}}


@on_each_database
async def test_a_deletion_that_fails_changes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await api.add_user()
    task = await api.add_task(assignee_id=user["id"])
    monkeypatch.delattr("employee_api.users.accounts.record")
    assert (await api.answer(f"DELETE {path(user)}"))[0] == 500
    assert await api.fetch(f"GET {task_path(task)}") == task
    assert await api.fetch("GET /api/auth/users") == [user]


@on_each_database
async def test_users_who_share_tasks_can_be_deleted_concurrently_and_each_once(api: Api) -> None:
    users = [await api.add_user() for _ in range(6)]
    for number in range(30):
        await api.add_task(assignee_id=users[number % 6]["id"], reporter_id=users[(number * 5 + 1) % 6]["id"])
    answers = await asyncio.gather(*(api.answer(f"DELETE {path(user)}") for user in [*users, users[0]]))
    assert sorted(status for status, _ in answers) == [200] * 6 + [404]


def test_a_month_ends_a_microsecond_before_the_next_one_begins() -> None:
    for month, next_month in {"2026-12": (2027, 1), "2024-02": (2024, 3), "0001-01": (1, 2)}.items():
        first, last = month_range(month)
        assert first == datetime.fromisoformat(f"{month}-01T00:00:00Z")
        assert last + timedelta(microseconds=1) == datetime(*next_month, 1, tzinfo=UTC)
    assert month_range("9999-12")[1] == datetime.max.replace(tzinfo=UTC)


def test_only_the_canonical_form_of_an_id_is_parsed_in_any_case() -> None:
    canonical = "cf828672-551f-4468-b46b-28bfc63de735"
    assert str(parse_id(canonical.upper())) == canonical
    for text in ("", "1", f"{{{canonical}}}", canonical.replace("-", ""), "' OR 1=1 --"):
        assert parse_id(text) is None


INITIALS = {"Ada Lovelace": "AL", "ada king noel lovelace": "AK", "ada": "A", "  ada   lovelace ": "AL", " ": ""}
INITIALS |= {"ada\tlovelace": "A"}  # only spaces separate words
INITIALS |= {"ßa": "SS", "émile zola": "ÉZ"}  # cut first, upper case after


def test_an_avatar_is_the_initials_of_the_first_two_words() -> None:
    assert {name: avatar(name) for name in INITIALS} == INITIALS


def test_emails_are_compared_without_case_white_space_around_them_and_unicode_composition() -> None:
    for spelling in ("Ada@Example.COM", " ada@example.com", "ada@example.com\n", "\u00a0ada@example.com\t"):
        assert email_key(spelling) == "ada@example.com"
    assert email_key("e\u0301mile@x") == email_key("\u00e9mile@x")
