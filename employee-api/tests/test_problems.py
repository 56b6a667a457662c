"""Errors as problem documents (RFC 9457), and what they say about invalid input."""

from typing import Any

import pytest

from shop_kit.employee_api import Api, StartApi

PROBLEM = "application/problem+json"


async def problem(api: Api, method: str, path: str, **request: Any) -> dict[str, Any]:
    """Send a request that fails, and return the problem document."""
    response = await api.client.request(method, path, headers={"accept": PROBLEM}, **request)
    assert response.headers["content-type"] == PROBLEM, response.text
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code
    return document


async def test_a_problem_document_has_a_stable_code_and_the_text_as_its_detail(api: Api) -> None:
    body = {"name": "Ada", "email": (await api.add_user())["email"], "password": "p"}
    assert await problem(api, "POST", "/api/auth/register", json=body) == {
        "type": "/docs#error-email-taken",
        "title": "Email taken",
        "status": 409,
        "detail": "Email already registered",
        "code": "EMAIL_TAKEN",
        "errors": [],
    }


ACCEPTED: dict[str | None, bool] = {
    None: False,
    "*/*": False,
    "application/*": False,
    "application/json": False,
    PROBLEM: True,
    "Application/Problem+JSON": True,
    f"application/json, {PROBLEM}": True,
    f"application/json;q=0.5, {PROBLEM};q=0.9": True,
    f"application/json, {PROBLEM};q=0.9": False,
    f"{PROBLEM};q=0.9, */*": False,
    f"{PROBLEM};q=0": False,
    f"{PROBLEM};q=high": False,
    f"text/html, {PROBLEM};q=0.1": True,
}


async def test_accept_chooses_the_format_of_errors(api: Api) -> None:
    for accept, is_problem in ACCEPTED.items():
        request = api.client.build_request("GET", "/nowhere")
        del request.headers["accept"]
        if accept is not None:
            request.headers["accept"] = accept
        response = await api.client.send(request)
        expected = PROBLEM if is_problem else "application/json"
        assert (accept, response.status_code, response.headers["content-type"]) == (accept, 404, expected)
        assert response.headers["vary"] == "Accept"


async def test_every_error_has_a_document_and_its_headers(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("employee_api.database.Repository.reads")
    async with start_api() as open_api, start_api(auth_mode="enforce") as enforced:
        for api, request_line, code, header in (
            (open_api, "GET /nowhere", "NOT_FOUND", ("vary", "Accept")),
            (open_api, "PUT /api/tasks", "METHOD_NOT_ALLOWED", ("allow", "GET, HEAD, OPTIONS, POST")),
            (open_api, "GET /api/tasks/1", "TASK_NOT_FOUND", ("vary", "Accept")),
            (open_api, "GET /api/auth/users", "INTERNAL", ("vary", "Accept")),
            (enforced, "GET /api/tasks", "AUTHENTICATION_REQUIRED", ("www-authenticate", "Bearer")),
        ):
            response = await api.client.request(*request_line.split(), headers={"accept": PROBLEM})
            plain = await api.client.request(*request_line.split())
            assert (response.json()["code"], response.json()["status"]) == (code, response.status_code)
            assert header in response.headers.items()
            assert plain.json() == {"error": response.json()["detail"]}
            assert "list_all" not in response.text + plain.text


async def test_fields_are_named_beside_the_one_text_of_a_documented_operation(api: Api) -> None:
    document = await problem(api, "POST", "/api/auth/register", json={"name": "", "email": "x" * 321})
    assert document["detail"] == "Name, email and password required"
    assert {error["field"]: error["detail"] for error in document["errors"]} == {
        "name": "must not be empty",
        "email": "is too long: at most 320 characters",
        "password": "is required",
    }


async def test_a_body_that_is_no_object_is_named_as_such(api: Api) -> None:
    for body, detail in {
        b"{": "must be JSON",
        b"[]": "must be an object",
        b" " * 65_537: "is too long: at most 65536 bytes",
    }.items():
        document = await problem(api, "POST", "/api/tasks", content=body)
        assert (document["detail"], document["errors"]) == (f"Request body {detail}", [{"field": "", "detail": detail}])


async def test_names_of_unknown_fields_are_cut_and_cleaned_and_at_most_twenty(api: Api) -> None:
    names = [f"{number:03}\r\n\u202e{'x' * 300}" for number in range(100)]
    document = await problem(api, "POST", "/api/tasks", json={"title": "x"} | dict.fromkeys(names, 1))
    assert [error["field"] for error in document["errors"]] == [f"{n:03}???{'x' * 58}…" for n in range(20)]
