"""Peers are not trusted: a response that breaks the contract charges and ships nothing, and is never stored."""

from collections.abc import Callable
from typing import Any

import pytest

from chassis.telemetry import semconv
from checkout_service.peers.checks import CHECKS
from shop import cart_pb2
from shop_internal.payment_ledger_pb2 import ResolveOrFenceResponse
from shop_internal.shipment_manifest_pb2 import ResolveShipmentResponse, Shipment
from shop_kit.checkouts import Start
from shop_kit.fake_peers import FakePeers
from shop_kit.serving import Recorded

Change = Callable[[Any], Any]

CARD = "4242424242424242"


def change(inside: str = "", /, **fields: Any) -> Change:
    """Change fields of a response, or of the message inside."""

    def apply(response: Any) -> None:
        for name, value in fields.items():
            setattr(getattr(response, inside) if inside else response, name, value)

    return apply


def set_lines(*lines: tuple[str, int]) -> Change:
    def apply(cart: cart_pb2.Cart) -> None:
        cart.ClearField("items")
        cart.items.extend(cart_pb2.CartItem(product_id=product, quantity=quantity) for product, quantity in lines)

    return apply


def distort(peer: Any, method: str, apply: Change, times: int = 1_000) -> None:
    """Change the first responses of a peer, which must not serve yet."""
    original, left = getattr(peer, method), [None] * times

    async def distorted(request: Any, context: Any) -> Any:
        response = await original(request, context)
        if left:
            left.pop()
            apply(response)
        return response

    setattr(peer, method, distorted)


@pytest.mark.parametrize(
    "broken",
    [
        ("cart", "GetCart", "user_id", change(user_id="ben")),
        ("cart", "GetCart", "items", set_lines(*((f"mug-{number}", 1) for number in range(201)))),
        ("cart", "GetCart", "items.product_id", set_lines(("", 1))),
        ("cart", "GetCart", "items.product_id", set_lines(("m" * 257, 1))),
        ("cart", "GetCart", "items.product_id", set_lines(("mug\n", 1))),
        ("cart", "GetCart", "items.quantity", set_lines(("mug", 0))),
        ("cart", "GetCart", "items.quantity", set_lines(("mug", 2), ("lamp", -1))),
        ("cart", "GetCart", "items.quantity", set_lines(("mug", 2**31 - 1), ("mug", 1))),
        ("catalog", "GetProduct", "id", change(id="cup")),
        ("catalog", "GetProduct", "price_usd", change("price_usd", currency_code="JPY")),
        ("catalog", "GetProduct", "price_usd", change("price_usd", units=-8, nanos=-990_000_000)),
        ("catalog", "GetProduct", "price_usd", change("price_usd", nanos=-1)),
        ("catalog", "GetProduct", "price_usd", change("price_usd", nanos=1_000_000_000)),
        ("shipping", "GetQuote", "cost_usd", change("cost_usd", currency_code="EUR")),
        ("shipping", "GetQuote", "cost_usd", change("cost_usd", units=-4, nanos=0)),
        ("currency", "Convert", "amount", change(currency_code="JPY")),
        ("currency", "Convert", "amount", change(units=-1, nanos=0)),
        ("currency", "Convert", "amount", change(units=0, nanos=0)),
    ],
)
async def test_an_invalid_read_charges_nothing(
    peers: FakePeers,
    start: Start,
    recorded: Recorded,
    capsys: pytest.CaptureFixture[str],
    broken: tuple[str, str, str, Change],
) -> None:
    peer, method, part, apply = broken
    distort(getattr(peers, peer), method, apply)
    async with start(recorded.telemetry) as checkout:
        error = await checkout.refused("key")
        assert (error.reason, await checkout.listed()) == ("PEER_BROKEN", [])
    assert error.message.endswith(f"/{method} returned an invalid {part}")
    assert (peers.payment.calls["Charge"], peers.shipping.calls["ShipOrder"]) == (0, 0)
    (line,) = {line for line in capsys.readouterr().out.splitlines() if "peer broken" in line}
    assert f"/{method}" in line
    assert part in line
    failed = [dict(series) for series in recorded.telemetry.histogram(semconv.RPC_CLIENT_DURATION).series]
    assert [series for series in failed if series.get("error.type") == "PEER_BROKEN"]


@pytest.mark.parametrize("etag", ["two words", "e" * 129])
async def test_an_invalid_etag_charges_nothing(peers: FakePeers, start: Start, etag: str) -> None:
    peers.cart.etags["ann"] = etag
    async with start() as checkout:
        assert (await checkout.refused()).reason == "PEER_BROKEN"
    assert peers.payment.calls["Charge"] == 0


async def test_several_lines_of_a_product_are_one(peers: FakePeers, start: Start) -> None:
    distort(peers.cart, "GetCart", set_lines(("mug", 1), ("lamp", 1), ("mug", 2)))
    async with start() as checkout:
        items = (await checkout.place("key")).response.order.items
    assert [(line.item.product_id, line.item.quantity) for line in items] == [("mug", 3), ("lamp", 1)]


TEXTS = ["", "T" * 257, "track\n1", "track\u202e1"]


@pytest.mark.parametrize(
    "broken",
    [
        *(("payment", "Charge", "transaction_id", text) for text in [*TEXTS, f"t-{CARD}", "4242-4242 4242-4242"]),
        *(("shipping", "ShipOrder", "tracking_id", text) for text in TEXTS),
    ],
)
async def test_an_invalid_outcome_is_in_doubt_and_the_call_is_repeated(
    peers: FakePeers, start: Start, broken: tuple[str, str, str, str]
) -> None:
    peer, method, field, text = broken
    distort(getattr(peers, peer), method, change(**{field: text}), times=1)
    async with start() as checkout:
        placed = await checkout.place("key")
        (order,) = await checkout.until_states("DONE")
    assert placed.response.order.shipping_tracking_id == order.tracking_id == f"track-{order.order_id}"
    assert (len(peers.payment.captured), len(peers.shipping.shipments)) == (1, 1)
    assert getattr(peers, peer).calls[method] == 2


def valid_charge(**changed: Any) -> dict[str, Any]:
    amount = {"currency_code": "EUR", "units": 1}
    return {"charged": {"transaction_id": "t", "amount": amount, **changed}}


@pytest.mark.parametrize(
    ("service", "response", "part"),
    [
        ("PaymentLedger", ResolveOrFenceResponse(), "outcome"),
        ("PaymentLedger", ResolveOrFenceResponse(**valid_charge()), ""),
        ("PaymentLedger", ResolveOrFenceResponse(**valid_charge(transaction_id="")), "charged.transaction_id"),
        ("PaymentLedger", ResolveOrFenceResponse(**valid_charge(amount={"units": 1})), "charged.amount"),
        ("PaymentLedger", ResolveOrFenceResponse(**valid_charge(recorded_at={"seconds": -1})), "charged.recorded_at"),
        ("ShipmentManifest", ResolveShipmentResponse(), "outcome"),
        ("ShipmentManifest", ResolveShipmentResponse(shipped=Shipment()), "shipped.tracking_id"),
    ],
)
def test_an_invalid_outcome_of_a_resolved_key_is_found(service: str, response: Any, part: str) -> None:
    checked = CHECKS[f"shop.internal.{service}/ResolveOrFence"](None, response, {})
    assert next((name for name, valid in checked if not valid), "") == part
