"""Services and databases that an order needs are down, restarted, or out of disk space."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chassis.errors import DomainError
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop_kit.running_shop import down
from shop_kit.waiting import wait_until
from shop_lab.world.customers import CustomerResult
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, fault_testbed, outcomes_of, responses_of
from shop_lab.world.faults import full_disk

RESPONSE_SECONDS = 5.0
ADDITIONS = 1_000


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
@pytest.mark.parametrize("name", ["product-catalog", "currency", "shipping"])
async def test_an_order_that_cannot_be_priced_is_refused_soon_and_never_charged(
    testbed: FaultTestbed, name: str, frozen: bool
) -> None:
    await testbed.configure()
    await testbed.restart("checkout-1")  # so that it has cached neither prices nor conversions
    intent = testbed.new_intent(max_tries=1)
    async with down(testbed.shop.processes[name], frozen=frozen):
        started = time.monotonic()
        (response,) = responses_of(await testbed.place_orders(intent))
        assert time.monotonic() - started < RESPONSE_SECONDS
        assert response.reason in {"DEPENDENCY_UNAVAILABLE", "QUOTES_TOO_SLOW"}
        assert testbed.charges(intent) == []
        assert await testbed.journal_order(intent) is None


async def test_a_cart_without_its_store_fails_soon_and_serves_soon_after_the_store_is_back(
    testbed: FaultTestbed,
) -> None:
    await testbed.configure()
    valkey = testbed.shop.valkey
    valkey.kill()
    await valkey.wait()
    started = time.monotonic()
    with pytest.raises(DomainError) as refusal:
        await testbed.clients.cart.GetCart(GetCartRequest(user_id="u"))
    assert time.monotonic() - started < RESPONSE_SECONDS
    assert refusal.value.reason in {"STORE_UNAVAILABLE", "UNAVAILABLE"}
    await valkey.start()
    await valkey.wait_until_serving()
    started = time.monotonic()
    await wait_until(lambda: is_cart_readable(testbed))
    assert time.monotonic() - started < 2 * RESPONSE_SECONDS


async def is_cart_readable(testbed: FaultTestbed) -> bool:
    return await testbed.simulator.cart_contents("u") is not None


async def test_a_thousand_concurrent_additions_to_one_cart_all_count_though_its_store_is_killed(
    testbed: FaultTestbed,
) -> None:
    await testbed.configure()
    user_id = testbed.new_intent().user_id
    request = AddItemRequest(user_id=user_id, item=CartItem(product_id="p", quantity=1))
    added = asyncio.Semaphore(0)
    valkey = testbed.shop.valkey
    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        for number in range(ADDITIONS):
            tasks.create_task(add_with_retries(testbed, request, f"thousand-{number}", added))
        for _ in range(ADDITIONS // 10):
            await added.acquire()
        valkey.kill()
        await valkey.wait()
        await valkey.start()
    assert await testbed.simulator.cart_contents(user_id) == {"p": ADDITIONS}


async def add_with_retries(testbed: FaultTestbed, request: AddItemRequest, key: str, added: asyncio.Semaphore) -> None:
    """Add until the cart acknowledges it, then release the semaphore."""
    while True:
        try:
            await testbed.clients.cart.AddItem(request, metadata=(("idempotency-key", key),))
        except DomainError:
            await asyncio.sleep(0.1)
        else:
            added.release()
            return


async def test_orders_survive_a_restart_of_postgres(postgres_testbed: FaultTestbed) -> None:
    testbed = postgres_testbed
    await testbed.configure()
    intents = [testbed.new_intent(keyed=bool(count % 2), checkout=count % 2) for count in range(20)]
    ordering = asyncio.create_task(testbed.place_orders(*intents))
    server = testbed.shop.postgres
    assert server is not None
    server.kill()
    await server.wait()
    await asyncio.sleep(1)
    await server.start()
    results = await ordering
    assert outcomes_of(results) == [ClientOutcome.PLACED] * 20
    assert await testbed.violations(results) == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def one_checkout(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultTestbed]:
    """A testbed in which no second checkout writes to the journal."""
    async with fault_testbed(tmp_path_factory.mktemp("one-checkout"), "sqlite", checkouts=1) as testbed:
        yield testbed


@pytest.mark.parametrize(
    ("name", "file"),
    [("checkout-1", "checkout.db-wal"), ("payment", "payment.db-wal"), ("shipping", "shipping.db-wal")],
)
async def test_a_full_disk_fails_orders_and_corrupts_nothing(one_checkout: FaultTestbed, name: str, file: str) -> None:
    testbed, results = one_checkout, list[CustomerResult]()
    with full_disk(testbed.shop.processes[name].pid, testbed.shop.folder / ".shop" / file):
        async with asyncio.timeout(90):
            while ClientOutcome.UNKNOWN not in outcomes_of(results):
                results += await testbed.place_orders(*(testbed.new_intent(max_tries=1) for _ in range(20)))
    afterwards = await testbed.place_orders(testbed.new_intent())
    assert await testbed.violations([*results, *afterwards]) == []
    assert outcomes_of(afterwards) == [ClientOutcome.PLACED]
