from typing import Any

import pytest

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_lab.world.employee_accounts import UNKNOWN_ID
from shop_lab.world.employee_api import PASSWORD, Api, StartApi

STAFF = {"author": "employee", "other": "employee", "manager": "manager"}
EDIT = {"body": "Edited"}


async def add_comment(api: Api, body: str = "Done", **more: Any) -> str:
    """Comment on a new task, and return the path of the comment."""
    path = f"/api/tasks/{(await api.add_task())['id']}/comments"
    response = await api.client.post(path, json={"body": body} | more)
    return f"{path}/{response.json()['id']}"


async def add_staff_with_a_comment(start_api: StartApi) -> str:
    """Add an author, another employee and a manager while authorization is off; return the path of a comment."""
    async with start_api() as api:
        ids = {name: (await api.add_user(name, email=f"{name}@x", role=role))["id"] for name, role in STAFF.items()}
        return await add_comment(api, author_id=ids["author"])


async def log_in(api: Api, name: str) -> None:
    """Log in; the client stores the cookie."""
    response = await api.client.post("/api/auth/login", json={"email": f"{name}@x", "password": PASSWORD})
    response.raise_for_status()


async def test_comments_are_listed_newest_first(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    path = f"/api/tasks/{task['id']}/comments"
    first = await api.client.post(path, json={"body": "First", "author_id": user["id"]})
    second = await api.client.post(path, json={"body": "Second"})
    assert (first.status_code, first.json()["author_id"]) == (201, user["id"])
    assert (await api.pages(path)) == [[second.json(), first.json()]]


async def test_a_comment_by_an_unknown_author_is_refused(api: Api) -> None:
    task = await api.add_task()
    response = await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x", "author_id": UNKNOWN_ID})
    assert (response.status_code, response.json()) == (400, {"error": "Unknown author"})


async def test_an_edited_comment_has_the_new_text_and_the_time_of_the_edit(api: Api) -> None:
    path = await add_comment(api, "Dnoe")
    before = (await api.client.get(path)).json()
    edited = (await api.client.patch(path, json={"body": "Done"})).json()
    assert edited == before | {"body": "Done", "edited_at": edited["edited_at"]}
    assert before["edited_at"] is None
    assert edited["edited_at"] > before["created_at"]
    assert (await api.client.get(path)).json() == edited


async def test_the_same_text_is_no_edit(api: Api) -> None:
    path = await add_comment(api, "Done")
    assert (await api.client.patch(path, json={"body": "Done"})).json()["edited_at"] is None
    assert [item["action"] for item in await api.activities()] == ["commented", "created"]


@pytest.mark.parametrize("patch", [{}, {"body": ""}, {"body": None}, {"body": "x\0"}, {"author_id": UNKNOWN_ID}, []])
async def test_an_invalid_edit_changes_nothing(api: Api, patch: Any) -> None:
    path = await add_comment(api, "Done")
    assert (await api.client.patch(path, json=patch)).status_code == 400
    assert (await api.client.get(path)).json()["body"] == "Done"


async def test_a_deleted_comment_is_gone(api: Api) -> None:
    path = await add_comment(api)
    response = await api.client.delete(path)
    assert (response.status_code, response.json()) == (200, {"success": True, "id": path.rpartition("/")[2]})
    assert (await api.client.get(path)).status_code == 404
    assert await api.pages(path.rpartition("/")[0]) == [[]]


async def test_activities_name_the_comment_but_do_not_preserve_its_text(api: Api) -> None:
    path = await add_comment(api, "a secret")
    comment_id = path.rpartition("/")[2]
    await api.client.patch(path, json={"body": "no secret"})
    await api.client.delete(path)
    deleted, edited = (await api.activities())[:2]
    assert (edited["action"], edited["changes"]) == (
        "comment_edited",
        {"comment_id": {"before": comment_id, "after": comment_id}},
    )
    assert (deleted["action"], deleted["changes"]) == (
        "comment_deleted",
        {"comment_id": {"before": comment_id, "after": None}},
    )
    assert "secret" not in str(await api.activities())


@pytest.mark.parametrize("comment_id", [UNKNOWN_ID, "1"])
@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PATCH", {"body": "x"}), ("DELETE", None)])
async def test_an_unknown_comment_is_a_404(api: Api, comment_id: str, method: str, body: Any) -> None:
    task = await api.add_task()
    response = await api.client.request(method, f"/api/tasks/{task['id']}/comments/{comment_id}", json=body)
    assert (response.status_code, response.json()) == (404, {"error": "Comment not found"})


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PATCH", {"body": "x"}), ("DELETE", None)])
async def test_a_comment_can_not_be_reached_through_another_task(api: Api, method: str, body: Any) -> None:
    path, other = await add_comment(api), await api.add_task()
    elsewhere = f"/api/tasks/{other['id']}/comments/{path.rpartition('/')[2]}"
    assert (await api.client.request(method, elsewhere, json=body)).status_code == 404
    assert (await api.client.get(path)).json()["body"] == "Done"


@pytest.mark.parametrize(
    ("who", "method", "status"),
    [
        ("author", "PATCH", 200),
        ("other", "PATCH", 403),
        ("manager", "PATCH", 403),
        ("author", "DELETE", 200),
        ("other", "DELETE", 403),
        ("manager", "DELETE", 200),
    ],
)
async def test_only_the_author_edits_a_comment_and_management_may_delete_it(
    start_api: StartApi, who: str, method: str, status: int
) -> None:
    path = await add_staff_with_a_comment(start_api)
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, who)
        before = (await api.client.get(path)).json()
        response = await api.client.request(method, path, json=EDIT if method == "PATCH" else None)
        assert response.status_code == status
        if status == 403:
            assert response.json() == {"error": "Only its author may do this"}
            assert (await api.client.get(path)).json() == before


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_anyone_edits_and_deletes_a_comment_unless_authorization_is_enforced(
    start_api_on_sqlite: StartApi, mode: str
) -> None:
    path = await add_staff_with_a_comment(start_api_on_sqlite)
    async with start_api_on_sqlite(auth_mode=mode) as api:
        await log_in(api, "other")
        assert (await api.client.patch(path, json=EDIT)).status_code == 200
        assert (await api.client.delete(path)).status_code == 200


async def test_observe_mode_counts_an_edit_by_another_user(start_api_on_sqlite: StartApi) -> None:
    path = await add_staff_with_a_comment(start_api_on_sqlite)
    telemetry = Telemetry()
    async with start_api_on_sqlite(auth_mode="observe", telemetry=telemetry) as api:
        await log_in(api, "other")
        await api.client.patch(path, json=EDIT)
    [(labels, count)] = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS).values.items()
    assert dict(labels)[semconv.REFUSAL_REASON] == "NOT_THE_AUTHOR"
    assert count == 1


async def test_a_comment_without_an_author_can_not_be_edited(start_api: StartApi) -> None:
    path = await add_staff_with_a_comment(start_api)
    async with start_api() as api:
        await api.client.delete(f"/api/auth/users/{(await api.client.get(path)).json()['author_id']}")
    async with start_api(auth_mode="enforce") as api:
        await log_in(api, "other")
        assert (await api.client.get(path)).json()["author_id"] is None
        assert (await api.client.patch(path, json=EDIT)).status_code == 403
