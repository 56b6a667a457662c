import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from employee_api.models import Comment, Task, User
from employee_api.users.rules import COLORS
from shop_lab.world.employee_api import PASSWORD, Api

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


async def test_login_returns_the_user_and_sets_no_cookie(api: Api) -> None:
    user = await api.add_user(email="Ada@x")
    response = await api.client.post("/api/auth/login", json={"email": "aDA@X", "password": PASSWORD})
    assert (response.status_code, response.json()) == (200, user)
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize(("email", "password"), [("ada@x", "wrong"), ("unknown@x", PASSWORD)])
async def test_a_wrong_password_and_an_unknown_user_get_the_same_response(api: Api, email: str, password: str) -> None:
    await api.add_user(email="ada@x")
    response = await api.client.post("/api/auth/login", json={"email": email, "password": password})
    assert (response.status_code, response.json()) == (401, {"error": "Invalid email or password"})


async def test_users_are_listed_oldest_first(api: Api) -> None:
    users = [await api.add_user(f"User {number}") for number in range(5)]
    response = await api.client.get("/api/auth/users")
    assert (response.status_code, response.json()) == (200, users)


async def test_the_list_without_users_is_an_empty_array(api: Api) -> None:
    assert (await api.client.get("/api/auth/users")).json() == []


async def test_passwords_are_stored_as_argon2id_hashes_only(api: Api) -> None:
    await api.add_user(email="ada@x")
    async with api.engine.connect() as connection:
        row = (await connection.execute(select(User))).mappings().one()
    assert row["password_hash"].startswith("$argon2id$")
    assert PASSWORD not in str(dict(row))


async def test_deleting_a_user_returns_their_id(api: Api) -> None:
    user = await api.add_user()
    response = await api.client.delete(f"/api/auth/users/{user['id']}")
    assert (response.status_code, response.json()) == (200, {"success": True, "id": user["id"]})
    assert (await api.client.get("/api/auth/users")).json() == []


async def test_deleting_a_user_clears_them_from_tasks_and_comments(api: Api) -> None:
    deleted, remaining = await api.add_user(), await api.add_user()
    task = await api.add_task(assignee_id=deleted["id"], reporter_id=remaining["id"])
    other = await api.add_task(assignee_id=remaining["id"], reporter_id=deleted["id"])
    await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done", "author_id": deleted["id"]})
    await api.client.delete(f"/api/auth/users/{deleted['id']}")
    async with api.engine.connect() as connection:
        tasks = (await connection.execute(select(col(Task.id), col(Task.assignee_id), col(Task.reporter_id)))).all()
        comments = (await connection.execute(select(col(Comment.author_id), col(Comment.body)))).all()
    remaining_id = uuid.UUID(remaining["id"])
    assert set(tasks) == {(uuid.UUID(task["id"]), None, remaining_id), (uuid.UUID(other["id"]), remaining_id, None)}
    assert comments == [(None, "Done")]


async def test_deleting_a_user_records_an_activity_for_each_of_their_tasks(api: Api) -> None:
    deleted = await api.add_user("Ada")
    task = await api.add_task(assignee_id=deleted["id"])
    await api.client.delete(f"/api/auth/users/{deleted['id']}")
    by_type = {item["subject_type"]: item for item in (await api.activities())[:2]}
    assert by_type["task"]["changes"] == {"assignee_id": {"before": deleted["id"], "after": None}}
    assert (by_type["task"]["subject_id"], by_type["user"]["action"]) == (task["id"], "deleted")


async def test_a_deletion_that_fails_changes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await api.add_user()
    task = await api.add_task(assignee_id=user["id"])

    async def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("employee_api.users.repository.record", fail)
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
