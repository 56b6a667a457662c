"""The examples of the API description: they conform to their schemas, and requests made of them succeed."""

import asyncio
import html
import json
import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from employee_api.http.openapi import EXAMPLE_ID
from employee_api.settings import AuthMode
from shop_kit.employee_api import LOCAL, StartApi, serving


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


@pytest.mark.parametrize("mode", AuthMode)
async def test_every_body_has_an_example_that_conforms_to_its_schema(
    start_api_on_sqlite: StartApi, mode: AuthMode
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        document = (await api.client.get("/openapi.json")).json()
    components = document["components"]
    problems = {
        path: error.message
        for path, schema, value in examples(document)
        for error in OAS31Validator(schema | {"components": components}).iter_errors(value)
    }
    assert problems == {}
    assert [path for path, _, value in examples(document) if '"text"' in json.dumps(value)] == []
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
async def test_every_curl_command_of_the_page_succeeds_with_the_described_headers(
    start_api_on_sqlite: StartApi, sqlite_url: str, tmp_path: Path, mode: AuthMode
) -> None:
    async with serving(start_api_on_sqlite(auth_mode=mode, registration="open", **LOCAL)) as (api, address):
        page = html.unescape((await api.client.get(f"{address}/docs")).text)
        calls = {call.name: call for call in calls_in_order((await api.client.get("/openapi.json")).json())}
        commands = dict(re.findall(_COMMAND, page, re.DOTALL))
        await run(commands["register"], tmp_path)
        prepare_for_the_examples(sqlite_url)
        await run(commands["login"], tmp_path)
        problems = {}
        for name, call in calls.items():
            if name not in {"register", "login"}:
                command = call.with_known_ids(commands[name]).replace(GRACE, f"{name}@example.com")
                problems[name] = problem(call, *await run(command, tmp_path))
    assert {name: problem for name, problem in problems.items() if problem} == {}


GRACE = "grace@example.com"
OF_RESOURCES = {"content-disposition", "etag", "location", "retry-after", "set-cookie", "x-request-id"}
_COMMAND = r'<pre id="curl-(\w+)"><code>(.*?)</code></pre>'


@dataclass(frozen=True)
class OperationCall:
    """An operation to call with its examples; `ids` are those of what exists, by collection."""

    path: str
    method: str
    description: Any
    ids: dict[str, str]

    @property
    def name(self) -> str:
        name: str = self.description["operationId"]
        return name

    def with_known_ids(self, text: str) -> str:
        """Return the path or command with ids of what exists."""
        if "{token_id}" in self.path:  # the user with the example's id has a token with it
            return re.sub(r"{\w+}", EXAMPLE_ID, text)
        return re.sub(
            rf"(\w+)/({EXAMPLE_ID}|{{\w+}})", lambda match: f"{match[1]}/{self.ids.get(match[1], EXAMPLE_ID)}", text
        )

    def order(self) -> int:
        """Create first; delete last, comments before their task; then end the session."""
        if self.name == "logout":
            return 100
        if self.method == "put":  # a new password ends the other sessions
            return 50
        if self.method == "delete":
            return 50 - self.path.count("/")
        return -1 if "201" in self.description["responses"] else 0


def calls_in_order(document: Any) -> list[OperationCall]:
    ids: dict[str, str] = {}
    calls = [
        OperationCall(path, method, description, ids)
        for path, methods in document["paths"].items()
        for method, description in methods.items()
        if path not in {"/healthz", "/readyz"}
    ]
    return sorted(calls, key=OperationCall.order)


def problem(call: OperationCall, status: int, headers: set[str], body: str) -> str | None:
    """Return why the response is not the expected one, if it isn't; note the id of what was created."""
    needs_session = "Requires a session: there are none" in call.description["description"]
    if status == HTTPStatus.CREATED and (created := re.match(r'{"id":"([^"]+)"', body)):
        call.ids.setdefault(call.path.rpartition("/")[2], created[1])
    expected = [401] if needs_session else [200, 201, 204]
    if call.name == "reset_password":
        expected = [403]  # no example can be a token
    if status not in expected:
        return f"{status} {body}"
    described = {name.lower() for name in call.description["responses"][str(status)]["headers"]}
    undescribed = (OF_RESOURCES & headers) - described
    return f"{undescribed} are not described" if undescribed else None


def prepare_for_the_examples(sqlite_url: str) -> None:
    """Give the registered user a management role, and add a user, a task and more with the id of the examples."""
    new_id = EXAMPLE_ID.replace("-", "")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE users SET role = 'ceo', approved = 1")
        connection.execute(
            "INSERT INTO users (id, name, email, email_key, password_hash, role, color, avatar, dept, created_at) "
            "SELECT ?, 'Ada', 'ada@x', 'ada@x', 'none', 'qa', color, 'A', '', created_at FROM users",
            [new_id],
        )
        connection.execute(
            "INSERT INTO tasks (id, title, description, status, priority, created_at, updated_at) "
            "SELECT id, 'Water', '', 'todo', 'low', created_at, created_at FROM users WHERE id = ?",
            [new_id],
        )
        connection.execute(
            "INSERT INTO api_tokens (id, token_hash, user_id, name, scopes, created_at) "
            "SELECT id, 'x', id, '', '', created_at FROM users WHERE id = ?",
            [new_id],
        )
        # The id of a session is the beginning of the hash.
        connection.execute(
            "INSERT INTO sessions (token_hash, user_id, created_at, last_seen_at, expires_at) "
            "SELECT ?, id, created_at, created_at, '2099-01-01 00:00:00.000000' FROM users WHERE role = 'ceo'",
            [uuid.UUID(EXAMPLE_ID).bytes],
        )


async def run(command: str, folder: Path) -> tuple[int, set[str], str]:
    """Run a curl command, and return the status, the names of the headers and the body of the response."""
    process = await asyncio.create_subprocess_shell(f"{command} -s -i", cwd=folder, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    head, _, body = output.decode().partition("\r\n\r\n")
    status, *headers = head.splitlines()
    return int(status.split()[1]), {header.partition(":")[0].lower() for header in headers}, body
