from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from recommendation_service.clients import CachedCatalog
from recommendation_service.service import RecommendationService
from shop.recommendation_pb2 import ListRecommendationsRequest
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from shop_kit.clock import Clock
from shop_kit.failing import failure_of, rejected_fields
from shop_kit.serving import connect
from shop_kit.waiting import wait_for_result


@pytest.fixture
async def stub(catalog: CachedCatalog) -> AsyncIterator[RecommendationServiceStub]:
    async with connect(RecommendationService(catalog.current)) as channel:
        yield RecommendationServiceStub(channel)


async def recommended(stub: RecommendationServiceStub, *product_ids: str) -> list[str]:
    request = ListRecommendationsRequest(user_id="ada", product_ids=product_ids)
    return list((await stub.ListRecommendations(request)).product_ids)


async def test_related_products_come_first_by_the_version_in_trailing_metadata(stub: RecommendationServiceStub) -> None:
    call = stub.ListRecommendations(ListRecommendationsRequest(user_id="ada", product_ids=["pan"]))
    assert list((await call).product_ids) == ["knife", "tent"]
    assert ("recommendation-version", "v1") in tuple(await call.trailing_metadata())


async def test_too_many_products_are_rejected_with_the_name_of_the_field(stub: RecommendationServiceStub) -> None:
    assert await rejected_fields(recommended(stub, *["pan"] * 1001)) == ["product_ids"]


async def test_while_the_catalog_is_down_recommendations_continue_if_it_was_read_once(
    stub: RecommendationServiceStub, product_catalog: Any, clock: Clock
) -> None:
    product_catalog.is_down = True
    assert await failure_of(recommended(stub, "pan")) == (grpc.StatusCode.UNAVAILABLE, "CATALOG_UNAVAILABLE")
    product_catalog.is_down = False
    before = await recommended(stub, "pan")
    product_catalog.is_down = True
    clock.seconds = 1e6
    assert await recommended(stub, "pan") == before


async def test_an_expired_catalog_reloads(stub: RecommendationServiceStub, product_catalog: Any, clock: Clock) -> None:
    await recommended(stub, "pan")
    product_catalog.categories = {"axe": []}
    clock.seconds += 10
    await wait_for_result(lambda: recommended(stub, "pan"), lambda found: found == ["axe"])
