"""The examples of the API description: they conform to their schemas, and requests made of them succeed."""

import argparse
import html
import json
import re
import shlex
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from openapi_schema_validator import OAS31Validator
from sqlalchemy import insert

from employee_api.http.openapi import EXAMPLE_ID
from employee_api.models import ApiToken, Comment, Session, SingleUseLink, Task
from shop_kit.employee_api import MODES, UNKNOWN_ID, Api, StartApi


def examples(part: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, the schema and the value of each example in a part of the document."""
    if isinstance(part, dict):
        if "schema" in part:
            values = [part["example"]] if "example" in part else []
            values += [found["value"] for found in part.get("examples", {}).values()]
            yield from ((path, part["schema"], value) for value in values)
        for name, value in part.items():
            yield from examples(value, f"{path}/{name}")
    elif isinstance(part, list):
        for value in part:
            yield from examples(value, path)


@pytest.mark.parametrize("mode", MODES)
async def test_every_body_has_an_example_that_conforms_to_its_schema(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        document, operations = await api.fetch("GET /openapi.json"), await api.operations()
    problems = {
        path: error.message
        for path, schema, value in examples(document)
        for error in OAS31Validator(schema | {"components": document["components"]}).iter_errors(value)
    }
    assert problems == {}
    assert [path for path, _, value in examples(document) if '"text"' in json.dumps(value)] == []
    lacking = [
        (operation["operationId"], part)
        for *_, operation in operations
        for part, body in [*operation["responses"].items(), ("request", operation.get("requestBody", {}))]
        for media_type in body.get("content", {}).values()
        if not {"example", "examples"} & set(media_type)
    ]
    assert lacking == []


EXAMPLE, OWN_TOKEN = uuid.UUID(EXAMPLE_ID), UNKNOWN_ID
OF_RESOURCES = {"content-disposition", "etag", "location", "retry-after", "set-cookie", "x-request-id"}
CURL = argparse.ArgumentParser()
for option in ("-X", "-b", "-c", "--json", "url"):
    CURL.add_argument(option)


async def send(api: Api, command: str) -> httpx2.Response:
    """Send the request of a curl command; the cookies of the client are its file of cookies."""
    given = CURL.parse_args(shlex.split(command)[1:])
    api.client.headers.pop("cookie", None)
    jar, api.client.cookies = api.client.cookies, httpx2.Cookies(api.client.cookies if given.b else None)
    content = {"content": given.json.encode(), "headers": {"content-type": "application/json"}} if given.json else {}
    response = await api.client.request(given.X or ("POST" if given.json else "GET"), given.url, **content)
    if not given.c:
        api.client.cookies = jar
    return response


async def prepare(api: Api, grace: dict[str, Any]) -> None:
    """Give the user Grace a management role, and add all that the examples name, with their id."""
    now, me = api.clock(), uuid.UUID(grace["id"])
    await api.store_user("ada@x", "qa")
    await api.execute(f"UPDATE users SET id = '{EXAMPLE.hex}' WHERE role = 'qa'")  # noqa: S608 - a constant
    await api.execute("UPDATE users SET role = 'ceo', approved = 1 WHERE role <> 'qa'")
    made, texts = {"created_at": now, "user_id": me}, {"title": "x", "description": "", "status": "todo"}
    token = made | {"name": "", "scopes": ""}
    later = {"expires_at": now + timedelta(days=1)}
    rows: list[tuple[Any, dict[str, Any]]] = [
        (Task, texts | {"id": EXAMPLE, "priority": "low", "updated_at": now}),
        (Comment, {"id": EXAMPLE, "task_id": EXAMPLE, "author_id": me, "body": "x"}),
        (SingleUseLink, {"id": EXAMPLE, "token_hash": b"x", "purpose": "invitation", "creator_id": me} | later),
        (ApiToken, token | {"id": EXAMPLE, "token_hash": b"x", "user_id": EXAMPLE}),
        (ApiToken, token | {"id": uuid.UUID(OWN_TOKEN), "token_hash": b"y"}),
        (Session, made | {"token_hash": EXAMPLE.bytes, "last_seen_at": now} | later),  # the id is the beginning of it
    ]
    for table, row in rows:
        await api.execute(insert(table).values({"created_at": now} | row))


def order(method: str, path: str, _: object) -> tuple[object, ...]:
    """Delete last, and the deepest path first; then replace the password, and then end the session."""
    deletes = method == "DELETE"
    return path.endswith("/logout"), method == "PUT", "{token_id}" not in path, deletes, -path.count("/"), path


@pytest.mark.parametrize("mode", MODES)
async def test_every_curl_command_of_the_page_succeeds_as_described(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode, registration="open") as api:
        page = html.unescape((await api.client.get("/docs")).text)
        commands = dict(re.findall(r'<pre id="curl-(\w+)"><code>(.*?)</code></pre>', page, re.DOTALL))
        operations = {found[2]["operationId"]: found for found in await api.operations()}
        await prepare(api, (await send(api, commands["register"])).json())
        assert (await send(api, commands["login"])).status_code == 200
        problems = {}
        for name in sorted(operations.keys() - {"register", "login"}, key=lambda name: order(*operations[name])):
            command = commands[name].replace("grace@example.com", f"{name}@example.com")
            response = await send(api, command.replace(f"auth/tokens/{EXAMPLE_ID}", f"auth/tokens/{OWN_TOKEN}"))
            if found := problem(name, operations[name][2], response):
                problems[name] = found
    assert problems == {}


def problem(name: str, operation: dict[str, Any], response: httpx2.Response) -> str | None:
    """Return why the response is not the expected one, if it isn't."""
    needs_session = "Requires a session: there are none" in operation["description"]
    expected = [401] if needs_session else [200, 201, 204]
    if name == "reset_password":
        expected = [403]  # no example can be a token
    if response.status_code not in expected:
        return f"{response.status_code} {response.text}"
    described = {header.lower() for header in operation["responses"][str(response.status_code)]["headers"]}
    undescribed, absent = (
        (OF_RESOURCES & set(response.headers)) - described,
        {"location"} & described - set(response.headers),
    )
    return f"not described: {undescribed}, not sent: {absent}" if undescribed or absent else None
