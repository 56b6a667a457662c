"""shop.RecommendationService: from the wire to the domain and back."""

from chassis.serving import ServicerContext
from recommendation_service.domain import CatalogSource, Page, recommend
from shop import recommendation_pb2, recommendation_pb2_grpc


class RecommendationService(recommendation_pb2_grpc.RecommendationServiceServicer):
    """Recommends from what is known of the catalog."""

    def __init__(self, catalog: CatalogSource) -> None:
        self._catalog = catalog

    async def ListRecommendations(
        self, request: recommendation_pb2.ListRecommendationsRequest, context: ServicerContext
    ) -> recommendation_pb2.ListRecommendationsResponse:
        """Recommend products that go with the given ones."""
        page = Page(request.user_id, request.product_ids)
        chosen = recommend(await self._catalog.current(), page)
        return recommendation_pb2.ListRecommendationsResponse(product_ids=chosen)
