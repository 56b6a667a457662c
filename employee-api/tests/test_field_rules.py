"""Invalid input is refused with a text that names the field and its rule, and never contains the value."""

import uuid
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from employee_api.models import Comment, Task, User
from shop_kit.employee_api import PASSWORD, UNKNOWN_ID, Api, StartApi, started_with

ID = str(uuid.UUID(int=1))
"""Of a task, of the comment on it, and of a user."""
TASK, COMMENT, USER = f"/api/tasks/{ID}", f"/api/tasks/{ID}/comments/{ID}", f"/api/auth/users/{ID}"
STATUSES = "must be 'todo', 'in_progress', 'review' or 'done'"
PRIORITIES = "must be 'low', 'medium', 'high' or 'urgent'"
SCOPES = "must be 'users:read', 'users:write', 'tasks:read', 'tasks:write', 'activities:read' or 'export:read'"
NOT_ALLOWED = "has a character that is not allowed"
MOMENT = "must be a date and time with a time zone, such as 2026-01-31T12:00:00Z"
PAST, TOO_LATE, WITHOUT_ZONE = "2020-01-01T00:00:00Z", "2026-06-13T15:09:26Z", "2027-01-01T00:00:00"
IMPOSSIBLE = ["2027-02-30T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"]

Refusals = dict[str, list[dict[str, Any]]]


def text(field: str, maximum: int) -> Refusals:
    """Return what is refused of a field for text that is not empty."""
    return {
        f"{field} must not be empty": [{field: ""}],
        f"{field} must be text": [{field: 1}, {field: None}],
        f"{field} {NOT_ALLOWED}": [{field: "x\0"}],
        f"{field} must not contain a card number": [{field: "x 4111.1111.1111.1111"}],
        f"{field} is too long: at most {maximum} characters": [{field: "x" * (maximum + 1)}],
    }


def unknown(*fields: str) -> Refusals:
    return {f"{field} is unknown": [{field: UNKNOWN_ID}] for field in fields}


VALID: dict[str, dict[str, Any]] = {
    "POST /api/tasks": {"title": "x"},
    f"PATCH {TASK}": {"title": "Changed"},
    "POST /api/tasks/assign": {"task_ids": [ID], "assignee_id": ID},
    f"PATCH {COMMENT}": {"body": "Changed"},
    f"PATCH {USER}": {"name": "Changed"},
    "PATCH /api/auth/me": {"name": "Changed"},
    "POST /api/auth/invitations": {"role": "qa"},
    "POST /api/auth/tokens": {"name": "nightly report", "scopes": ["tasks:read"], "current_password": PASSWORD},
    "PUT /api/auth/me/password": {"current_password": PASSWORD, "new_password": "nine brown otters swim"},
}
# By the text of the refusal, what changes valid input to invalid one; `...` is left out.
INVALID: dict[str, Refusals] = {
    "POST /api/tasks": {
        **text("title", 500),
        **unknown("asignee_id"),
        "description must not contain more than 30 combining characters in a row": [
            {"description": mark * 31} for mark in "\u0301\u0f73"
        ],
        "title is required": [{"title": ...}],
        f"status {STATUSES}; priority {PRIORITIES}": [{"priority": 1, "status": None}],
        "due_date must be a date of the calendar": [{"due_date": "2026-02-30"}],
        "due_date must be YYYY-MM-DD": [{"due_date": "2026-W01-1"}, {"due_date": 1}],
        "assignee_id must be a UUID": [{"assignee_id": "ada"}],
        "Unknown assignee": [{"assignee_id": UNKNOWN_ID}],
        "Unknown reporter": [{"reporter_id": UNKNOWN_ID}],
    },
    f"PATCH {TASK}": {**text("title", 500), **unknown("id"), "Unknown assignee": [{"assignee_id": UNKNOWN_ID}]},
    "POST /api/tasks/assign": {
        "task_ids has too few items: at least 1": [{"task_ids": []}],
        "task_ids has too many items: at most 200": [{"task_ids": [UNKNOWN_ID] * 201}],
        "task_ids.0 must be a UUID": [{"task_ids": ["1"]}],
        "assignee_id is required": [{"assignee_id": ...}],  # a forgotten field must not unassign 200 tasks
        "Unknown assignee": [{"assignee_id": UNKNOWN_ID}],
        **unknown("status"),
    },
    f"PATCH {COMMENT}": text("body", 20_000) | unknown("author_id"),
    f"PATCH {USER}": {
        **(text("name", 1000) | text("role", 1000) | text("email", 320)),
        **unknown("id", "password", "approved", "deactivated_at", "color"),
        "email must not be white space": [{"email": " \t"}],
        f"dept {NOT_ALLOWED}": [{"dept": "a\0b"}],
    },
    "PATCH /api/auth/me": text("name", 1000) | unknown("role", "email", "dept", "password", "approved", "id"),
    "POST /api/auth/invitations": {
        **text("role", 1000),
        "expires_in_days must be at least 1": [{"expires_in_days": 0}],
        "expires_in_days must be at most 30": [{"expires_in_days": 31}],
        "expires_in_days must be a whole number": [{"expires_in_days": "7"}],
    },
    "POST /api/auth/tokens": {
        **text("name", 100),
        **unknown("token", "user_id"),
        "scopes has too few items: at least 1": [{"scopes": []}],
        "scopes has too many items: at most 6": [{"scopes": ["tasks:read"] * 7}],
        f"scopes.0 {SCOPES}": [{"scopes": ["admin"]}],
        f"expires_at {MOMENT}": [{"expires_at": moment} for moment in (WITHOUT_ZONE, 1900000000, *IMPOSSIBLE)],
        "expires_at must be in the next 90 days": [{"expires_at": moment} for moment in (PAST, TOO_LATE)],
        "current_password must be text": [{"current_password": None}],
    },
    "PUT /api/auth/me/password": {
        "new_password is too long: at most 4096 characters": [{"new_password": "x" * 4097}],
        "new_password must not be empty": [{"new_password": ""}],
        "current_password must not be empty": [{"current_password": ""}],
    },
}


async def contents(api: Api) -> list[Any]:
    lists = (COMMENT, "/api/tasks", "/api/activities", "/api/auth/users", "/api/auth/me", "/api/auth/tokens")
    return [await api.fetch(f"GET {url}") for url in (*lists, "/api/auth/invitations")]


@pytest.mark.parametrize("operation", VALID)
async def test_an_invalid_body_changes_nothing(start_api: StartApi, operation: str) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa", registration="open") as (api, _):
        await api.execute(update(User).where(col(User.role) == "qa").values(id=uuid.UUID(ID)))
        await api.add_task()
        await api.execute(update(Task).values(id=uuid.UUID(ID)))
        await api.fetch(f"POST {TASK}/comments", {"body": "Done"})
        await api.execute(update(Comment).values(id=uuid.UUID(ID)))
        before = await contents(api)
        for text, change in [(text, change) for text, changes in INVALID[operation].items() for change in changes]:
            body = {name: value for name, value in (VALID[operation] | change).items() if value is not ...}
            status, answer = await api.answer(operation, body)
            assert (change, status, answer["error"]) == (change, 400, text)
        assert await contents(api) == before
        await api.fetch(operation, VALID[operation])


ZONES = ["Europe/Atlantis", "europe/berlin", "", "../../etc/passwd", "localtime", "CET-1", "Europe", "'; SELECT 1"]
MONTHS = ["2026-13", "2026-00", "2026-1", "0000-01", "%EF%BC%92%EF%BC%90%EF%BC%92%EF%BC%96-01", "2026-01%0A", ""]
QUERIES: dict[str, dict[str, list[str]]] = {
    "/api/export/tasks": {
        "tz must be a time zone of the IANA database, such as Europe/Berlin": [
            f"tz={zone}" for zone in (*ZONES, "a" * 999)
        ],
        "separator must be ',', ';' or 'tab'": [f"separator={other}" for other in ("", "|", "=", "%22", "%09", ",,")],
        "Month must be YYYY-MM": [*(f"month={month}" for month in MONTHS), "month=2026-1&tz=x", "month=1&month=2"],
        "bom must be true or false": ["bom=perhaps"],
        "tz was given twice": ["tz=UTC&tz=UTC"],
        "Unknown parameter: mouth": ["mouth=2026-01"],
    },
    "/api/activities": {
        "Unknown parameter: mouth, limi?": ["mouth=2026-01&limi%0A=1"],
        **{f"{name} must be a UUID": [f"{name}=x%00", f"{name}={'x' * 1001}"] for name in ("subject", "actor")},
        f"action {NOT_ALLOWED}": ["action=x%00"],
        "action is too long: at most 1000 characters": [f"action={'x' * 1001}"],
    },
    "/api/tasks": {
        "q must not be empty": ["q="],
        "q is too long: at most 200 characters": [f"q={'x' * 201}"],
        "q has too many words: at most 10": [f"q={'x ' * 11}"],
        "limit must be a whole number": ["limit=ten"],
        "limit must be at least 1": ["limit=0"],
        "limit must be at most 200": ["limit=201"],
        "limit was given twice": ["limit=1&limit=2&month=2026-01"],
        "month must be YYYY-MM": ["month=2026-13"],
        "cursor is invalid": ["cursor=MQ==", "cursor=%00"],
        "reporter must be a UUID": ["reporter=x"],
        "assignee must be a UUID": ["assignee=1"],
        "due_before must be a date of the calendar": ["due_before=2026-02-30"],
        "unassigned must be true or false": ["unassigned=perhaps"],
        f"status {STATUSES}": ["status=x"],
        f"priority {PRIORITIES}": ["priority=x"],
        "sort must be 'created_at', 'updated_at', 'due_date', 'priority', 'title' or 'status'": ["sort=x"],
        "order must be 'asc' or 'desc'": ["order=x"],
    },
}


async def test_an_invalid_query_is_refused(api: Api) -> None:
    for path, refusals in QUERIES.items():
        for text, queries in refusals.items():
            for query in queries:
                status, answer = await api.answer(f"GET {path}?{query}")
                assert (query, status, answer["error"]) == (query, 400, text)


async def test_unknown_parameters_are_refused_except_by_the_documented_operations(api: Api) -> None:
    for request_line in ("DELETE /api/tasks/1", "POST /api/tasks"):
        refused = await api.answer(f"{request_line}?dry_run=true", {"title": "x"})
        assert refused == (400, {"error": "Unknown parameter: dry_run"})
    for request_line in ("GET /api/auth/users", "POST /api/auth/users"):
        await api.fetch(f"{request_line}?v=1", {"name": "Ada", "email": "ada@x", "password": "p"})
