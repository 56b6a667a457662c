"""Entry point of the currency service: `python -m currency_service`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from chassis.background import Loop, in_background, repeat
from chassis.rpc.server import Service, run
from chassis.settings import FilePath, SecretStr, ServiceSettings, secret_url
from chassis.values.datafile import DataFile
from currency_service.service import CurrencyService
from currency_service.store import parse_rates
from shop import currency_pb2_grpc


class Settings(ServiceSettings):
    rates_file: FilePath = Path(__file__).parent / "data" / "rates.xml"
    # The URL is a secret, because it may contain an API key.
    rates_url: Annotated[SecretStr, secret_url("http", "https")] | None = None
    rates_refresh_seconds: Annotated[float, Meta(ge=1)] = 6 * 3600


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    file = DataFile(settings.rates_file, parse_rates)
    watching: list[Loop] = [file.watch]
    feed = None
    if settings.rates_url:
        from currency_service.clients import RatesFeed  # noqa: PLC0415 - httpx2 takes 2 MB: load it only if needed

        feed = RatesFeed(settings.rates_url.get_secret_value(), lambda: file.value)
        watching.append(partial(repeat, feed.refresh, settings.rates_refresh_seconds, "rates not refreshed"))
    currency = CurrencyService(feed.current if feed else lambda: file.value)
    service.add_servicer(currency_pb2_grpc.add_CurrencyServiceServicer_to_server, currency)
    async with in_background(*watching):
        yield


if __name__ == "__main__":
    run("currency", Settings, build)
