"""A client balances over all its backends that are ready."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest_asyncio

from chassis.errors import Unavailable
from chassis.rpc.client import channel
from shop.ad_pb2 import Ad, AdRequest, AdResponse
from shop.ad_pb2_grpc import AdServiceServicer, AdServiceStub, add_AdServiceServicer_to_server
from shop_kit.serving import serve

CALLS = 90


class Backend(AdServiceServicer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.failing = False

    async def GetAds(self, _request: AdRequest, _context: Any) -> AdResponse:
        if self.failing:
            raise Unavailable("going away")
        return AdResponse(ads=[Ad(text=self.name)])


@pytest_asyncio.fixture(loop_scope="session")
async def backends() -> list[Backend]:
    return [Backend(name) for name in "abc"]


@pytest_asyncio.fixture(loop_scope="session")
async def stacks(backends: list[Backend]) -> AsyncIterator[dict[str, tuple[str, AsyncExitStack]]]:
    """Start all backends; return each one's address and the stack that stops it."""
    started: dict[str, tuple[str, AsyncExitStack]] = {}
    async with AsyncExitStack() as everything:
        for backend in backends:
            stack = await everything.enter_async_context(AsyncExitStack())
            address = await stack.enter_async_context(serve((add_AdServiceServicer_to_server, backend)))
            started[backend.name] = address, stack
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def stub(stacks: dict[str, tuple[str, AsyncExitStack]]) -> AsyncIterator[AdServiceStub]:
    addresses = ",".join(address for address, _ in stacks.values())
    opened = channel(f"ipv4:///{addresses}", "shop.AdService", timeout_seconds=5, retryable=["GetAds"])
    yield AdServiceStub(opened)
    await opened.close()


async def count_answers(stub: AdServiceStub, calls: int) -> Counter[str]:
    return Counter([(await stub.GetAds(AdRequest())).ads[0].text for _ in range(calls)])


async def wait_until_all_answer(stub: AdServiceStub, count: int) -> None:
    """Wait until each backend is used, because connections are opened in the background."""
    while len(await count_answers(stub, count)) != count:
        pass


async def test_no_call_fails_when_a_backend_stops(
    stub: AdServiceStub, stacks: dict[str, tuple[str, AsyncExitStack]]
) -> None:
    await wait_until_all_answer(stub, 3)
    await stacks["a"][1].aclose()
    assert set(await count_answers(stub, CALLS)) <= {"b", "c"}


async def test_a_failed_read_is_retried_on_another_backend(stub: AdServiceStub, backends: list[Backend]) -> None:
    await wait_until_all_answer(stub, 3)
    backends[0].failing = True
    assert set(await count_answers(stub, CALLS // 3)) == {"b", "c"}
