"""Describes the headers of responses."""

from collections.abc import Iterable

from employee_api.http.idempotency import REPLAYED
from employee_api.http.openapi_document import Header, Reference

HEADERS: dict[str, Header] = {
    "Content-Disposition": {
        "description": "`attachment`, with a file name of the table and the month",
        "schema": {"type": "string"},
        "example": 'attachment; filename="tasks-2026-03.csv"',
    },
    "ETag": {
        "description": "The entity tag of the representation, for `If-Match` and `If-None-Match`",
        "schema": {"type": "string"},
        "example": '"9f86d081884c7d65"',
    },
    REPLAYED: {
        "description": "Present if this is the response to an earlier request with the same `Idempotency-Key`",
        "schema": {"const": "true"},
        "example": "true",
    },
    "Location": {
        "description": "The path of what was created",
        "schema": {"type": "string"},
        "example": "/api/tasks/3f1c8a6e-52d0-4b7e-9a44-0c6d1f2e7b58",
    },
    "Retry-After": {
        "description": "Seconds after which a repetition may succeed",
        "schema": {"type": "integer", "minimum": 0},
        "example": 5,
    },
    "Set-Cookie": {
        "description": "The session's cookie, for browsers; its value is the token for `Authorization: Bearer`",
        "schema": {"type": "string"},
        "example": "__Host-session=q4Yb…; Max-Age=604800; Path=/; HttpOnly; Secure; SameSite=Strict",
    },
    "WWW-Authenticate": {
        "description": "How to authenticate",
        "schema": {"type": "string"},
        "example": "Bearer",
    },
    "X-Request-ID": {
        "description": "The id of the request in logs and traces: the request's own, or a generated one",
        "schema": {"type": "string", "maxLength": 64},
        "example": "5c0b7f6a41d94d0e8a3f2b1c9d7e6f50",
    },
}


def references(names: Iterable[str]) -> dict[str, Reference]:
    """Return references to the descriptions of the headers that a response has, and of those that every one has."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in sorted({*names, "X-Request-ID"})}
