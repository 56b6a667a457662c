from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from shop_kit.serving import Recorded
from shop_kit.storefront import Storefront, storefront


@pytest.fixture
async def traced(recorded: Recorded) -> AsyncIterator[Storefront]:
    async with storefront(recorded.telemetry) as shop:
        yield shop


def named(recorded: Recorded, name: str) -> ReadableSpan:
    return next(span for span in recorded.spans() if span.name == name)


async def test_the_trace_begins_at_the_page(traced: Storefront, recorded: Recorded) -> None:
    async with traced.visitor() as visitor:
        await visitor.page("/products/cast-iron-pan")
    page = named(recorded, "GET /products/{product_id}")
    call = named(recorded, "shop.CartService/GetCart")
    assert page.parent is None
    assert call.parent is not None
    assert page.context is not None
    assert call.parent.span_id == page.context.span_id


async def test_the_spans_of_pages_have_the_session_and_no_span_has_the_user_id_or_the_cookie(
    traced: Storefront, recorded: Recorded
) -> None:
    async with traced.visitor() as visitor:
        await visitor.order()
        recorded.exporter.clear()
        await visitor.order()
        await visitor.page("/")
        cookie = visitor.cookies["session"]
    pages = [span for span in recorded.spans() if span.name.startswith("GET /")]
    (session,) = {str((span.attributes or {}).get("session.id")) for span in pages}
    written = "".join(span.to_json() for span in recorded.spans())
    assert session not in {"None", *cookie.split(".")}
    assert [part for part in cookie.split(".") if part in written] == []


async def test_baggage_of_a_stranger_reaches_no_service(traced: Storefront, recorded: Recorded) -> None:
    async with traced.visitor() as visitor:
        await visitor.get("/", headers={"baggage": "synthetic_request=true"})
    assert all("synthetic_request" not in (span.attributes or {}) for span in recorded.spans())
