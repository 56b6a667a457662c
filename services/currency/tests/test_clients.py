import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import date
from decimal import Decimal
from functools import partial

import pytest
import structlog

from chassis.background import in_background, repeat
from currency_service.__main__ import Settings, build
from currency_service.clients import MAX_BYTES, RatesFeed
from currency_service.domain import Rates
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.empty_pb2 import Empty
from shop_kit.serving import program
from shop_kit.waiting import listening, wait_for_result, wait_until

FALLBACK_DAY = date(2024, 12, 31)
FRESH = (
    '<E xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">'
    '<Cube time="{}"><Cube currency="USD" rate="1.5"/></Cube></E>'
)


def fallback() -> Rates:
    return Rates(FALLBACK_DAY, {"USD": Decimal(1)})


def response(body: str | bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    raw = body if isinstance(body, bytes) else body.encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\n{headers}\r\n".encode() + raw


@asynccontextmanager
async def publishing(*responses: bytes, trickle: bool = False) -> AsyncIterator[str]:
    """Serve the responses over HTTP in turn, repeating the last. If `trickle` is true, no response ever ends."""
    left = list(responses)

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):  # the client may close the connection early
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            while trickle:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    async with listening(respond) as port:
        yield f"http://127.0.0.1:{port}/daily.xml?key=secret"


async def day_after_refresh(url: str, timeout_seconds: float = 5) -> date:
    feed = RatesFeed(url, fallback, timeout_seconds=timeout_seconds)
    await feed.refresh()
    return feed.current().day


@pytest.mark.parametrize(("day", "used"), [("2025-01-02", date(2025, 1, 2)), ("2023-12-29", FALLBACK_DAY)])
async def test_of_the_fetched_rates_and_the_fallback_those_of_the_later_day_are_used(day: str, used: date) -> None:
    own = [fallback()]
    async with publishing(response(FRESH.format(day))) as url:
        feed = RatesFeed(url, lambda: own[-1])
        assert feed.current().day == FALLBACK_DAY
        await feed.refresh()
        assert feed.current().day == used
    own.append(Rates(date(2025, 1, 3), {"USD": Decimal(1)}))
    assert feed.current() is own[-1]


@pytest.mark.parametrize(
    "unusable",
    [
        response("not found", status="404 Not Found"),
        response("broken", status="500 Internal Server Error"),
        response("", status="302 Found", headers="Location: http://127.0.0.1:1/\r\n"),
        response(""),
        response("<html>maintenance</html>"),
        response('<!DOCTYPE x [<!ENTITY a "ha">]>' + FRESH.format("2025-01-03")),
        response(FRESH.format("2025-01-03").replace("1.5", "-1")),
        response(FRESH.format("2025-01-03") + " " * MAX_BYTES),
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n<cut",
        b"no HTTP at all\r\n\r\n",
        b"",
    ],
    ids=["404", "500", "redirect", "empty", "page", "dtd", "negative rate", "too long", "cut", "no HTTP", "closed"],
)
async def test_an_unusable_response_leaves_the_rates_unchanged_and_is_logged_without_the_url(unusable: bytes) -> None:
    async with publishing(response(FRESH.format("2025-01-02")), unusable) as url:
        feed = RatesFeed(url, fallback)
        await feed.refresh()
        fetched = feed.current()
        with structlog.testing.capture_logs() as events:
            await feed.refresh()
    assert feed.current() is fetched
    assert [event["log_level"] for event in events] == ["warning"]
    assert "secret" not in str(events)


async def test_an_unreachable_feed_leaves_the_rates_unchanged() -> None:
    async with publishing(b"") as url:
        pass
    assert await day_after_refresh(url) == FALLBACK_DAY


@pytest.mark.parametrize(("length", "timeout_seconds"), [(0, 0.2), (MAX_BYTES + 1, 60)])
async def test_an_endless_response_ends_at_the_timeout_or_the_size_limit(length: int, timeout_seconds: float) -> None:
    async with publishing(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * length, trickle=True) as url:
        assert await day_after_refresh(url, timeout_seconds=timeout_seconds) == FALLBACK_DAY


async def test_rates_are_fetched_again_after_each_interval() -> None:
    async with publishing(response(FRESH.format("2025-01-02")), b"", response(FRESH.format("2025-01-03"))) as url:
        feed = RatesFeed(url, fallback)
        async with in_background(partial(repeat, feed.refresh, 0, "rates not refreshed")):
            assert await wait_until(lambda: feed.current().day == date(2025, 1, 3))


async def test_a_service_with_a_url_uses_the_fetched_rates() -> None:
    async with (
        publishing(response(FRESH.format("9999-12-31"))) as url,
        program(Settings, build, rates_url=url) as channel,
    ):
        listing = CurrencyServiceStub(channel).GetSupportedCurrencies
        await wait_for_result(lambda: listing(Empty()), lambda listed: listed.currency_codes == ["EUR", "USD"])
