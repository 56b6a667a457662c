"""Bad input gets the documented statuses and texts, never a server error."""

import json
import re
import time
import unicodedata
from typing import Any

import pytest

from shop_kit.employee_api import PASSWORD, UNKNOWN_ID, Api, StartApi, on_each_database, status_and_body

JSON = "application/json"
LOGIN, REGISTER, USERS = "/api/auth/login", "/api/auth/register", "/api/auth/users"
TEXTS = {
    LOGIN: "Email and password required",
    REGISTER: "Name, email and password required",
    USERS: "Name, email and password required",
}
VALID = {"name": "Ada", "email": "ada@x", "password": PASSWORD}
INVALID_BODIES = {
    "empty": b"",
    "not JSON": b"name=Ada",
    "truncated": b'{"name": "Ada", "email": "ada@x", "password": "p"',
    "an array": b'["name", "email", "password"]',
    "null": b"null",
    "NaN": b'{"name": "Ada", "email": "ada@x", "password": "p", "dept": NaN}',
    "5,000 digits": b'{"name": "Ada", "email": "ada@x", "password": "p", "dept": ' + b"9" * 5000 + b"}",
    "nested 200,000 deep": b"[" * 200_000,
    "nested 30,000 deep": b'{"email": "ada@x", "password": "p", "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "more than 64 KiB": b'{"name": "Ada", "email": "ada@x", "password": "p", "more": "' + b"x" * 65_536 + b'"}',
    "a lone surrogate": b'{"name": "\\ud800", "email": "\\ud800", "password": "p"}',
}  # fmt: skip


@pytest.mark.parametrize("path", TEXTS)
async def test_an_invalid_body_gets_the_documented_400(api: Api, path: str) -> None:
    refused = (400, {"error": TEXTS[path]})
    for name, content in INVALID_BODIES.items():
        assert (name, status_and_body(await api.client.post(path, content=content))) == (name, refused)
    for field in VALID if path != LOGIN else ("email", "password"):
        without: dict[str, Any] = {name: value for name, value in VALID.items() if name != field}
        for body in (without, *(without | {field: value} for value in ("", None, 1, True, ["x"], {"x": "y"}))):
            assert (body, await api.answer(f"POST {path}", body)) == (body, refused)


# What is invalid besides, with the text when authorization is enforced.
INVALID_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"password": "x" * 4097}, "password is too long: at most 4096 characters"),
    ({"email": "x" * 321}, "email is too long: at most 320 characters"),
    ({"dept": "x" * 65_536}, "Request body is too long: at most 65536 bytes"),
    ({"role": 1}, TEXTS[REGISTER]),
    ({"dept": 1}, TEXTS[REGISTER]),
    ({"email": "x" * 321, "name": ""}, TEXTS[REGISTER]),
]


@pytest.mark.parametrize("enforced", [False, True])
async def test_what_is_too_long_is_named_only_when_enforced(start_api: StartApi, enforced: bool) -> None:
    async with start_api(auth_mode="enforce" if enforced else "off") as api:
        for changed, text in INVALID_FIELDS:
            assert await api.register(**changed) == (400, {"error": text if enforced else TEXTS[REGISTER]})
        for character in ("\0", "\x1b", "\x9b", "\u2028", "\u202e", "\u2066"):
            refused = await api.register(name=f"Ada{character}")
            assert refused == (400, {"error": "name has a character that is not allowed"})
        assert (await api.register(email=" \t"))[0] == (400 if enforced else 201)
        nul = await api.attempt_login("a\0@x")
        assert status_and_body(nul) == (400, {"error": TEXTS[LOGIN]})


async def test_a_body_may_begin_with_a_byte_order_mark_but_must_be_utf_8(api: Api) -> None:
    text = json.dumps(VALID | {"name": "Zo\u00eb"}, ensure_ascii=False)
    for encoding in ("latin-1", "utf-16"):
        refused = await api.client.post(REGISTER, content=text.encode(encoding))
        assert status_and_body(refused) == (400, {"error": "Request body must be UTF-8"})
    assert (await api.client.post(REGISTER, content=text.encode("utf-8-sig"))).json()["name"] == "Zo\u00eb"


async def test_a_body_that_parses_is_accepted_with_any_content_type(api: Api) -> None:
    for content_type in ("text/plain", "application/xml", "application/json; charset=latin-1"):
        assert (await api.register(f"{content_type}@x", {"content-type": content_type}))[0] == 201
    assert (await api.client.post(REGISTER, content=json.dumps(VALID))).status_code == 201  # without one


async def test_an_unknown_path_or_method_gets_a_json_error(api: Api) -> None:
    for path in ("/api", f"{USERS}/", "/api/export/secrets", f"{USERS}/1/2"):
        assert await api.answer(f"GET {path}") == (404, {"error": "Not Found"})
    for method, path in (("GET", LOGIN), ("PUT", USERS), ("POST", "/api/export/users")):
        response = await api.client.request(method, path)
        assert status_and_body(response) == (405, {"error": "Method Not Allowed"})
        assert response.headers["allow"]


async def test_every_character_of_a_long_password_counts(api: Api) -> None:
    password = "x" * 1000
    await api.add_user(email="ada@x", password=password)
    for attempt, status in [(password, 200), (password[:-1], 401), (password + "x", 401), ("x" * 1_000_000, 401)]:
        assert (await api.attempt_login("ada@x", attempt)).status_code == status


async def test_no_operation_takes_time_by_the_square_of_a_length(start_api: StartApi) -> None:
    text = "\u0301" * 15_000 + "\u0316" * 15_000  # normalizing takes time by the square of the length
    started = time.process_time()
    unicodedata.normalize("NFC", text)
    seconds = time.process_time() - started
    taken = {}
    async with start_api(auth_mode="enforce") as api:
        await api.store_user("ada@x", "ceo")
        headers = {"content-type": JSON} | await api.log_in("ada@x")
        for method, path, described in await api.operations():
            example = described["requestBody"]["content"][JSON]["example"] if "requestBody" in described else {}
            for name in [*example, *(one["name"] for one in described.get("parameters", []) if one["in"] == "query")]:
                body = json.dumps(example | {name: text}, ensure_ascii=False) if name in example else ""
                query = "" if name in example else f"{name}&" * (30_000 // len(name))
                started, url = time.process_time(), re.sub("{.*?}", UNKNOWN_ID, path)
                await api.client.request(method, f"{url}?{query}", headers=headers, content=body)
                taken[method, path, name] = time.process_time() - started
    assert len(taken) > 40
    assert [operation for operation, of_it in taken.items() if of_it > seconds / 3] == []


@on_each_database
async def test_other_text_is_stored_unchanged(api: Api) -> None:
    for text in ("' OR 1=1 --", "\U0001f600 Ada", "Robert'); DROP TABLE users;--", "a\tb\nc", "%_\\"):
        user = await api.add_user(text, f"{text}@x", dept=text, role=text)
        assert (await api.fetch(f"GET {USERS}"))[-1] == user
        assert (await api.attempt_login(f"{text}@x")).json() == user


@pytest.mark.parametrize("unknown_id", [UNKNOWN_ID, "1", "' OR 1=1 --", "%00"])
async def test_what_does_not_exist_is_a_404(api: Api, unknown_id: str) -> None:
    for method, path, _ in await api.operations():
        for resource, name in (("tasks", "Task"), ("auth/users", "User"), ("auth/invitations", "Invitation")):
            if path.startswith(f"/api/{resource}/{{id}}"):
                url = re.sub(r"{\w+_id}", UNKNOWN_ID, path.replace("{id}", unknown_id))
                answer = await api.answer(f"{method} {url}", {"body": "x"} if "comments" in path else {})
                assert (method, path, answer) == (method, path, (404, {"error": f"{name} not found"}))
