"""Faults whose effect no floor of `shop prove` counts do what their names say."""

import asyncio
from pathlib import Path

from chassis.errors import DomainError
from chassis.rpc.client import channel
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.local.processes import Process
from shop_kit.running_shop import running_process
from shop_kit.smtp_relay import Inbox
from shop_kit.tcp_proxy import TcpProxy
from shop_kit.waiting import wait_until
from shop_lab.prove.fault_plan import Fault, FaultKind
from shop_lab.prove.progress_gate import ProgressGate
from shop_lab.prove.run import failpoints_of
from shop_lab.prove.shop_faults import STALLED_CHARGE, STALLED_FENCE, ShopFaults
from shop_lab.world.faults import full_disk, locked
from shop_lab.world.refusing_peers import RefusingPeers

PARCEL = ShipOrderRequest(
    address=Address(street_address="Kanalstr. 1", city="Berlin", country="Germany", zip_code=10115),
    items=[CartItem(product_id="cast-iron-pan", quantity=1)],
)


async def ships(process: Process) -> bool:
    """Return whether an order can be shipped."""
    opened = channel(process.address, "shop.ShippingService", timeout_seconds=30)
    try:
        await ShippingServiceStub(opened).ShipOrder(PARCEL)
    except DomainError:
        return False
    finally:
        await opened.close()
    return True


async def is_refused(process: Process) -> bool:
    return not await ships(process)


async def test_a_process_whose_disk_is_full_or_hangs_cannot_write_to_its_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shipping.db"
    async with running_process("shipping", tmp_path, DATABASE_URL=url) as shipping:
        for fault in (full_disk(shipping.pid, shipping.log_path), locked(url)):
            with fault:
                await wait_until(lambda: is_refused(shipping))
            await wait_until(lambda: ships(shipping))


async def test_the_network_fails_for_all_ports_of_a_peer_until_the_fault_ends() -> None:
    links = {name: TcpProxy("127.0.0.1:1") for name in ("cart", "cart-internal", "email")}
    fault = Fault(0, FaultKind.NETWORK, "cart", 0.1, "blackhole")
    faults = ShopFaults({}, links, RefusingPeers(), Inbox(), ProgressGate(lambda _: None), orders=1)
    injecting = asyncio.create_task(faults.inject(fault))
    await asyncio.sleep(0)
    assert [link.mode for link in links.values()] == ["blackhole", "blackhole", "pass"]
    await injecting
    assert {link.mode for link in links.values()} == {"pass"}


def test_the_failpoints_of_stalled_workers_exist() -> None:
    assert {STALLED_CHARGE, STALLED_FENCE} <= set(failpoints_of("checkout_service"))
