import re
from collections.abc import Sequence
from typing import Any

import structlog

from chassis.errors import DomainError
from shop import ad_pb2, recommendation_pb2
from shop.ad_pb2_grpc import AdServiceStub
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from storefront_service.domain import is_local_path

log = structlog.get_logger()

_MAX_PRODUCTS, _MAX_RECOMMENDED = 100, 5
# Validate version names: visitors choose the requested version, and pages show the version that the service returns.
_VERSION = re.compile(r"[a-z0-9][a-z0-9.-]{0,15}", re.ASCII)


class SuggestionsClient:
    """Fetches recommendations and ads. If a service is slow or fails, returns an empty result instead of raising."""

    def __init__(self, recommendations: RecommendationServiceStub, ads: AdServiceStub) -> None:
        self._recommendations = recommendations
        self._ads = ads

    async def recommended(self, user_id: str, product_ids: Sequence[str], version: str) -> tuple[Sequence[str], str]:
        """Return up to five products that go with the given products, and the service's version ("" if unknown).

        Send `version` in the call's metadata, so that a mesh or gateway can route by version; "" means any version.
        """
        known = product_ids[:_MAX_PRODUCTS]
        request = recommendation_pb2.ListRecommendationsRequest(user_id=user_id, product_ids=known)
        wanted = (("shop-version", version),) if _VERSION.fullmatch(version) else ()
        call = self._recommendations.ListRecommendations(request, metadata=wanted)
        try:
            found = (await call).product_ids[:_MAX_RECOMMENDED]
        except DomainError as error:
            log.info("page without recommendations", reason=error.reason)
            return (), ""
        trailers: dict[str, Any] = dict(await call.trailing_metadata())
        named = _VERSION.fullmatch(str(trailers.get("recommendation-version", "")))
        return found, named[0] if named else ""

    async def ad(self, contexts: Sequence[str], *, page: str = "") -> ad_pb2.Ad | None:
        """Return an ad for these keywords that does not link to `page`, or None if no ad fits or the service fails."""
        try:
            found = (await self._ads.GetAds(ad_pb2.AdRequest(context_keys=contexts))).ads
        except DomainError as error:
            log.info("page without an ad", reason=error.reason)
            return None
        return next((ad for ad in found if is_local_path(ad.redirect_url) and ad.redirect_url != page), None)
