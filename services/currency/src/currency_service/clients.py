import asyncio
from collections.abc import Callable

import httpx2
import structlog

from currency_service.domain import Rates
from currency_service.store import parse_rates

log = structlog.get_logger()

TIMEOUT_SECONDS = 10.0
MAX_BYTES = 256 * 1024


class RatesFeed:
    """Fetches exchange rates from a URL. Uses the fallback's rates if they are newer, or if no fetch has succeeded.

    `timeout_seconds` limits the total time of each fetch.
    """

    def __init__(self, url: str, fallback: Callable[[], Rates], *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._url = url
        self._fallback = fallback
        self._timeout_seconds = timeout_seconds
        self._fetched: Rates | None = None

    def current(self) -> Rates:
        fallback = self._fallback()
        return self._fetched if self._fetched and self._fetched.day >= fallback.day else fallback

    async def refresh(self) -> None:
        """Fetch the rates. If that fails, log the error and keep the current rates."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                fetched = parse_rates(await self._fetch())
        except (httpx2.HTTPError, OSError, ValueError) as error:
            # Log only the error's type, because its text may quote the URL, which may contain an API key.
            log.warning("rates not refreshed", day=str(self.current().day), error=type(error).__name__)
        else:
            self._fetched = fetched
            log.info("rates refreshed", day=str(fetched.day), currencies=len(fetched.codes))

    async def _fetch(self) -> bytes:
        """Return the response body. Raise ValueError if the status is not 200 or the body exceeds MAX_BYTES."""
        body = bytearray()
        async with (
            httpx2.AsyncClient(headers={"Accept-Encoding": "identity"}, timeout=self._timeout_seconds) as client,
            client.stream("GET", self._url) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                raise ValueError(f"status {response.status_code}")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ValueError("the response is too long")
        return bytes(body)
