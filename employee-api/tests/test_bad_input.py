"""Bad input gets the documented statuses and texts, never a server error."""

from typing import Any

import pytest

from shop_kit.employee_api import PASSWORD, UNKNOWN_ID, Api, StartApi, on_each_database, status_and_body

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
    "invalid UTF-8": b'{"name": "\xff", "email": "ada@x", "password": "p"}',
    "a lone surrogate": b'{"name": "\\ud800", "email": "\\ud800", "password": "p"}',
}  # fmt: skip


@pytest.mark.parametrize("path", TEXTS)
async def test_an_invalid_body_gets_the_documented_400(api: Api, path: str) -> None:
    for name, content in INVALID_BODIES.items():
        response = await api.client.post(path, content=content)
        assert (name, *status_and_body(response)) == (name, 400, {"error": TEXTS[path]})
    for field in VALID if path != LOGIN else ("email", "password"):
        without: dict[str, Any] = {name: value for name, value in VALID.items() if name != field}
        for body in (without, *(without | {field: value} for value in ("", None, 1, True, ["x"], {"x": "y"}))):
            response = await api.client.post(path, json=body)
            assert (body, *status_and_body(response)) == (body, 400, {"error": TEXTS[path]})


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
async def test_what_is_too_long_is_named_only_when_authorization_is_enforced(
    start_api: StartApi, enforced: bool
) -> None:
    async with start_api(auth_mode="enforce" if enforced else "off") as api:
        for changed, text in INVALID_FIELDS:
            response = await api.client.post(REGISTER, json=VALID | changed)
            assert status_and_body(response) == (400, {"error": text if enforced else TEXTS[REGISTER]})
        for character in ("\0", "\x1b", "\x9b", "\u2028", "\u202e", "\u2066"):
            response = await api.client.post(REGISTER, json=VALID | {"name": f"Ada{character}"})
            assert status_and_body(response) == (400, {"error": "name has a character that is not allowed"})
        blank = await api.client.post(REGISTER, json=VALID | {"email": " \t"})
        assert blank.status_code == (400 if enforced else 201)
        nul = await api.client.post(LOGIN, json={"email": "a\0@x", "password": "p"})
        assert status_and_body(nul) == (400, {"error": TEXTS[LOGIN]})


async def test_a_body_that_parses_is_accepted_with_any_content_type(api: Api) -> None:
    for content_type in ("text/plain", "application/xml", "application/json; charset=latin-1", None):
        headers = {"content-type": content_type} if content_type else {}
        body = f'{{"name": "Ada", "email": "{content_type}", "password": "p"}}'
        assert (await api.client.post(REGISTER, content=body, headers=headers)).status_code == 201


async def test_an_unknown_path_or_method_gets_a_json_error(api: Api) -> None:
    for path in ("/api", f"{USERS}/", "/api/export/secrets", f"{USERS}/1/2"):
        assert status_and_body(await api.client.get(path)) == (404, {"error": "Not Found"})
    for method, path in (("GET", LOGIN), ("PUT", USERS), ("POST", "/api/export/users")):
        response = await api.client.request(method, path)
        assert status_and_body(response) == (405, {"error": "Method Not Allowed"})
        assert response.headers["allow"]


async def test_every_character_of_a_long_password_counts(api: Api) -> None:
    password = "x" * 1000
    await api.client.post(REGISTER, json=VALID | {"password": password})
    for attempt, status in [(password, 200), (password[:-1], 401), (password + "x", 401), ("x" * 1_000_000, 401)]:
        assert (await api.client.post(LOGIN, json={"email": "ada@x", "password": attempt})).status_code == status


@on_each_database
async def test_other_text_is_stored_unchanged(api: Api) -> None:
    for text in ("' OR 1=1 --", "\U0001f600 Ada", "Robert'); DROP TABLE users;--", "a\tb\nc", "%_\\"):
        user = await api.add_user(name=text, email=f"{text}@x", dept=text, role=text)
        assert (await api.client.get(USERS)).json()[-1] == user
        login = await api.client.post(LOGIN, json={"email": f"{text}@x", "password": PASSWORD})
        assert login.json() == user


TASK, USER, INVITATION = "/api/tasks/{id}", "/api/auth/users/{id}", "/api/auth/invitations/{id}"


@pytest.mark.parametrize("unknown_id", [UNKNOWN_ID, "1", "' OR 1=1 --", "%00"])
async def test_what_does_not_exist_is_a_404(api: Api, unknown_id: str) -> None:
    for path, methods in (await api.client.get("/openapi.json")).json()["paths"].items():
        for resource, name in ((TASK, "Task"), (USER, "User"), (INVITATION, "Invitation")):
            for method in methods if path.startswith(resource) else ():
                body = {"body": "x"} if "comments" in path else {}
                url = path.replace("{id}", unknown_id).replace("{comment_id}", UNKNOWN_ID)
                response = await api.client.request(method, url.replace("{token_id}", UNKNOWN_ID), json=body)
                assert (method, path, *status_and_body(response)) == (method, path, 404, {"error": f"{name} not found"})
