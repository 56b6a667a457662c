"""Product names in confirmations, read from a fake catalog over a real channel."""

import time
from collections.abc import AsyncIterator

import pytest

from chassis.errors import Unavailable
from chassis.rpc.client import channel
from email_service import product_names
from email_service.product_names import ProductNames
from shop import product_catalog_pb2_grpc
from shop_kit.clock import Clock
from shop_kit.fake_peers import Fault
from shop_kit.fake_peers.reads import FakeCatalog
from shop_kit.serving import serve
from shop_kit.waiting import wait_until

NAMES = {"mug": "Stoneware mug", "cup": "", "lamp": "", "rug": ""}


@pytest.fixture
def catalog() -> FakeCatalog:
    return FakeCatalog()


@pytest.fixture
async def names(catalog: FakeCatalog, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProductNames]:
    monkeypatch.setattr(product_names, "WAIT_SECONDS", 30.0)
    async with serve(catalog) as address:
        opened = channel(address, "shop.ProductCatalogService", timeout_seconds=30)
        stub = product_catalog_pb2_grpc.ProductCatalogServiceStub(opened)
        yield ProductNames(stub, clock=clock)
        await opened.close()


async def test_names_are_read_once_a_minute(names: ProductNames, catalog: FakeCatalog, clock: Clock) -> None:
    assert ([await names.current() for _ in range(3)], catalog.calls["ListProducts"]) == ([NAMES] * 3, 1)
    clock.seconds += product_names.TTL_SECONDS
    await names.current()
    await wait_until(lambda: catalog.calls["ListProducts"] == 2)


async def test_a_confirmation_waits_only_shortly_for_a_catalog_that_does_not_answer(
    names: ProductNames, catalog: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_names, "WAIT_SECONDS", 0.05)
    gate = catalog.hold("ListProducts")
    started = time.monotonic()
    assert await names.current() == {}
    assert time.monotonic() - started < 10
    gate.set()


async def test_the_next_confirmations_do_not_wait_for_a_catalog_that_has_failed(
    names: ProductNames, catalog: FakeCatalog, clock: Clock
) -> None:
    catalog.faults["ListProducts"] = Fault(Unavailable("down"))
    assert ([await names.current() for _ in range(2)], catalog.calls["ListProducts"]) == ([{}, {}], 1)
    catalog.faults.clear()
    clock.seconds += product_names.RETRY_SECONDS
    assert await names.current() == NAMES


async def test_a_name_is_one_line_of_bounded_length(names: ProductNames, catalog: FakeCatalog) -> None:
    catalog.names["mug"] = "Stoneware\nmug" + "g" * 1_000
    assert (await names.current())["mug"] == "Stoneware mug" + "g" * (product_names.MAX_NAME_LENGTH - 13)
