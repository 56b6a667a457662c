"""Repetitions of requests with the same Idempotency-Key, and the transactions that make them safe."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import select, update
from sqlmodel import col

from employee_api.database import shared_transaction
from employee_api.errors import EmailTaken
from employee_api.models import StoredResponse, User
from shop_kit.employee_api import PASSWORD, Api, StartApi, on_each_database, started_with, status_and_body, task_path

USERS, TASKS = "/api/auth/users", "/api/tasks"
NEW = {"name": "Ada", "email": "ada@x", "password": PASSWORD}
WATER = {"title": "Water"}
REUSED = (422, {"error": "Idempotency-Key was already used for a different request"})


async def post(api: Api, path: str, body: Any, key: str = "key-1", **headers: str) -> httpx2.Response:
    return await api.client.post(path, json=body, headers={"idempotency-key": key} | headers)


def replayed(response: httpx2.Response) -> bool:
    return response.headers.get("idempotency-replayed") == "true"


async def titles(api: Api) -> list[str]:
    return [task["title"] for task in (await api.fetch(f"GET {TASKS}"))["items"]]


async def test_a_repetition_gets_the_first_response_and_changes_nothing(start_api: StartApi) -> None:
    async with start_api() as api, start_api() as replica:
        first = await post(api, TASKS, WATER)
        assert (first.status_code, replayed(first)) == (201, False)
        for again in [await post(api, TASKS, WATER), await post(replica, TASKS, WATER)]:
            assert (again.status_code, again.content, replayed(again)) == (201, first.content, True)
            for header in ("location", "etag", "content-type"):
                assert again.headers[header] == first.headers[header]
        assert await titles(api) == ["Water"]
        assert len(await api.activities()) == 1
        assert not replayed(await post(api, TASKS, WATER, "another"))
        await api.add_task("Water")  # without a key
        assert await titles(api) == ["Water"] * 3


@pytest.mark.parametrize("path", ["/api/auth/register", USERS])
async def test_a_repeated_registration_is_no_conflict_and_an_error_is_not_stored(api: Api, path: str) -> None:
    assert (await post(api, path, NEW | {"name": ""})).status_code == 400
    first, again = await post(api, path, NEW), await post(api, path, NEW)
    assert (again.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert (await post(api, path, NEW, "key-2")).status_code == 409


async def test_a_repeated_assignment_is_not_applied_to_what_has_changed_since(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    assignment = {"task_ids": [task["id"]], "assignee_id": user["id"]}
    first = await post(api, f"{TASKS}/assign", assignment)
    await api.fetch(f"PATCH {task_path(task)}", {"assignee_id": None})
    assert (await post(api, f"{TASKS}/assign", assignment)).json() == first.json()
    assert (await api.fetch(f"GET {task_path(task)}"))["assignee_id"] is None


async def test_a_key_with_other_input_or_on_another_path_of_the_operation_is_a_422(api: Api) -> None:
    await post(api, TASKS, WATER)
    for body in ({"title": "Other"}, WATER | {"priority": "low"}, WATER | {"reporter_id": None}):
        assert status_and_body(await post(api, TASKS, body)) == REUSED
    assert await titles(api) == ["Water"]
    assert (await post(api, USERS, NEW)).status_code == 201  # another operation
    one, two = [f"{task_path(await api.add_task(title))}/comments" for title in ("one", "two")]
    await post(api, one, {"body": "Done?"})
    assert status_and_body(await post(api, two, {"body": "Done?"})) == REUSED


async def test_a_malformed_key_is_a_400_that_names_the_header(api: Api) -> None:
    for keys in ([""], [" "], ["x" * 256], ["two words"], ["\x7f"], ["caf\xe9"], ["a", "b"]):
        headers = [(b"idempotency-key", key.encode("latin-1")) for key in keys]
        response = await api.client.post(TASKS, json=WATER, headers=headers)
        text = "Idempotency-Key must be 1 to 255 visible ASCII characters"
        assert (keys, *status_and_body(response)) == (keys, 400, {"error": text})
    assert await titles(api) == []


@on_each_database
async def test_a_key_is_forgotten_after_a_day_and_its_row_is_deleted(api: Api) -> None:
    await post(api, TASKS, WATER, "old")
    await post(api, TASKS, WATER)
    api.clock.now += timedelta(hours=23)
    assert replayed(await post(api, TASKS, WATER))
    api.clock.now += timedelta(hours=2)
    assert not replayed(await post(api, TASKS, {"title": "Other"}))
    assert len(await api.execute(select(StoredResponse))) == 1


@on_each_database
async def test_concurrent_repetitions_make_one_change_and_get_one_response(api: Api) -> None:
    for path, body in ((TASKS, WATER), (USERS, NEW)):
        responses = await asyncio.gather(*(post(api, path, body) for _ in range(6)))
        assert {response.status_code for response in responses} == {201}
        assert len({response.content for response in responses}) == 1
    assert await titles(api) == ["Water"]
    assert len(await api.activities()) == 2


@on_each_database
async def test_a_change_without_a_stored_response_is_reverted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("employee_api.http.idempotency.StoredResponses._store")
    assert (await post(api, TASKS, WATER)).status_code == 500
    assert await titles(api) == []


async def test_neither_the_key_nor_a_password_is_stored(api: Api) -> None:
    await post(api, USERS, NEW, "a-secret-key")
    stored = str(await api.execute(select(StoredResponse)))
    assert [secret for secret in ("a-secret-key", PASSWORD) if secret in stored] == []
    # A fingerprint of the password would be a fast hash of it.
    assert replayed(await post(api, USERS, NEW | {"password": "another horse"}, "a-secret-key"))


async def test_no_caller_gets_the_response_to_another_or_after_the_loss_of_the_right(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "ceo") as (api, _):
        ada, eve = dict(api.client.headers), await api.log_in("1@x")
        del api.client.headers["authorization"]
        new = NEW | {"email": "new@x"}
        first, second = [await post(api, TASKS, WATER, **session) for session in (ada, eve)]
        assert (second.status_code, replayed(second)) == (201, False)
        assert first.json()["id"] != second.json()["id"]
        assert (await post(api, TASKS, WATER)).status_code == 401
        assert (await post(api, USERS, new, **ada)).status_code == 201
        assert replayed(await post(api, USERS, new, **await api.log_in("0@x")))
        await api.execute(update(User).where(col(User.email) == "0@x").values(role="employee"))
        assert (await post(api, USERS, new, **ada)).status_code == 403


async def test_no_response_that_is_stored_contains_a_secret(api: Api) -> None:
    schemas = (await api.fetch("GET /openapi.json"))["components"]["schemas"]
    stored = [operation["responses"] for *_, operation in await api.operations() if "422" in operation["responses"]]
    assert len(stored) >= 4
    for responses in stored:
        [content] = [response["content"] for status, response in responses.items() if status < "3"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert not {"token", "password", "secret", "invite"} & set(schemas[name]["properties"])


@on_each_database
async def test_changes_in_a_shared_transaction_are_committed_together_or_all_reverted(api: Api) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the error must follow the change
        async with shared_transaction():
            await api.store_user("reverted@x")
            raise ZeroDivisionError
    async with shared_transaction():
        await api.store_user("a@x")
        with suppress(EmailTaken):
            await api.store_user("a@x")
        await api.store_user("b@x")
    assert [user["email"] for user in await api.fetch("GET /api/auth/users")] == ["a@x", "b@x"]
