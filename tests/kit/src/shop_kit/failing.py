"""Calls that fail, and what their callers see or do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import pytest

from chassis.errors import InvalidArgument
from chassis.rpc.status import from_rpc_error

Response = TypeVar("Response")


async def failure_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """Return the status code and the reason of a call over a plain channel, which must fail."""
    error = await _error_of(call)
    return error.code(), from_rpc_error(error).reason


async def rejected_fields(call: Awaitable[object]) -> list[str]:
    """Return the fields that a call rejects, with INVALID_ARGUMENT."""
    rejected = from_rpc_error(await _error_of(call))
    assert isinstance(rejected, InvalidArgument)
    return [violation.field for violation in rejected.violations]


async def _error_of(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


async def retried(call: Callable[[], Awaitable[Response]]) -> Response:
    """Call, and call once more after a failure or a second without a response."""
    try:
        return await asyncio.wait_for(call(), 1)
    except (grpc.aio.AioRpcError, TimeoutError):
        return await call()
