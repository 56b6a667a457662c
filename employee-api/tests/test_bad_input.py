"""What bad input gets: the documented statuses and texts, and never a failure of the server."""

from typing import Any

import pytest

from shop_testkit.employee_api import PASSWORD, Api, Start

LOGIN, REGISTER, USERS = "/api/auth/login", "/api/auth/register", "/api/auth/users"
TEXTS = {
    LOGIN: "Email and password required",
    REGISTER: "Name, email and password required",
    USERS: "Name, email and password required",
}
GOOD = {"name": "Ada", "email": "ada@x", "password": "p"}


@pytest.fixture(params=[LOGIN, REGISTER, USERS])
def path(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


BROKEN_BODIES = {
    "empty": b"",
    "no JSON": b"name=Ada",
    "half": b'{"name": "Ada", "email": "ada@x", "password": "p"',
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
    "a NUL": b'{"name": "A\\u0000", "email": "a\\u0000@x", "password": "p"}',
}  # fmt: skip


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
async def test_a_broken_body_gets_the_documented_400(api_on_sqlite: Api, path: str, body: bytes) -> None:
    answer = await api_on_sqlite.client.post(path, content=body)
    assert (answer.status_code, answer.json()) == (400, {"error": TEXTS[path]})


@pytest.mark.parametrize("value", ["missing", "", None, 1, True, ["x"], {"x": "y"}])
@pytest.mark.parametrize(
    ("path", "field"),
    [(path, field) for path in TEXTS for field in ("name", "email", "password") if (path, field) != (LOGIN, "name")],
)
async def test_a_required_field_that_is_no_text_gets_the_documented_400(
    api_on_sqlite: Api, path: str, field: str, value: Any
) -> None:
    body = GOOD | {field: value}
    if value == "missing":
        del body[field]
    answer = await api_on_sqlite.client.post(path, json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": TEXTS[path]})


@pytest.mark.parametrize("field", ["role", "dept"])
async def test_an_optional_field_that_is_no_text_gets_the_documented_400(api_on_sqlite: Api, field: str) -> None:
    answer = await api_on_sqlite.client.post(REGISTER, json=GOOD | {field: 1})
    assert (answer.status_code, answer.json()) == (400, {"error": TEXTS[REGISTER]})


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/json; charset=latin-1", None])
async def test_the_content_type_does_not_matter_when_the_body_parses(
    api_on_sqlite: Api, content_type: str | None
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    body = b'{"name": "Ada", "email": "ada@x", "password": "p"}'
    assert (await api_on_sqlite.client.post(REGISTER, content=body, headers=headers)).status_code == 201


@pytest.mark.parametrize("unknown", ["/", "/api", "/api/auth/users/", "/api/export/secrets", "/api/auth/users/1/2"])
async def test_an_unknown_path_is_a_404_in_json(api_on_sqlite: Api, unknown: str) -> None:
    answer = await api_on_sqlite.client.get(unknown)
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})


@pytest.mark.parametrize(("method", "known"), [("GET", LOGIN), ("PUT", USERS), ("POST", "/api/export/users")])
async def test_a_wrong_method_is_a_405_in_json_that_tells_the_right_ones(
    api_on_sqlite: Api, method: str, known: str
) -> None:
    answer = await api_on_sqlite.client.request(method, known)
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})
    assert answer.headers["allow"]


async def test_a_password_of_a_megabyte_is_refused_at_registration_and_wrong_at_login(api_on_sqlite: Api) -> None:
    await api_on_sqlite.user(email="ada@x")
    huge = GOOD | {"password": "x" * 1_000_000}
    assert (await api_on_sqlite.client.post(REGISTER, json=huge)).status_code == 400
    login = await api_on_sqlite.client.post(LOGIN, json=huge)
    assert (login.status_code, login.json()) == (401, {"error": "Invalid email or password"})


async def test_no_part_of_a_long_password_is_ignored(api_on_sqlite: Api) -> None:
    password = "x" * 1000
    await api_on_sqlite.client.post(REGISTER, json=GOOD | {"password": password})
    for given, status in [(password, 200), (password[:-1], 401), (password + "x", 401)]:
        answer = await api_on_sqlite.client.post(LOGIN, json={"email": "ada@x", "password": given})
        assert answer.status_code == status


@pytest.mark.parametrize("text", ["' OR 1=1 --", "\U0001f600 Ada", "Robert'); DROP TABLE users;--", "a\tb\nc", "%_\\"])
async def test_any_other_text_is_kept_as_it_is(api: Api, text: str) -> None:
    user = await api.user(name=text, email=f"{text}@x", dept=text, role=text)
    assert (await api.client.get(USERS)).json() == [user]
    login = await api.client.post(LOGIN, json={"email": f"{text}@x", "password": PASSWORD})
    assert login.json() == user


@pytest.mark.parametrize("user_id", ["1", "x", "' OR 1=1 --", "%00", "cf828672-551f-4468-b46b-28bfc63de735"])
async def test_deleting_what_is_no_user_is_a_404(api: Api, user_id: str) -> None:
    await api.user()
    answer = await api.client.delete(f"{USERS}/{user_id.replace(' ', '%20')}")
    assert (answer.status_code, answer.json()) == (404, {"error": "User not found"})
    assert len((await api.client.get(USERS)).json()) == 1


async def test_a_user_who_is_gone_is_not_found(api: Api) -> None:
    user = await api.user()
    await api.client.delete(f"{USERS}/{user['id']}")
    answer = await api.client.delete(f"{USERS}/{user['id']}")
    assert (answer.status_code, answer.json()) == (404, {"error": "User not found"})


@pytest.mark.parametrize(
    "month",
    [
        "2026-13",
        "2026-00",
        "2026-1",
        "0000-01",
        "%EF%BC%92%EF%BC%90%EF%BC%92%EF%BC%96-01",
        "2026-01%0A",
        "",
        "2026-01&month=2026-01",
    ],
)
@pytest.mark.parametrize("kind", ["tasks", "users", "activities"])
async def test_what_is_no_month_gets_a_400_and_no_file(api_on_sqlite: Api, kind: str, month: str) -> None:
    answer = await api_on_sqlite.client.get(f"/api/export/{kind}?month={month}")
    assert (answer.status_code, answer.json()) == (400, {"error": "Month must be YYYY-MM"})


async def test_what_is_unforeseen_gets_a_500_without_a_word_of_it(
    start_on_sqlite: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("employee_api.repository.UserRepository.everyone", fail)
    async with start_on_sqlite() as api:
        answer = await api.client.get(USERS)
    assert (answer.status_code, answer.json()) == (500, {"error": "Internal server error"})


async def test_every_answer_forbids_guessing_its_type_and_storing_it(api_on_sqlite: Api) -> None:
    for path in (USERS, "/nowhere", "/docs"):
        headers = (await api_on_sqlite.client.get(path)).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
