"""The view of operators: orders with their history, metrics, logs and traces."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
import structlog
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.errors import FailedPrecondition, Unavailable
from chassis.values import paging
from checkout_service.journal import sql
from shop.shipping_pb2 import ShipOrderRequest
from shop_internal import orders_pb2
from shop_kit.checkouts import Checkout
from shop_kit.failing import all_pages, error_of
from shop_kit.fake_peers import Fault
from shop_kit.waiting import wait_until


async def test_an_order_is_returned_with_its_history_and_the_lines_of_its_response(checkout: Checkout) -> None:
    placed = (await checkout.place()).response.order
    shown = await checkout.shown(placed.order_id)
    assert (shown.order.user_id, shown.order.tracking_id) == ("ann", placed.shipping_tracking_id)
    assert (shown.order.total.units, shown.order.total.nanos) == (45, 950_000_000)
    assert [event.step for event in shown.history][:3] == ["inserted", "charged", "shipped"]
    assert shown.history[0].at.ToNanoseconds() <= shown.history[-1].at.ToNanoseconds()
    assert shown.result == placed


async def test_an_order_that_is_not_shipped_has_lines_but_no_tracking_id(checkout: Checkout) -> None:
    checkout.peers.payment.faults["Charge"] = Fault(FailedPrecondition("no", reason="CARD_EXPIRED"))
    await checkout.refused()
    (order,) = await checkout.listed()
    result = (await checkout.shown(order.order_id)).result
    assert ([line.item.product_id for line in result.items], result.shipping_tracking_id) == (["mug"], "")


async def test_orders_are_listed_of_one_user(checkout: Checkout) -> None:
    checkout.peers.cart.fill("bob", mug=1)
    placed = [(await checkout.place(user_id=user)).response.order.order_id for user in ("ann", "bob")]
    (listed,) = await checkout.listed(user_id="bob")
    assert listed.order_id == placed[1]
    assert [(item.product_id, item.quantity) for item in listed.items] == [("mug", 1)]


async def test_orders_are_scanned_page_by_page(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    for user in ("ann", "bob", "cid"):
        checkout.peers.cart.fill(user, mug=1)
        await checkout.place(user_id=user)
    scan = checkout.journal.ScanOrders
    pages = await all_pages(lambda token: scan(orders_pb2.ScanOrdersRequest(page_token=token)))
    assert [[order.user_id for order in page.orders] for page in pages] == [["ann", "bob"], ["cid"], []]


# Settlements that are no text for the history.
UNFIT = [
    ({"refunded": " "}, "refunded"),
    ({"dismissed": "x" * 201}, "dismissed"),
    ({"dismissed": "two\nlines"}, "dismissed"),
    ({"refunded": "card 4242424242424242"}, "refunded"),
    ({"refunded": "card 4242.4242  4242"}, "refunded"),
    ({"shipped": "x" * 201}, "shipped"),
    ({"refunded": "R-7", "by": ""}, "by"),
    ({"refunded": "R-7", "by": "4242-4242"}, "by"),
    ({}, "outcome"),
]
COMBINED = "user_id: must not be combined with states or stuck"
UNANSWERED: list[tuple[str, dict[str, Any], str, str]] = [
    ("ListOrders", {"user_id": "ann", "stuck": True}, "INVALID_ARGUMENT", COMBINED),
    ("ListOrders", {"user_id": "ann", "states": [orders_pb2.ORDER_STATE_DONE]}, "INVALID_ARGUMENT", COMBINED),
    *(("ListOrders", {"limit": limit}, "INVALID_ARGUMENT", "limit") for limit in (1001, -1)),
    *(("ListOrders", {"states": [state]}, "INVALID_ARGUMENT", "states") for state in (0, 99)),
    ("ScanOrders", {"since": Timestamp(seconds=-1)}, "INVALID_ARGUMENT", "since"),
    *((method, {"order_id": "unknown"}, "NOT_FOUND", "") for method in ("GetOrder", "RequeueNotifications")),
    ("SettleOrder", {"order_id": "unknown", "by": "eve", "refunded": "R-7"}, "NOT_FOUND", ""),
    *(("SettleOrder", {"order_id": "id", "by": "eve", **fields}, "INVALID_ARGUMENT", field) for fields, field in UNFIT),
]


@pytest.mark.parametrize(("method", "fields", "code", "message"), UNANSWERED)
async def test_an_invalid_request_or_one_for_an_unknown_order_is_refused(
    checkout: Checkout, method: str, fields: dict[str, Any], code: str, message: str
) -> None:
    request = getattr(orders_pb2, f"{method}Request")(**fields)
    error = await error_of(getattr(checkout.journal, method)(request))
    assert error.code().name == code
    assert (error.details() or "").startswith(message)


async def test_a_listed_order_has_its_unsent_outbox_items(checkout: Checkout) -> None:
    for peer in (checkout.peers.email, checkout.peers.ordered_cart):
        peer.fail(Unavailable("down"))
    await checkout.place()
    (order,) = await checkout.listed()
    assert (list(order.outbox), order.stuck) == (["email", "empty_cart"], False)


async def test_a_confirmation_that_is_refused_for_good_is_a_dead_letter_until_requeued(checkout: Checkout) -> None:
    checkout.peers.email.faults["SendOrderConfirmation"] = Fault(FailedPrecondition("no such mailbox"))
    await checkout.place()

    async def dead_letters() -> list[orders_pb2.Order]:
        return [order for order in await checkout.listed() if order.dead_letters]

    (order,) = await wait_until(dead_letters)
    assert (order.state, list(order.dead_letters)) == (orders_pb2.ORDER_STATE_SHIPPED, ["email"])
    checkout.peers.email.faults.clear()
    request = orders_pb2.RequeueNotificationsRequest(order_id=order.order_id)
    assert list((await checkout.journal.RequeueNotifications(request)).requeued) == ["email"]
    await checkout.until_states("DONE")
    assert len(checkout.peers.email.sent) == 1


RunSql = Callable[[str], object]


async def place_and_need(state: str, checkout: Checkout, run_sql: RunSql, key: str | None = "key") -> str:
    """Return the id of an order that could neither be shipped nor voided, and needs an operator."""
    checkout.peers.shipping.faults["ShipOrder"] = Fault(FailedPrecondition("no", reason="DEPOT_CLOSED"))
    checkout.peers.ledger.faults["Void"] = Fault(FailedPrecondition("no"))
    order_id: str = (await checkout.refused(key)).metadata["order_id"]
    assert await checkout.states() == ["NEEDS_REFUND"]
    run_sql(f"UPDATE orders SET state = '{state}', lease_until = lease_until + 300")  # noqa: S608 - a constant
    checkout.peers.shipping.faults.clear()
    checkout.peers.ledger.faults.clear()
    return order_id


async def settle(checkout: Checkout, order_id: str, **fields: str) -> orders_pb2.Order:
    request = orders_pb2.SettleOrderRequest(**{"order_id": order_id, "by": "eve", **fields})
    settled: orders_pb2.Order = (await checkout.journal.SettleOrder(request)).order
    return settled


async def last_step(checkout: Checkout, order_id: str) -> tuple[str, str]:
    (event,) = [event for event in (await checkout.shown(order_id)).history if event.step.startswith("settled_")]
    return event.step, event.detail


@pytest.mark.parametrize("state", ["CHARGING", "VOIDING", "NEEDS_REFUND", "NEEDS_REVIEW"])
@pytest.mark.parametrize("outcome", ["refunded", "dismissed"])
async def test_a_settled_order_is_closed_for_its_caller_and_frees_its_cart(
    checkout: Checkout, run_sql: RunSql, state: str, outcome: str
) -> None:
    order_id = await place_and_need(state, checkout, run_sql)
    if state.startswith("NEEDS"):
        assert (await checkout.refused("another")).reason == "CART_ORDERED"
    settled = await settle(checkout, order_id, **{outcome: "bank reference R-7"})
    assert (settled.state, settled.stuck) == (orders_pb2.ORDER_STATE_SETTLED, False)
    assert await last_step(checkout, order_id) == (f"settled_{outcome}", "eve: bank reference R-7")
    assert [order.order_id for order in await checkout.listed(states=[settled.state])] == [order_id]
    assert await checkout.listed(stuck=True) == []
    error = await checkout.refused("key")
    assert (type(error), error.reason, error.metadata["order_id"]) == (FailedPrecondition, "ORDER_SETTLED", order_id)
    if outcome == "refunded":
        assert (await checkout.place("another")).response.order.order_id != order_id
    else:  # what is in the cart was paid for
        assert (await checkout.refused("another")).reason == "CART_ORDERED"


async def test_without_a_key_the_unchanged_cart_of_a_settled_order_is_not_ordered(
    checkout: Checkout, run_sql: RunSql
) -> None:
    order_id = await place_and_need("NEEDS_REFUND", checkout, run_sql, key=None)
    await settle(checkout, order_id, refunded="R-7")
    for email in ("ann@mail.example", "other@mail.example"):
        assert (await checkout.refused(email=email)).reason == "ORDER_SETTLED"
    checkout.peers.cart.fill("ann", mug=3)
    assert (await checkout.place()).response.order.order_id != order_id


async def test_an_order_settled_as_shipped_is_confirmed_and_answers_its_caller(
    checkout: Checkout, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", 0)
    order_id = await place_and_need("NEEDS_REVIEW", checkout, run_sql)
    settled = await settle(checkout, order_id, shipped="00340434161234567890")
    assert (settled.state, settled.reason) == (orders_pb2.ORDER_STATE_SHIPPED, "SETTLED_SHIPPED")
    assert await last_step(checkout, order_id) == ("settled_shipped", "eve: 00340434161234567890")
    await checkout.until_states("DONE")
    assert len(checkout.peers.email.sent) == 1
    placed = await checkout.place("key")
    assert (placed.replayed, placed.response.order.shipping_tracking_id) == (True, "00340434161234567890")


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("VOIDING", {"shipped": "T-1"}),
        ("SHIPPED", {"refunded": "R-7"}),
        *((state, {"dismissed": "again"}) for state in ("DONE", "DECLINED", "SETTLED")),
    ],
)
async def test_a_decision_that_the_orders_state_forbids_is_refused(
    checkout: Checkout, run_sql: RunSql, state: str, fields: dict[str, str]
) -> None:
    order_id = await place_and_need(state, checkout, run_sql)
    refused = await error_of(settle(checkout, order_id, **fields))
    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert f"order in state {state} cannot" in (refused.details() or "")
    assert await checkout.states() == [state]


NO_CHARGE, SENT = "payment has no charge", "shipping has sent track-"


@pytest.mark.parametrize(
    ("outcome", "why", "is_charged"),
    [("shipped", NO_CHARGE, False), ("shipped", SENT, True), ("refunded", SENT, True), ("refunded", SENT, False)],
)
async def test_a_decision_that_records_contradict_is_never_carried_out(
    checkout: Checkout, run_sql: RunSql, outcome: str, why: str, is_charged: bool
) -> None:
    order_id = await place_and_need("NEEDS_REVIEW", checkout, run_sql)
    if not is_charged:
        checkout.peers.payment.ledger[f"{order_id}:1"] = "voided"
    if why is SENT:
        checkout.peers.shipping.shipments[order_id] = ShipOrderRequest()
    kept = dict(checkout.peers.payment.ledger)
    for _ in range(2):
        assert why in str((await error_of(settle(checkout, order_id, **{outcome: "T-1"}))).details())
    assert await checkout.states() == ["NEEDS_REVIEW"]
    assert checkout.peers.payment.ledger.items() >= kept.items()


@pytest.mark.parametrize("snapshot", ["snapshot", "X'7B'"], ids=["readable", "unreadable"])
async def test_the_first_of_two_decisions_is_carried_out_as_soon_as_payment_responds(
    checkout: Checkout, run_sql: RunSql, snapshot: str
) -> None:
    order_id = await place_and_need("NEEDS_REVIEW", checkout, run_sql)
    checkout.peers.ledger.faults["Void"] = Fault(Unavailable("down"))
    assert (await settle(checkout, order_id, refunded="R-7")).state == orders_pb2.ORDER_STATE_SETTLING
    refused = await error_of(settle(checkout, order_id, shipped="T-1"))
    assert "order in state SETTLING cannot" in (refused.details() or "")
    run_sql(f"UPDATE orders SET snapshot = {snapshot}")  # noqa: S608 - a constant
    checkout.peers.ledger.faults.clear()
    await checkout.until_states("SETTLED")
    assert list(checkout.peers.payment.ledger.values()) == ["voided"]


@pytest.mark.parametrize(
    ("state", "after", "left"), [("SHIPPED", "DONE", []), ("DONE", "DONE", []), ("SETTLING", "SETTLED", ["email"])]
)
async def test_what_never_succeeds_is_dismissed(
    checkout: Checkout, run_sql: RunSql, state: str, after: str, left: list[str]
) -> None:
    order_id = await place_and_need(state, checkout, run_sql)
    run_sql(f"INSERT INTO outbox VALUES ('{order_id}', 'email', 0, 0, '', 0)")  # noqa: S608 - a constant
    checkout.peers.ledger.faults["ResolveOrFence"] = Fault(Unavailable("down"))
    run_sql("UPDATE orders SET tracking_id = 'T-1'")
    stuck = await checkout.listed(stuck=True, states=[orders_pb2.ORDER_STATE_DONE])
    assert [list(order.dead_letters) for order in stuck] == ([["email"]] if state == "DONE" else [])
    await settle(checkout, order_id, dismissed="by telephone")
    (order,) = await checkout.listed()
    assert (await checkout.states(), list(order.dead_letters)) == ([after], left)
    assert (order.tracking_id, order.attempt) == ("T-1" if after == "DONE" else "", 1)


async def test_each_change_of_state_is_logged_and_a_placed_order_at_info_once(checkout: Checkout) -> None:
    with structlog.testing.capture_logs() as lines:
        order_id = (await checkout.place()).response.order.order_id
    changes = [line for line in lines if line["event"] == "order changed"]
    assert [(line["order_id"], line["state"], line["log_level"]) for line in changes[:2]] == [
        (order_id, "CHARGING", "debug"),
        (order_id, "SHIPPED", "info"),
    ]
