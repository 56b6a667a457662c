from shop.recommendation_pb2 import ListRecommendationsRequest
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Recommend products to a new user on a product's page."""
    request = ListRecommendationsRequest(user_id=unique, product_ids=["cast-iron-pan"])
    return SmokeCall("shop.RecommendationService/ListRecommendations", request)
