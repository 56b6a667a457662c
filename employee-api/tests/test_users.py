import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import select

from employee_api.models import Comment, Task, User
from employee_api.rules import COLORS
from shop_testkit.employee_api import PASSWORD, Api

SHOWN = ["id", "name", "role", "email", "color", "avatar", "dept"]


@pytest.fixture(params=["/api/auth/register", "/api/auth/users"])
def creating(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


async def test_a_created_user_is_shown_with_exactly_the_documented_fields(api: Api, creating: str) -> None:
    answer = await api.client.post(creating, json={"name": "Ada Lovelace", "email": "ada@x", "password": "p"})
    user = answer.json()
    assert (answer.status_code, list(user)) == (201, SHOWN)
    assert user["color"] in COLORS
    assert uuid.UUID(user.pop("id"))
    assert user.pop("color")
    assert user == {"name": "Ada Lovelace", "role": "employee", "email": "ada@x", "avatar": "AL", "dept": ""}


@pytest.mark.parametrize(
    ("role", "stored"), [("", "employee"), (None, "employee"), ("ceo", "ceo"), ("juggler", "juggler")]
)
async def test_a_role_is_stored_as_given_and_employee_by_default(
    api: Api, creating: str, role: Any, stored: str
) -> None:
    new = {"name": "A", "email": "a@x", "password": "p", "role": role, "dept": "Ops"}
    user = (await api.client.post(creating, json=new)).json()
    assert (user["role"], user["dept"]) == (stored, "Ops")


@pytest.mark.parametrize("second", ["ada@example.com", "ADA@Example.com"])
async def test_an_email_is_registered_once_whatever_its_case(api: Api, creating: str, second: str) -> None:
    await api.user(email="ada@example.com")
    answer = await api.client.post(creating, json={"name": "B", "email": second, "password": "p"})
    assert (answer.status_code, answer.json()) == (409, {"error": "Email already registered"})


async def test_of_50_registrations_at_once_with_one_email_one_succeeds(api: Api) -> None:
    new = {"name": "A", "email": "a@x", "password": "p"}
    answers = await asyncio.gather(*(api.client.post("/api/auth/register", json=new) for _ in range(50)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 49


async def test_login_shows_the_user_and_sets_nothing(api: Api) -> None:
    user = await api.user(email="Ada@x")
    answer = await api.client.post("/api/auth/login", json={"email": "aDA@X", "password": PASSWORD})
    assert (answer.status_code, answer.json()) == (200, user)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(("email", "password"), [("ada@x", "wrong"), ("nobody@x", PASSWORD)])
async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(api: Api, email: str, password: str) -> None:
    await api.user(email="ada@x")
    answer = await api.client.post("/api/auth/login", json={"email": email, "password": password})
    assert (answer.status_code, answer.json()) == (401, {"error": "Invalid email or password"})


async def test_users_are_listed_the_oldest_first(api: Api) -> None:
    users = [await api.user(f"User {number}") for number in range(5)]
    answer = await api.client.get("/api/auth/users")
    assert (answer.status_code, answer.json()) == (200, users)


async def test_nobody_is_listed_as_an_empty_array(api: Api) -> None:
    assert (await api.client.get("/api/auth/users")).json() == []


async def test_passwords_are_stored_as_argon2id_hashes_only(api: Api) -> None:
    await api.user(email="ada@x")
    async with api.engine.connect() as connection:
        row = (await connection.execute(select(User))).mappings().one()
    assert row["password_hash"].startswith("$argon2id$")
    assert PASSWORD not in str(dict(row))


async def test_deleting_a_user_tells_the_id(api: Api) -> None:
    user = await api.user()
    answer = await api.client.delete(f"/api/auth/users/{user['id']}")
    assert (answer.status_code, answer.json()) == (200, {"success": True, "id": user["id"]})
    assert (await api.client.get("/api/auth/users")).json() == []


async def test_deleting_a_user_takes_them_off_tasks_and_comments_which_stay(api: Api) -> None:
    leaving, staying = await api.user(), await api.user()
    task = await api.task(assignee_id=leaving["id"], reporter_id=staying["id"])
    other = await api.task(assignee_id=staying["id"], reporter_id=leaving["id"])
    await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done", "author_id": leaving["id"]})
    await api.client.delete(f"/api/auth/users/{leaving['id']}")
    async with api.engine.connect() as connection:
        tasks = (await connection.execute(select(Task.id, Task.assignee_id, Task.reporter_id))).all()
        comments = (await connection.execute(select(Comment.author_id, Comment.body))).all()
    stays = uuid.UUID(staying["id"])
    assert set(tasks) == {(uuid.UUID(task["id"]), None, stays), (uuid.UUID(other["id"]), stays, None)}
    assert comments == [(None, "Done")]


async def test_each_task_that_loses_somebody_tells_so_in_an_activity(api: Api) -> None:
    leaving = await api.user("Ada")
    task = await api.task(assignee_id=leaving["id"])
    await api.client.delete(f"/api/auth/users/{leaving['id']}")
    told = {item["subject_type"]: item for item in (await api.activities())[:2]}
    assert told["task"]["changes"] == {"assignee_id": {"before": leaving["id"], "after": None}}
    assert (told["task"]["subject_id"], told["user"]["action"]) == (task["id"], "deleted")


async def test_a_deletion_that_fails_half_way_changes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await api.user()
    task = await api.task(assignee_id=user["id"])

    async def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("employee_api.repository.record", fail)
    assert (await api.client.delete(f"/api/auth/users/{user['id']}")).status_code == 500
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert (await api.client.get("/api/auth/users")).json() == [user]


async def test_of_two_deletions_of_one_user_at_once_one_finds_nobody(api: Api) -> None:
    user = await api.user()
    paths = [f"/api/auth/users/{user['id']}"] * 2
    answers = await asyncio.gather(*(api.client.delete(path) for path in paths))
    assert sorted(answer.status_code for answer in answers) == [200, 404]


async def test_users_who_share_tasks_can_be_deleted_at_once(api: Api) -> None:
    users = [await api.user() for _ in range(6)]
    for number in range(30):
        await api.task(assignee_id=users[number % 6]["id"], reporter_id=users[(number * 5 + 1) % 6]["id"])
    answers = await asyncio.gather(*(api.client.delete(f"/api/auth/users/{user['id']}") for user in users))
    assert [answer.status_code for answer in answers] == [200] * 6


async def test_creating_and_deleting_a_user_are_activities(api: Api) -> None:
    user = await api.user("Ada", role="ceo")
    await api.client.delete(f"/api/auth/users/{user['id']}")
    deleted, created = await api.activities()
    assert (created["action"], created["changes"]["role"]) == ("created", {"before": None, "after": "ceo"})
    assert (deleted["action"], deleted["subject_name"], deleted["subject_id"]) == ("deleted", "Ada", user["id"])
