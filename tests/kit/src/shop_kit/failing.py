"""Calls that fail or return one page of many, and what their callers see or do."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import pytest

from chassis.errors import InvalidArgument
from chassis.rpc.status import from_rpc_error

Response = TypeVar("Response")


async def outcome(call: Awaitable[object]) -> str:
    """Return the name of the status of a call over a plain channel."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def failure_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """Return the status code and the reason of a call over a plain channel, which must fail."""
    error = await error_of(call)
    return error.code(), from_rpc_error(error).reason


async def rejected_fields(call: Awaitable[object]) -> list[str]:
    """Return the fields that a call rejects, with INVALID_ARGUMENT."""
    rejected = from_rpc_error(await error_of(call))
    assert isinstance(rejected, InvalidArgument)
    return [violation.field for violation in rejected.violations]


async def error_of(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    """Return the error of a call over a plain channel, which must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


@contextmanager
def rejecting(
    field: str, kind: type[InvalidArgument] = InvalidArgument
) -> Iterator[pytest.ExceptionInfo[InvalidArgument]]:
    """Expect that this field is rejected, the first of those that are."""
    with pytest.raises(kind) as rejected:
        yield rejected
    assert rejected.value.violations[0].field == field


async def all_pages(fetch: Callable[[str], Awaitable[Any]]) -> list[Any]:
    """Return the pages of a list, of which `fetch` returns one by its token."""
    pages: list[Any] = []
    while not pages or pages[-1].next_page_token:
        pages.append(await fetch(pages[-1].next_page_token if pages else ""))
    return pages


async def retried(call: Callable[[], Awaitable[Response]]) -> Response:
    """Call, and call once more after a failure or a second without a response."""
    try:
        return await asyncio.wait_for(call(), 1)
    except (grpc.aio.AioRpcError, TimeoutError):
        return await call()
