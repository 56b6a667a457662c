"""Fetches rates from where they are published."""

import asyncio

import httpx2
import structlog

from currency_service.domain import Rates, RatesSource
from currency_service.store import parse_rates

log = structlog.get_logger()

TIMEOUT_SECONDS = 10.0
MAX_BYTES = 256 * 1024


class FeedUnusable(Exception):
    """The feed answered with something else than rates."""


class RatesFeed:
    """The rates that a URL publishes; what is known already stays until newer ones come.

    Args:
        url: http or https, answering with the file that `parse_rates` reads.
        known: the rates to use until then.
        timeout_seconds: for one fetch as a whole.
    """

    def __init__(self, url: str, known: RatesSource, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._url = url
        self._known = known
        self._timeout_seconds = timeout_seconds
        self._fetched: Rates | None = None

    @property
    def value(self) -> Rates:
        """The newest rates known: those fetched, unless the known ones are of a later day."""
        known = self._known.value
        return self._fetched if self._fetched and self._fetched.day >= known.day else known

    async def follow(self, interval_seconds: float) -> None:
        """Fetch now and after each interval, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(interval_seconds)

    async def refresh(self) -> None:
        """Fetch once. Whatever goes wrong is logged, and the rates stay."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                fetched = parse_rates(await self._fetch())
        except (httpx2.HTTPError, TimeoutError, FeedUnusable, ValueError) as error:
            # Only the type: the words may quote the URL, which may hold a key.
            log.warning("rates not refreshed, the old ones stay", day=str(self.value.day), error=type(error).__name__)
        else:
            self._fetched = fetched
            log.info("rates refreshed", day=str(fetched.day), currencies=len(fetched.codes))

    async def _fetch(self) -> bytes:
        """Read the body, as it is on the wire, up to its limit. A redirect is not followed."""
        body = bytearray()
        async with (
            httpx2.AsyncClient(headers={"Accept-Encoding": "identity"}, timeout=self._timeout_seconds) as client,
            client.stream("GET", self._url) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                raise FeedUnusable(f"status {response.status_code}")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise FeedUnusable("the answer is too long")
        return bytes(body)
