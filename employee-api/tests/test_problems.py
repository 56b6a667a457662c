"""Errors as problem documents (RFC 9457), and what they say about invalid input."""

from typing import Any

import pytest

from shop_kit.employee_api import Api, StartApi

PROBLEM = "application/problem+json"
SECRET = "do-not-repeat-me"  # a value that no error may contain


async def problem(api: Api, method: str, path: str, **request: Any) -> dict[str, Any]:
    """Send a request that fails, and return the problem document."""
    response = await api.client.request(method, path, headers={"accept": PROBLEM}, **request)
    assert response.headers["content-type"] == PROBLEM, response.text
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code
    return document


async def fields(api: Api, path: str, body: Any) -> dict[str, str]:
    document = await problem(api, "POST", path, json=body)
    return {error["field"]: error["detail"] for error in document["errors"]}


async def test_a_problem_document_has_a_stable_code_and_the_text_as_its_detail(api: Api) -> None:
    await api.add_user(email="ada@x")
    body = {"name": "Ada", "email": "ada@x", "password": "p"}
    assert await problem(api, "POST", "/api/auth/register", json=body) == {
        "type": "/docs#error-email-taken",
        "title": "Email taken",
        "status": 409,
        "detail": "Email already registered",
        "code": "EMAIL_TAKEN",
        "errors": [],
    }


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json", "application/json"),
        (PROBLEM, PROBLEM),
        ("Application/Problem+JSON", PROBLEM),
        (f"application/json, {PROBLEM}", PROBLEM),
        (f"application/json;q=0.5, {PROBLEM};q=0.9", PROBLEM),
        (f"application/json, {PROBLEM};q=0.9", "application/json"),
        (f"{PROBLEM};q=0.9, */*", "application/json"),
        (f"{PROBLEM};q=0", "application/json"),
        (f"{PROBLEM};q=high", "application/json"),
        (f"text/html, {PROBLEM};q=0.1", PROBLEM),
    ],
)
async def test_accept_chooses_the_format_of_errors(api_on_sqlite: Api, accept: str | None, content_type: str) -> None:
    request = api_on_sqlite.client.build_request("GET", "/nowhere")
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    response = await api_on_sqlite.client.send(request)
    assert (response.status_code, response.headers["content-type"]) == (404, content_type)
    assert response.headers["vary"] == "Accept"


@pytest.fixture
def failing_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Any) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("employee_api.users.repository.UserRepository.list_all", fail)


@pytest.mark.usefixtures("failing_list")
@pytest.mark.parametrize(
    ("mode", "request_line", "code", "header"),
    [
        ("off", "GET /nowhere", "NOT_FOUND", ("vary", "Accept")),
        ("off", "PUT /api/tasks", "METHOD_NOT_ALLOWED", ("allow", "GET, HEAD, OPTIONS, POST")),
        ("off", "GET /api/tasks/1", "TASK_NOT_FOUND", ("vary", "Accept")),
        ("off", "GET /api/auth/users", "INTERNAL", ("vary", "Accept")),
        ("enforce", "GET /api/tasks", "AUTHENTICATION_REQUIRED", ("www-authenticate", "Bearer")),
    ],
)
async def test_every_error_has_a_problem_document_and_its_headers(
    start_api_on_sqlite: StartApi, mode: str, request_line: str, code: str, header: tuple[str, str]
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        response = await api.client.request(*request_line.split(), headers={"accept": PROBLEM})
        plain = await api.client.request(*request_line.split())
    assert (response.json()["code"], response.json()["status"]) == (code, response.status_code)
    assert header in response.headers.items()
    assert plain.json() == {"error": response.json()["detail"]}
    assert SECRET not in response.text + plain.text


async def test_every_invalid_field_is_named_with_what_is_wrong(api_on_sqlite: Api) -> None:
    body = {"title": "x" * 501, "status": SECRET, "priority": 1, "due_date": SECRET, "assignee_id": SECRET, "more": 1}
    assert await fields(api_on_sqlite, "/api/tasks", body) == {
        "title": "is too long: at most 500 characters",
        "status": "must be 'todo', 'in_progress', 'review' or 'done'",
        "priority": "must be 'low', 'medium', 'high' or 'urgent'",
        "due_date": "must be YYYY-MM-DD",
        "assignee_id": "must be a UUID",
        "more": "is unknown",
    }


async def test_fields_are_named_beside_the_one_text_of_a_documented_operation(api_on_sqlite: Api) -> None:
    document = await problem(api_on_sqlite, "POST", "/api/auth/register", json={"name": "", "email": "x" * 321})
    assert document["detail"] == "Name, email and password required"
    assert {error["field"]: error["detail"] for error in document["errors"]} == {
        "name": "must not be empty",
        "email": "is too long: at most 320 characters",
        "password": "is required",
    }


@pytest.mark.parametrize(
    ("body", "detail"),
    [(b"{", "must be JSON"), (b"[]", "must be an object"), (b" " * 65_537, "is too long: at most 65536 bytes")],
)
async def test_a_body_that_is_no_object_is_named_as_such(api_on_sqlite: Api, body: bytes, detail: str) -> None:
    document = await problem(api_on_sqlite, "POST", "/api/tasks", content=body)
    assert (document["detail"], document["errors"]) == (f"Request body {detail}", [{"field": "", "detail": detail}])


@pytest.mark.parametrize("value", [f"{SECRET}\0", [SECRET], {SECRET: SECRET}, SECRET * 2000])
async def test_no_error_contains_a_value(api_on_sqlite: Api, value: Any) -> None:
    for field in ("title", "description", "status", "priority", "assignee_id", "due_date"):
        for accept in ("application/json", PROBLEM):
            body = {"title": "x"} | {field: value}
            response = await api_on_sqlite.client.post("/api/tasks", json=body, headers={"accept": accept})
            assert (response.status_code, SECRET in response.text) == (400, False)


async def test_names_of_unknown_fields_are_cut_and_cleaned_and_at_most_twenty(api_on_sqlite: Api) -> None:
    names = [f"{number:03}\r\n\u202e{'x' * 300}" for number in range(100)]
    document = await problem(api_on_sqlite, "POST", "/api/tasks", json={"title": "x"} | dict.fromkeys(names, 1))
    assert [error["field"] for error in document["errors"]] == [f"{n:03}???{'x' * 58}…" for n in range(20)]


@pytest.mark.parametrize(
    ("method", "path", "query", "text"),
    [
        ("GET", "/api/tasks", f"mouth={SECRET}", "Unknown parameter: mouth"),
        ("GET", "/api/activities", f"mouth={SECRET}&limi%0A=1", "Unknown parameter: mouth, limi?"),
        ("GET", "/api/export/tasks", f"mouth={SECRET}", "Unknown parameter: mouth"),
        ("GET", "/api/tasks", "limit=1&limit=2&month=2026-01", "limit was given twice"),
        ("GET", "/api/tasks/1", "dry_run=true", "Unknown parameter: dry_run"),
        ("DELETE", "/api/tasks/1", "dry_run=true", "Unknown parameter: dry_run"),
        ("POST", "/api/tasks", "dry_run=true", "Unknown parameter: dry_run"),
        ("POST", "/api/auth/logout", "dry_run=true", "Unknown parameter: dry_run"),
        ("GET", "/api/auth/users", "v=1", None),
        ("POST", "/api/auth/users", "v=1", None),
    ],
)
async def test_unknown_and_repeated_parameters_are_refused_except_by_the_documented_operations(
    api_on_sqlite: Api, method: str, path: str, query: str, text: str | None
) -> None:
    body = {"title": "x"} if "tasks" in path else {"name": "Ada", "email": "ada@x", "password": "p"}
    response = await api_on_sqlite.client.request(method, f"{path}?{query}", json=body)
    assert response.is_success if text is None else (response.status_code, response.json()) == (400, {"error": text})
