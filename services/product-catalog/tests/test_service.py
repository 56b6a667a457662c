import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chassis.values.datafile import DataFile
from product_catalog_service.__main__ import Settings, build
from product_catalog_service.service import CatalogMessages, ProductCatalogService
from product_catalog_service.store import parse_catalog
from shop import empty_pb2, money_pb2, product_catalog_pb2
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_kit.serving import connect, program

MUG = {
    "id": "mug",
    "name": "Stoneware mug",
    "description": "Holds tea.",
    "picture": "/mug.jpg",
    "price_usd": "16.25",
    "categories": ["kitchen", "home"],
}
KETTLE = MUG | {"id": "kettle", "name": "Copper kettle"}


def write(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "products.json", MUG, KETTLE)


@pytest.fixture
def catalog(file: Path) -> DataFile[CatalogMessages]:
    return DataFile(file, lambda raw: CatalogMessages(parse_catalog(raw)))


@pytest.fixture
async def stub(catalog: DataFile[CatalogMessages]) -> AsyncIterator[ProductCatalogServiceStub]:
    async with connect(ProductCatalogService(catalog)) as channel:
        yield ProductCatalogServiceStub(channel)


async def ids(stub: ProductCatalogServiceStub) -> list[str]:
    return [product.id for product in (await stub.ListProducts(empty_pb2.Empty())).products]


async def test_a_product_has_every_field_of_the_contract(stub: ProductCatalogServiceStub) -> None:
    assert await stub.GetProduct(product_catalog_pb2.GetProductRequest(id="mug")) == product_catalog_pb2.Product(
        id="mug",
        name="Stoneware mug",
        description="Holds tea.",
        picture="/mug.jpg",
        price_usd=money_pb2.Money(currency_code="USD", units=16, nanos=250_000_000),
        categories=["kitchen", "home"],
    )


async def test_a_search_returns_complete_products(stub: ProductCatalogServiceStub) -> None:
    response = await stub.SearchProducts(product_catalog_pb2.SearchProductsRequest(query="COPPER kitchen"))
    assert [(product.id, product.price_usd.units) for product in response.results] == [("kettle", 16)]


async def test_a_changed_file_is_served_without_a_restart(
    stub: ProductCatalogServiceStub, catalog: DataFile[CatalogMessages], file: Path
) -> None:
    write(file, KETTLE | {"name": "Silver kettle"})
    catalog.refresh()
    assert await ids(stub) == ["kettle"]
    product = await stub.GetProduct(product_catalog_pb2.GetProductRequest(id="kettle"))
    assert product.name == "Silver kettle"


def test_products_that_no_client_could_list_are_refused() -> None:
    long = KETTLE | {"description": "x" * 2000}
    with pytest.raises(ValueError, match="fit into a response of 4 MiB"):
        CatalogMessages(parse_catalog(json.dumps([long | {"id": str(n)} for n in range(2100)]).encode()))


async def test_catalog_file_replaces_the_packaged_file(file: Path) -> None:
    async with program(Settings, build, catalog_file=file) as channel:
        assert await ids(ProductCatalogServiceStub(channel)) == ["mug", "kettle"]
