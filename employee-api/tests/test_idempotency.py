"""Repetitions of requests with the same Idempotency-Key, and the transactions that make them safe."""

import asyncio
import random
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import select, update
from sqlmodel import col

from employee_api.database import shared_transaction, utc_now
from employee_api.errors import EmailTaken
from employee_api.models import StoredResponse, User
from employee_api.users.repository import NewUser, UserRepository
from shop_kit.employee_accounts import log_in, started_with
from shop_kit.employee_api import PASSWORD, Api, Clock, StartApi, api_starter

USERS, TASKS = "/api/auth/users", "/api/tasks"
NEW = {"name": "Ada", "email": "ada@x", "password": PASSWORD}


async def post(api: Api, path: str, body: Any, key: str = "key-1", **headers: str) -> httpx2.Response:
    return await api.client.post(path, json=body, headers={"idempotency-key": key} | headers)


def replayed(response: httpx2.Response) -> bool:
    return response.headers.get("idempotency-replayed") == "true"


async def titles(api: Api) -> list[str]:
    return [task["title"] for task in (await api.client.get(TASKS)).json()["items"]]


async def test_a_repetition_gets_the_first_response_and_changes_nothing(api: Api) -> None:
    first = await post(api, TASKS, {"title": "Water"})
    again = await post(api, TASKS, {"title": "Water"})
    assert (first.status_code, replayed(first)) == (201, False)
    assert (again.status_code, again.content, replayed(again)) == (201, first.content, True)
    for header in ("location", "etag", "content-type"):
        assert again.headers[header] == first.headers[header]
    assert await titles(api) == ["Water"]
    assert len(await api.activities()) == 1


@pytest.mark.parametrize("path", ["/api/auth/register", USERS])
async def test_a_repeated_registration_is_no_conflict(api: Api, path: str) -> None:
    first, again = await post(api, path, NEW), await post(api, path, NEW)
    assert (again.status_code, again.content, replayed(again)) == (201, first.content, True)
    assert (await post(api, path, NEW, "key-2")).status_code == 409


async def test_requests_without_a_key_or_with_different_keys_are_independent(api: Api) -> None:
    for key in ("a", "b"):
        await post(api, TASKS, {"title": "Water"}, key)
    await api.add_task("Water")
    assert len(await titles(api)) == 3


async def test_a_key_with_other_input_or_on_another_path_of_the_operation_is_a_422(api: Api) -> None:
    await post(api, TASKS, {"title": "Water"})
    for body in ({"title": "Other"}, {"title": "Water", "priority": "low"}, {"title": "Water", "reporter_id": None}):
        response = await post(api, TASKS, body)
        text = "Idempotency-Key was already used for a different request"
        assert (response.status_code, response.json()) == (422, {"error": text})
    assert await titles(api) == ["Water"]
    assert (await post(api, USERS, NEW)).status_code == 201  # another operation
    one, two = await api.add_task("one"), await api.add_task("two")
    await post(api, f"{TASKS}/{one['id']}/comments", {"body": "Done?"})
    assert (await post(api, f"{TASKS}/{two['id']}/comments", {"body": "Done?"})).status_code == 422


@pytest.mark.parametrize("keys", [[""], [" "], ["x" * 256], ["two words"], ["\x7f"], ["caf\xe9"], ["a", "b"]])
async def test_a_malformed_key_is_a_400_that_names_the_header(api_on_sqlite: Api, keys: list[str]) -> None:
    headers = [(b"idempotency-key", key.encode("latin-1")) for key in keys]
    response = await api_on_sqlite.client.post(TASKS, json={"title": "Water"}, headers=headers)
    text = "Idempotency-Key must be 1 to 255 visible ASCII characters"
    assert (response.status_code, response.json()) == (400, {"error": text})
    assert await titles(api_on_sqlite) == []


async def test_an_error_is_not_stored(api: Api) -> None:
    author = {"title": "Water", "assignee_id": str(uuid.uuid4())}
    assert (await post(api, TASKS, author)).status_code == 400
    assert (await post(api, TASKS, {"title": "Water"})).status_code == 201


async def test_a_key_is_forgotten_after_a_day_and_its_row_is_deleted(api: Api, clock: Clock) -> None:
    await post(api, TASKS, {"title": "Water"}, "old")
    await post(api, TASKS, {"title": "Water"})
    clock.now += timedelta(hours=23)
    assert replayed(await post(api, TASKS, {"title": "Water"}))
    clock.now += timedelta(hours=2)
    assert not replayed(await post(api, TASKS, {"title": "Other"}))
    async with api.engine.connect() as connection:
        assert len((await connection.execute(select(col(StoredResponse.key_hash)))).all()) == 1


async def test_concurrent_repetitions_make_one_change_and_get_one_response(api: Api) -> None:
    for path, body in ((TASKS, {"title": "Water"}), (USERS, NEW)):
        responses = await asyncio.gather(*(post(api, path, body) for _ in range(6)))
        assert {response.status_code for response in responses} == {201}
        assert len({response.content for response in responses}) == 1
    assert await titles(api) == ["Water"]
    assert len(await api.activities()) == 2


async def test_a_change_whose_response_can_not_be_stored_is_rolled_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("employee_api.http.idempotency.StoredResponses._store", fail)
    assert (await post(api, TASKS, {"title": "Water"})).status_code == 500
    assert await titles(api) == []


async def test_neither_the_key_nor_a_password_is_stored(api: Api) -> None:
    await post(api, USERS, NEW, "a-secret-key")
    async with api.engine.connect() as connection:
        row = (await connection.execute(select(StoredResponse))).one()
    stored = repr(tuple(row))
    assert "a-secret-key" not in stored
    assert PASSWORD not in stored
    # A fingerprint of the password would be a fast hash of it.
    assert replayed(await post(api, USERS, NEW | {"password": "another horse"}, "a-secret-key"))


@pytest.fixture
async def sessions(start_api: StartApi) -> Any:
    async with started_with(start_api, "enforce", "ceo", "ceo") as (api, _):
        del api.client.headers["authorization"]
        yield api, await log_in(api, "0@x"), await log_in(api, "1@x")


async def test_no_caller_gets_the_response_to_another(sessions: Any) -> None:
    api, ada, eve = sessions
    first = await post(api, TASKS, {"title": "Water"}, **ada)
    second = await post(api, TASKS, {"title": "Water"}, **eve)
    assert (second.status_code, replayed(second)) == (201, False)
    assert first.json()["id"] != second.json()["id"]
    assert (await post(api, TASKS, {"title": "Water"})).status_code == 401


async def test_a_key_survives_another_login_but_not_the_loss_of_the_right(sessions: Any) -> None:
    api, ada, _ = sessions
    assert (await post(api, USERS, NEW | {"email": "new@x"}, **ada)).status_code == 201
    assert replayed(await post(api, USERS, NEW | {"email": "new@x"}, **await log_in(api, "0@x")))
    async with api.engine.begin() as connection:
        await connection.execute(update(User).where(col(User.email) == "0@x").values(role="employee"))
    assert (await post(api, USERS, NEW | {"email": "new@x"}, **ada)).status_code == 403


async def test_replicas_share_the_stored_responses(database_url: str, clock: Clock) -> None:
    async with api_starter(database_url, clock)() as one, api_starter(database_url, clock)() as two:
        first = await post(one, TASKS, {"title": "Water"})
        assert (await post(two, TASKS, {"title": "Water"})).content == first.content


async def test_no_response_that_is_stored_contains_a_secret(api_on_sqlite: Api) -> None:
    document = (await api_on_sqlite.client.get("/openapi.json")).json()
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    stored = [operation for operation in operations if "422" in operation["responses"]]
    assert len(stored) >= 4
    for operation in stored:
        [content] = [response["content"] for status, response in operation["responses"].items() if status < "3"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        properties = document["components"]["schemas"][name]["properties"]
        assert not {"token", "password", "secret", "invite"} & set(properties)


def new_user(email: str) -> NewUser:
    return NewUser("Ada", email, "hash", "ceo", "")


async def emails(users: UserRepository) -> list[str]:
    return [user.email for user in await users.list_all()]


async def test_changes_in_a_shared_transaction_are_committed_together(api: Api) -> None:
    users = UserRepository(api.engine, utc_now, random.SystemRandom())
    async with shared_transaction():
        await users.add(new_user("a@x"), None)
        with suppress(EmailTaken):
            await users.add(new_user("a@x"), None)
        await users.add(new_user("b@x"), None)
    assert await emails(users) == ["a@x", "b@x"]


async def test_an_error_reverts_every_change_of_a_shared_transaction(api: Api) -> None:
    users = UserRepository(api.engine, utc_now, random.SystemRandom())
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the error must follow the change
        async with shared_transaction():
            await users.add(new_user("a@x"), None)
            raise ZeroDivisionError
    await users.add(new_user("b@x"), None)
    assert await emails(users) == ["b@x"]
