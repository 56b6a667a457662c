"""Errors as problem documents (RFC 9457), and what they say about invalid input."""

from typing import Any

import httpx2
import pytest

from shop_lab.world.employee_api import Api, StartApi

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


async def test_the_plain_format_has_the_error_text_alone(api_on_sqlite: Api) -> None:
    response = await api_on_sqlite.client.get("/nowhere")
    assert response.content == b'{"error":"Not Found"}'


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nowhere", "NOT_FOUND"),
        ("PUT", "/api/tasks", "METHOD_NOT_ALLOWED"),
        ("GET", "/api/tasks/1", "TASK_NOT_FOUND"),
    ],
)
async def test_errors_of_routing_have_problem_documents(api_on_sqlite: Api, method: str, path: str, code: str) -> None:
    assert (await problem(api_on_sqlite, method, path))["code"] == code


async def test_a_405_as_a_problem_document_lists_the_allowed_methods(api_on_sqlite: Api) -> None:
    response = await api_on_sqlite.client.put("/api/tasks", headers={"accept": PROBLEM})
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


async def test_an_unexpected_error_has_a_problem_document_without_its_text(
    start_api_on_sqlite: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Any) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("employee_api.users.repository.UserRepository.list_all", fail)
    async with start_api_on_sqlite() as api:
        document = await problem(api, "GET", "/api/auth/users")
    assert (document["code"], document["detail"]) == ("INTERNAL", "Internal server error")


async def test_a_refusal_has_a_problem_document_and_its_headers(start_api_on_sqlite: StartApi) -> None:
    async with start_api_on_sqlite(auth_mode="enforce") as api:
        response = await api.client.get("/api/tasks", headers={"accept": PROBLEM})
    assert (response.status_code, response.json()["code"]) == (401, "AUTHENTICATION_REQUIRED")
    assert response.headers["www-authenticate"] == "Bearer"


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


@pytest.mark.parametrize("field", ["title", "description", "status", "priority", "assignee_id", "due_date"])
@pytest.mark.parametrize("value", [f"{SECRET}\0", [SECRET], {SECRET: SECRET}, SECRET * 2000])
async def test_no_error_contains_a_value(api_on_sqlite: Api, field: str, value: Any) -> None:
    body = {"title": "x"} | {field: value}
    for accept in ("application/json", PROBLEM):
        response = await api_on_sqlite.client.post("/api/tasks", json=body, headers={"accept": accept})
        assert response.status_code == 400
        assert SECRET not in response.text


async def test_names_of_unknown_fields_are_cut_and_cleaned_and_at_most_twenty(api_on_sqlite: Api) -> None:
    names = [f"{number:03}\r\n\u202e{'x' * 300}" for number in range(100)]
    document = await problem(api_on_sqlite, "POST", "/api/tasks", json={"title": "x"} | dict.fromkeys(names, 1))
    assert [error["field"] for error in document["errors"]] == [f"{n:03}???{'x' * 58}…" for n in range(20)]


@pytest.mark.parametrize("path", ["/api/tasks", "/api/activities", "/api/export/tasks"])
async def test_an_unknown_query_parameter_is_refused_by_name(api_on_sqlite: Api, path: str) -> None:
    response = await api_on_sqlite.client.get(path, params={"mouth": SECRET})
    assert (response.status_code, response.json()) == (400, {"error": "Unknown parameter: mouth"})
    document = await problem(api_on_sqlite, "GET", path, params={"mouth": SECRET, "limi\n": SECRET})
    assert [error["field"] for error in document["errors"]] == ["mouth", "limi?"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/tasks/1"), ("DELETE", "/api/tasks/1"), ("POST", "/api/tasks"), ("POST", "/api/auth/logout")],
)
async def test_an_operation_without_parameters_refuses_any(api_on_sqlite: Api, method: str, path: str) -> None:
    response = await api_on_sqlite.client.request(method, f"{path}?dry_run=true", json={"title": "x"})
    assert (response.status_code, response.json()) == (400, {"error": "Unknown parameter: dry_run"})


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/auth/users"), ("POST", "/api/auth/users")])
async def test_the_documented_operations_accept_any_query(api_on_sqlite: Api, method: str, path: str) -> None:
    body = {"name": "Ada", "email": "ada@x", "password": "p"}
    response = await api_on_sqlite.client.request(method, f"{path}?v=1", json=body)
    assert response.is_success


async def test_a_repeated_query_parameter_is_refused_by_name(api_on_sqlite: Api) -> None:
    response = await api_on_sqlite.client.get("/api/tasks?limit=1&limit=2&month=2026-01")
    assert (response.status_code, response.json()) == (400, {"error": "limit was given twice"})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("limit=0", "limit must be at least 1"),
        ("limit=201", "limit must be at most 200"),
        ("limit=ten", "limit must be a whole number"),
        ("month=2026-13", "month must be YYYY-MM"),
        ("cursor=x", "cursor is invalid"),
    ],
)
async def test_an_invalid_query_parameter_is_named_with_the_rule(api: Api, query: str, text: str) -> None:
    response: httpx2.Response = await api.client.get(f"/api/tasks?{query}")
    assert (response.status_code, response.json()) == (400, {"error": text})
