"""The examples of the API description: they conform to their schemas, and requests made of them succeed."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Any

import httpx2
import pytest
from openapi_schema_validator import OAS31Validator

from employee_api.access import SESSION_COOKIE
from employee_api.http.openapi_examples import EXAMPLE_ID
from employee_api.settings import AuthMode
from shop_testkit.employee_api import PASSWORD, Api, StartApi

ADMIN = {"name": "Ada", "email": "ada@example.com", "password": PASSWORD}


def examples(part: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, the schema and the value of each example in a part of the document."""
    if isinstance(part, dict):
        if "schema" in part:
            values = [part["example"]] if "example" in part else []
            values += [each["value"] for each in part.get("examples", {}).values()]
            yield from ((path, part["schema"], value) for value in values)
        for name, value in part.items():
            yield from examples(value, f"{path}/{name}")
    elif isinstance(part, list):
        for value in part:
            yield from examples(value, path)


@pytest.mark.parametrize("mode", AuthMode)
async def test_every_example_conforms_to_its_schema(start_api_on_sqlite: StartApi, mode: AuthMode) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        document = (await api.client.get("/openapi.json")).json()
    components = document["components"]
    problems = {
        path: error.message
        for path, schema, value in examples(document)
        for error in OAS31Validator(schema | {"components": components}).iter_errors(value)
    }
    assert problems == {}


async def test_every_body_has_an_example(api_on_sqlite: Api) -> None:
    document = (await api_on_sqlite.client.get("/openapi.json")).json()
    lacking = [
        (operation["operationId"], part)
        for methods in document["paths"].values()
        for operation in methods.values()
        for part, body in [*operation["responses"].items(), ("request", operation.get("requestBody", {}))]
        for media_type in body.get("content", {}).values()
        if not {"example", "examples"} & set(media_type)
    ]
    assert lacking == []


@pytest.mark.parametrize("mode", AuthMode)
async def test_every_request_that_is_made_of_examples_succeeds(
    start_api_on_sqlite: StartApi, sqlite_url: str, mode: AuthMode
) -> None:
    async with start_api_on_sqlite(auth_mode=mode, registration="open") as api:
        await sign_in_where_the_examples_exist(api, sqlite_url)
        document = (await api.client.get("/openapi.json")).json()
        failed, ids = {}, {"users": EXAMPLE_ID, "tasks": EXAMPLE_ID}
        for path, method, operation in operations_in_order(document):
            response = await send(api.client, path, method, operation, ids)
            if undescribed := undescribed_headers(response, operation):
                failed[operation["operationId"]] = (response.status_code, f"undescribed headers: {undescribed}")
            if response.status_code == HTTPStatus.CREATED:
                ids.setdefault(path.rpartition("/")[2], response.json()["id"])
            elif not response.is_success:
                failed[operation["operationId"]] = (response.status_code, response.text)
    assert failed == {}


async def sign_in_where_the_examples_exist(api: Api, sqlite_url: str) -> None:
    """Sign in as a user with a management role, beside a user and a task that have the id of the examples."""
    (await api.client.post("/api/auth/register", json=ADMIN)).raise_for_status()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE users SET role = 'ceo', approved = TRUE")
    cookie = (await api.client.post("/api/auth/login", json=ADMIN)).cookies.get(SESSION_COOKIE)
    api.client.headers["authorization"] = f"Bearer {cookie}"
    user, task = await api.add_user(), await api.add_task()
    plain_id = EXAMPLE_ID.replace("-", "")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE users SET id = ? WHERE email = ?", [plain_id, user["email"]])
        connection.execute("UPDATE tasks SET id = ? WHERE title = ?", [plain_id, task["title"]])


def operations_in_order(document: Any) -> list[tuple[str, str, Any]]:
    """Return path, method and description of each operation: creation first, deletion last."""
    found = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path not in {"/healthz", "/readyz"}
    ]

    def order(each: tuple[str, str, Any]) -> int:
        path, method, operation = each
        if operation["operationId"] == "logout":
            return 1000
        if method == "delete":
            return 100 - path.count("/")  # comments before their task
        return -1 if "201" in operation["responses"] else 0

    return sorted(found, key=order)


def undescribed_headers(response: httpx2.Response, operation: Any) -> set[str]:
    described = {name.lower() for name in operation["responses"][str(response.status_code)]["headers"]}
    of_resources = {"content-disposition", "etag", "location", "retry-after", "set-cookie", "x-request-id"}
    return of_resources & set(response.headers) - described


async def send(
    client: httpx2.AsyncClient, path: str, method: str, operation: Any, ids: dict[str, str]
) -> httpx2.Response:
    known = re.sub(r"(\w+)/{\w+}", lambda match: f"{match[1]}/{ids[match[1]]}", path)
    query = {
        parameter["name"]: parameter["example"]
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and "example" in parameter
    }
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    if operation["operationId"] == "add_user":
        body["email"] = "another@example.com"  # the example's is that of the user who has registered
    return await client.request(method, known, params=query, json=body)
