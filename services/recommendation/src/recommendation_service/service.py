"""Implements shop.RecommendationService: translates between gRPC messages and the domain."""

from collections.abc import Awaitable, Callable

from chassis.rpc.calls import ServicerContext
from recommendation_service.domain import Catalog, Ranking, check_request, recommend, same_category
from shop import recommendation_pb2, recommendation_pb2_grpc

ReadCatalog = Callable[[], Awaitable[Catalog]]


class RecommendationService(recommendation_pb2_grpc.RecommendationServiceServicer):
    """Recommends products from the catalog, and returns the ranking's version in trailing metadata."""

    def __init__(self, read_catalog: ReadCatalog, version: str = "v1", rank: Ranking = same_category) -> None:
        self._read_catalog = read_catalog
        self._version = (("recommendation-version", version),)
        self._rank = rank

    async def ListRecommendations(
        self, request: recommendation_pb2.ListRecommendationsRequest, context: ServicerContext
    ) -> recommendation_pb2.ListRecommendationsResponse:
        check_request(request.user_id, request.product_ids)
        context.set_trailing_metadata(self._version)
        chosen = recommend(await self._read_catalog(), request.user_id, request.product_ids, self._rank)
        return recommendation_pb2.ListRecommendationsResponse(product_ids=chosen)
