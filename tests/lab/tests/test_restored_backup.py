"""A drill: checkout's file is restored from a back-up that is older than the records of payment and shipping."""

import asyncio
import math
import os
import re
import sqlite3
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from shop.cart_pb2 import AddItemRequest, CartItem
from shop_cli.local.processes import Process
from shop_kit.charges import read_charges
from shop_kit.databases import execute
from shop_kit.waiting import wait_until
from shop_lab.world.clients import ShopClients, open_clients
from shop_lab.world.customer_plan import Customer, Intent, Line, valid_intent
from shop_lab.world.customers import CustomerSimulator
from shop_lab.world.evidence import ClientOutcome, OrderResponse
from shop_lab.world.evidence_collector import QUIET_SECONDS, wait_until_quiet
from shop_lab.world.ledgers import match_ledgers, read_confirmations, read_manifest
from shop_lab.world.progress_gate import ProgressGate
from shop_lab.world.shop_under_test import START_SECONDS, ShopUnderTest, shop_under_test

PAGE = (Path(__file__).parents[3] / "charts/shop/docs/data.md").read_text()
# The programs for SQLite, which `kubectl exec` runs in checkout's pod; `tests/e2e/backup.sh` has those for PostgreSQL.
COPY_FILE, REPLACE_FILE = re.findall("python -c '(import sqlite3.*)'", PAGE)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Drill:
    """What happened.

    Attributes:
        saved, lost: orders from before and after the back-up, with the responses to their first requests. The last two
            of `saved` were charged and not yet shipped when their database was saved.
        repeated: the responses to the same requests after the restore, in the order of `saved` and `lost`.
        found: what the reconciliation printed, after these.
        completed: the responses to requests of `lost` with a key, after their carts were filled again.
    """

    shop: ShopUnderTest
    customers: CustomerSimulator
    saved: dict[Intent, OrderResponse]
    lost: dict[Intent, OrderResponse]
    repeated: list[OrderResponse]
    found: str
    completed: dict[Intent, OrderResponse]


async def restart(process: Process, **variables: str) -> None:
    process.kill()
    await process.wait()
    await process.start(**variables)
    await process.wait_until_serving(START_SECONDS)


async def run_program(program: str, folder: Path) -> None:
    """Run a program that is documented for the folder /data."""
    program = program.replace("/data", str(folder / ".shop"))
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=True)


async def place(customers: CustomerSimulator, numbers: Iterable[int], key: str | None) -> dict[Intent, OrderResponse]:
    """Place an order for each number at once, under keys that begin with `key`."""
    lines = [Line("cast-iron-pan", 1), Line("wool-blanket", 2)]
    intents = [valid_intent(number, f"customer-{number}", lines, key and f"{key}-{number}") for number in numbers]
    results = await asyncio.gather(*(customers.run(Customer(intent.user_id, ((intent,),))) for intent in intents))
    return {intent: result.responses[intent.number] for intent, result in zip(intents, results, strict=True)}


async def reconcile(shop: ShopUnderTest) -> str:
    programs = {"checkout": shop.checkouts[0], **{name: name for name in ("payment", "shipping", "email")}}
    addresses = {
        f"{name.upper()}_INTERNAL_ADDR": shop.processes[process].internal_address for name, process in programs.items()
    }
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shop_cli", "reconcile", "--json", "--grace-minutes", "0"),
        env={"PATH": os.environ["PATH"], **addresses},
        stdout=PIPE,
    )
    return (await running.communicate())[0].decode()


async def fill_cart_and_repeat(clients: ShopClients, customers: CustomerSimulator, intent: Intent) -> OrderResponse:
    for line in intent.lines:
        item = CartItem(product_id=line.product_id, quantity=line.quantity)
        await clients.cart.AddItem(AddItemRequest(user_id=intent.user_id, item=item))
    return await customers.repeat_order(intent, QUIET_SECONDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def drill(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Drill]:
    folder = tmp_path_factory.mktemp("backup")
    async with shop_under_test(folder, "sqlite") as shop, open_clients(shop) as clients:
        gate = ProgressGate(lambda _: None, limit=math.inf)
        customers = CustomerSimulator(clients.cart, clients.checkouts, gate, timeout_seconds=1.5, hangup_share=0)
        shipping = shop.processes["shipping"]
        finished = await place(customers, range(3), "saved")
        await wait_until_quiet(clients.journal)
        await restart(shipping, FAILPOINTS="shipping.ship.before=error*1000")
        placing = asyncio.create_task(place(customers, range(3, 5), "saved"))
        await wait_until(lambda: len(read_charges(shop.payment_url)) == 5)
        await run_program(COPY_FILE, folder)
        await restart(shipping)
        saved = {**finished, **await placing}
        lost = {**await place(customers, range(5, 10), "lost"), **await place(customers, range(10, 15), None)}
        await wait_until_quiet(clients.journal)
        execute(shop.journal_url, "CREATE TABLE of_a_later_release (number integer)")
        await run_program(REPLACE_FILE, folder)
        for name in shop.checkouts:
            await restart(shop.processes[name])
        repeated = [await customers.repeat_order(intent, QUIET_SECONDS) for intent in (*saved, *lost)]
        await wait_until_quiet(clients.journal)
        found = await reconcile(shop)
        completed = {intent: await fill_cart_and_repeat(clients, customers, intent) for intent in lost if intent.key}
        await wait_until_quiet(clients.journal)
        yield Drill(shop, customers, saved, lost, repeated, found, completed)


async def test_every_order_was_placed(drill: Drill) -> None:
    responses = [*drill.saved.values(), *drill.lost.values()]
    assert {response.outcome for response in responses} == {ClientOutcome.PLACED}


async def test_a_table_that_a_later_release_has_added_is_gone(drill: Drill) -> None:
    with pytest.raises(sqlite3.OperationalError, match="of_a_later_release"):
        execute(drill.shop.journal_url, "SELECT number FROM of_a_later_release")


async def test_the_repeats_charge_ship_and_confirm_nothing_again(drill: Drill) -> None:
    shop, intents = drill.shop, [*drill.saved, *drill.lost]
    confirmations = read_confirmations(shop.sent_mails, shop.spool_url)
    charges, shipments = read_charges(shop.payment_url), read_manifest(shop.shipping_url)
    ledgers = match_ledgers(intents, charges, shipments, confirmations, shop.hmac_key)
    entries = (ledgers.charges, ledgers.shipments, ledgers.confirmations)
    assert [len(ledger[intent.number]) for ledger in entries for intent in intents] == [1] * 3 * len(intents)


async def test_orders_in_the_backup_are_replayed(drill: Drill) -> None:
    repeated = drill.repeated[: len(drill.saved)]
    assert [response.order for response in repeated] == [response.order for response in drill.saved.values()]


async def test_a_lost_order_whose_cart_is_empty_is_refused(drill: Drill) -> None:
    assert {response.reason for response in drill.repeated[len(drill.saved) :]} == {"CART_EMPTY"}


async def test_the_reconciliation_finds_exactly_the_lost_orders(drill: Drill) -> None:
    lost = {response.order.order_id for response in drill.lost.values() if response.order}
    assert drill.found.count("UNKNOWN_ORDER") == len(drill.found.splitlines()) == len(lost)
    assert all(order_id in drill.found for order_id in lost)


async def test_a_lost_order_whose_cart_is_filled_again_is_left_to_operators(drill: Drill) -> None:
    assert [response.reason for response in drill.completed.values()] == ["ORDER_NEEDS_REVIEW"] * 5
    carts = [await drill.customers.cart_contents(intent.user_id) for intent in drill.completed]
    assert carts == [{line.product_id: line.quantity for line in intent.lines} for intent in drill.completed]
