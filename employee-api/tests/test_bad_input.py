"""Bad input gets the documented statuses and texts, never a server error."""

from typing import Any

import pytest

from shop_kit.employee_accounts import UNKNOWN_ID, status_and_body
from shop_kit.employee_api import PASSWORD, Api

LOGIN, REGISTER, USERS = "/api/auth/login", "/api/auth/register", "/api/auth/users"
TEXTS = {
    LOGIN: "Email and password required",
    REGISTER: "Name, email and password required",
    USERS: "Name, email and password required",
}
VALID_USER = {"name": "Ada", "email": "ada@x", "password": "p"}


@pytest.fixture(params=[LOGIN, REGISTER, USERS])
def path(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


INVALID_BODIES = {
    "empty": b"",
    "not JSON": b"name=Ada",
    "truncated": b'{"name": "Ada", "email": "ada@x", "password": "p"',
    "an array": b'["name", "email", "password"]',
    "a string": b'"ada"',
    "null": b"null",
    "NaN": b'{"name": "Ada", "email": "ada@x", "password": "p", "dept": NaN}',
    "5,000 digits": b'{"name": "Ada", "email": "ada@x", "password": "p", "dept": ' + b"9" * 5000 + b"}",
    "nested 200,000 deep": b"[" * 200_000,
    "nested 30,000 deep": b'{"email": "ada@x", "password": "p", "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "more than 64 KiB": b'{"name": "Ada", "email": "ada@x", "password": "p", "more": "' + b"x" * 65_536 + b'"}',
    "invalid UTF-8": b'{"name": "\xff", "email": "ada@x", "password": "p"}',
    "a lone surrogate": b'{"name": "\\ud800", "email": "\\ud800", "password": "p"}',
}  # fmt: skip


@pytest.mark.parametrize("body", INVALID_BODIES.values(), ids=INVALID_BODIES.keys())
async def test_an_invalid_body_gets_the_documented_400(api_on_sqlite: Api, path: str, body: bytes) -> None:
    response = await api_on_sqlite.client.post(path, content=body)
    assert (response.status_code, response.json()) == (400, {"error": TEXTS[path]})


async def test_a_login_with_a_nul_gets_the_documented_400(api_on_sqlite: Api) -> None:
    response = await api_on_sqlite.client.post(LOGIN, json={"email": "a\0@x", "password": "p"})
    assert (response.status_code, response.json()) == (400, {"error": TEXTS[LOGIN]})


@pytest.mark.parametrize("path", [REGISTER, USERS])
@pytest.mark.parametrize("character", ["\0", "\x1b", "\x9b", "\u2028", "\u202e", "\u2066"])
async def test_a_name_with_a_control_character_gets_a_400_that_says_so(
    api_on_sqlite: Api, path: str, character: str
) -> None:
    response = await api_on_sqlite.client.post(path, json=VALID_USER | {"name": f"Ada{character}"})
    assert (response.status_code, response.json()) == (400, {"error": "name has a character that is not allowed"})


@pytest.mark.parametrize("value", ["missing", "", None, 1, True, ["x"], {"x": "y"}])
@pytest.mark.parametrize(
    ("path", "field"),
    [(path, field) for path in TEXTS for field in ("name", "email", "password") if (path, field) != (LOGIN, "name")],
)
async def test_a_missing_or_non_text_required_field_gets_the_documented_400(
    api_on_sqlite: Api, path: str, field: str, value: Any
) -> None:
    body = VALID_USER | {field: value}
    if value == "missing":
        del body[field]
    response = await api_on_sqlite.client.post(path, json=body)
    assert (response.status_code, response.json()) == (400, {"error": TEXTS[path]})


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/json; charset=latin-1", None])
async def test_a_body_that_parses_is_accepted_with_any_content_type(
    api_on_sqlite: Api, content_type: str | None
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    body = b'{"name": "Ada", "email": "ada@x", "password": "p"}'
    assert (await api_on_sqlite.client.post(REGISTER, content=body, headers=headers)).status_code == 201


@pytest.mark.parametrize("unknown", ["/api", "/api/auth/users/", "/api/export/secrets", "/api/auth/users/1/2"])
async def test_an_unknown_path_gets_a_json_404(api_on_sqlite: Api, unknown: str) -> None:
    response = await api_on_sqlite.client.get(unknown)
    assert (response.status_code, response.json()) == (404, {"error": "Not Found"})


@pytest.mark.parametrize(("method", "known"), [("GET", LOGIN), ("PUT", USERS), ("POST", "/api/export/users")])
async def test_a_wrong_method_gets_a_json_405_with_the_allowed_methods(
    api_on_sqlite: Api, method: str, known: str
) -> None:
    response = await api_on_sqlite.client.request(method, known)
    assert (response.status_code, response.json()) == (405, {"error": "Method Not Allowed"})
    assert response.headers["allow"]


async def test_a_password_of_a_megabyte_is_invalid_at_registration_and_wrong_at_login(api_on_sqlite: Api) -> None:
    await api_on_sqlite.add_user(email="ada@x")
    huge = VALID_USER | {"password": "x" * 1_000_000}
    assert (await api_on_sqlite.client.post(REGISTER, json=huge)).status_code == 400
    login = await api_on_sqlite.client.post(LOGIN, json=huge)
    assert (login.status_code, login.json()) == (401, {"error": "Invalid email or password"})


async def test_every_character_of_a_long_password_counts(api_on_sqlite: Api) -> None:
    password = "x" * 1000
    await api_on_sqlite.client.post(REGISTER, json=VALID_USER | {"password": password})
    for attempt, status in [(password, 200), (password[:-1], 401), (password + "x", 401)]:
        response = await api_on_sqlite.client.post(LOGIN, json={"email": "ada@x", "password": attempt})
        assert response.status_code == status


@pytest.mark.parametrize("text", ["' OR 1=1 --", "\U0001f600 Ada", "Robert'); DROP TABLE users;--", "a\tb\nc", "%_\\"])
async def test_other_text_is_stored_unchanged(api: Api, text: str) -> None:
    user = await api.add_user(name=text, email=f"{text}@x", dept=text, role=text)
    assert (await api.client.get(USERS)).json() == [user]
    login = await api.client.post(LOGIN, json={"email": f"{text}@x", "password": PASSWORD})
    assert login.json() == user


TASK, USER = "/api/tasks/{id}", "/api/auth/users/{id}"
NOT_FOUND = {
    "User not found": [
        *(
            ("GET", USER),
            ("PATCH", USER),
            ("DELETE", USER),
            ("POST", f"{USER}/deactivate"),
            ("POST", f"{USER}/reactivate"),
        ),
        *(("POST", f"{USER}/password-reset"), ("GET", f"{USER}/sign-ins"), ("GET", f"{USER}/sessions")),
        *(("DELETE", f"{USER}/sessions"), ("GET", f"{USER}/tokens"), ("DELETE", f"{USER}/tokens/{{id}}")),
    ],
    "Task not found": [
        *(("GET", TASK), ("PATCH", TASK), ("DELETE", TASK), ("GET", f"{TASK}/comments"), ("POST", f"{TASK}/comments")),
        *((method, f"{TASK}/comments/{{id}}") for method in ("GET", "PATCH", "DELETE")),
    ],
    "Invitation not found": [("DELETE", "/api/auth/invitations/{id}")],
}


@pytest.mark.parametrize("unknown_id", [UNKNOWN_ID, "1", "x", "' OR 1=1 --", "%00"])
async def test_what_does_not_exist_is_a_404(api: Api, unknown_id: str) -> None:
    await api.add_user()
    for text, requests in NOT_FOUND.items():
        for method, template in requests:
            body = {"body": "x"} if "comments" in template else {}
            response = await api.client.request(method, template.replace("{id}", unknown_id), json=body)
            assert (method, template, *status_and_body(response)) == (method, template, 404, {"error": text})
    assert len((await api.client.get(USERS)).json()) == 1


INVALID_MONTHS = ["2026-13", "2026-00", "2026-1", "0000-01", "%EF%BC%92%EF%BC%90%EF%BC%92%EF%BC%96-01", "2026-01%0A"]


@pytest.mark.parametrize("month", [*INVALID_MONTHS, "", "%202026-01", "26-01", "2026-01&month=2026-01"])
async def test_an_invalid_month_gets_a_400_and_no_file(api_on_sqlite: Api, month: str) -> None:
    for table in ("tasks", "users", "activities"):
        response = await api_on_sqlite.client.get(f"/api/export/{table}?month={month}")
        assert status_and_body(response) == (400, {"error": "Month must be YYYY-MM"})
