"""Services and databases that an order needs are down, restarted, or out of disk space."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chassis.errors import DomainError
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop_cli.local.ports import reserved
from shop_kit.waiting import wait_until
from shop_lab.world.customers import CustomerResult
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.evidence_collector import wait_until_quiet
from shop_lab.world.fault_testbed import FaultTestbed, fault_testbed, outcomes_of, responses_of
from shop_lab.world.faults import down, full_disk
from shop_lab.world.smtp_relay import Inbox, relay

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


async def test_a_cached_quote_does_not_charge_an_order_that_cannot_be_shipped_now(testbed: FaultTestbed) -> None:
    await testbed.configure()
    first, second = testbed.new_intent(max_tries=1), testbed.new_intent(max_tries=1)
    assert outcomes_of(await testbed.place_orders(first)) == [ClientOutcome.PLACED]
    async with down(testbed.shop.processes["shipping"]):
        (response,) = responses_of(await testbed.place_orders(second))
        assert response.reason == "DEPENDENCY_UNAVAILABLE"
        assert testbed.charges(second) == []


async def test_an_order_is_placed_once_its_dependency_is_back(testbed: FaultTestbed) -> None:
    await testbed.configure()
    await testbed.restart("checkout-1")
    async with down(testbed.shop.processes["currency"]):
        ordering = asyncio.create_task(testbed.place_orders(testbed.new_intent()))
        await asyncio.sleep(1)
    results = await ordering
    assert outcomes_of(results) == [ClientOutcome.PLACED]
    assert await testbed.violations(results) == []


async def send_to(testbed: FaultTestbed, port: int, folder: Path) -> None:
    """Let the email service send to a relay, from an empty spool: no letter of another test reaches the relay."""
    await testbed.configure()
    assert await wait_until_quiet(testbed.clients.journal) is not None
    spool = f"sqlite:///{folder}/email.db"
    await testbed.configure({"email": {"SMTP_URL": f"smtp://127.0.0.1:{port}", "DATABASE_URL": spool}})


async def test_orders_are_placed_without_the_mail_relay_and_confirmed_once_it_is_back(
    testbed: FaultTestbed, tmp_path: Path
) -> None:
    with reserved(1) as (port,):
        await send_to(testbed, port, tmp_path)
        results = await testbed.place_orders(*(testbed.new_intent() for _ in range(5)))
        assert outcomes_of(results) == [ClientOutcome.PLACED] * 5
        assert await wait_until_quiet(testbed.clients.journal) is not None
        inbox = Inbox()
        async with relay(inbox, port=port):
            await wait_until(lambda: len(inbox.mails) == 5)
    order_ids = sorted(response.order.order_id for response in responses_of(results) if response.order)
    assert inbox.message_ids() == [f"<{order_id}@shop>" for order_id in order_ids]
    await testbed.configure()


async def test_a_relay_slower_than_checkout_waits_gets_each_confirmation_once(
    testbed: FaultTestbed, tmp_path: Path
) -> None:
    inbox = Inbox(before_response=lambda: asyncio.sleep(3))
    async with relay(inbox) as port:
        await send_to(testbed, port, tmp_path)
        results = await testbed.place_orders(*(testbed.new_intent() for _ in range(5)))
        assert await wait_until_quiet(testbed.clients.journal) is not None
        await wait_until(lambda: len(inbox.mails) == 5)
    order_ids = {response.order.order_id for response in responses_of(results) if response.order}
    assert {f"<{order_id}@shop>" for order_id in order_ids} == set(inbox.message_ids())
    assert inbox.received == 5
    await testbed.configure()


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


async def test_without_postgres_an_order_is_not_charged(postgres_testbed: FaultTestbed) -> None:
    testbed = postgres_testbed
    await testbed.configure()
    server = testbed.shop.postgres
    assert server is not None
    intent = testbed.new_intent(max_tries=1)
    server.kill()
    await server.wait()
    try:
        results = await testbed.place_orders(intent)
    finally:
        await server.start()
        await server.wait_until_serving()
    assert outcomes_of(results) == [ClientOutcome.UNKNOWN]
    assert testbed.charges(intent) == []


async def test_more_concurrent_orders_than_database_connections_are_all_placed(postgres_testbed: FaultTestbed) -> None:
    testbed = postgres_testbed
    await testbed.configure()
    results = await testbed.place_orders(*(testbed.new_intent(checkout=count % 2) for count in range(100)))
    assert outcomes_of(results) == [ClientOutcome.PLACED] * 100
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
