"""Who calls what in a whole shop with TLS: the calls that the chart declares, all of them, and no other is admitted."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

import grpc
import pytest
import pytest_asyncio

from chassis.rpc.connection import open_channel
from chassis.tls.certificates import Certificates, Identity
from shop.cart_pb2 import CartItem
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.local.processes import Process
from shop_kit.reflection import full_name, methods_at, status_of
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.smoke import by_full_name, smoke_calls
from shop_kit.storefront import Visitor
from shop_kit.waiting import wait_until
from shop_smoke import send

Pairs = set[tuple[str, str]]
VOID = "shop.internal.PaymentLedger/Void"

# Fallbacks: calls that checkout makes after another one has failed.
FAILPOINTS = {
    "payment": "shop.PaymentService/Charge=error*1",  # is repeated once payment has shown that it knows keys
    "checkout": "checkout.ship.before=hang*1",
    "cart": "shop.internal.OrderedCart/RemoveAllOrdered=error*1",
    "email": "shop.internal.Confirmations/AcceptConfirmations=error*1",
}


def listed(process: Process) -> Pairs:
    """Return the callers and the full names of methods that a process admits."""
    allowed = json.loads(process.environment["ALLOWED_CALLS"])
    return {(identity.rpartition("/")[2], method) for identity, methods in allowed.items() for method in methods}


def declared(shop: RunningShop) -> Pairs:
    """Return the calls that the chart declares, but those of people and of `helm test`, who export no telemetry."""
    admitted = set().union(*map(listed, shop.processes))
    return {(caller, method) for caller, method in admitted if caller not in {"operator", "test"}}


def calls_of(shop: RunningShop) -> Pairs:
    """Return the calls in the traces so far."""
    spans = [span for span in shop.received.spans if span.kind == "CLIENT" and span.name.startswith("shop.")]
    return {(span.service, span.name) for span in spans}


async def order_with_faults(shop: RunningShop) -> None:
    """Let checkout die after a charge that it had to repeat, and find the order's key used for another parcel."""
    checkout, request = shop.processes["checkout"], order_request()
    # Long leases: nothing but its restart lets checkout take over an order.
    restarts = (
        shop.processes[name].restart(FAILPOINTS=entry, LEASE_SECONDS="300") for name, entry in FAILPOINTS.items()
    )
    await asyncio.gather(*restarts)
    await shop.fill_cart(request.user_id)
    placing = asyncio.ensure_future(CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(request))
    recorded = "SELECT order_id FROM orders WHERE user_id = ?"
    ((order_id,),) = await wait_until(lambda: shop.execute("checkout", recorded, request.user_id))
    await wait_until(lambda: ("checkout", VOID) in calls_of(shop) and shop.charges(order_id))
    checkout.kill()
    for key in (order_id, "of-no-order"):
        parcel = ShipOrderRequest(address=request.address, items=[CartItem(product_id="tea-pot", quantity=9)])
        await ShippingServiceStub(shop.channels["shipping"]).ShipOrder(parcel, metadata=(("idempotency-key", key),))
    await checkout.restart()
    with pytest.raises(grpc.aio.AioRpcError):
        await placing


async def visit(shop: RunningShop) -> None:
    """Use every page of the storefront, and order."""
    async with Visitor(base_url=f"http://{shop.processes['storefront'].address}", timeout=300) as visitor:
        await visitor.add_to_cart()
        await visitor.post("/cart/quantity", data={"product_id": "cast-iron-pan", "quantity": "2"})
        await visitor.post("/cart/empty")
        await visitor.page("/search?q=pan")
        await visitor.post("/currency", data={"currency_code": "CHF"})
        assert (await visitor.order(credit_card_number="378282246310005")).status_code == HTTPStatus.PAYMENT_REQUIRED
        path = (await visitor.post("/orders", data=await visitor.checkout_form())).headers["location"].partition("?")[0]
        await visitor.page("/orders")
        await visitor.page(f"{path}/email")


async def reconcile(shop: RunningShop) -> None:
    """Run the job that compares records."""
    identity = {"TLS_FOLDER": f"{shop.folder}/tls/reconciliation", "GRACE_MINUTES": "0"}
    environment = {**shop.processes["checkout"].environment, **shop.addresses, **identity}
    command = (sys.executable, "-m", "checkout_service.reconciliation")
    job = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.DEVNULL)
    assert await job.wait() == 1  # the parcels that were shipped above are none of checkout's


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def seen(shop: RunningShop) -> Pairs:
    """Return the calls in the traces of a shop in which everything happens that may, also smoke calls."""
    await order_with_faults(shop)
    await visit(shop)
    channels = by_full_name(shop.channels)
    for name, call in smoke_calls("of-callers").items():
        await send(call, channels, key=f"of-{name}")
    await shop.wait_until_notified()
    await reconcile(shop)

    # Services export independently. If a call is missing after the timeout, the test reports which.
    with suppress(TimeoutError):
        await wait_until(lambda: calls_of(shop) >= declared(shop))
    return calls_of(shop)


async def test_traces_show_every_declared_call_and_no_other(shop: RunningShop, seen: Pairs) -> None:
    assert seen == declared(shop)


async def admitted_at(address: str, callers: Mapping[str, Identity]) -> Pairs:
    """Return which callers are admitted to which methods of an address."""
    methods = await asyncio.to_thread(methods_at, address, callers["operator"])
    assert methods
    admitted = set()
    for caller, identity in callers.items():
        async with open_channel(address, identity) as channel:
            for method in methods:
                if await status_of(channel, method) is not grpc.StatusCode.PERMISSION_DENIED:
                    admitted.add((caller, full_name(method)))
    return admitted


@pytest.mark.usefixtures("seen")
async def test_every_declared_call_is_admitted_and_every_other_refused(shop: RunningShop) -> None:
    callers = {path.name: Certificates.load(str(path)).current for path in (shop.folder / "tls").iterdir()}
    for process in shop.processes:
        if process.program.protocol == "grpc":
            addresses = (process.address, *([process.internal_address] if process.internal_port else []))
            assert set().union(*[await admitted_at(address, callers) for address in addresses]) == listed(process)
