"""Each kind of fault does to a process, or to the connections to it, what its name says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from chassis.errors import DomainError, FailedPrecondition, Unimplemented
from chassis.rpc.client import channel
from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.shipping_pb2 import GetQuoteRequest, ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process, inherited
from shop_cli.local.workspace import discover_services, find
from shop_kit.fake_peers import FakePeer
from shop_kit.smtp_relay import Inbox
from shop_kit.tcp_proxy import TcpProxy, tcp_proxy
from shop_kit.waiting import wait_until
from shop_lab.prove import coverage
from shop_lab.prove.fault_plan import Fault, FaultKind
from shop_lab.prove.run import failpoints_of
from shop_lab.prove.shop_faults import STALLED_CHARGE, STALLED_FENCE, ShopFaults
from shop_lab.world.progress_gate import ProgressGate
from shop_lab.world.refusing_peers import RefusingPeers, serve_refusing_peers

NO_PEERS = RefusingPeers()
INBOX = Inbox()
GATE = ProgressGate(lambda _: None)
ENOUGH = 5
PARCEL = ShipOrderRequest(
    address=Address(street_address="Kanalstr. 1", city="Berlin", country="Germany", zip_code=10115),
    items=[CartItem(product_id="cast-iron-pan", quantity=1)],
)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    """A shipping service on SQLite, not started yet."""
    program = find(discover_services(), "shipping")
    with reserved(1) as (port,):
        url = f"sqlite:///{tmp_path}/shipping.db"
        process = Process(program, port, {**inherited({}), "DATABASE_URL": url}, tmp_path)
        yield process
        await process.stop()


@pytest.fixture
async def shipping(process: Process) -> AsyncIterator[ShippingServiceStub]:
    """A client of that service."""
    opened = channel(process.address, "shop.ShippingService", timeout_seconds=5)
    yield ShippingServiceStub(opened)
    await opened.close()


def faults_of(
    process: Process | None = None,
    links: dict[str, TcpProxy] | None = None,
    peers: RefusingPeers = NO_PEERS,
    gate: ProgressGate = GATE,
) -> ShopFaults:
    processes = {} if process is None else {"shipping": process}
    return ShopFaults(processes, links or {}, peers, INBOX, gate, ready_seconds=30)


@asynccontextmanager
async def replaced_shipping(kind: FaultKind) -> AsyncIterator[ShippingServiceStub]:
    """A client of a shipping that does not exist, while another server answers instead."""
    async with serve_refusing_peers() as peers, tcp_proxy("127.0.0.1:1") as link:
        faults = faults_of(links={"shipping": link}, peers=peers)
        injecting = asyncio.create_task(faults.inject(Fault(0, kind, "shipping", 60)))
        await wait_until(lambda: link.target != "127.0.0.1:1")
        opened = channel(link.address, "shop.ShippingService", timeout_seconds=30)
        try:
            yield ShippingServiceStub(opened)
        finally:
            await opened.close()
            injecting.cancel()
            await asyncio.wait([injecting])
            assert link.target == "127.0.0.1:1"


async def test_a_peer_without_the_service_answers_unimplemented() -> None:
    async with replaced_shipping(FaultKind.UNIMPLEMENTED) as shipping:
        with pytest.raises(Unimplemented):
            await shipping.GetQuote(GetQuoteRequest())


async def test_a_refusing_shipping_quotes_but_does_not_ship() -> None:
    async with replaced_shipping(FaultKind.REFUSAL) as shipping:
        assert (await shipping.GetQuote(GetQuoteRequest())).cost_usd.units > 0
        with pytest.raises(FailedPrecondition):
            await shipping.ShipOrder(ShipOrderRequest())


async def test_late_requests_arrive_after_the_fault_and_meanwhile_nothing_does() -> None:
    received: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(record, "127.0.0.1", 0)
    async with server, tcp_proxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as link:
        host, _, port = link.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await wait_until(lambda: link.connections == 1)
        faults = faults_of(links={"payment": link})
        injecting = asyncio.create_task(faults.inject(Fault(0, FaultKind.LATE, "payment", 0.5)))
        await wait_until(lambda: link.mode == "blackhole")
        writer.write(b"charge\n")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        assert received == []
        writer.close()
        await injecting
        await wait_until(lambda: received == [b"charge\n"])


@pytest.mark.parametrize("kind", [FaultKind.FULL_DISK, FaultKind.HUNG_DATABASE])
async def test_a_process_whose_disk_fails_cannot_write_to_its_database(
    process: Process, shipping: ShippingServiceStub, kind: FaultKind
) -> None:
    await process.start()
    await process.wait_until_serving()
    injecting = asyncio.create_task(faults_of(process).inject(Fault(0, kind, "shipping", 5)))
    refused = 0
    while not injecting.done():
        refused += not await try_to_ship(shipping)
    assert refused
    assert await try_to_ship(shipping)


async def test_the_network_is_as_before_after_a_fault() -> None:
    links = {"cart": TcpProxy("127.0.0.1:1"), "cart-internal": TcpProxy("127.0.0.1:2")}
    for mode in ("delay", "duplicate", "reset", "blackhole", "half-open"):
        await faults_of(links=links).inject(Fault(0, FaultKind.NETWORK, "cart", 0, mode))
        assert {link.mode for link in links.values()} == {"pass"}


async def test_the_network_fails_for_all_ports_of_a_peer_and_no_other() -> None:
    names = ("cart", "cart-internal", "email")
    links = {name: TcpProxy("127.0.0.1:1") for name in names}
    faults = faults_of(links=links)
    injecting = asyncio.create_task(faults.inject(Fault(0, FaultKind.NETWORK, "cart", 60, "blackhole")))
    await wait_until(lambda: links["cart"].mode == "blackhole")
    assert [links[name].mode for name in names] == ["blackhole", "blackhole", "pass"]
    injecting.cancel()


async def test_a_process_dies_at_its_failpoint_and_is_started_again_without_it(
    process: Process, shipping: ShippingServiceStub
) -> None:
    faults = faults_of(process)
    fault = Fault(0, FaultKind.KILL_AT_FAILPOINT, "shipping", 0, "shipping.ship.before")
    injecting = asyncio.create_task(faults.inject(fault))
    while not injecting.done():
        await try_to_ship(shipping)
    assert faults.effects[coverage.DEATHS_AT_FAILPOINTS] == 1
    await wait_until(lambda: try_to_ship(shipping))


async def test_workers_stall_for_a_while_and_not_after_it(process: Process) -> None:
    injecting = asyncio.create_task(faults_of(process).inject(Fault(0, FaultKind.STALL, "shipping", 1.0)))
    # A process that has only just started has no environment yet.
    await wait_until(lambda: process.running and STALLED_CHARGE + "=stall:1.0" in environment_of(process))
    await injecting
    assert "FAILPOINTS" not in environment_of(process)


@pytest.mark.parametrize(
    ("kind", "port"),
    [(FaultKind.REFUSED_NOTIFICATIONS, "email-internal"), (FaultKind.REFUSED_RELEASES, "payment-internal")],
)
async def test_orders_start_until_enough_of_them_are_refused(kind: FaultKind, port: str) -> None:
    gate = ProgressGate(lambda _: None)
    links = {name: TcpProxy("127.0.0.1:1") for name in (port, "shipping")}
    async with serve_refusing_peers() as peers:
        faults = faults_of(links=links, peers=peers, gate=gate)
        ordering = asyncio.create_task(order_with_every_second_refused(gate, peers.refusing[port]))
        await asyncio.wait_for(faults.inject(Fault(0, kind, port, 0)), 10)
        assert len(peers.refusing[port].refused) >= ENOUGH
        ordering.cancel()


async def test_orders_start_only_when_the_process_with_unresolved_shipments_is_ready(process: Process) -> None:
    gate = ProgressGate(lambda _: None)
    async with serve_refusing_peers() as peers:
        fault = Fault(0, FaultKind.UNRESOLVED_SHIPMENTS, "shipping", 0)
        injecting = asyncio.create_task(faults_of(process, peers=peers, gate=gate).inject(fault))
        await asyncio.wait_for(gate.wait_until_open(0), 30)
        assert await process.is_serving()
        ordering = asyncio.create_task(order_with_every_second_refused(gate, peers.doubtful_shipping))
        await asyncio.wait_for(injecting, 20)
        assert len(peers.doubtful_shipping.refused) >= ENOUGH
        ordering.cancel()


async def order_with_every_second_refused(gate: ProgressGate, peer: FakePeer) -> None:
    for number in count():
        await gate.wait_until_open(number)
        if number % 2:
            peer.record_refusal(f"order {number}")
        await gate.finish()


def test_the_failpoints_of_stalled_workers_exist() -> None:
    assert {STALLED_CHARGE, STALLED_FENCE} <= set(failpoints_of("checkout_service"))


def environment_of(process: Process) -> str:
    return Path(f"/proc/{process.pid}/environ").read_text()


async def try_to_ship(shipping: ShippingServiceStub) -> bool:
    await asyncio.sleep(0.02)
    try:
        await shipping.ShipOrder(PARCEL)
    except DomainError:
        return False
    return True
