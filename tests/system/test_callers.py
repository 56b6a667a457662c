"""Who calls what in a whole shop with TLS: the calls that the chart declares, all of them, and no other is admitted."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
import yaml

from shop.cart_pb2 import CartItem
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.local.workspace import root
from shop_internal.orders_pb2 import ListOrdersRequest, Order
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.certificates import new_authority, renew
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.smoke import by_full_name, smoke_calls
from shop_kit.storefront import Visitor
from shop_kit.waiting import wait_until
from shop_smoke import send

Pairs = set[tuple[str, str]]
ROOT = Path(__file__).parents[2]
VOID = "shop.internal.PaymentLedger/Void"

# Fallbacks: calls that checkout makes after another one has failed.
FAILPOINTS = {
    "payment": "shop.PaymentService/Charge=error*1",  # is repeated once payment has shown that it knows keys
    "checkout": "checkout.ship.before=hang*1",
    "cart": "shop.internal.OrderedCart/RemoveAllOrdered=error*1",
    "email": "shop.internal.Confirmations/AcceptConfirmations=error*1",
}


def declared() -> Pairs:
    """Return callers and full names of methods, but those of `helm test`, whose pods export no telemetry."""
    values = yaml.safe_load((root() / "charts/shop/values.yaml").read_text())
    clients = {**values["services"], "reconciliation": values["reconciliation"]}
    public = {
        (caller, f"shop.{callee.title().replace('-', '')}Service/{method}")
        for caller, entry in clients.items()
        for callee, methods in entry.get("calls", {}).items()
        for method in methods
    }
    return public | {
        (caller, f"shop.internal.{method}")
        for caller, entry in clients.items()
        for methods in entry.get("internalCalls", {}).values()
        for method in methods
    }


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
    journal = OrderJournalStub(shop.internal_channels["checkout"])
    (order,) = await wait_until(lambda: orders_of(journal, request.user_id))
    await wait_until(lambda: ("checkout", VOID) in calls_of(shop) and shop.charges(order.order_id))
    checkout.kill()
    for key in (order.order_id, "of-no-order"):
        parcel = ShipOrderRequest(address=request.address, items=[CartItem(product_id="tea-pot", quantity=9)])
        await ShippingServiceStub(shop.channels["shipping"]).ShipOrder(parcel, metadata=(("idempotency-key", key),))
    await checkout.restart()
    with pytest.raises(grpc.aio.AioRpcError):
        await placing


async def orders_of(journal: OrderJournalStub, user_id: str = "") -> list[Order]:
    return list((await journal.ListOrders(ListOrdersRequest(user_id=user_id, limit=20))).orders)


async def visit(shop: RunningShop) -> None:
    """Use every page of the storefront, and order."""
    async with Visitor(base_url=f"http://{shop.processes['storefront'].address}", timeout=300) as visitor:
        await visitor.add_to_cart()
        await visitor.post("/cart/quantity", data={"product_id": "cast-iron-pan", "quantity": "2"})
        await visitor.post("/cart/empty")
        await visitor.page("/search?q=pan")
        await visitor.post("/currency", data={"currency_code": "CHF"})
        await visitor.add_to_cart()
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
    journal = OrderJournalStub(shop.internal_channels["checkout"])

    async def settled() -> bool:
        return not any(order.outbox for order in await orders_of(journal))

    await wait_until(settled)
    await reconcile(shop)

    # Services export independently. If a call is missing after the timeout, the test reports which.
    with suppress(TimeoutError):
        await wait_until(lambda: calls_of(shop) >= declared())
    return calls_of(shop)


async def test_traces_show_every_declared_call_and_no_other(seen: Pairs) -> None:
    assert seen == declared()


@pytest.mark.usefixtures("seen")
async def test_every_declared_call_is_admitted_and_every_other_refused(shop: RunningShop, tmp_path: Path) -> None:
    table = tmp_path / "table"
    services = [process for process in shop.processes if process.program.protocol == "grpc"]
    internal = {process.name: f",{process.internal_address}" for process in services if process.internal_port}
    addresses = {process.name: f"{process.address}{internal.get(process.name, '')}" for process in services}
    lines = [f"{addresses[process.name]} {process.environment['ALLOWED_CALLS']}\n" for process in services]
    table.write_text("".join(lines))
    foreign = renew(tmp_path / "foreign", new_authority("foreign"), "ad")
    command = (sys.executable, str(ROOT / "tests/e2e/callers.py"), str(table), str(shop.folder / "tls"), str(foreign))
    matrix = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await matrix.communicate()
    assert matrix.returncode == 0, output.decode()
