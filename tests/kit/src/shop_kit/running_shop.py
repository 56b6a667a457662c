"""A whole shop for tests: real processes, channels to them, and the telemetry that they export."""

import asyncio
import contextlib
import os
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from chassis.rpc.connection import open_channel
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.empty_pb2 import Empty
from shop.order_pb2 import OrderResult
from shop.product_catalog_pb2 import Product
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.child_process import START_SECONDS
from shop_cli.local.identities import Identities
from shop_cli.local.otlp_receiver import exporting_to
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process, Shop
from shop_cli.local.run_file import Run, read_run
from shop_cli.local.workspace import Program, default_ports, discover, find
from shop_cli.sample_order import sample_order
from shop_kit.charges import Charge, read_charges
from shop_kit.databases import execute
from shop_kit.received_telemetry import Received, receiving
from shop_kit.waiting import wait_until

DEAD_PROXIES = {
    **dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1"),
    **dict.fromkeys(("all_proxy", "ALL_PROXY"), "socks5://127.0.0.1:1"),
}
"""What every process of a shop has to ignore: many machines have proxies in their environment."""


@dataclass(frozen=True)
class RunningShop:
    """A running shop.

    Attributes:
        folder: where the processes write their data.
        channels: to each gRPC service, by its name.
        internal_channels: to the internal services of the processes that have some.
        received: the telemetry that was exported so far.
    """

    processes: Shop
    folder: Path
    channels: Mapping[str, grpc.aio.Channel]
    internal_channels: Mapping[str, grpc.aio.Channel]
    received: Received

    @property
    def addresses(self) -> dict[str, str]:
        """The environment variables by which a program finds these services."""
        process = next(iter(self.processes))
        addresses = {name: value for name, value in process.environment.items() if name.endswith("_ADDR")}
        tls = {"TLS_FOLDER": str(process.certificates.folder)} if process.certificates else {}
        return {"PATH": os.environ["PATH"], **addresses, **tls}

    def execute(self, service: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Execute a statement in a service's database, past the service; return its rows."""
        return execute(f"sqlite:///{self.folder}/.shop/{service}.db", statement, *parameters)

    async def wait_until_done(self, order_id: str) -> None:
        """Wait until an order has all its effects."""
        state = "SELECT state FROM orders WHERE order_id = ?"
        await wait_until(lambda: self.execute("checkout", state, order_id) == [("DONE",)])

    async def wait_until_notified(self) -> None:
        """Wait until all confirmations of orders are with email, and all ordered carts are cleared."""
        await wait_until(lambda: self.execute("checkout", "SELECT 1 FROM outbox WHERE dead_at IS NULL") == [])

    def charges(self, order_id: str = "") -> list[Charge]:
        """Return the entries of payment's ledger for an order; by default all."""
        found = read_charges(f"sqlite:///{self.folder}/.shop/payment.db")
        return [charge for charge in found if charge.key.startswith(order_id)]

    async def products(self) -> list[Product]:
        """Return all products of the catalog."""
        return list((await ProductCatalogServiceStub(self.channels["product-catalog"]).ListProducts(Empty())).products)

    async def fill_cart(self, user_id: str, lines: int = 3) -> None:
        """Add so many products to a cart: one of the first, two of the second, and so on."""
        stub = CartServiceStub(self.channels["cart"])
        for quantity, product in enumerate((await self.products())[:lines], start=1):
            item = CartItem(product_id=product.id, quantity=quantity)
            await stub.AddItem(AddItemRequest(user_id=user_id, item=item))

    async def order(self, request: PlaceOrderRequest | None = None) -> OrderResult:
        """Add three products to the user's cart and order it; by default a valid order of a new user."""
        request = request or order_request()
        await self.fill_cart(request.user_id)
        return (await CheckoutServiceStub(self.channels["checkout"]).PlaceOrder(request)).order


def order_request(user_id: str = "", currency: str = "EUR") -> PlaceOrderRequest:
    """Return a valid order, by default of a new user."""
    user_id = user_id or f"user-{uuid.uuid4()}"
    request = sample_order(user_id, f"{user_id}@example.com")
    request.user_currency = currency
    return request


@contextlib.asynccontextmanager
async def running_process(name: str, folder: Path, **variables: str) -> AsyncIterator[Process]:
    """Run a program of the workspace on a free port, with its data and its log in a folder."""
    environment = {**os.environ, **DEAD_PROXIES, "DRAIN_SECONDS": "0", "GRPC_VERBOSITY": "NONE", **variables}
    with reserved(1) as (port,):
        process = Process(find(discover(), name), port, environment, folder)
        await process.start()
        try:
            await process.wait_until_serving()
            yield process
        finally:
            await process.stop()


async def run_shop(
    *arguments: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Run a `shop` command in a folder; return its exit status, its output and its errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shop_cli", *arguments),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


@contextlib.asynccontextmanager
async def shop_up(folder: Path, *options: str) -> AsyncIterator[Run]:
    """Run `shop up` on free ports with its data in a folder, and more options; wait until it says that it is ready."""
    command = (sys.executable, "-m", "shop_cli", "up", "--any-ports", "--folder", str(folder), *options)
    environment = {**os.environ, **DEAD_PROXIES}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    assert process.stdout
    try:
        async with asyncio.timeout(START_SECONDS):
            while b"is ready" not in (line := await process.stdout.readline()):
                if not line:
                    raise RuntimeError("the shop ended")
        run = read_run(folder)
        assert run
        yield run
    finally:
        with contextlib.suppress(ProcessLookupError):  # a test has killed it
            process.terminate()
        await process.communicate()


@contextlib.asynccontextmanager
async def running_shop(
    folder: Path, programs: Sequence[Program], *, tls: bool = False, **variables: str
) -> AsyncIterator[RunningShop]:
    """Start programs on free ports and wait until they are ready. They export their telemetry to this process.

    Args:
        folder: for their data.
        tls: let them speak mutual TLS; the channels are the operator's.
        variables: additional environment variables of every service.
    """
    names = default_ports(programs)
    async with contextlib.AsyncExitStack() as stack:
        otlp_port, *ports = stack.enter_context(reserved(len(names) + 1))
        by_name = dict(zip(names, ports, strict=True))
        received = await stack.enter_async_context(receiving(otlp_port))
        environment = {"PATH": "/usr/bin:/bin", **DEAD_PROXIES, **exporting_to(otlp_port), **variables}
        clients = [*(program.name for program in programs), "reconciliation", "test"]
        identities = Identities.issue(folder / "tls", clients) if tls else None
        shop = Shop(programs, folder, by_name, environment, identities=identities)
        processes = await stack.enter_async_context(shop)
        await processes.wait_until_serving()
        channels = {
            process.name: await stack.enter_async_context(open_channel(process.address, process.identity))
            for process in processes
            if process.program.protocol == "grpc"
        }
        internal_channels = {
            process.name: await stack.enter_async_context(open_channel(process.internal_address, process.identity))
            for process in processes
            if process.internal_port
        }
        yield RunningShop(processes, folder, channels, internal_channels, received)
