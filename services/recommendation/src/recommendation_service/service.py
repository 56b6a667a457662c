"""shop.RecommendationService: maps messages to the domain and back."""

from chassis.rpc.calls import ServicerContext
from recommendation_service.domain import CatalogSource, RecommendationRequest, recommend
from shop import recommendation_pb2, recommendation_pb2_grpc


class RecommendationService(recommendation_pb2_grpc.RecommendationServiceServicer):
    """Recommends products of the latest catalog."""

    def __init__(self, catalog: CatalogSource) -> None:
        self._catalog = catalog

    async def ListRecommendations(
        self, request: recommendation_pb2.ListRecommendationsRequest, context: ServicerContext
    ) -> recommendation_pb2.ListRecommendationsResponse:
        # Validated before the catalog is read.
        validated = RecommendationRequest(request.user_id, request.product_ids)
        chosen = recommend(await self._catalog.current(), validated)
        return recommendation_pb2.ListRecommendationsResponse(product_ids=chosen)
