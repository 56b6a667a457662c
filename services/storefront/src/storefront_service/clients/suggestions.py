"""Optional parts of a page: recommendations and ads. A page omits them when they are slow or fail."""

from collections.abc import Sequence

import structlog

from chassis.errors import DomainError
from shop import ad_pb2, recommendation_pb2
from shop.ad_pb2_grpc import AdServiceStub
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from storefront_service.domain import Ad, is_local_path

log = structlog.get_logger()

_MAX_PRODUCTS = 100


class SuggestionsClient:
    """Recommendations and ads. No method raises DomainError."""

    def __init__(self, recommendations: RecommendationServiceStub, ads: AdServiceStub) -> None:
        self._recommendations = recommendations
        self._ads = ads

    async def recommended(self, user_id: str, product_ids: Sequence[str]) -> list[str]:
        """Return the ids of up to five products that go with the given ones; none when the service fails."""
        known = product_ids[:_MAX_PRODUCTS]
        request = recommendation_pb2.ListRecommendationsRequest(user_id=user_id, product_ids=known)
        try:
            return list((await self._recommendations.ListRecommendations(request)).product_ids)
        except DomainError as error:
            log.info("page without recommendations", reason=error.reason)
            return []

    async def ad(self, contexts: Sequence[str], *, page: str = "") -> Ad | None:
        """Return an ad for a page's keywords that leads to another page; None when the service fails."""
        try:
            found = (await self._ads.GetAds(ad_pb2.AdRequest(context_keys=contexts))).ads
        except DomainError as error:
            log.info("page without an ad", reason=error.reason)
            return None
        ads = (Ad(ad.redirect_url, ad.text) for ad in found)
        return next((ad for ad in ads if is_local_path(ad.url) and ad.url != page), None)
