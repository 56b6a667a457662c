"""`shop reconcile` on a whole shop, in which the records of orders are made to disagree in every way."""

import asyncio
import json
import re
import sqlite3
import sys
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from checkout_service.reconciliation.__main__ import AGREE, DISAGREE, NOT_READ
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.money_pb2 import Money
from shop.order_pb2 import OrderResult
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.sample_order import card_info
from shop_internal.orders_pb2 import SettleOrderRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2 import VoidRequest
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_kit.running_shop import RunningShop, running_shop
from shop_kit.waiting import wait_until

DAY = 86_400
Disturbance = Callable[[RunningShop, OrderResult], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own_shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningShop]:
    """A shop whose records the tests may change."""
    async with running_shop(tmp_path_factory.mktemp("shop")) as running:
        yield running


@dataclass(frozen=True)
class Reconciled:
    """The result of the command. `kinds`: of the mismatches, by order."""

    exit_status: int | None
    kinds: dict[str, set[str]]
    summary: str


async def run_command(shop: RunningShop, *options: str) -> tuple[int | None, str, str]:
    """Return exit status, output and errors of `shop reconcile`."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shop_cli", "reconcile", "--grace-minutes", "0", *options),
        env=shop.addresses,
        stdout=PIPE,
        stderr=PIPE,
    )
    output, errors = await running.communicate()
    return running.returncode, output.decode(), errors.decode()


async def reconcile(shop: RunningShop, *options: str) -> Reconciled:
    status, output, errors = await run_command(shop, "--json", *options)
    kinds = defaultdict(set)
    for line in output.splitlines():
        mismatch = json.loads(line)
        kinds[mismatch["order_id"]].add(mismatch["kind"])
    return Reconciled(status, kinds, errors)


async def place(shop: RunningShop) -> OrderResult:
    """Place an order and wait until all its records are there."""
    order = await shop.order()
    await until_done(shop, order)
    return order


async def until_done(shop: RunningShop, order: OrderResult) -> None:
    async def is_done() -> bool:
        return execute(shop, "checkout", "SELECT state FROM orders WHERE order_id = ?", order.order_id) == [("DONE",)]

    assert await wait_until(is_done)


async def charge(shop: RunningShop, key: str, amount: Money) -> None:
    request = ChargeRequest(amount=amount, credit_card=card_info())
    await PaymentServiceStub(shop.channels["payment"]).Charge(request, metadata=(("idempotency-key", key),))


def execute(shop: RunningShop, database: str, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    path = Path(shop.folder) / ".shop" / f"{database}.db"
    with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def total(order: OrderResult) -> Money:
    costs = [order.shipping_cost, *(line.cost for line in order.items)]
    nanos = sum(cost.units * 10**9 + cost.nanos for cost in costs)
    return Money(currency_code="EUR", units=nanos // 10**9, nanos=nanos % 10**9)


async def charge_again(shop: RunningShop, order: OrderResult) -> None:
    await charge(shop, f"{order.order_id}:2", total(order))


async def charge_a_later_attempt(shop: RunningShop, order: OrderResult) -> None:
    await void(shop, order)
    await charge_again(shop, order)


async def lose_charge_and_shipment(shop: RunningShop, order: OrderResult) -> None:
    await void(shop, order)
    await lose_shipment(shop, order)


async def need_refund(shop: RunningShop, order: OrderResult) -> None:
    """Lose what the order was charged for, so that it is one that could not be shipped."""
    for lose in (lose_shipment, lose_mail, leave_order_open):
        await lose(shop, order)


async def settle(shop: RunningShop, order: OrderResult, *, state: str, **outcome: str) -> None:
    """Bring an order into a state that needs an operator, who settles it."""
    await need_refund(shop, order)
    await change("checkout", f"UPDATE orders SET state = '{state}' WHERE order_id = ?")(shop, order)  # noqa: S608
    request = SettleOrderRequest(order_id=order.order_id, by="eve", **outcome)
    await OrderJournalStub(shop.internal_channels["checkout"]).SettleOrder(request)


async def mail(shop: RunningShop, order: OrderResult, recipient: str, cents: int = 0) -> None:
    """Replace the confirmation of an order by one to this recipient, whose shipping costs so many cents more."""
    await lose_mail(shop, order)
    order.shipping_cost.nanos += cents * 10**7
    request = SendOrderConfirmationRequest(email=recipient, order=order)
    await EmailServiceStub(shop.channels["email"]).SendOrderConfirmation(request)


async def mail_to_another(shop: RunningShop, order: OrderResult) -> None:
    await mail(shop, order, "another@example.com")


async def mail_another_total(shop: RunningShop, order: OrderResult) -> None:
    ((recipient,),) = execute(shop, "checkout", "SELECT email FROM orders WHERE order_id = ?", order.order_id)
    await mail(shop, order, str(recipient), cents=-1)


async def ship_again(shop: RunningShop, order: OrderResult) -> None:
    address = Address(street_address="Kanalstr. 1", city="Berlin", country="Germany")
    request = ShipOrderRequest(address=address, items=[CartItem(product_id="pan", quantity=1)])
    key = (("idempotency-key", f"{order.order_id}:2"),)
    await ShippingServiceStub(shop.channels["shipping"]).ShipOrder(request, metadata=key)


async def void(shop: RunningShop, order: OrderResult) -> None:
    await PaymentLedgerStub(shop.internal_channels["payment"]).Void(VoidRequest(charge_key=f"{order.order_id}:1"))


def change(database: str, statement: str) -> Disturbance:
    """Return what executes a statement, whose only parameter is the id of the order."""

    async def disturb(shop: RunningShop, order: OrderResult) -> None:
        execute(shop, database, statement, order.order_id)

    return disturb


def end(state: str, then: Disturbance) -> Disturbance:
    """Return what changes the state of an order, and disturbs its records further."""

    async def disturb(shop: RunningShop, order: OrderResult) -> None:
        execute(shop, "checkout", "UPDATE orders SET state = ? WHERE order_id = ?", state, order.order_id)
        await then(shop, order)

    return disturb


def ship_other(part: str) -> Disturbance:
    """Return what changes a part of a parcel, by its JSON path."""
    value = "'9'" if part.startswith("address") else "'PAN'" if part.endswith("id") else "9"
    changed = f"json_set(parcel, '$.{part}', {value})"
    return change("shipping", f"UPDATE shipments SET parcel = {changed} WHERE shipment_key = ?")  # noqa: S608


lose_shipment = change("shipping", "DELETE FROM shipments WHERE shipment_key = ?")
lose_mail = change("email", "DELETE FROM letters WHERE letter_id = ?")
leave_order_open = change("checkout", "UPDATE orders SET state = 'NEEDS_REFUND' WHERE order_id = ?")


async def age(shop: RunningShop, order: OrderResult, days: float = 3) -> None:
    """Make an order and all its records some days old."""
    then = time.time() - days * DAY
    statement = "UPDATE orders SET created_at = ?1, updated_at = ?1 WHERE order_id = ?2"
    execute(shop, "checkout", statement, then, order.order_id)
    for database, table, column in (("payment", "charges", "charge_key"), ("shipping", "shipments", "shipment_key")):
        statement = f"UPDATE {table} SET recorded_at = datetime(?, 'unixepoch') WHERE {column} LIKE ?"  # noqa: S608
        execute(shop, database, statement, then, f"{order.order_id}%")


async def age_then(shop: RunningShop, order: OrderResult, disturb: Disturbance) -> None:
    await age(shop, order)
    await disturb(shop, order)


REFUSED = ("DECLINED", "VOIDED", "ABANDONED")
ADDRESS = [f"address.{field}" for field in ("street_address", "city", "state", "country", "zip_code")]
PARTS = [*ADDRESS, "items[0].product_id", "items[1].quantity"]
add_to_charge = change("payment", "UPDATE charges SET units = units + 1 WHERE charge_key = ? || ':1'")
charge_in_dollars = change("payment", "UPDATE charges SET currency_code = 'USD' WHERE charge_key = ? || ':1'")
CASES: dict[str, tuple[Disturbance, set[str]]] = {
    "charged twice": (charge_again, {"CHARGED_TWICE"}),
    "another amount": (add_to_charge, {"AMOUNT_DIFFERS"}),
    "another currency": (charge_in_dollars, {"AMOUNT_DIFFERS"}),
    "later attempt charged": (charge_a_later_attempt, {"ATTEMPT_DIFFERS"}),
    "shipped twice": (ship_again, {"SHIPPED_TWICE", "PARCEL_DIFFERS"}),
    "charge lost": (void, {"SHIPPED_NOT_CHARGED"}),
    "shipment lost": (lose_shipment, {"CHARGED_NOT_SHIPPED"}),
    "charge and shipment lost": (lose_charge_and_shipment, {"NOT_CHARGED"}),
    **{f"{state} but charged": (end(state, lose_shipment), {"REFUSED_BUT_CHARGED"}) for state in REFUSED},
    **{f"{state} but shipped": (end(state, void), {"REFUSED_BUT_SHIPPED"}) for state in REFUSED},
    **{f"other {part}": (ship_other(part), {"PARCEL_DIFFERS"}) for part in PARTS},
    "mail to another": (mail_to_another, {"MAIL_DIFFERS"}),
    "mail of another total": (mail_another_total, {"MAIL_DIFFERS"}),
    "refund of nothing": (end("NEEDS_REFUND", lose_charge_and_shipment), {"NOT_CHARGED", "OPEN_TOO_LONG"}),
    "refund needed": (need_refund, {"OPEN_TOO_LONG"}),
    "refunded": (partial(settle, state="NEEDS_REFUND", refunded="R-7"), set()),
    "dismissed": (partial(settle, state="NEEDS_REVIEW", dismissed="test order"), set()),
    "shipped by hand": (partial(settle, state="NEEDS_REVIEW", shipped="T-7"), set()),
    "mail lost": (lose_mail, {"NOT_MAILED"}),
    "order lost": (change("checkout", "DELETE FROM orders WHERE order_id = ?"), {"UNKNOWN_ORDER"}),
    "left open": (leave_order_open, {"OPEN_TOO_LONG", "REFUSED_BUT_SHIPPED"}),
    "mail of an order before the window lost": (partial(age_then, disturb=lose_mail), set()),
    "charged again after days": (partial(age_then, disturb=charge_again), {"CHARGED_TWICE"}),
    "open for days": (partial(age_then, disturb=leave_order_open), {"OPEN_TOO_LONG"}),
}


@dataclass(frozen=True)
class Disturbed:
    """The order of each case, and what the reconciliation found."""

    orders: dict[str, OrderResult]
    found: Reconciled


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def disturbed(own_shop: RunningShop) -> Disturbed:
    orders = {case: await place(own_shop) for case in CASES}
    for case, (disturb, _) in CASES.items():
        await disturb(own_shop, orders[case])
    await charge(own_shop, "stranger", Money(currency_code="EUR", units=1))
    await until_done(own_shop, orders["shipped by hand"])
    return Disturbed(orders, await reconcile(own_shop))


async def test_the_records_of_a_shop_agree(own_shop: RunningShop) -> None:
    for _ in range(3):
        await place(own_shop)
    reconciled = await reconcile(own_shop)
    assert (reconciled.exit_status, reconciled.kinds) == (0, {})
    assert reconciled.summary == "3 orders, 3 charges and 3 shipments compared, 0 mismatches\n"


@pytest.mark.parametrize("case", CASES)
async def test_records_that_disagree_are_found(disturbed: Disturbed, case: str) -> None:
    assert disturbed.found.exit_status == 1
    assert disturbed.found.kinds[disturbed.orders[case].order_id] == CASES[case][1]


async def test_a_charge_of_no_order_is_found(disturbed: Disturbed) -> None:
    assert disturbed.found.kinds["stranger"] == {"UNKNOWN_ORDER", "CHARGED_NOT_SHIPPED"}


async def test_without_json_mismatches_are_a_table(own_shop: RunningShop, disturbed: Disturbed) -> None:
    _, output, _ = await run_command(own_shop)
    order_id = disturbed.orders["mail lost"].order_id
    assert re.search(rf"^NOT_MAILED +{order_id} +DONE +20\d\d-", output, re.MULTILINE)
    differing = ("other address.city", "PARCEL_DIFFERS", "address of"), ("mail to another", "MAIL_DIFFERS", "recipient")
    for case, kind, detail in differing:
        order_id = disturbed.orders[case].order_id
        assert re.search(rf"^{kind} +{order_id} +DONE +20\d\d-.* {detail}", output, re.MULTILINE)


async def test_what_is_printed_has_no_addresses(own_shop: RunningShop, disturbed: Disturbed) -> None:
    _, output, errors = await run_command(own_shop)
    street = disturbed.orders["mail lost"].shipping_address.street_address
    assert [text for text in ("@", street) if text in output + errors] == []


async def test_recent_records_are_not_expected_to_agree_yet(own_shop: RunningShop, disturbed: Disturbed) -> None:
    found = await reconcile(own_shop, "--grace-minutes", "10")
    assert found.kinds[disturbed.orders["shipment lost"].order_id] == set()


async def test_a_confirmation_that_waits_for_the_relay_is_no_mismatch(own_shop: RunningShop) -> None:
    email = own_shop.processes["email"]
    await email.restart(SMTP_URL="smtp://127.0.0.1:1")
    order = await place(own_shop)
    assert (await reconcile(own_shop)).kinds[order.order_id] == set()
    await email.restart()


async def test_a_charge_is_no_mismatch_after_the_retention_of_orders_and_shipments(own_shop: RunningShop) -> None:
    order = await place(own_shop)
    await age(own_shop, order, days=400)
    for process in ("checkout", "shipping"):
        await own_shop.processes[process].restart()

    async def are_deleted() -> bool:
        tables = (("checkout", "orders", "order_id"), ("shipping", "shipments", "shipment_key"))
        found = [
            execute(own_shop, database, f"SELECT 1 FROM {table} WHERE {column} = ?", order.order_id)  # noqa: S608
            for database, table, column in tables
        ]
        return not any(found)

    assert await wait_until(are_deleted)
    assert (await reconcile(own_shop, "--window-hours", str(500 * 24))).kinds[order.order_id] == set()


async def test_records_that_cannot_be_read_are_an_error(own_shop: RunningShop) -> None:
    await own_shop.processes["payment"].stop()
    reconciled = await reconcile(own_shop)
    await own_shop.processes["payment"].restart()
    assert reconciled.exit_status == 2
    assert reconciled.summary.startswith("NOTHING_LISTENS: checkout, payment, shipping, email do not all answer: ")


async def start_job(shop: RunningShop, wait_seconds: float) -> asyncio.subprocess.Process:
    """Start what the CronJob runs."""
    environment = {**shop.addresses, "WAIT_SECONDS": str(wait_seconds)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "checkout_service.reconciliation", env=environment, stdout=PIPE
    )


async def test_the_job_waits_for_peers_that_answer_late(own_shop: RunningShop) -> None:
    late = [own_shop.processes[name] for name in ("payment", "email")]
    await asyncio.gather(*(process.stop() for process in late))
    job = await start_job(own_shop, wait_seconds=60)
    assert job.stdout
    waiting = json.loads(await job.stdout.readline())
    await asyncio.gather(*(process.restart() for process in late))
    output, _ = await job.communicate()
    assert waiting["event"] == "waiting"
    assert {"payment", "email"} <= set(waiting["peers"].split(", "))
    assert json.loads(output.splitlines()[-1])["event"] == "reconciled"
    assert job.returncode in {AGREE, DISAGREE}


async def test_the_job_names_a_peer_that_never_answers(own_shop: RunningShop) -> None:
    await own_shop.processes["payment"].stop()
    job = await start_job(own_shop, wait_seconds=1)
    output, _ = await job.communicate()
    await own_shop.processes["payment"].restart()
    *_, last = map(json.loads, output.splitlines())
    assert (job.returncode, last["event"], last["reason"]) == (NOT_READ, "records not read", "UNAVAILABLE")
    assert "payment" in last["message"].partition(" did not answer for 1 s: ")[0].split(", ")
