"""`shop reconcile` on a whole shop, in which the records of some orders are made to disagree."""

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from chassis.rpc.wire import money_to_wire
from chassis.values.money import Money
from shop.order_pb2 import OrderResult
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_cli.sample_order import card_info
from shop_internal.orders_pb2 import SettleOrderRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.running_shop import RunningShop, run_shop
from shop_kit.waiting import wait_until

DAY = 86_400
Disturbance = Callable[[RunningShop, OrderResult], Awaitable[None]]


async def kinds_by_order(shop: RunningShop, grace_minutes: int) -> dict[str, set[str]]:
    """Return the kinds of mismatches that the command finds, by order."""
    _, output, _ = await run_shop(
        "reconcile", "--json", "--grace-minutes", str(grace_minutes), environment=shop.addresses
    )
    kinds = defaultdict(set)
    for mismatch in map(json.loads, output.splitlines()):
        kinds[mismatch["order_id"]].add(mismatch["kind"])
    return kinds


async def figures(shop: RunningShop) -> list[int]:
    """Return how many orders, charges, shipments and so on were compared, as the command's last line has them."""
    _, _, line = await run_shop("reconcile", "--grace-minutes", "0", environment=shop.addresses)
    return [*map(int, re.findall("[0-9]+", line))]


async def place(shop: RunningShop) -> OrderResult:
    """Place an order and wait until all its records are there."""
    order = await shop.order()
    await shop.wait_until_done(order.order_id)
    return order


async def charge(shop: RunningShop, key: str, amount: Money) -> None:
    request = ChargeRequest(amount=money_to_wire(amount), credit_card=card_info())
    await PaymentServiceStub(shop.channels["payment"]).Charge(request, metadata=(("idempotency-key", key),))


async def charge_again(shop: RunningShop, order: OrderResult) -> None:
    await charge(shop, f"{order.order_id}:2", shop.charges(order.order_id)[0].amount)


async def refund(shop: RunningShop, order: OrderResult) -> None:
    """Lose what the order was charged for, so that an operator has to refund and settle it."""
    for disturb in (lose_shipment, lose_mail, leave_order_open):
        await disturb(shop, order)
    request = SettleOrderRequest(order_id=order.order_id, by="eve", refunded="R-7")
    await OrderJournalStub(shop.internal_channels["checkout"]).SettleOrder(request)


async def is_mailed(shop: RunningShop, order: OrderResult) -> bool:
    return order.order_id not in await kinds_by_order(shop, grace_minutes=0)


def change(database: str, statement: str) -> Disturbance:
    """Return what executes a statement, whose only parameter is the id of the order."""

    async def disturb(shop: RunningShop, order: OrderResult) -> None:
        shop.execute(database, statement, order.order_id)

    return disturb


lose_shipment = change("shipping", "DELETE FROM shipments WHERE shipment_key = ?")
lose_mail = change("email", "DELETE FROM letters WHERE letter_id = ?")
leave_order_open = change("checkout", "UPDATE orders SET state = 'NEEDS_REFUND' WHERE order_id = ?")


async def age_then(shop: RunningShop, order: OrderResult, disturb: Disturbance) -> None:
    """Make an order and all its records older than those that are read, and disturb them."""
    then = time.time() - 3 * DAY
    statement = "UPDATE orders SET created_at = ?1, updated_at = ?1 WHERE order_id = ?2"
    shop.execute("checkout", statement, then, order.order_id)
    for database, table, column in (("payment", "charges", "charge_key"), ("shipping", "shipments", "shipment_key")):
        statement = f"UPDATE {table} SET recorded_at = datetime(?, 'unixepoch') WHERE {column} LIKE ?"  # noqa: S608
        shop.execute(database, statement, then, f"{order.order_id}%")
    await disturb(shop, order)


CHARGE = "state, currency_code, units, nanos, card_hmac, brand"
SHIP_AGAIN = """
    INSERT INTO shipments (shipment_key, state, tracking_id, parcel)
    SELECT shipment_key || ':2', state, 'x', parcel FROM shipments WHERE shipment_key = ?
"""
AGAIN = (
    f"SELECT charge_key || '0', 'copy', {CHARGE}, datetime('now', '+1 day') FROM charges WHERE charge_key = ? || ':1'"  # noqa: S608
)
EDIT = "CAST(replace(CAST(snapshot AS TEXT), '{}', '{}') AS BLOB)"
REFUSED = "REFUSED_BUT_CHARGED REFUSED_BUT_SHIPPED REFUSED_BUT_MAILED"
# Columns, what is written to them, and the kinds of mismatches that this is.
CHANGES = {
    ("checkout", "orders", "order_id = ?"): [
        *(("state", f"'{state}'", REFUSED) for state in ("DECLINED", "VOIDED", "ABANDONED")),
        ("state", "'SETTLED'", "NOT_SETTLED"),
        ("state", "'NEEDS_REVIEW'", "OPEN_TOO_LONG"),
        ("state", "'NEEDS_REFUND'", "OPEN_TOO_LONG REFUSED_BUT_SHIPPED"),
        *((column, "'x'", "CHARGE_DIFFERS") for column in ("user_id", "cart_etag", "fingerprint", "transaction_id")),
        ("transaction_id", "''", "CHARGE_DIFFERS"),
        ("attempt", "2", "ATTEMPT_DIFFERS"),
        *((column, "'x'", "UNREADABLE") for column in ("attempt", "failures", "created_at", "updated_at")),
        *((column, "9e99", "UNREADABLE") for column in ("attempt", "created_at", "updated_at")),
        *((column, "3000000000", "UNREADABLE") for column in ("attempt", "epoch", "failures")),
        *((column, "x'ff'", "UNREADABLE") for column in ("user_id", "tracking_id", "reason", "currency_code")),
        ("snapshot", "CAST(snapshot AS TEXT)", "UNREADABLE"),
        ("snapshot", EDIT.format('"quantity":', '"quantity":0.'), "UNREADABLE"),
        ("snapshot", EDIT.format('"units":', '"units":9999999999999999999'), "UNREADABLE"),
        ("tracking_id", "'x'", "PARCEL_DIFFERS MAIL_DIFFERS"),
        ("email", "'eve@example.com'", "MAIL_DIFFERS"),
        *(("total_units", value, "UNREADABLE") for value in ("total_units + 1", "'x'")),
        ("snapshot", "substr(snapshot, 1, 40)", "UNREADABLE"),
        ("state", "'LOST'", "UNREADABLE"),
        ("refusal", "'{'", "UNREADABLE"),
        ("snapshot", EDIT.format('"city":"', '"city":"x'), "PARCEL_DIFFERS MAIL_DIFFERS"),
        ("snapshot", EDIT.format('"quantity":', '"quantity":1'), "PARCEL_DIFFERS MAIL_DIFFERS"),
        ("snapshot", EDIT.format('"shipping_cost":', '"lines":[],"shipping_cost":'), "UNREADABLE"),
    ],
    ("payment", "charges", "charge_key = ? || ':1'"): [
        *((column, f"{column} + 1", "AMOUNT_DIFFERS") for column in ("units", "nanos")),
        *(("currency_code", value, "AMOUNT_DIFFERS") for value in ("'XTS'", "x'ff'")),
        *(("state", f"'{state}'", "SHIPPED_NOT_CHARGED") for state in ("VOIDED", "DECLINED")),
        ("charge_key", "replace(charge_key, ':1', ':3')", "ATTEMPT_DIFFERS"),
        *((column, "'x'", "CHARGE_DIFFERS") for column in ("transaction_id", "purchase_id", "request_fingerprint")),
        *((column, "NULL", "UNREADABLE") for column in ("units", "nanos")),
        ("recorded_at", "datetime('now', '-90 days')", ""),
        *(("recorded_at", value, "UNREADABLE") for value in ("'x'", "9e99", "x'ff'")),
        *(("units", value, "UNREADABLE") for value in ("9e99", "9e999")),
        ("transaction_id", "x'ff'", "UNREADABLE"),
    ],
    ("shipping", "shipments", "shipment_key = ?"): [
        *(
            ("parcel", f"json_set(parcel, '$.{part}', '9')", "PARCEL_DIFFERS")
            for part in ("address.city", "address.country", "address.zip_code", "items[0].product_id")
        ),
        *(("tracking_id", value, "PARCEL_DIFFERS") for value in ("'x'", "''")),
        *(("recorded_at", value, "UNREADABLE") for value in ("'x'", "9e99")),
        ("tracking_id", "x'ff'", "UNREADABLE"),
        ("shipment_key", "shipment_key || ':2'", "ATTEMPT_DIFFERS"),
        ("parcel", "substr(parcel, 1, 40)", "UNREADABLE"),
        ("parcel", "'{}'", "UNREADABLE"),
    ],
    ("email", "letters", "letter_id = ?"): [
        *(("state", f"'{state}'", "NOT_MAILED") for state in ("REFUSED", "IN_DOUBT")),
        ("recipient", "'eve@example.com'", "MAIL_DIFFERS"),
        ("message", "CAST('Hello' AS BLOB)", "MAIL_DIFFERS"),
        ("digests", "zeroblob(16)", "MAIL_DIFFERS"),
        ("reason", "CAST(x'ff' AS TEXT)", ""),
        ("digests", "x'ff' || ''", "UNREADABLE"),
    ],
}
# What other states, charges and shipments are: services/checkout/tests/test_reconciliation_rules.py.
CASES: dict[str, tuple[Disturbance, set[str]]] = {
    "shipped twice": (change("shipping", SHIP_AGAIN), {"SHIPPED_TWICE"}),
    "shipment lost": (lose_shipment, {"CHARGED_NOT_SHIPPED"}),
    "charge lost": (change("payment", "DELETE FROM charges WHERE charge_key = ? || ':1'"), {"SHIPPED_NOT_CHARGED"}),
    "refunded": (refund, set()),
    "mail lost": (lose_mail, {"NOT_MAILED"}),
    "order lost": (change("checkout", "DELETE FROM orders WHERE order_id = ?"), {"UNKNOWN_ORDER"}),
    "mail of an order before the window lost": (partial(age_then, disturb=lose_mail), set()),
    "charged again after days": (partial(age_then, disturb=charge_again), {"CHARGED_TWICE"}),
    "open for days": (partial(age_then, disturb=leave_order_open), {"OPEN_TOO_LONG", "REFUSED_BUT_SHIPPED"}),
    "charged again tomorrow": (
        change("payment", f"INSERT INTO charges (charge_key, transaction_id, {CHARGE}, recorded_at) {AGAIN}"),
        {"CHARGED_TWICE"},
    ),
    **{
        f"{table}.{column} = {value}": (
            change(database, f"UPDATE {table} SET {column} = {value} WHERE {key}"),  # noqa: S608 - constants
            set(kinds.split()),
        )
        for (database, table, key), changes in CHANGES.items()
        for column, value, kinds in changes
    },
    **{
        f"undisturbed {n}": (change("checkout", "SELECT state FROM orders WHERE order_id = ?"), set())
        for n in range(45)
    },
}


def batched(cases: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(cases)
    while batch := [*islice(remaining, 8)]:
        yield batch


async def test_records_that_disagree_are_found_and_listed_without_addresses(shop: RunningShop) -> None:
    orders: dict[str, OrderResult] = {}
    before = await figures(shop)
    for cases in batched(CASES):
        orders |= zip(cases, await asyncio.gather(*(place(shop) for _ in cases)), strict=True)
    added = [now - then for now, then in zip(await figures(shop), before, strict=True)]
    assert added == [len(CASES), 0, 0, len(CASES), len(CASES), 0]
    for case, (disturb, _) in CASES.items():
        await disturb(shop, orders[case])
    await charge(shop, "stranger", Money.of("EUR", 1))

    found = await kinds_by_order(shop, grace_minutes=0)
    expected = {case: kinds for case, (_, kinds) in CASES.items()}
    assert {case: found[order.order_id] for case, order in orders.items()} == expected
    assert found["stranger"] == {"UNKNOWN_ORDER", "CHARGED_NOT_SHIPPED"}

    status, output, errors = await run_shop("reconcile", "--grace-minutes", "0", environment=shop.addresses)
    assert status == 1
    for case, kind, detail in (
        ("mail lost", "NOT_MAILED", ""),
        ("shipments.parcel = json_set(parcel, '$.address.city', '9')", "PARCEL_DIFFERS", "address of"),
        ("letters.recipient = 'eve@example.com'", "MAIL_DIFFERS", "recipient"),
    ):
        line = rf"^{kind} +{orders[case].order_id} +DONE +20\d\d-.* {detail}"
        assert re.search(line, output, re.MULTILINE)
    street = orders["mail lost"].shipping_address.street_address
    assert [text for text in ("@", street) if text in output + errors] == []

    # Recent records are not expected to agree yet.
    assert (await kinds_by_order(shop, grace_minutes=60))[orders["shipment lost"].order_id] == set()


async def test_a_confirmation_that_is_lost_is_sent_again(shop: RunningShop) -> None:
    order = await place(shop)
    await lose_mail(shop, order)
    assert (await kinds_by_order(shop, grace_minutes=0))[order.order_id] == {"NOT_MAILED"}
    for _ in ("lost", "accepted"):
        status, output, errors = await run_shop("mail", "send-again", order.order_id, environment=shop.addresses)
        assert (status, output, errors) == (0, f"{order.order_id} requeued\n", "")
        await wait_until(lambda: is_mailed(shop, order))


async def test_a_mismatch_is_reported_whatever_its_age_until_an_operator_accepts_it(shop: RunningShop) -> None:
    order = await place(shop)
    for disturb in (lose_shipment, partial(age_then, disturb=lose_shipment)):
        await disturb(shop, order)
        assert (await kinds_by_order(shop, grace_minutes=0))[order.order_id] == {"CHARGED_NOT_SHIPPED"}
        assert order.order_id not in await kinds_by_order(shop, grace_minutes=9999)
    assert (await kinds_by_order(shop, grace_minutes=0))[order.order_id] == {"CHARGED_NOT_SHIPPED"}
    accepted = ("accept", order.order_id, "CHARGED_NOT_SHIPPED", "--reason", "refunded in cash", "--by", "eve")
    status, _, errors = await run_shop("reconcile", *accepted, environment=shop.addresses)
    assert (status, errors) == (0, "")
    assert order.order_id not in await kinds_by_order(shop, grace_minutes=0)
    status, _, errors = await run_shop(
        "reconcile", *accepted[:2], "NOT_MAILED", *accepted[3:], environment=shop.addresses
    )
    assert (status, errors.partition(":")[0]) == (1, "MISMATCH_NOT_FOUND")
