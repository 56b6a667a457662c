"""Reads forms into memory. A multipart parser would write long forms to disk."""

from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from chassis.errors import InvalidArgument

MAX_BYTES = 16 * 1024
_MAX_FIELDS = 50
_TYPE = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> dict[str, str]:
    """Read a form. Raise HTTPException if the body is too long or not a form, or InvalidArgument if it is malformed."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise HTTPException(415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise HTTPException(413)
    malformed = InvalidArgument.field("form", "is malformed")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:  # don't chain this error: its text may quote the body
        raise malformed from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise malformed
    return dict(pairs)
