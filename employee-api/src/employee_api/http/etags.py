"""Entity tags let clients detect changes, and avoid overwriting changes that they have not seen.

Each tag is a hash of the JSON representation, so tags are strong and need no database column.
"""

import hashlib
import re

from pydantic import BaseModel

from employee_api.errors import PreconditionFailed

_HASH_CHARACTERS = 16
# RFC 9110 allows a tag to contain commas, and bytes above 0x7f (obs-text).
_ENTITY_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_ANY = "*"


def etag(model: BaseModel) -> str:
    digest = hashlib.sha256(model.model_dump_json().encode()).hexdigest()
    return f'"{digest[:_HASH_CHARACTERS]}"'


def require_match(if_match: str | None, current: BaseModel) -> None:
    """Raise PreconditionFailed if an `If-Match` header lists neither the current tag nor `*`.

    Call this in the transaction that makes the change, with the row locked. Weak tags never match (RFC 9110, 13.1.1).
    """
    if if_match is None or if_match.strip() == _ANY:
        return
    if ("", etag(current)) not in _ENTITY_TAG.findall(if_match):
        raise PreconditionFailed


def is_unchanged(if_none_match: str | None, tag: str) -> bool:
    """Return whether an `If-None-Match` header is `*`, or lists the tag in its weak or strong form."""
    listed = if_none_match or ""
    return listed.strip() == _ANY or tag in {strong for _, strong in _ENTITY_TAG.findall(listed)}
