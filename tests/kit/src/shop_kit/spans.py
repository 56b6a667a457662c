"""Finished spans, as `shop up` stores them."""

from collections.abc import Mapping

from shop_cli.local.spans import Span, Value

NOW = 1_800_000_000


def span(
    service: str = "cart",
    name: str = "shop.CartService/GetCart",
    kind: str = "SERVER",
    *,
    trace_id: str = "1",
    span_id: str = "1",
    parent_id: str = "",
    milliseconds: float = 5,
    ended: float = NOW,
    attributes: Mapping[str, Value] | None = None,
    failed: bool = False,
) -> Span:
    """Return a span that ended at a time in seconds since 1970."""
    end = int(ended * 10**9)
    start = end - int(milliseconds * 10**6)
    return Span(service, "", trace_id, span_id, parent_id, name, kind, start, end, {**(attributes or {})}, failed)
