"""Smoke calls: one valid call of each service, for tests, benchmarks and checks of a running release.

A service defines `smoke_call(unique: str) -> SmokeCall` in `tests/smoke.py`; `unique` is an id that no other call
has used. Both modules import the standard library, gRPC and generated messages alone, because tests/e2e/load.py runs
them in an image of the shop, without the rest of the kit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import grpc
from google.protobuf.message import Message


@dataclass(frozen=True)
class SmokeCall:
    """A call that succeeds with default data, any number of times, also concurrently.

    Without `setup`, the same request may be repeated; with it, each repetition needs another `unique`.

    Attributes:
        method: full name, such as `shop.AdService/GetAds`.
        setup: calls that must succeed before it, in order, usually to other services.
    """

    method: str
    request: Message
    setup: tuple["SmokeCall", ...] = ()

    @property
    def service(self) -> str:
        return self.method.partition("/")[0]


async def send(call: SmokeCall, channels: Mapping[str, grpc.aio.Channel], *, key: str) -> bytes:
    """Make the setup calls and the call, by channels of the services' full names. Return the serialized response.

    The key is sent as `idempotency-key`, so that a channel may retry writes.
    """
    for preceding in call.setup:
        await send(preceding, channels, key=key)
    method = channels[call.service].unary_unary(f"/{call.method}", type(call.request).SerializeToString, bytes)
    return await method(call.request, metadata=(("idempotency-key", key),))
