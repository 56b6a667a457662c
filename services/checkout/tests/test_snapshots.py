"""Rows of the table `orders`: those that older releases wrote are read, and replayed to callers byte for byte."""

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chassis.rpc.wire import money_to_wire
from chassis.sql.migrate import migrate
from chassis.values.money import Money
from chassis.values.orders import Address, OrderLine
from chassis.values.paging import Position
from checkout_service.domain import Order, State
from checkout_service.journal import snapshots
from checkout_service.journal.opening import MIGRATIONS, open_journal
from checkout_service.journal.rows import new_order_to_row
from checkout_service.peers.wire import order_to_wire
from checkout_service.ports import Entry
from shop import payment_pb2
from shop_kit.checkouts import Start
from shop_kit.databases import execute
from shop_kit.fake_peers import FakePeers
from shop_kit.orders import new_order

ORDER = Order(
    "01998d2c-7c00-7000-8000-000000000001",
    "ann",
    "ann@mail.example",
    "etag-1",
    Address("Königsallee 1", "Düsseldorf", "", "Germany", 40212),
    (OrderLine("mug", 2, Money.of("EUR", 35, 960_000_000)), OrderLine("lamp", 1, Money.of("EUR", 49, 990_000_000))),
    Money.of("EUR", 9, 990_000_000),
)

# The bytes of PlaceOrderResponse that the first release wrote: without the tracking id when the order was recorded, and
# with it when it was shipped.
OLD_ANSWER = (
    b"\n\x9f\x01\n$01998d2c-7c00-7000-8000-000000000001\x12\x07track-1\x1a\r\n\x03EUR\x10\t\x18\x80\xe7\x88\xd8\x03"
    b'"*\n\x0eK\xc3\xb6nigsallee 1\x12\x0bD\xc3\xbcsseldorf"\x07Germany(\x94\xba\x02'
    b"*\x18\n\x07\n\x03mug\x10\x02\x12\r\n\x03EUR\x10#\x18\x80\xe0\xe1\xc9\x03"
    b"*\x19\n\x08\n\x04lamp\x10\x01\x12\r\n\x03EUR\x101\x18\x80\xe7\x88\xd8\x03"
)
OLD_SNAPSHOT = OLD_ANSWER.replace(b"\n\x9f\x01", b"\n\x96\x01").replace(b"\x12\x07track-1", b"")

# Ann's request under the key `key`, with the HMAC key of the tests.
OLD_ROW = {
    "order_id": ORDER.order_id,
    "scope": "b588c14aa30a69f668afecf3b3eb2c3fa610d7e42b55fc9e78cbe1a3001c2a7b",
    "fingerprint": "f83663c4f8cb8717a3726c7c63da70ed74ea2b8b4ed0557c7c53a023e625bac7",
    "user_id": "ann",
    "email": "ann@mail.example",
    "cart_etag": "etag-1",
    "currency_code": "EUR",
    "total_units": 95,
    "total_nanos": 940000000,
    "state": "DONE",
    "attempt": 1,
    "epoch": 1,
    "worker": "w",
    "lease_until": 1795333843.1962898,
    "failures": 0,
    "reason": "",
    "refusal": "",
    "transaction_id": "transaction-1",
    "tracking_id": "track-1",
    "traceparent": "00-11111111111111111111111111111111-2222222222222222-01",
    "created_at": 1795333828.181632,
    "updated_at": 1795333828.2036808,
    "snapshot": OLD_SNAPSHOT,
    "answer": OLD_ANSWER,
}
UNFINISHED = {"state": "CHARGING", "lease_until": 0.0, "transaction_id": "", "tracking_id": "", "answer": None}


def insert(url: str, row: dict[str, Any]) -> None:
    """Insert a row into the table `orders`."""
    values = ", ".join(["?" if url.startswith("sqlite") else "%s"] * len(row))
    execute(url, f"INSERT INTO orders ({', '.join(row)}) VALUES ({values})", *row.values())  # noqa: S608 - constants


async def test_an_order_of_an_older_release_is_read(journal_url: str) -> None:
    insert(journal_url, OLD_ROW)
    async with open_journal(journal_url, worker="one") as journal:
        entry = await journal.read(ORDER.order_id)
    assert entry is not None
    assert (entry.state, entry.order, entry.tracking_id) == (State.DONE, ORDER, "track-1")


async def test_an_order_of_an_older_release_is_replayed_byte_for_byte(start: Start, database_url: str) -> None:
    insert(database_url, OLD_ROW)
    async with start() as checkout:
        placed = await checkout.place("key")
    assert placed.replayed
    assert placed.response.SerializeToString() == OLD_ANSWER


async def test_an_unfinished_order_of_an_older_release_is_finished(
    peers: FakePeers, start: Start, database_url: str
) -> None:
    insert(database_url, OLD_ROW | UNFINISHED)
    charge_key = f"{ORDER.order_id}:1"
    peers.payment.ledger[charge_key] = "charged"
    peers.payment.requests[charge_key] = payment_pb2.ChargeRequest(amount=money_to_wire(ORDER.total))
    async with start() as checkout:
        await checkout.until_states("DONE")
        replayed = (await checkout.place("key")).response.order
    assert replayed == order_to_wire(Entry("", "", ORDER, tracking_id=f"track-{ORDER.order_id}"))
    assert [mail.order for mail in peers.email.sent] == [replayed]


@pytest.mark.usefixtures("migrations")
@pytest.mark.parametrize("migrations", [None])
async def test_the_newest_of_two_orders_of_a_cart_holds_it_after_migration(journal_url: str, tmp_path: Path) -> None:
    """Older releases could order a cart twice, under two keys."""
    first_release = tmp_path / "first release"
    shutil.copytree(MIGRATIONS, first_release, ignore=shutil.ignore_patterns("000[2-9]*", "00[1-9]*"))
    migrate(journal_url, first_release)
    newer = {"order_id": "01998d2c-7c00-7000-8000-000000000002", "scope": "other"}
    for row in (OLD_ROW, OLD_ROW | newer):
        insert(journal_url, row)
    migrate(journal_url, MIGRATIONS)
    async with open_journal(journal_url, worker="one") as journal:
        holder = await journal.find_of_cart("ann", "etag-1")
        older = await journal.read(ORDER.order_id)
    assert holder is not None
    assert holder.order_id == newer["order_id"]
    assert older is not None
    assert older.is_placed


async def test_a_new_row_holds_a_versioned_snapshot_and_no_answer(start: Start, database_url: str) -> None:
    async with start() as checkout:
        await checkout.place()
    ((snapshot, answer),) = execute(database_url, "SELECT snapshot, answer FROM orders")
    assert json.loads(snapshot)["version"] == 2
    assert answer is None


def test_a_row_holds_every_field_of_an_order() -> None:
    unset = [field.name for field in fields(ORDER) if getattr(ORDER, field.name) == field.default]
    assert (unset, snapshots.load(new_order_to_row(Entry("scope", "", ORDER)))) == ([], ORDER)


def test_a_snapshot_of_an_unknown_version_is_rejected() -> None:
    snapshot = snapshots.dump(new_order().order).replace(b'"version":2', b'"version":3')
    with pytest.raises(ValueError, match="unknown version 3"):
        snapshots.load({"order_id": "id", "snapshot": snapshot})


async def test_an_unreadable_order_does_not_block_others(journal_url: str) -> None:
    """As after a rollback from a release with another version. Operators see it without card numbers."""
    insert(journal_url, OLD_ROW | UNFINISHED)
    unreadable = {
        "order_id": "unreadable",
        "scope": "unreadable",
        "cart_etag": "",
        "snapshot": b'{"version":3} 4111-1111 1111 1111',
    }
    insert(journal_url, OLD_ROW | UNFINISHED | unreadable)
    async with open_journal(journal_url, worker="one") as journal:
        claimed = await journal.claim_expired(State.CHARGING, 10, failed=False)
        listed = await journal.list_orders([], stuck=True, limit=10)
        scanned = await journal.scan(Position(0), 10)
    assert [entry.order_id for entry in claimed] == [ORDER.order_id]
    assert [entry.unreadable for entry in listed] == [entry.unreadable for entry in scanned]
    assert {entry.unreadable for entry in listed} == {"", 'CHARGING  {"version":…'}


async def test_the_customer_of_an_order_that_cannot_be_decoded_is_sent_to_an_operator(
    start: Start, database_url: str
) -> None:
    async with start() as checkout:
        placed = (await checkout.place(key="k")).response.order
        await checkout.until_done(1)
        execute(database_url, "UPDATE orders SET snapshot = substr(snapshot, 1, 40)")
        error = await checkout.refused("k")
        (listed,) = await checkout.listed(user_id="ann")
        shown = (await checkout.shown(placed.order_id)).order
    assert (error.reason, error.metadata["order_id"]) == ("ORDER_NEEDS_REVIEW", placed.order_id)
    assert (listed.order_id, listed.stuck, listed.total) == (placed.order_id, True, shown.total)
    assert shown.unreadable.startswith('DONE  {"version":2')
