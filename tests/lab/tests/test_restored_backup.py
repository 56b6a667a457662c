"""A drill: checkout's file is restored from a back-up that is older than the records of payment and shipping."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from pathlib import Path

import pytest

from shop_cli.local.processes import Process
from shop_kit.charges import read_charges
from shop_kit.databases import execute
from shop_kit.waiting import wait_until
from shop_lab.world.clients import open_clients
from shop_lab.world.customer_plan import Customer, Intent, Line, valid_intent
from shop_lab.world.customers import CustomerSimulator
from shop_lab.world.evidence import ClientOutcome, OrderResponse
from shop_lab.world.evidence_collector import QUIET_SECONDS, wait_until_quiet
from shop_lab.world.ledgers import match_ledgers, read_confirmations, read_manifest
from shop_lab.world.shop_under_test import ShopUnderTest, shop_under_test

PAGE = (Path(__file__).parents[3] / "charts/shop/docs/data.md").read_text()
# The programs for SQLite, which `kubectl exec` runs in checkout's pod; `tests/e2e/backup.sh` has those for PostgreSQL.
COPY_FILE, REPLACE_FILE = re.findall("python -c '(import sqlite3.*)'", PAGE)

CART = {"cast-iron-pan": 1, "wool-blanket": 2}

Orders = dict[Intent, OrderResponse]


async def restart(process: Process, **variables: str) -> None:
    process.kill()
    await process.wait()
    await process.start(**variables)
    await process.wait_until_serving()


async def run_program(program: str, folder: Path) -> None:
    """Run a program that is documented for the folder /data."""
    program = program.replace("/data", str(folder / ".shop"))
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=True)


async def place(customers: CustomerSimulator, numbers: Iterable[int], key: str | None) -> Orders:
    """Place an order for each number at once, under keys that begin with `key`."""
    lines = [Line(*line) for line in CART.items()]
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


async def repeat(customers: CustomerSimulator, intents: Iterable[Intent]) -> list[OrderResponse]:
    return [await customers.repeat_order(intent, QUIET_SECONDS) for intent in intents]


def effects_of(shop: ShopUnderTest, orders: Orders) -> set[int]:
    """Return how many charges, shipments and confirmations orders have."""
    confirmations = read_confirmations(shop.inbox.messages(), shop.urls["email"])
    charges, shipments = read_charges(shop.urls["payment"]), read_manifest(shop.urls["shipping"])
    ledgers = match_ledgers([*orders], charges, shipments, confirmations, shop.hmac_key)
    entries = (ledgers.charges, ledgers.shipments, ledgers.confirmations)
    return {len(ledger[intent.number]) for ledger in entries for intent in orders}


async def order_around_a_backup(shop: ShopUnderTest, customers: CustomerSimulator, folder: Path) -> list[Orders]:
    """Return the orders of the back-up, and later ones with and without keys. Two were charged but not yet shipped."""
    shipping = shop.processes["shipping"]
    saved = await place(customers, range(3), "saved")
    await restart(shipping, FAILPOINTS="shop.ShippingService/ShipOrder=error*1000")
    placing = asyncio.create_task(place(customers, range(3, 5), "saved"))
    await wait_until(lambda: len(read_charges(shop.urls["payment"])) == 5)
    await run_program(COPY_FILE, folder)
    await restart(shipping)
    saved |= await placing
    return [saved, await place(customers, range(5, 10), "lost"), await place(customers, range(10, 15), None)]


async def restore(shop: ShopUnderTest, folder: Path) -> None:
    execute(shop.urls["checkout"], "CREATE TABLE of_a_later_release (number integer)")
    await run_program(REPLACE_FILE, folder)
    for name in shop.checkouts:
        await restart(shop.processes[name])
    with pytest.raises(sqlite3.OperationalError, match="of_a_later_release"):
        execute(shop.urls["checkout"], "SELECT number FROM of_a_later_release")


async def test_orders_that_a_restored_backup_lacks_are_found_and_have_no_effect_twice(tmp_path: Path) -> None:
    async with shop_under_test(tmp_path, "sqlite") as shop, open_clients(shop) as clients:
        customers = CustomerSimulator(clients.cart, clients.checkouts)
        saved, with_keys, without_keys = await order_around_a_backup(shop, customers, tmp_path)
        lost = with_keys | without_keys
        await wait_until_quiet(clients.journal)
        assert {response.outcome for response in (saved | lost).values()} == {ClientOutcome.PLACED}
        await restore(shop, tmp_path)

        # Orders of the back-up are replayed; a lost one whose cart is empty by now is refused.
        replayed = await repeat(customers, saved)
        assert [response.order for response in replayed] == [response.order for response in saved.values()]
        assert {response.reason for response in await repeat(customers, lost)} == {"CART_EMPTY"}
        await wait_until_quiet(clients.journal)
        found = await reconcile(shop)
        assert found.count("UNKNOWN_ORDER") == len(found.splitlines()) == len(lost)
        assert all(response.order and response.order.order_id in found for response in lost.values())

        # A lost order whose cart is filled again is left to operators.
        for intent in with_keys:
            for line in intent.lines:
                await customers.add_line(intent.user_id, line, f"again-{line.product_id}")
        assert {response.reason for response in await repeat(customers, with_keys)} == {"ORDER_NEEDS_REVIEW"}
        await wait_until_quiet(clients.journal)
        assert [await customers.cart_contents(intent.user_id) for intent in with_keys] == [CART] * len(with_keys)
        assert effects_of(shop, saved | lost) == {1}
