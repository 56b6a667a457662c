"""Answers a repeated request (same Idempotency-Key) with the stored response, without repeating its changes."""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from pydantic import BaseModel
from sqlalchemy import delete, insert, or_, select
from sqlalchemy.exc import IntegrityError
from sqlmodel import col
from starlette.requests import Request
from starlette.responses import Response

from chassis.errors import FieldViolation
from employee_api.access import Actor
from employee_api.database import Repository, shared_transaction, transaction
from employee_api.errors import ApiError, BadRequest, IdempotencyKeyReused
from employee_api.models import StoredResponse

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_VALID_KEY = re.compile("[!-~]{1,255}")  # visible ASCII
_RULE = "must be 1 to 255 visible ASCII characters"
_LIFETIME = timedelta(hours=24)
_STORED_HEADERS = ("content-type", "etag", "location")
# Storing a response also deletes expired rows, but at most this many, so that the request stays fast.
_DELETED_AT_ONCE = 100


class RepeatableRequest(NamedTuple):
    """Identifies a request: `key_hash` is a hash of caller, operation and key; `fingerprint` is a hash of the input."""

    key_hash: bytes
    fingerprint: bytes


def identify(request: Request, operation: str, actor: Actor | None, read_input: BaseModel) -> RepeatableRequest | None:
    """Return the request's identity, or None if it has no Idempotency-Key. Raise BadRequest if the key is malformed."""
    keys = request.headers.getlist(IDEMPOTENCY_KEY)
    if not keys:
        return None
    if len(keys) > 1 or not _VALID_KEY.fullmatch(keys[0]):
        raise BadRequest(f"{IDEMPOTENCY_KEY} {_RULE}", [FieldViolation(IDEMPOTENCY_KEY, _RULE)])
    caller = str(actor.id) if actor else None
    return RepeatableRequest(
        _hash([caller, operation, keys[0]]), _hash([dict(request.path_params), _without_secrets(read_input)])
    )


class StoredResponses(Repository):
    """Stores responses to requests with an Idempotency-Key for 24 hours.

    A response is stored in the same transaction as the changes that it reports. If several requests with the same key
    run at once, only one can store its response, and the others' changes are rolled back. Errors change nothing and
    are not stored, so repeating a request after an error is a new attempt.
    """

    async def respond_once(self, request: RepeatableRequest, respond: Callable[[], Awaitable[Response]]) -> Response:
        """Return the stored response, or else call `respond`, which must make every change in a `transaction`."""
        if (stored := await self._find_response(request)) is not None:
            return stored
        try:
            async with shared_transaction():
                response = await respond()
                await self._store(request, response)
        except (ApiError, IntegrityError):
            # If a concurrent request with the same key finished first, this request is a repeat: return its response.
            if (stored := await self._find_response(request)) is not None:
                return stored
            raise
        return response

    async def _find_response(self, request: RepeatableRequest) -> Response | None:
        same_key = select(StoredResponse).where(col(StoredResponse.key_hash) == request.key_hash)
        row = await self.find_row(same_key.where(col(StoredResponse.created_at) > self.clock() - _LIFETIME))
        if row is None:
            return None
        if row["fingerprint"] != request.fingerprint:
            raise IdempotencyKeyReused
        return Response(row["body"], row["status"], row["headers"] | {REPLAYED: "true"})

    async def _store(self, request: RepeatableRequest, response: Response) -> None:
        now = self.clock()
        key_hash, created_at = col(StoredResponse.key_hash), col(StoredResponse.created_at)
        expired = created_at <= now - _LIFETIME
        some_expired = select(key_hash).where(expired).limit(_DELETED_AT_ONCE).with_for_update(skip_locked=True)
        row = request._asdict() | {
            "status": response.status_code,
            "headers": {name: response.headers[name] for name in _STORED_HEADERS if name in response.headers},
            "body": bytes(response.body),
            "created_at": now,
        }
        async with transaction(self.engine) as connection:
            purge = delete(StoredResponse).where(expired, or_(key_hash == request.key_hash, key_hash.in_(some_expired)))
            await connection.execute(purge)
            await connection.execute(insert(StoredResponse).values(row))


def _without_secrets(model: BaseModel) -> object:
    """Return the fields that the request contains, except secrets. Leaving a field out may differ from sending null."""
    secret = {name for name, field in type(model).model_fields.items() if not field.repr}
    return model.model_dump(mode="json", exclude=secret, exclude_unset=True)


def _hash(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
